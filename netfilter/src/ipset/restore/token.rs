//! Splits a line into words.

use super::Wrong;
use std::borrow::Cow;

/// One word.
#[derive(Clone, Debug)]
pub(in crate::ipset) struct Token<'a> {
    /// Unquoted.
    pub(in crate::ipset) text: Cow<'a, str>,
    /// Column of its start, in characters, from 1.
    pub(in crate::ipset) column: usize,
    /// Whether no part of it was quoted.
    pub(in crate::ipset) is_bare: bool,
}

/// The largest number of words of a line, and of bytes of a word, as written. `create` has the most words, about 25, and ipset reads
/// at most 1,024 bytes of a line.
const MOST_WORDS: usize = 64;
const MOST_BYTES: usize = 1024;

/// Splits at white space. `"` begins and ends quoted parts, also inside a word; there are no escapes.
pub(super) fn split(line: &str) -> Result<Vec<Token<'_>>, Wrong> {
    let mut tokens = Vec::new();
    let mut rest = line;
    let mut column = 1;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t', '\r']);
        column += rest.len() - trimmed.len();
        if trimmed.is_empty() {
            return Ok(tokens);
        }
        if tokens.len() == MOST_WORDS {
            let why = format!(
                "the line has more than {MOST_WORDS} words, and no command of ipset has so many: remove the rest"
            );
            return Err((column, why));
        }
        let (token, after) = word(trimmed, column)?;
        let taken = trimmed.len() - after.len();
        if taken > MOST_BYTES {
            let why = format!(
                "the word has {taken} bytes, and no word of ipset has more than {MOST_BYTES}: shorten it"
            );
            return Err((column, why));
        }
        column += trimmed.get(..taken).map_or(taken, |t| t.chars().count());
        tokens.push(token);
        rest = after;
    }
}

fn word(text: &str, column: usize) -> Result<(Token<'_>, &str), Wrong> {
    let mut is_quoted = false;
    let mut is_bare = true;
    let mut end = text.len();
    // These characters are ASCII, and no byte of another character equals one of them.
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => {
                is_quoted = !is_quoted;
                is_bare = false;
            }
            b' ' | b'\t' | b'\r' if !is_quoted => {
                end = i;
                break;
            }
            _ => {}
        }
    }
    if is_quoted {
        return Err((
            column,
            "the quote is not closed: add a \" at its end".into(),
        ));
    }
    let (word, after) = text.split_at_checked(end).unwrap_or((text, ""));
    let text = if is_bare {
        Cow::Borrowed(word)
    } else {
        Cow::Owned(word.replace('"', ""))
    };
    Ok((
        Token {
            text,
            column,
            is_bare,
        },
        after,
    ))
}
