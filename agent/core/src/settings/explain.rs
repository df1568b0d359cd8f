//! What `--explain-settings` prints.

use super::resolve::{Effective, Origin, Resolved};
use super::table::{TABLE, Usage};
use serde_json::{Value, json};
use std::fmt::Write;

fn origin(e: &Effective) -> String {
    match e.origin {
        Origin::Flag => format!("flag --{}", e.setting.flag),
        Origin::Env(name) => format!("environment {name}"),
        Origin::Runtime => "container runtime".to_owned(),
        Origin::Default => "default".to_owned(),
    }
}

fn usage(e: &Effective) -> &'static str {
    match e.setting.usage {
        Usage::Used => "used",
        Usage::Unused => "accepted, unused",
    }
}

fn name(e: &Effective) -> String {
    match e.setting.env {
        "" => format!("--{}", e.setting.flag),
        env => env.to_owned(),
    }
}

/// What `--help` says of the settings that are variables only.
#[must_use]
pub fn without_flags() -> String {
    let mut out = "Settings of the environment alone:\n".to_owned();
    for setting in TABLE.iter().filter(|s| s.flag.is_empty()) {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {}\n          {}", setting.env, setting.described());
    }
    out
}

/// One line for each setting: name, value, who decided, whether it is used.
#[must_use]
pub fn text(resolved: &Resolved) -> String {
    text_of(&json(resolved))
}

/// The same from the array that [`json()`] makes, of another process too.
#[must_use]
pub fn text_of(settings: &Value) -> String {
    let mut out = String::new();
    for setting in settings.as_array().into_iter().flatten() {
        let field = |name: &str| setting.get(name).and_then(Value::as_str);
        let [name, value, origin, usage] =
            ["name", "value", "origin", "usage"].map(|name| field(name).unwrap_or_default());
        // Writing to a String does not fail.
        let _ = writeln!(out, "{name}={value:?}  ({origin}; {usage})");
        if let Some(note) = field("note") {
            let _ = writeln!(out, "    note: {note}");
        }
    }
    out
}

/// The same as a JSON array.
#[must_use]
pub fn json(resolved: &Resolved) -> Value {
    let one = |e: &Effective| {
        json!({
            "name": name(e),
            "flag": Some(e.setting.flag).filter(|f| !f.is_empty()),
            "value": e.text,
            "default": e.setting.default,
            "origin": origin(e),
            "usage": usage(e),
            "help": e.setting.help,
            "note": e.note,
        })
    };
    resolved.iter().map(one).collect()
}
