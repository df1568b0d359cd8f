//! What each kernel is: release, package, hashes, configuration, how it started.
use super::{environment, section};
use crate::matrix::model::Environment;
use crate::matrix::report::clean::{count, duration};
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::View;

pub(super) fn kernels(m: &mut Markup, view: &View<'_>) {
    section(m, "kernels", "Kernels", |m| {
        m.element("div", &[("class", "cards")], |m| {
            for name in &view.environments {
                m.newline();
                m.element("article", &[("class", "card")], |m| {
                    m.element("h3", &[], |m| environment(m, name));
                    match view.environment(name) {
                        Some(e) => card(m, view, e),
                        None => m.leaf("p", &[], "Nothing is known of it."),
                    }
                });
            }
        });
    });
}

fn card(m: &mut Markup, view: &View<'_>, e: &Environment) {
    if !e.variant.is_empty() {
        m.leaf("p", &[("class", "note")], &e.variant);
    }
    if let Some(reason) = &e.unavailable {
        m.element("p", &[], |m| {
            m.leaf("b", &[("class", "chip skipped")], "not available");
            m.text(" ");
            m.text(reason);
        });
    }
    let cold = e
        .cold_boot
        .map_or_else(|| "none in this run".to_owned(), duration);
    m.element("dl", &[("class", "facts")], |m| {
        for (name, value) in [
            ("release", &*e.release),
            ("package", &*e.package),
            ("cold boot", &cold),
            ("cases", &view.starts(&e.name)),
        ] {
            if !value.is_empty() {
                m.leaf("dt", &[], name);
                m.leaf("dd", &[], value);
            }
        }
    });
    if !e.config.is_empty() {
        m.element("details", &[], |m| {
            m.leaf("summary", &[], &count(e.config.len(), "config option"));
            m.leaf("pre", &[("class", "plain")], &e.config.join("\n"));
        });
    }
    if !e.sources.is_empty() {
        m.element("details", &[], |m| {
            m.leaf("summary", &[], "SHA-256");
            m.element("dl", &[("class", "hashes")], |m| {
                for (file, hash) in &e.sources {
                    m.leaf("dt", &[], file);
                    m.element("dd", &[], |m| m.leaf("code", &[], hash));
                }
            });
        });
    }
}
