//! Splits a line into words with their columns.

use super::options::{Complaint, complain};

/// One word, unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// In characters, counted from 1.
    pub(super) column: usize,
    /// Whether it begins with a quote. Then it may be an optional argument, whatever it begins with, and is not the command of the line.
    pub(super) quoted: bool,
}

/// The largest number of words of a line. A rule has at most 65,535 bytes, and no notation needs a word for each byte.
const MOST: usize = 65_535;

/// Splits at blanks, except between double quotes, and after a closing quote; inside quotes a backslash escapes the next character.
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
        if word.is_none() && words.len() == MOST {
            let why =
                format!("the line has more than {MOST} words, and no rule needs so many; split it");
            return Err(complain(column, why));
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
            (Some(_), false, '"') => {
                open = None;
                words.extend(word.take());
            }
            (None, _, '"') => {
                open = Some(column);
                current.quoted |= current.text.is_empty();
            }
            _ => current.text.push(c),
        }
    }
    if let Some(column) = open {
        return Err(complain(column, "this quote is not closed; add a \""));
    }
    words.extend(word);
    Ok(words)
}
