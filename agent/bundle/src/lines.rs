//! The known content of lines of weir's logs.
//!
//! Lines are parsed although weir writes them: they are read back from files and from a running agent, which may be of another
//! version, and a file may contain lines of other programs.

use super::messages;
use serde_json::{Map, Value};
use weir_cni::log::json_quoted;
use weir_core::journal::watch::Kind;

/// Keys of a line in order; `msg` is the last.
const KEYS: [&str; 3] = ["level", "time", "scope"];
const LEVELS: [&str; 5] = ["debug", "info", "warn", "error", "fatal"];
const SCOPES: [&str; 2] = ["cni-agent", "cni-plugin"];
/// Maximum length of a container ID: 64 hexadecimal digits and a prefix of the runtime.
const ID: usize = 100;

/// Keeps the lines of weir, with known labels, and counts the others.
pub(super) fn known(text: &str) -> String {
    let (mut out, mut left_out) = (String::new(), 0_usize);
    for line in text.lines() {
        let known = match line.strip_prefix('{') {
            Some(_) => json(line),
            None if is_remark(line) => Some(line.to_owned()),
            None => plain(line),
        };
        match known {
            Some(line) => out = out + &line + "\n",
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        out += &format!("({left_out} lines of other programs are left out)\n");
    }
    out
}

fn json(line: &str) -> Option<String> {
    let line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let text = |key: &str| line.get(key).and_then(Value::as_str);
    if !LEVELS.contains(&text("level")?) || !is_time(text("time")?) {
        return None;
    }
    let msg = messages::known(text("msg")?);
    let pair = |key: &str, value: &str| format!("{}:{}", json_quoted(key), json_quoted(value));
    let of_key = |key: &&str| {
        Some(pair(
            key,
            text(key).filter(|v| key != &"scope" || SCOPES.contains(v))?,
        ))
    };
    let mut pairs: Vec<String> = KEYS.iter().filter_map(of_key).collect();
    pairs.push(pair("msg", &msg));
    let labels = line
        .iter()
        .filter_map(|(key, value)| Some((key, value.as_str()?)));
    let labels = labels.filter(|(key, value)| is_label(key, value));
    pairs.extend(labels.map(|(key, value)| pair(key, value)));
    Some(format!("{{{}}}", pairs.join(",")))
}

/// Parses `TIME level scope message [label=value]...`, separated by tabs.
fn plain(line: &str) -> Option<String> {
    let mut fields = line.split('\t');
    let (time, level, scope) = (fields.next()?, fields.next()?, fields.next()?);
    if !is_time(time) || !LEVELS.contains(&level) || !SCOPES.contains(&scope) {
        return None;
    }
    let msg = messages::known(fields.next()?);
    let mut out = format!("{time}\t{level}\t{scope}\t{msg}");
    let known = |field: &&str| {
        field
            .split_once('=')
            .is_some_and(|(key, value)| is_label(key, value))
    };
    fields
        .filter(known)
        .for_each(|field| out = format!("{out}\t{field}"));
    Some(out)
}

/// True for a label of the plugin or the agent whose value has the expected format.
fn is_label(key: &str, value: &str) -> bool {
    let plain = |value: &str| {
        value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let number = |value: &str| !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match key {
        "pod" => messages::is_pod(value),
        // IFNAMSIZ of linux/if.h, less the zero.
        "if" => value.len() <= 15 && plain(value),
        "netns" => messages::is_known_path(value),
        "containerID" => value.len() <= ID && plain(value),
        "command" => matches!(value, "ADD" | "CHECK" | "DEL" | "GC" | "STATUS" | "VERSION"),
        // From the line about phases, in microseconds.
        "facts_us" | "decide_us" | "apply_us" | "verify_us" | "lock_wait_us" => {
            number(value) && value.len() <= 12
        }
        // From the agent's events. Event names and UIDs are excluded: they have no closed format.
        "differences" | "known" | "passes" => number(value) && value.len() <= 6,
        "action" => matches!(value, "repair" | "delete" | "label"),
        "cause" => matches!(value, "missing" | "changed"),
        "removed" => matches!(value, "true" | "false"),
        "step" => matches!(value, "binaries" | "kubeconfig" | "config"),
        "kind" => Kind::ALL.iter().any(|kind| kind.label() == value),
        _ => false,
    }
}

/// True for a remark about missing lines.
fn is_remark(line: &str) -> bool {
    line == "(earlier lines are left out)"
        || (line.starts_with('(') && line.ends_with(" earlier lines are not kept)"))
}

/// True if the text consists of characters of an RFC 3339 time.
fn is_time(text: &str) -> bool {
    let of_time = |c: char| c.is_ascii_digit() || "-+:.TZ".contains(c);
    (20..=40).contains(&text.len()) && text.chars().all(of_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_others_and_labels_that_are_unknown_are_left_out() {
        let plugin = r#"{"level":"info","time":"2026-11-20T21:15:02.000001Z","msg":"nothing changed","pod":"a/b"}"#;
        let agent = "2026-11-20T21:15:02.000001Z\twarn\tcni-agent\tnothing changed";
        let labels = plugin.replace("\"pod\"", "\"DB_PASS\":\"S1\",\"n\":7,\"pod\"");
        let text = format!(
            "(12 earlier lines are not kept)\n{plugin}\n{agent}\n{labels}\npwd=S2\n{{\"msg\":\"S3\"}}\n{{S4\n\
             {{\"args\":[\"--password\",\"S5\"]}}\n"
        );
        assert_eq!(
            known(&text),
            format!(
                "(12 earlier lines are not kept)\n{plugin}\n{agent}\n{plugin}\n\
                 (4 lines of other programs are left out)\n"
            )
        );
    }

    #[test]
    fn labels_and_messages_of_text_lines_are_selected_too() {
        let head = "2026-11-20T21:15:02.000001Z\tinfo\tcni-plugin\t";
        let line = format!(
            "{head}nothing changed pwd=S1\tDB_PASS=S2\tif=eth0\tpod=S3\tpod=a/b\tkeyS4=1\tapply_us=12\n"
        );
        let wanted = format!("{head}nothing changed (left out)\tif=eth0\tpod=a/b\tapply_us=12\n");
        assert_eq!(known(&line), wanted);
        let head = "2026-11-20T21:15:02.000001Z\twarn\tcni-agent\tnothing changed";
        let line = format!(
            "{head}\tevent=S1\tpod=a/b\tuid=S2\tcause=missing\tcause=S3\tdifferences=2\tkind=gone\tkind=S4\n"
        );
        let wanted = format!("{head}\tpod=a/b\tcause=missing\tdifferences=2\tkind=gone\n");
        assert_eq!(known(&line), wanted);
    }
}
