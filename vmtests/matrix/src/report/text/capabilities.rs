//! The capabilities per kernel: differences in a table, the others in sentences.
use super::Page;
use crate::report::summary::{alike, names};
use crate::report::table::{FIRST, Tone, cell, table};

impl Page<'_> {
    pub(super) fn capabilities(&self) -> String {
        let groups = self.view.features();
        if groups.is_empty() {
            return String::new();
        }
        let mut text = self.heading("Capabilities, as weir preflight finds them");
        let mut heads = vec!["where kernels differ"];
        heads.extend(&self.view.environments);
        let (mut rows, mut sentences) = (Vec::new(), Vec::new());
        for (group, features) in &groups {
            let before = rows.len();
            for kind in alike(features, true) {
                let [first, more @ ..] = &*kind else { continue };
                let mut name = first.name.to_owned();
                if !more.is_empty() {
                    sentences.push(format!("{group}, as {name}: {}", names(more)));
                    name += &format!(" (+ {})", more.len());
                }
                let mut row = vec![cell(&name, FIRST, Tone::Plain, self.colour)];
                row.extend(first.words().into_iter().map(|word| self.answer(word)));
                rows.push(row);
            }
            if rows.len() > before {
                rows.insert(before, vec![self.cell(group, Tone::Heading)]);
            }
        }
        if rows.is_empty() {
            text += &self.say("Every kernel gives the same answers.", Tone::Plain);
        } else {
            text += &table(&heads, &rows, self.colour);
            text += &self.paragraph("?: could not tell. -: not asked.", 0, Tone::Quiet);
        }
        for (group, features) in &groups {
            for kind in alike(features, false) {
                let words = kind.first().map(|f| f.words()).unwrap_or_default();
                let say = match words.into_iter().find(|word| *word != "-") {
                    Some("have") => "everywhere",
                    Some("lack") => "nowhere",
                    _ => "could not tell",
                };
                sentences.push(format!("{group}, {say}: {}", names(&kind)));
            }
        }
        for sentence in sentences {
            text += &self.paragraph(sentence, 0, Tone::Quiet);
        }
        text
    }

    fn answer(&self, word: &str) -> String {
        match word {
            "have" => self.cell(word, Tone::Good),
            "lack" => self.cell(word, Tone::Lacking),
            // The word "unknown" would widen every column.
            "unknown" => self.cell("?", Tone::Lacking),
            _ => self.cell(word, Tone::Quiet),
        }
    }
}
