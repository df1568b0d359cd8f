//! What failed, with the console; and what did not run, with its reason.
use super::{scrolling, section};
use crate::matrix::model::Verdict;
use crate::matrix::report::clean::{count, duration};
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::{Reason, View};

/// So many are shown unfolded.
const OPEN: usize = 5;

pub(super) fn failures(m: &mut Markup, view: &View<'_>) {
    let failures = view.failures();
    if failures.is_empty() {
        return;
    }
    section(m, "failures", "Failures", |m| {
        for (number, (result, text)) in failures.into_iter().enumerate() {
            let mut attributes = vec![("class", "failure")];
            if number < OPEN {
                attributes.push(("open", "open"));
            }
            m.element("details", &attributes, |m| {
                m.element("summary", &[], |m| {
                    m.leaf("b", &[("class", "chip bad")], "failed");
                    m.text(" ");
                    m.leaf("span", &[("class", "chip")], &result.environment);
                    m.text(" ");
                    m.leaf("code", &[], &result.case);
                    m.text(" ");
                    let start = if result.restored { ", restored" } else { "" };
                    let time = duration(result.seconds);
                    m.leaf("small", &[], &format!("{time}{start}"));
                });
                let label = format!("Output of {} on {}", result.case, result.environment);
                let pre = [
                    ("tabindex", "0"),
                    ("role", "region"),
                    ("aria-label", &*label),
                ];
                m.leaf("pre", &pre, text.trim_end());
            });
        }
    });
}

pub(super) fn reasons(m: &mut Markup, view: &View<'_>) {
    let skipped = view.reasons("skipped");
    let ignored = view.reasons("ignored");
    if skipped.is_empty() && ignored.is_empty() {
        return;
    }
    section(m, "skipped", "Skipped", |m| {
        let about = "A skip names the feature that the kernel lacks. From the kernel named on, a skip would be a \
                     failure.";
        m.leaf("p", &[("class", "lede")], about);
        scrolling(m, "list", "Why cases did not run", |m| {
            m.element("thead", &[], |m| {
                m.element("tr", &[], |m| {
                    for name in ["feature", "since", "reason", "kernels", "cases"] {
                        m.leaf("th", &[("scope", "col")], name);
                    }
                });
            });
            m.element("tbody", &[], |m| {
                for reason in skipped.iter().chain(&ignored) {
                    m.newline();
                    m.element("tr", &[], |m| row(m, reason));
                }
            });
        });
    });
}

fn row(m: &mut Markup, reason: &Reason<'_>) {
    let (probe, since, text) = match reason.verdict {
        Verdict::Skipped {
            probe,
            since,
            reason,
        } => (&**probe, &**since, &**reason),
        Verdict::Ignored { reason } => ("not tried", "", &**reason),
        Verdict::Passed | Verdict::Failed { .. } => ("", "", ""),
    };
    let shown = |text: &'static str, other: &str| {
        if other.is_empty() {
            text.to_owned()
        } else {
            other.to_owned()
        }
    };
    m.leaf("th", &[("scope", "row")], &shown("not the kernel's", probe));
    m.leaf("td", &[], &shown("-", since));
    m.leaf("td", &[], text);
    m.leaf("td", &[], &reason.environments().join(", "));
    m.element("td", &[], |m| {
        m.element("details", &[], |m| {
            m.leaf("summary", &[], &count(reason.cases.len(), "case"));
            m.element("ul", &[], |m| {
                for (case, _) in &reason.cases {
                    m.element("li", &[], |m| m.leaf("code", &[], case));
                }
            });
        });
    });
}
