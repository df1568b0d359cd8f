//! Kernel by capability: what differs in a table, the rest in sentences.
use super::Page;
use crate::report::summary::{Feature, alike};
use crate::report::table::{Cell, Tone, cell, table};

impl Page<'_> {
    pub(super) fn capabilities(&self) -> String {
        let groups = self.view.features();
        if groups.is_empty() {
            return String::new();
        }
        let mut text = self.heading("Capabilities, as weir preflight finds them");
        let mut heads = vec!["where kernels differ"];
        heads.extend(&self.view.environments);
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        let mut sentences = Vec::new();
        for (group, features) in &groups {
            let kinds = alike(features);
            let differing = kinds.iter().filter(|k| k.iter().all(|f| f.differs()));
            let before = rows.len();
            for kind in differing {
                let Some(first) = kind.first() else { continue };
                let name = match kind.len() {
                    1 => first.name.to_owned(),
                    n => format!("{} (+ {})", first.name, n - 1),
                };
                let mut row = vec![cell(&name, Tone::Plain)];
                let answers = first.answers.iter();
                row.extend(answers.map(|a| answer(a.map(|c| &*c.answer))));
                rows.push(row);
                if kind.len() > 1 {
                    sentences.push(format!("{group}, as {}: {}", first.name, names(kind, 1)));
                }
            }
            if rows.len() > before {
                rows.insert(before, vec![cell(group, Tone::Heading)]);
            }
        }
        if rows.is_empty() {
            text += &self.say("Every kernel gives the same answers.", Tone::Plain);
        } else {
            text += &table(&heads, &rows, self.colour);
            text += &self.paragraph("?: could not tell. -: not asked.", 0, Tone::Quiet);
        }
        for (group, features) in &groups {
            for kind in alike(features)
                .iter()
                .filter(|k| k.iter().all(|f| !f.differs()))
            {
                let answer = kind.first().map_or("", |f| one_answer(f));
                let say = match answer {
                    "have" => "everywhere",
                    "lack" => "nowhere",
                    _ => "could not tell",
                };
                sentences.push(format!("{group}, {say}: {}", names(kind, 0)));
            }
        }
        for sentence in sentences {
            text += &self.paragraph(sentence, 0, Tone::Quiet);
        }
        text
    }
}

/// The names of all but the first `skip`.
fn names(kind: &[&Feature<'_>], skip: usize) -> String {
    let names: Vec<&str> = kind.iter().skip(skip).map(|f| f.name).collect();
    names.join(", ")
}

fn answer(answer: Option<&str>) -> Cell {
    match answer {
        None => cell("-", Tone::Quiet),
        Some("have") => cell("have", Tone::Good),
        Some("lack") => cell("lack", Tone::Lacking),
        // "could not tell" would make every column as wide.
        Some(_) => cell("?", Tone::Lacking),
    }
}

/// The answer of a feature that has only one.
fn one_answer<'a>(feature: &Feature<'a>) -> &'a str {
    let given = feature.answers.iter().flatten().next();
    given.map_or("", |c| &c.answer)
}
