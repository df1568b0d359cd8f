//! `index.html`: one page without scripts or other files, for a person.
mod capabilities;
mod cases;
mod failures;
mod kernels;
mod top;

use super::markup::Markup;
use super::summary::View;
use crate::matrix::model::Run;

const STYLE: &str = include_str!("html/style.css");

/// Nothing but what is in the page may have an effect on it.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The page: the outcome, failures, cases, capabilities, skips, kernels.
#[must_use]
pub fn html(run: &Run) -> String {
    let view = View::new(run);
    let mut m = Markup::default();
    m.verbatim("<!DOCTYPE html>\n");
    m.element("html", &[("lang", "en")], |m| {
        m.element("head", &[], |m| {
            m.void("meta", &[("charset", "utf-8")]);
            let policy = [
                ("http-equiv", "Content-Security-Policy"),
                ("content", POLICY),
            ];
            m.void("meta", &policy);
            m.void(
                "meta",
                &[
                    ("name", "viewport"),
                    ("content", "width=device-width, initial-scale=1"),
                ],
            );
            m.void(
                "meta",
                &[("name", "color-scheme"), ("content", "light dark")],
            );
            m.leaf("title", &[], &top::title(&view));
            m.newline();
            m.element("style", &[], |m| m.verbatim(STYLE));
        });
        m.newline();
        m.element("body", &[], |m| {
            top::top(m, &view);
            m.element("main", &[], |m| {
                failures::failures(m, &view);
                cases::cases(m, &view);
                capabilities::capabilities(m, &view);
                failures::reasons(m, &view);
                kernels::kernels(m, &view);
            });
        });
    });
    m.newline();
    m.finish()
}

/// A section with a heading that the navigation leads to.
fn section(m: &mut Markup, id: &str, title: &str, content: impl FnOnce(&mut Markup)) {
    let heading = format!("{id}-heading");
    m.newline();
    m.element(
        "section",
        &[("id", id), ("aria-labelledby", &heading)],
        |m| {
            m.leaf("h2", &[("id", &heading)], title);
            content(m);
        },
    );
}

/// A table that may be wider or longer than the window: it scrolls by itself, with a keyboard, too.
fn scrolling(m: &mut Markup, class: &str, caption: &str, content: impl FnOnce(&mut Markup)) {
    let region = [
        ("class", "scroll"),
        ("role", "region"),
        ("aria-label", caption),
        ("tabindex", "0"),
    ];
    m.element("div", &region, |m| {
        m.element("table", &[("class", class)], |m| {
            m.leaf("caption", &[], caption);
            content(m);
        });
    });
}

/// The head of a table with a column for each environment.
fn head(m: &mut Markup, first: &str, view: &View<'_>) {
    m.element("thead", &[], |m| {
        m.element("tr", &[], |m| {
            m.leaf("th", &[("scope", "col")], first);
            for name in &view.environments {
                m.element("th", &[("scope", "col")], |m| environment(m, name));
            }
        });
    });
}

/// `6.12-no-xtables`: the kernel, and below it the variant. The first variant column of a kernel begins a
/// new line only in looks.
fn environment(m: &mut Markup, name: &str) {
    let (kernel, variant) = name.find('-').map_or((name, ""), |at| name.split_at(at));
    m.leaf("b", &[], kernel);
    if !variant.is_empty() {
        m.leaf("span", &[], variant);
    }
}
