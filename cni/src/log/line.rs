//! One log line: a JSON object with a fixed order of keys.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use super::level::Level;
use weir_netfilter::calendar::civil;

/// One message with its labels.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Level of the message.
    pub level: Level,
    /// Time of the message.
    pub time: SystemTime,
    /// The message.
    pub msg: &'a str,
    /// Further keys: `pod`, `if`, ...
    pub labels: &'a [(&'static str, String)],
}

impl Line<'_> {
    /// Returns the encoded line with its newline.
    #[must_use]
    pub fn encode(&self) -> String {
        let quote = json_quoted;
        let mut out = format!(
            "{{\"level\":\"{}\",\"time\":\"{}\",\"msg\":{}",
            self.level.as_str(),
            timestamp(self.time),
            quote(self.msg)
        );
        for (key, value) in self.labels {
            // Writing into a String does not fail.
            let _ = write!(out, ",{}:{}", quote(key), quote(value));
        }
        out.push_str("}\n");
        out
    }
}

/// True if a character in foreign text could change how the text is displayed: control characters (C0, C1 and DEL),
/// line and paragraph separators, bidirectional embeddings, overrides and isolates and their ends (UAX #9).
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_invisible(c)
}

/// Escapes these characters of foreign text, so that they are visible: `\n`, `\u{202e}`.
#[must_use]
pub fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly every text.
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_bad(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// General category Cf, or `Default_Ignorable_Code_Point`, of Unicode 16: soft hyphens, joiners, directional marks,
/// tags, fillers, variation selectors. They are invisible, or change the direction of the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Formats a number of things: `1 rule`, `2 rules`. `thing` forms its plural with an s.
#[must_use]
pub fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// Encodes a text as JSON and escapes every [deceptive](is_deceptive) character, so that it is visible in the raw line.
#[must_use]
pub fn json_quoted(text: &str) -> String {
    // A string can always be encoded as JSON.
    let json = serde_json::to_string(text).unwrap_or_default();
    if !json.contains(is_deceptive) {
        return json;
    }
    // The JSON encoder escapes characters below U+0020; the others have four hexadecimal digits.
    let mut out = String::new();
    for c in json.chars() {
        match is_deceptive(c) {
            // Above U+FFFF: a surrogate pair (RFC 8259 section 7).
            true => (c.encode_utf16(&mut [0; 2]).iter())
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
            false => out.push(c),
        }
    }
    out
}

/// Formats a time by RFC 3339 in UTC with exactly six fractional digits: `2026-11-20T21:15:02.000001Z`. A time before
/// 1970 is printed as 1970.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_micros()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(secs: u64, micros: u32) -> String {
        timestamp(UNIX_EPOCH + Duration::new(secs, micros * 1000))
    }

    /// `date -u -d @SECONDS +%FT%TZ`
    #[test]
    fn known_times() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(951_782_400, 1), "2000-02-29T00:00:00.000001Z");
        assert_eq!(at(1_709_251_199, 999_999), "2024-02-29T23:59:59.999999Z");
        assert_eq!(at(1_795_209_302, 120_000), "2026-11-20T21:15:02.120000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn what_deceives_is_escaped_and_read_back() {
        let invisible = "a\u{ad}b\u{200b}c\u{feff}d\u{e0041}e";
        let json = json_quoted(invisible);
        assert_eq!(json, "\"a\\u00adb\\u200bc\\ufeffd\\udb40\\udc41e\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), invisible);
        let text = "a\u{202e}b\u{2028}c\u{85}d\u{7f}e\u{2066}f\nü\u{1f600}";
        let json = json_quoted(text);
        assert_eq!(
            json,
            "\"a\\u202eb\\u2028c\\u0085d\\u007fe\\u2066f\\nü\u{1f600}\""
        );
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn keys_in_order_and_text_escaped() {
        let labels = [("pod", "ns/\"p\"".to_owned())];
        let line = Line {
            level: Level::Warn,
            time: UNIX_EPOCH,
            msg: "a\nb",
            labels: &labels,
        }
        .encode();
        assert_eq!(
            line,
            "{\"level\":\"warn\",\"time\":\"1970-01-01T00:00:00.000000Z\",\"msg\":\"a\\nb\",\
             \"pod\":\"ns/\\\"p\\\"\"}\n"
        );
    }
}
