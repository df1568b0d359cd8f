//! Parses, filters and rate-limits the plugin's log lines.

use super::{Log, Scope};
use crate::journal::serve::{Event, LineResult};
use crate::journal::{Journal, pod};
use serde_json::{Map, Value};
use std::time::Instant;
use weir_cni::log::Level;
use weir_cni::plugin::Phases;

/// Sustained rate in lines per second.
const RATE: f64 = 200.0;
/// Burst in lines: a node that starts all of its pods.
const BURST: f64 = 5000.0;
/// Sustained rate in bytes per second, and burst in bytes: a line of the plugin has about 300.
const BYTES: f64 = RATE * 500.0;
const BYTES_BURST: f64 = BURST * 500.0;
/// Maximum number of characters of a message or label; longer ones are truncated.
const LENGTH: usize = 8 << 10;

/// A token bucket for lines and bytes.
#[derive(Debug)]
pub struct Bound {
    left: f64,
    bytes: f64,
    filled: Instant,
    lost: u64,
}

impl Bound {
    /// A full bucket.
    pub fn new(now: Instant) -> Self {
        let (left, bytes, filled, lost) = (BURST, BYTES_BURST, now, 0);
        Self {
            left,
            bytes,
            filled,
            lost,
        }
    }

    fn take(&mut self, length: usize, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * RATE).min(BURST);
        self.bytes = (self.bytes + since * BYTES).min(BYTES_BURST);
        self.filled = now;
        // The size of a body is bounded, so the length is exact as a float.
        let length = length as f64;
        let granted = self.left >= 1.0 && self.bytes >= length;
        if granted {
            self.left -= 1.0;
            self.bytes -= length;
        } else {
            self.lost += 1;
        }
        granted
    }

    /// Returns the number of lost lines, if the bucket has room for a line that reports it.
    pub fn lost(&mut self, now: Instant) -> Option<u64> {
        let lost = self.lost;
        if lost == 0 || !self.take(0, now) {
            return None;
        }
        self.lost = 0;
        Some(lost)
    }
}

/// Returns the accepted lines of a batch as one text, so that concurrent batches do not interleave.
pub fn batch(body: &[u8], bound: &mut Bound, now: Instant, log: &Log, journal: &Journal) -> String {
    let line = |result| journal.record(Event::PluginLine { result });
    let Ok(items) = serde_json::from_slice::<Vec<Value>>(body) else {
        line(LineResult::Malformed);
        return String::new();
    };
    let mut out = String::new();
    for item in &items {
        let parsed = item.as_str().and_then(parse);
        // Measurements are recorded regardless of the log level.
        if let Some((_, _, (msg, labels))) = &parsed
            && let Some(phases) = Phases::of_line(msg, labels)
        {
            let by = "plugin";
            journal.record(pod::Event::Measured { by, phases });
        }
        let result = match parsed {
            None => LineResult::Malformed,
            Some((level, _, _)) if !log.hears(Scope::Plugin, level) => LineResult::Quiet,
            Some((level, time, (msg, labels))) => {
                let line = log.line(Scope::Plugin, level, &time, &msg, &labels);
                match bound.take(line.len(), now) {
                    true => {
                        out += &line;
                        LineResult::Emitted
                    }
                    false => LineResult::Dropped,
                }
            }
        };
        line(result);
    }
    out
}

type Text = (String, Vec<(String, String)>);

