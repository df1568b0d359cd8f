//! Sanitizes text for display: a console contains escape sequences and arbitrary output of a guest.
use std::borrow::Cow;
use textwrap::{Options, WordSplitter};

/// Sanitizes text and joins it to one line.
pub(super) fn line(text: &str) -> String {
    let cleaned = block(text);
    let words: Vec<&str> = cleaned.split('\n').map(str::trim).collect();
    words.join(" ").trim().to_owned()
}

/// Sanitizes text and keeps its lines. Escape sequences of a terminal are removed; other control characters are replaced by
/// their Unicode symbols.
pub(super) fn block(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.push('\n'),
            // A serial console ends lines with "\r\r\n".
            '\r' => {}
            '\t' => out.push_str("    "),
            '\x1b' if chars.peek() == Some(&'[') => {
                chars.next();
                // ECMA-48, 5.4: parameter and intermediate bytes, then one final byte.
                while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                chars.next_if(|c| matches!(c, '@'..='~'));
            }
            c => out.push(shown(c)),
        }
    }
    out
}

/// The character that is displayed for `c`.
fn shown(c: char) -> char {
    match c {
        // The Unicode block "Control Pictures".
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\x7f' => '\u{2421}',
        // C1 controls, characters that change the writing direction, and characters that XML does not allow.
        '\u{80}'..='\u{9f}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{fffe}'
        | '\u{ffff}' => '\u{fffd}',
        c => c,
    }
}

/// Truncates to `width` characters, with an ellipsis at the end.
pub(super) fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// Splits `text` into lines of at most `width` characters, at spaces where possible.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let lines = textwrap::wrap(text, options).into_iter();
    lines.map(Cow::into_owned).collect()
}

/// Formats a number of seconds for people.
pub(super) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        "unknown".to_owned()
    } else if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 119.5 {
        format!("{seconds:.0} s")
    } else {
        let whole = std::time::Duration::from_secs_f64(seconds.min(1e9).round()).as_secs();
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

/// Formats a count with its noun: `1 case`, `2 cases`, `12 345 cases`.
pub(super) fn count(n: usize, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_console_loses_colours_and_keeps_words() {
        assert_eq!(
            block("\x1b[1;31mOops\x1b[0m:\r\r\n\x07\x1bc\x7f"),
            "Oops:\n␇␛c␡"
        );
        assert_eq!(line(" a\n  b\u{202e}\n"), "a b\u{fffd}");
        assert_eq!(block("\x1b["), "");
    }

    #[test]
    fn lines_are_broken_at_spaces_and_long_words_anywhere() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("a bbbbbbb c", 3), ["a", "bbb", "bbb", "b c"]);
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn durations() {
        assert_eq!(duration(0.04), "0.0 s");
        assert_eq!(duration(12.4), "12 s");
        assert_eq!(duration(125.0), "2 min 05 s");
        assert_eq!(duration(f64::NAN), "unknown");
    }

    proptest! {
        #[test]
        fn nothing_that_steers_a_terminal_is_left(text: String) {
            let bad = |c: &char| c.is_control() && *c != '\n';
            prop_assert_eq!(block(&text).chars().find(bad), None);
            prop_assert!(!line(&text).contains('\n'));
        }

        #[test]
        fn wrapping_fits_and_loses_nothing(text in "[a-zü ]{0,60}", width in 1usize..20) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|l| l.chars().count() <= width));
            let letters = |t: &str| t.chars().filter(|c| *c != ' ').collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&text));
        }
    }
}
