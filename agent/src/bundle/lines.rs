//! Lines of weir's own logs, as far as what is in them is known: a file may hold lines of others.

use serde_json::{Map, Value};
use weir_cni::log::quoted;

/// Keys of a line, in their order.
const KEYS: [&str; 4] = ["level", "time", "scope", "msg"];
/// Labels that the plugin gives its lines.
const LABELS: [&str; 5] = ["pod", "if", "netns", "containerID", "command"];
const LEVELS: [&str; 5] = ["debug", "info", "warn", "error", "fatal"];
const SCOPES: [&str; 2] = ["cni-agent", "cni-plugin"];

/// The lines that weir writes, with the labels that it gives; what else there was is counted.
pub(super) fn known(text: &str) -> String {
    let (mut out, mut left_out) = (String::new(), 0_usize);
    for line in text.lines() {
        let known = match line.strip_prefix('{') {
            Some(_) => json(line),
            None => (is_text(line) || is_remark(line)).then(|| line.to_owned()),
        };
        match known {
            Some(line) => out = out + &line + "\n",
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        out += &format!("({left_out} lines that are none of weir's are left out)\n");
    }
    out
}

fn json(line: &str) -> Option<String> {
    let line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str);
    let is_line = LEVELS.contains(&text("level")?) && is_time(text("time")?);
    let _ = text("msg").filter(|_| is_line)?;
    let pair = |key: &&str| Some(format!("{}:{}", quoted(key), quoted(text(key)?)));
    let pairs: Vec<String> = KEYS.iter().chain(&LABELS).filter_map(pair).collect();
    Some(format!("{{{}}}", pairs.join(",")))
}

/// `TIME level scope message`, with tabs in between.
fn is_text(line: &str) -> bool {
    let mut fields = line.split('\t');
    let mut next = || fields.next().unwrap_or_default();
    is_time(next()) && LEVELS.contains(&next()) && SCOPES.contains(&next())
}

/// What is said about lines that are not there.
fn is_remark(line: &str) -> bool {
    line == "(earlier lines are left out)"
        || (line.starts_with('(') && line.ends_with(" earlier lines are not kept)"))
}

/// RFC 3339, as far as it tells a time from other words.
fn is_time(text: &str) -> bool {
    let of_time = |c: char| c.is_ascii_digit() || "-+:.TZ".contains(c);
    (20..=40).contains(&text.len()) && text.chars().all(of_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_others_and_labels_that_are_unknown_are_left_out() {
        let plugin =
            r#"{"level":"info","time":"2026-11-20T21:15:02.000001Z","msg":"m","pod":"a/b"}"#;
        let agent = "2026-11-20T21:15:02.000001Z\twarn\tcni-agent\tm";
        let labels = plugin.replace("\"pod\"", "\"DB_PASS\":\"S1\",\"n\":7,\"pod\"");
        let text = format!(
            "(12 earlier lines are not kept)\n{plugin}\n{agent}\n{labels}\npwd=S2\n{{\"msg\":\"S3\"}}\n{{S4\n\
             {{\"args\":[\"--password\",\"S5\"]}}\n"
        );
        assert_eq!(
            known(&text),
            format!(
                "(12 earlier lines are not kept)\n{plugin}\n{agent}\n{plugin}\n\
                 (4 lines that are none of weir's are left out)\n"
            )
        );
    }
}
