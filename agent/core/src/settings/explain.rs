//! The output of `--explain-settings`.

use super::resolve::{Effective, Origin, Resolved};
use super::table::{TABLE, Usage};
use serde_json::{Value, json};
use std::fmt::Write;

/// Returns the origin of a setting's text.
#[must_use]
pub fn origin(e: &Effective) -> String {
    match e.origin {
        Origin::Flag => format!("flag --{}", e.setting.flag),
        Origin::Env(name) => format!("environment {name}"),
        Origin::Runtime => "container runtime".to_owned(),
        Origin::Account => "service account".to_owned(),
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

/// Returns the part of `--help` about settings that have only an environment variable.
#[must_use]
pub fn without_flags() -> String {
    let mut out = "Settings of the environment alone:\n".to_owned();
    for setting in TABLE.iter().filter(|s| s.flag.is_empty()) {
        // Writing to a String does not fail.
        let _ = writeln!(out, "  {}\n          {}", setting.env, setting.described());
    }
    out
}

/// Returns one line per setting: name, value, origin, and whether it is used.
#[must_use]
pub fn text(resolved: &Resolved) -> String {
    text_of(&json(resolved))
}

/// As [`text()`], from the array that [`json()`] returns, which may come from another process.
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

/// Returns the settings as a JSON array.
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