/// Parses a line: it has a message, one of four levels and a time; everything else is a label.
fn parse(line: &str) -> Option<(Level, String, Text)> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let mut take = |key: &str| match line.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (msg, level, time) = (take("msg")?, take("level")?, take("time")?);
    let level = match level.as_str() {
        "debug" | "info" | "warn" | "error" => Level::parse(&level)?,
        _ => return None,
    };
    if !is_rfc3339(&time) {
        return None;
    }
    // The receiver sets the scope.
    line.remove("scope");
    let label = |(key, value): (String, Value)| {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        (cut(&key), cut(&value))
    };
    Some((
        level,
        time,
        (cut(msg.trim()), line.into_iter().map(label).collect()),
    ))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LENGTH) {
        Some((at, _)) => format!("{}... (cut)", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Matches `2026-11-20T21:15:02[.000001](Z|+00:00|-00:00)`.
fn is_rfc3339(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else {
        return false;
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches('0'),
        None => rest,
    };
    let whole = !rest.starts_with('.') || zone.len() + 1 < rest.len();
    whole && text.len() <= 40 && matches!(zone, "Z" | "+00:00" | "-00:00")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Levels;

    fn run(body: &str, bound: &mut Bound) -> String {
        let log = Log::open(&[], false, Levels::default(), Journal::default()).unwrap();
        batch(
            body.as_bytes(),
            bound,
            Instant::now(),
            &log,
            &Journal::default(),
        )
    }

    fn said(items: &[&str]) -> String {
        run(
            &Value::from(items.to_vec()).to_string(),
            &mut Bound::new(Instant::now()),
        )
    }

    #[test]
    fn lines_keep_time_level_and_labels() {
        let line = r#"{"level":"warn","time":"2026-11-20T21:15:02.000001Z","msg":" m\n","pod":"a/b","n":1,"scope":"x"}"#;
        assert_eq!(
            said(&[line]),
            "2026-11-20T21:15:02.000001Z\twarn\tcni-plugin\tm\tn=1\tpod=a/b\n"
        );
    }

    #[test]
    fn what_is_no_line_is_dropped_and_the_rest_is_said() {
        let good = r#"{"level":"info","time":"2026-11-20T21:15:02+01:00","msg":"m"}"#;
        let bad = [
            "",
            "text",
            "[]",
            r#"{"level":"info","msg":"m"}"#,
            r#"{"level":"info","time":"now","msg":"m"}"#,
            r#"{"level":"info","time":"2026-11-20T21:15:02.Z","msg":"m"}"#,
            r#"{"level":"fatal","time":"2026-11-20T21:15:02Z","msg":"m"}"#,
            r#"{"level":"debug","time":"2026-11-20T21:15:02Z","msg":"m"}"#,
            r#"{"level":"info","time":"2026-11-20T21:15:02Z","msg":1}"#,
        ];
        let mut items = bad.to_vec();
        items.push(good);
        assert_eq!(said(&items).lines().count(), 1);
        for body in ["", "{}", "[1, null]", "\u{0}", "[\"a\""] {
            assert_eq!(run(body, &mut Bound::new(Instant::now())), "", "{body:?}");
        }
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let line = r#"{"level":"info","time":"2026-11-20T21:15:02Z","msg":"m"}"#;
        let body = Value::from(vec![line; 6000]).to_string();
        let now = Instant::now();
        let mut bound = Bound::new(now);
        assert_eq!(run(&body, &mut bound).lines().count(), 5000);
        let later = now + std::time::Duration::from_secs(1);
        assert_eq!(bound.lost(later), Some(1000));
        assert_eq!(bound.lost(later), None);
        let long = format!(
            r#"{{"level":"info","time":"2026-11-20T21:15:02Z","msg":"{}"}}"#,
            "é".repeat(20_000)
        );
        assert!(said(&[&long]).len() < 20_000);
        // A few lines may be long, with many labels.
        let labels: Vec<String> = (0..100)
            .map(|n| format!(r#""l{n}":"{}""#, "x".repeat(8000)))
            .collect();
        let wide = format!(
            r#"{{"level":"info","time":"2026-11-20T21:15:02Z","msg":"m",{}}}"#,
            labels.join(",")
        );
        let body = Value::from(vec![wide; 5]).to_string();
        let mut bound = Bound::new(now);
        assert_eq!(run(&body, &mut bound).lines().count(), 3);
        assert_eq!(bound.lost(now + std::time::Duration::from_secs(1)), Some(2));
    }
}
