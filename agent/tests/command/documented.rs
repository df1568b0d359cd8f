//! The tables of `docs/metrics.md`, `docs/settings.md` and `docs/security.md` equal the registry of metrics and the tables of settings and
//! of threads. The table of events in `docs/agent.md` has every reason in the sources of the journal.
//!
//! `WEIR_WRITE_DOCS=1 cargo test -p weir-agent --test command documented` writes them.

use crate::support::weir;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use weir_core::settings::{SettingKind, TABLE, Usage};
use weir_core::thread::rights::THREADS;
use weir_show::metrics::Metrics;

const START: &str = "<!-- generated -->\n";
const END: &str = "<!-- /generated -->\n";

/// Compares the text between the markers of a file in docs with `table`, or writes it.
fn compare(name: &str, text: &str, table: &str) {
    let (before, rest) = text.split_once(START).expect("a marker");
    let (old, after) = rest.split_once(END).expect("a second marker");
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../docs")
            .join(name);
        std::fs::write(file, format!("{before}{START}{table}{END}{after}")).unwrap();
        return;
    }
    let differs = old.lines().zip(table.lines()).find(|(a, b)| a != b);
    assert!(
        old == table,
        "docs/{name} differs from the program, first in {differs:?}. Run:\n\
         WEIR_WRITE_DOCS=1 cargo test -p weir-agent --test command documented"
    );
}

/// Escapes the character that separates the cells of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn rights_of_threads_are_documented() {
    let mut table =
        "| thread of the agent | purpose | capabilities |\n| --- | --- | --- |\n".to_owned();
    for thread in &THREADS {
        let keeps = thread.keeps.iter().map(|c| {
            let name = c.to_string();
            format!("`{}`", name.trim_start_matches("CAP_"))
        });
        let keeps: Vec<_> = keeps.collect();
        let keeps = match keeps.is_empty() {
            true => "none".to_owned(),
            false => keeps.join(", "),
        };
        let _ = writeln!(
            table,
            "| `{}` | {} | {keeps} |",
            thread.name, thread.purpose
        );
    }
    compare(
        "security.md",
        include_str!("../../../docs/security.md"),
        &table,
    );
}

#[test]
fn metrics_are_documented() {
    let text = Metrics::new().classic_text();
    let mut labels: BTreeMap<&str, String> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            kinds.insert(name, kind);
        } else if let Some((name, rest)) = line.split_once('{') {
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let keys = rest.split(',').filter_map(|l| l.split_once('='));
            let keys: Vec<_> = keys.map(|(key, _)| key).filter(|k| *k != "le").collect();
            labels.entry(name).or_insert_with(|| keys.join(", "));
        }
    }
    let mut table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    let helps = text.lines().filter_map(|l| l.strip_prefix("# HELP "));
    let mut helps: Vec<_> = helps.filter_map(|l| l.split_once(' ')).collect();
    helps.sort_unstable();
    assert!(helps.len() > 20, "{text}");
    for (name, help) in helps {
        let kind = kinds.get(name).copied().unwrap_or("-");
        let labels = labels.get(name).map_or("", String::as_str);
        let help = cell(help.trim_end_matches('.'));
        writeln!(table, "| `{name}` | {kind} | {labels} | {help} |").unwrap();
    }
    compare(
        "metrics.md",
        include_str!("../../../docs/metrics.md"),
        &table,
    );
}

/// Adds the string literals in CamelCase of two words or more, which the journal has for reasons of events only.
fn reasons(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            reasons(&path, found);
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let is_reason = |text: &&str| {
            let capitals = text.bytes().filter(u8::is_ascii_uppercase).count();
            let is_word = text.bytes().all(|b| b.is_ascii_alphabetic());
            is_word
                && (2..text.len()).contains(&capitals)
                && text.as_bytes()[0].is_ascii_uppercase()
        };
        found.extend(source.split('"').filter(is_reason).map(str::to_owned));
    }
}

// matrix: none: reads sources, and asks no kernel
#[test]
fn events_are_documented() {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    reasons(&agent.join("core/src/journal"), &mut found);
    assert!(found.len() > 5, "{found:?}");
    let document = std::fs::read_to_string(agent.join("../docs/agent.md")).unwrap();
    let (_, table) = document
        .split_once("| reason | object | when |\n")
        .expect("the table");
    let rows = table.lines().skip(1).take_while(|l| l.starts_with('|'));
    let rows = rows.filter_map(|l| l.split('`').nth(1).map(str::to_owned));
    assert_eq!(rows.collect::<Vec<_>>(), Vec::from_iter(found));
}

#[test]
fn settings_are_documented() {
    let mut table =
        "| variable | flag | kind | default | meaning |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for setting in TABLE {
        let code = |prefix: &str, text: &str| match text {
            "" => String::new(),
            text => format!("`{prefix}{}`", cell(text)),
        };
        let kind = match setting.kind {
            SettingKind::Text => "text",
            SettingKind::Bool => "bool",
            SettingKind::Int => "number",
            SettingKind::List => "list",
        };
        let usage = match setting.usage {
            Usage::Used => "",
            Usage::Unused => " (accepted, unused)",
        };
        let alias = match setting.alias {
            "" => String::new(),
            alias => format!(", or `{alias}`"),
        };
        writeln!(
            table,
            "| {}{alias} | {} | {kind} | {} | {}{usage} |",
            code("", setting.env),
            code("--", setting.flag),
            code("", setting.default),
            cell(setting.help)
        )
        .unwrap();
    }
    compare(
        "settings.md",
        include_str!("../../../docs/settings.md"),
        &table,
    );
}

#[test]
fn the_help_of_the_agent_explains_every_setting_with_its_default() {
    let help = weir(&["agent", "--help"]).stdout;
    let help: String = help.split_whitespace().collect();
    let packed = |text: &str| -> String { text.split_whitespace().collect() };
    for setting in TABLE {
        let name = match setting.flag {
            "" => setting.env.to_owned(),
            flag => format!("--{flag}"),
        };
        assert!(help.contains(&name), "{name}");
        assert!(help.contains(&packed(&setting.described())), "{name}");
    }
}

#[test]
fn json_alone_does_not_start_an_agent() {
    let run = weir(&["agent", "--json", "--mounted-cni-net-dir=/nowhere"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("--explain-settings"), "{run:?}");
}
