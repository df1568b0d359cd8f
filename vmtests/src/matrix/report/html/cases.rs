//! Kernel by room, and for each room kernel by case.
use super::{environment, head, scrolling, section};
use crate::matrix::model::Verdict;
use crate::matrix::report::clean::{count, duration, shorten};
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::{Tally, View, room, version};

pub(super) fn cases(m: &mut Markup, view: &View<'_>) {
    section(m, "cases", "Cases", |m| {
        scrolling(
            m,
            "rooms",
            "How the cases of each room ended on each kernel",
            |m| {
                m.element("thead", &[], |m| {
                    m.element("tr", &[], |m| {
                        m.leaf("th", &[("scope", "col")], "kernel");
                        for name in view.rooms.iter().copied().chain(["all", "time"]) {
                            m.leaf("th", &[("scope", "col")], name);
                        }
                    });
                });
                m.element("tbody", &[], |m| {
                    for name in &view.environments {
                        m.newline();
                        m.element("tr", &[], |m| kernel(m, view, name));
                    }
                });
            },
        );
        for of in &view.rooms {
            one_room(m, view, of);
        }
    });
}

fn kernel(m: &mut Markup, view: &View<'_>, name: &str) {
    m.element("th", &[("scope", "row")], |m| {
        environment(m, name);
        let version = view.environment(name).map_or("", version);
        m.leaf("small", &[], &shorten(version, 60));
    });
    for of in &view.rooms {
        let tally = view.tally(|r| r.environment == name && room(&r.case) == *of);
        tally_cell(m, tally);
    }
    tally_cell(m, view.tally(|r| r.environment == name));
    let seconds = view.seconds(name).map_or("-".to_owned(), duration);
    m.leaf("td", &[("class", "number")], &seconds);
}

fn tally_cell(m: &mut Markup, tally: Tally) {
    let class = match tally {
        Tally { failed: 1.., .. } => "has failed",
        t if t.total() == 0 => "absent",
        Tally { passed: 1.., .. } => "has passed",
        _ => "has ignored",
    };
    m.element("td", &[("class", class)], |m| {
        if tally.total() == 0 {
            m.text("-");
        }
        for (n, word) in tally.parts().into_iter().filter(|(n, _)| *n > 0) {
            m.leaf("span", &[("class", word)], &format!("{n} {word}"));
            m.text(" ");
        }
    });
}

fn one_room(m: &mut Markup, view: &View<'_>, of: &str) {
    let cases = view.cases(of);
    m.newline();
    m.element("details", &[("class", "fold")], |m| {
        m.element("summary", &[], |m| {
            m.leaf("b", &[], of);
            m.text(" ");
            m.leaf("span", &[], &count(cases.len(), "case"));
            let tally = view.tally(|r| room(&r.case) == of);
            for (n, word) in tally.parts().into_iter().filter(|(n, _)| *n > 0) {
                m.text(" ");
                m.leaf(
                    "span",
                    &[("class", &format!("chip {word}"))],
                    &format!("{n} {word}"),
                );
            }
        });
        scrolling(
            m,
            "matrix",
            &format!("The cases of {of} on each kernel"),
            |m| {
                head(m, "case", view);
                let mut rest = &*cases;
                while let Some(first) = rest.first() {
                    let program = program(first);
                    let end = rest.iter().position(|c| self::program(c) != program);
                    let (these, others) = rest.split_at(end.unwrap_or(rest.len()));
                    group(m, view, program, these);
                    rest = others;
                }
            },
        );
    });
}

/// The test program of `room::program::test`; empty when there is none.
fn program(case: &str) -> &str {
    let mut parts = case.splitn(3, "::");
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(program), Some(_)) => program,
        _ => "",
    }
}

/// What follows the room and the test program.
fn test(case: &str) -> &str {
    let skip = if program(case).is_empty() { 2 } else { 3 };
    match case.splitn(skip, "::").last() {
        None | Some("") => "(no name)",
        Some(test) => test,
    }
}

fn group(m: &mut Markup, view: &View<'_>, program: &str, cases: &[&str]) {
    m.newline();
    m.element("tbody", &[], |m| {
        if !program.is_empty() {
            let columns = (view.environments.len() + 1).to_string();
            m.element("tr", &[("class", "group")], |m| {
                m.element("th", &[("scope", "rowgroup"), ("colspan", &columns)], |m| {
                    m.leaf("span", &[], program);
                });
            });
        }
        for case in cases {
            m.newline();
            m.element("tr", &[], |m| {
                m.leaf("th", &[("scope", "row")], test(case));
                for name in &view.environments {
                    let result = view.result(name, case);
                    let (class, word) = match result.map(|r| &r.verdict) {
                        None => ("absent", "-"),
                        Some(Verdict::Passed) => ("passed", "pass"),
                        Some(Verdict::Failed { .. }) => ("failed", "FAIL"),
                        Some(Verdict::Skipped { .. }) => ("skipped", "skip"),
                        Some(Verdict::Ignored { .. }) => ("ignored", "ignored"),
                    };
                    m.leaf("td", &[("class", class)], word);
                }
            });
        }
    });
}
