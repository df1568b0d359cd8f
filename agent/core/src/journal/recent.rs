//! The last lines of the log or of the events, kept for `agent.sock`.

use std::collections::VecDeque;

/// Maximum total size of the lines in bytes.
const ROOM: usize = 128 << 10;

/// Lines in the order in which they were added.
#[derive(Default)]
pub struct Recent {
    lines: VecDeque<Box<str>>,
    bytes: usize,
    /// Number of lines dropped.
    gone: u64,
}

impl Recent {
    /// Adds one or more lines, each with its newline.
    pub fn push(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            self.bytes += line.len();
            self.lines.push_back(line.into());
        }
        while self.bytes > ROOM {
            let Some(line) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= line.len();
            self.gone += 1;
        }
    }

    /// Returns all lines, preceded by `note` if lines were dropped.
    pub fn text(&self, note: impl Fn(u64) -> String) -> String {
        let mut text = match self.gone {
            0 => String::new(),
            n => note(n) + "\n",
        };
        self.lines.iter().for_each(|line| text += line);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(recent: &Recent) -> String {
        recent.text(|n| format!("({n} are gone)"))
    }

    #[test]
    fn the_last_lines_stay_and_the_first_are_counted() {
        let mut recent = Recent::default();
        recent.push("a\nb\n");
        assert_eq!(text(&recent), "a\nb\n");
        let long = format!("{}\n", "x".repeat(ROOM - 4));
        recent.push(&long);
        assert_eq!(text(&recent), format!("(1 are gone)\nb\n{long}"));
        for n in 0..100_000 {
            recent.push(&format!("line {n}\n"));
        }
        let text = text(&recent);
        assert!(text.len() < ROOM + 100 && text.ends_with("line 99998\nline 99999\n"));
        assert!(text.starts_with('('), "{}", &text[..80]);
        recent.push(&"y".repeat(2 * ROOM));
        assert!(recent.lines.is_empty() && recent.bytes == 0);
    }
}
