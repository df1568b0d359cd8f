//! A line as words, with their columns.

use super::Complaint;

/// One word without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// In characters, counted from 1.
    pub(super) column: usize,
    /// A word in quotes is never an option.
    pub(super) quoted: bool,
}

/// Splits at blanks. Double quotes keep them, and in quotes a backslash keeps the next character.
pub(super) fn words(line: &str) -> Result<Vec<Word>, Complaint> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let (mut open, mut escaped) = (None, false);
    for (n, c) in line.chars().enumerate() {
        let column = n + 1;
        let is_blank = c == ' ' || c == '\t';
        if open.is_none() && is_blank {
            words.extend(word.take());
            continue;
        }
        let current = word.get_or_insert(Word {
            text: String::new(),
            column,
            quoted: false,
        });
        match (open, escaped, c) {
            (Some(_), true, _) => {
                current.text.push(c);
                escaped = false;
            }
            (Some(_), false, '\\') => escaped = true,
            (Some(_), false, '"') => open = None,
            (None, _, '"') => {
                open = Some(column);
                current.quoted = true;
            }
            _ => current.text.push(c),
        }
    }
    if let Some(column) = open {
        return Err(Complaint {
            column,
            message: "this quote is not closed; add a \"".into(),
        });
    }
    words.extend(word);
    Ok(words)
}
