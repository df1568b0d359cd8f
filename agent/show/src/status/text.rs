//! HTML that escapes all outside text, and times in words.

use std::fmt::Write;
use std::time::{Duration, SystemTime};
use weir_cni::log::is_deceptive;

/// An HTML document under construction. Markup comes from the program; all other text is escaped.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup unchanged.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text of any origin, in an element or a quoted attribute. Invisible characters, and those that change the
    /// direction of text, are shown as `\u{202e}`.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                c if is_deceptive(c) => self.0.extend(c.escape_unicode()),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Appends a number.
    pub(super) fn number(&mut self, number: impl Into<u64>) -> &mut Self {
        // Writing to a String does not fail.
        let _ = write!(self.0, "{}", number.into());
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Formats a time as `2026-11-20T21:15:02Z`.
pub(super) fn absolute(time: SystemTime) -> String {
    let text = weir_cni::log::timestamp(time);
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{seconds}Z")
}

/// Formats a time as `42 s ago`, or in larger units. A time in the future (the clock was set) counts as now.
pub(super) fn relative(time: SystemTime, now: SystemTime) -> String {
    format!(
        "{} ago",
        length(now.duration_since(time).unwrap_or_default())
    )
}

/// Formats a duration as `42 s`, `3 min`, `5 h 12 min` or `2 d 3 h`.
pub(super) fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup() {
        let mut html = Html::default();
        html.raw("<b title=\"")
            .text("a\" onclick='x' &")
            .raw("\">")
            .text("<script>\u{202e}\u{7}é</script>")
            .number(7_u64);
        assert_eq!(
            html.finish(),
            "<b title=\"a&quot; onclick=&#39;x&#39; &amp;\">&lt;script&gt;\\u{202e}\\u{7}é&lt;/script&gt;7"
        );
    }

    #[test]
    fn times() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_209_302);
        assert_eq!(absolute(now), "2026-11-20T21:15:02Z");
        for (seconds, words) in [
            (0, "0 s ago"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (3600, "1 h 0 min ago"),
            (18_720, "5 h 12 min ago"),
            (183_600, "2 d 3 h ago"),
        ] {
            assert_eq!(relative(now - Duration::from_secs(seconds), now), words);
        }
        assert_eq!(relative(now + Duration::from_secs(9), now), "0 s ago");
    }
}
