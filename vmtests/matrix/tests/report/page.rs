//! The markup of the page; it is also well-formed XML, so a strict parser can read it.
use crate::example::{hostile, lifelike};
use roxmltree::{Document, Node, ParsingOptions};
use weir_vmtests::report::html;

pub(crate) fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(page, options).unwrap()
}

fn words(node: Node<'_, '_>) -> String {
    node.descendants()
        .filter(Node::is_text)
        .filter_map(|n| n.text())
        .collect()
}

fn all<'a>(document: &'a Document<'a>, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(move |n| n.has_tag_name(name))
}

#[test]
fn nothing_from_outside_becomes_markup_and_nothing_is_loaded() {
    for run in [lifelike(true), hostile()] {
        let page = html(&run).unwrap();
        let document = parse(&page);
        for node in document.descendants().filter(Node::is_element) {
            assert!(!["script", "img", "link", "iframe"].contains(&node.tag_name().name()));
            for attribute in node.attributes() {
                let name = attribute.name();
                assert!(
                    !name.starts_with("on") && name != "src" && name != "style",
                    "{name}"
                );
                assert!(name != "href" || attribute.value().starts_with('#'));
            }
        }
        let style = all(&document, "style").next().map(words).unwrap();
        assert!(!style.contains("url(") && !style.contains("@import"));
    }
}

#[test]
fn links_lead_somewhere_and_names_are_given_once() {
    let page = html(&lifelike(true)).unwrap();
    let document = parse(&page);
    let ids: Vec<&str> = document
        .descendants()
        .filter_map(|n| n.attribute("id"))
        .collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len());
    let targets: Vec<&str> = all(&document, "a")
        .filter_map(|a| a.attribute("href"))
        .collect();
    assert_eq!(
        targets,
        [
            "#failures",
            "#cases",
            "#capabilities",
            "#skipped",
            "#kernels"
        ]
    );
    for node in document.descendants() {
        let target = node.attribute("href").map(|h| h.trim_start_matches('#'));
        for id in [target, node.attribute("aria-labelledby")]
            .into_iter()
            .flatten()
        {
            assert!(ids.contains(&id), "{id}");
        }
    }
}

#[test]
fn tables_can_be_read_without_looking() {
    for run in [lifelike(true), hostile()] {
        let page = html(&run).unwrap();
        let document = parse(&page);
        let mut tables = 0;
        for table in all(&document, "table") {
            tables += 1;
            let children: Vec<_> = table.children().filter(Node::is_element).collect();
            assert!(children[0].has_tag_name("caption"));
            assert!(children[1].has_tag_name("thead"));
            let rows = || table.descendants().filter(|n| n.has_tag_name("tr"));
            let columns = rows()
                .next()
                .unwrap()
                .children()
                .filter(Node::is_element)
                .count();
            for row in rows() {
                let cells: Vec<_> = row.children().filter(Node::is_element).collect();
                assert!(cells[0].has_tag_name("th"));
                let spans = cells
                    .iter()
                    .map(|c| c.attribute("colspan").map_or(1, |n| n.parse().unwrap()));
                assert_eq!(spans.sum::<usize>(), columns, "{}", words(row));
                for cell in cells {
                    assert!(cell.has_tag_name("td") || cell.attribute("scope").is_some());
                    assert!(
                        !words(cell).trim().is_empty(),
                        "a cell says something in words"
                    );
                }
            }
        }
        assert!(tables > 5);
    }
}

#[test]
fn failures_come_first_with_their_console() {
    let page = html(&lifelike(true)).unwrap();
    let document = parse(&page);
    let sections: Vec<&str> = all(&document, "section")
        .filter_map(|s| s.attribute("id"))
        .collect();
    assert_eq!(
        sections,
        ["failures", "cases", "capabilities", "skipped", "kernels"]
    );
    let first = all(&document, "section").next().map(words).unwrap();
    assert!(first.contains("WARNING: CPU: 0 PID: 214"));
    assert!(
        all(&document, "title")
            .next()
            .map(words)
            .unwrap()
            .starts_with("2 cases failed")
    );
    let page = html(&lifelike(false)).unwrap();
    assert!(
        !parse(&page)
            .descendants()
            .any(|n| n.attribute("id") == Some("failures"))
    );
}

#[test]
fn every_case_and_every_environment_is_there() {
    let run = lifelike(false);
    let page = html(&run).unwrap();
    let document = parse(&page);
    let main = words(document.root_element());
    for environment in &run.environments {
        assert!(main.contains(&environment.name));
        assert!(main.contains(&environment.release));
        assert!(
            environment
                .sources
                .iter()
                .all(|(file, hash)| main.contains(file) && main.contains(hash))
        );
    }
    let verdicts = ["passed", "failed", "skipped", "ignored"];
    let matrices = all(&document, "table").filter(|t| t.attribute("class") == Some("matrix"));
    let cells = matrices.flat_map(|t| t.descendants()).filter(|n| {
        n.has_tag_name("td") && n.attribute("class").is_some_and(|c| verdicts.contains(&c))
    });
    assert_eq!(cells.count(), run.results.len());
}

#[test]
fn the_verdict_is_in_words_and_admits_what_did_not_run() {
    let verdict = |run| {
        let page = html(&run).unwrap();
        let document = parse(&page);
        let class = |n: &Node<'_, '_>| {
            n.attribute("class")
                .is_some_and(|c| c.starts_with("verdict"))
        };
        document.descendants().find(class).map(words).unwrap()
    };
    assert_eq!(verdict(lifelike(true)), "2 cases failed");
    let mut run = lifelike(false);
    assert_eq!(verdict(run.clone()), "Passed");
    run.selection = "--filter x".into();
    assert_eq!(verdict(run.clone()), "Passed, as far as it was asked for");
    run.environments[1].unavailable = Some("not fetched".into());
    assert_eq!(verdict(run.clone()), "Passed where it ran");
    run.results.clear();
    assert_eq!(verdict(run), "Nothing ran");
}

/// One omission of a variant affects many features: they share a row, which contains all names.
#[test]
fn features_with_the_same_answers_share_a_row() {
    let page = html(&lifelike(false)).unwrap();
    let document = parse(&page);
    let caption = "Features in which the kernels differ";
    let table = all(&document, "caption")
        .find(|c| words(*c) == caption)
        .unwrap()
        .parent()
        .unwrap();
    let rows: Vec<String> = table
        .descendants()
        .filter(|n| n.attribute("scope") == Some("row"))
        .map(words)
        .collect();
    let text = "family inet, chain inet nat and 1 moreexpression redir without: legacy tables (--engine xtables)";
    assert_eq!(rows[0], text);
    assert!(!rows.iter().any(|r| r.contains("generation guard")));
}
