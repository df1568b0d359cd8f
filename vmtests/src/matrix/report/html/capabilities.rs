//! Kernel by capability: first what differs, then everything.
use super::{head, scrolling, section};
use crate::matrix::report::clean::count;
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::{Feature, View, instead};

pub(super) fn capabilities(m: &mut Markup, view: &View<'_>) {
    let groups = view.features();
    if groups.is_empty() {
        return;
    }
    section(m, "capabilities", "Capabilities", |m| {
        let about = "As weir preflight finds them: by trying, in a throwaway namespace, without loading a module.";
        m.leaf("p", &[("class", "lede")], about);
        let differs = groups.iter().any(|(_, f)| f.iter().any(Feature::differs));
        if differs {
            scrolling(m, "matrix", "Features in which the kernels differ", |m| {
                head(m, "feature", view);
                for (group, features) in &groups {
                    let differing: Vec<&Feature<'_>> =
                        features.iter().filter(|f| f.differs()).collect();
                    rows(m, view, group, &differing);
                }
            });
        } else {
            m.leaf("p", &[], "Every kernel gives the same answers.");
        }
        for (group, features) in &groups {
            let all: Vec<&Feature<'_>> = features.iter().collect();
            let differing = all.iter().filter(|f| f.differs()).count();
            m.newline();
            m.element("details", &[("class", "fold")], |m| {
                m.element("summary", &[], |m| {
                    m.leaf("b", &[], group);
                    m.text(" ");
                    m.leaf("span", &[], &count(all.len(), "feature"));
                    m.text(" ");
                    if differing > 0 {
                        let text = format!("{differing} differ by kernel");
                        m.leaf("span", &[("class", "chip lack")], &text);
                    } else {
                        m.leaf("span", &[("class", "chip")], "the same everywhere");
                    }
                });
                scrolling(m, "matrix", &format!("{group} on each kernel"), |m| {
                    head(m, "feature", view);
                    rows(m, view, "", &all);
                });
            });
        }
    });
}

/// The rows of a group, after a row with its name if it is to have one.
fn rows(m: &mut Markup, view: &View<'_>, group: &str, features: &[&Feature<'_>]) {
    if features.is_empty() {
        return;
    }
    m.newline();
    m.element("tbody", &[], |m| {
        if !group.is_empty() {
            let columns = (view.environments.len() + 1).to_string();
            m.element("tr", &[("class", "group")], |m| {
                m.element("th", &[("scope", "rowgroup"), ("colspan", &columns)], |m| {
                    m.leaf("span", &[], group);
                });
            });
        }
        for feature in features {
            m.newline();
            m.element("tr", &[], |m| {
                m.element("th", &[("scope", "row")], |m| {
                    m.text(feature.name);
                    let instead = instead(feature.remark());
                    if feature.differs() && !instead.is_empty() {
                        m.text(" ");
                        m.leaf("small", &[], &format!("without: {instead}"));
                    }
                });
                for answer in &feature.answers {
                    let (class, word) = match answer.map(|c| &*c.answer) {
                        None => ("absent", "-"),
                        Some("have") => ("have", "have"),
                        Some("lack") => ("lack", "lack"),
                        Some(_) => ("unknown", "unknown"),
                    };
                    m.leaf("td", &[("class", class)], word);
                }
            });
        }
    });
}
