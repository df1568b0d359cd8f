//! Kernel by capability: first what differs, then everything.
use super::{head, scrolling, section};
use crate::matrix::report::clean::count;
use crate::matrix::report::markup::Markup;
use crate::matrix::report::summary::{Feature, View, alike, instead};

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
                    let mut kinds = alike(features);
                    kinds.retain(|kind| kind.iter().all(|f| f.differs()));
                    rows(m, view, group, &kinds);
                }
            });
        } else {
            m.leaf("p", &[], "Every kernel gives the same answers.");
        }
        for (group, features) in &groups {
            let all: Vec<Vec<&Feature<'_>>> = features.iter().map(|f| vec![f]).collect();
            let differing = features.iter().filter(|f| f.differs()).count();
            m.newline();
            m.element("details", &[("class", "fold")], |m| {
                m.element("summary", &[], |m| {
                    m.leaf("b", &[], group);
                    m.text(" ");
                    m.leaf("span", &[], &count(all.len(), "feature"));
                    m.text(" ");
                    if differing > 0 {
                        let verb = if differing == 1 { "differs" } else { "differ" };
                        let text = format!("{differing} {verb} by kernel");
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

/// So many names of one kind are shown unfolded.
const SHOWN: usize = 2;

/// The rows of a group, one for each kind of answers, after a row with its name if it is to have one.
fn rows(m: &mut Markup, view: &View<'_>, group: &str, kinds: &[Vec<&Feature<'_>>]) {
    if kinds.is_empty() {
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
        for kind in kinds {
            let Some(feature) = kind.first() else {
                continue;
            };
            m.newline();
            m.element("tr", &[], |m| {
                m.element("th", &[("scope", "row")], |m| names(m, kind));
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

fn names(m: &mut Markup, kind: &[&Feature<'_>]) {
    let (shown, folded) = kind.split_at(kind.len().min(SHOWN));
    let join = |features: &[&Feature<'_>]| {
        let names: Vec<&str> = features.iter().map(|f| f.name).collect();
        names.join(", ")
    };
    m.text(&join(shown));
    if !folded.is_empty() {
        m.text(" ");
        m.element("details", &[], |m| {
            m.leaf("summary", &[], &format!("and {} more", folded.len()));
            m.leaf("small", &[], &join(folded));
        });
    }
    let Some(first) = kind.first() else { return };
    let way = instead(first.remark());
    let same = kind.iter().all(|f| instead(f.remark()) == way);
    if same && first.differs() && !way.is_empty() {
        m.text(" ");
        m.leaf("small", &[], &format!("without: {way}"));
    }
}
