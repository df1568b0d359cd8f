//! The top of the page: what came out, in one look.
use crate::matrix::report::clean::{count, duration};
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::View;

/// For a tab of the browser.
pub(super) fn title(view: &View<'_>) -> String {
    format!("{} · weir kernel matrix", verdict(view).1)
}

/// A class and the words.
fn verdict(view: &View<'_>) -> (&'static str, String) {
    let all = view.tally(|_| true);
    if all.failed > 0 {
        ("bad", format!("{} failed", count(all.failed, "case")))
    } else if all.passed == 0 {
        ("none", "Nothing ran".to_owned())
    } else if view
        .run
        .environments
        .iter()
        .any(|e| e.unavailable.is_some())
    {
        ("none", "Passed where it ran".to_owned())
    } else if !view.run.selection.is_empty() {
        ("good", "Passed, as far as it was asked for".to_owned())
    } else {
        ("good", "Passed".to_owned())
    }
}

pub(super) fn top(m: &mut Markup, view: &View<'_>) {
    let run = view.run;
    m.element("header", &[], |m| {
        m.element("div", &[("class", "headline")], |m| {
            m.element("div", &[], |m| {
                m.leaf("p", &[("class", "product")], "weir");
                m.leaf("h1", &[], "Kernel matrix");
            });
            let (class, words) = verdict(view);
            m.leaf("p", &[("class", &format!("verdict {class}"))], &words);
        });
        m.leaf("p", &[("class", "lede")], &lede(view));
        if !run.selection.is_empty() {
            let text = format!("A part of the matrix: {}", run.selection);
            m.leaf("p", &[("class", "note")], &text);
        }
        tiles(m, view);
        m.element("dl", &[("class", "facts row")], |m| {
            for (name, value) in [
                ("started", run.started.clone()),
                ("took", duration(run.seconds)),
                ("QEMU", format!("{} ({})", run.qemu, run.accelerator)),
                ("host", format!("Linux {}", run.host)),
            ] {
                m.element("div", &[], |m| {
                    m.leaf("dt", &[], name);
                    m.leaf("dd", &[], &value);
                });
            }
        });
        navigation(m, view);
    });
}

fn lede(view: &View<'_>) -> String {
    let cases: usize = view.rooms.iter().map(|r| view.cases(r).len()).sum();
    format!(
        "{} in {}: the same test programs on the running kernel and on distribution kernels in throwaway \
         virtual machines.",
        count(cases, "case"),
        count(view.environments.len(), "environment")
    )
}

fn tiles(m: &mut Markup, view: &View<'_>) {
    let all = view.tally(|_| true);
    m.element("ul", &[("class", "tiles")], |m| {
        for (n, word) in [
            (all.passed, "passed"),
            (all.failed, "failed"),
            (all.skipped, "skipped"),
            (all.ignored, "ignored"),
        ] {
            let class = if n == 0 { "zero" } else { word };
            m.element("li", &[("class", class)], |m| {
                m.leaf("b", &[], &n.to_string());
                m.text(" ");
                m.leaf("span", &[], word);
            });
        }
    });
}

fn navigation(m: &mut Markup, view: &View<'_>) {
    let failed = view.tally(|_| true).failed;
    let skips = view.reasons("skipped").len() + view.reasons("ignored").len();
    m.element("nav", &[("aria-label", "Sections")], |m| {
        if failed > 0 {
            m.leaf("a", &[("href", "#failures")], "Failures");
        }
        m.leaf("a", &[("href", "#cases")], "Cases");
        if !view.run.capabilities.is_empty() {
            m.leaf("a", &[("href", "#capabilities")], "Capabilities");
        }
        if skips > 0 {
            m.leaf("a", &[("href", "#skipped")], "Skipped");
        }
        m.leaf("a", &[("href", "#kernels")], "Kernels");
    });
}
