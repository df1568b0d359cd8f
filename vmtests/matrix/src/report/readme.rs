//! The tables of docs/kernels.md between two markers: written from a run, or compared with one.
//!
//! The tables contain no times and nothing about the host; the sentence above them has its number of cases. The comparison covers
//! what is equal wherever the same kernels ran, the features. It ignores versions of packages, which the archive replaces, and
//! counts of cases.
use super::summary::{Feature, Tally, View, instead, version};
use crate::model::Run;
use askama::Template;
use std::fs;
use std::path::Path;
use weir_vm::{At, Error, Result, replace};

const START: &str = "<!-- matrix -->\n";
const END: &str = "<!-- /matrix -->";

/// The columns about capabilities: the title, and the group and name of every feature that is required for a yes.
const COLUMNS: &[(&str, &[&str])] = &[
    (
        "nf_tables",
        &["nf_tables/chain inet nat", "nf_tables/expression redir"],
    ),
    (
        "nft TPROXY",
        &["nf_tables/expression tproxy", "nf_tables/expression socket"],
    ),
    (
        "legacy tables",
        &["xtables/table ip nat", "xtables/table ip6 nat"],
    ),
    ("ipset", &["ipset/hash:ip inet"]),
    ("IPv6", &["system/IPv6"]),
    ("tcx", &["ebpf/attach tcx"]),
    ("netkit", &["net/link netkit"]),
    ("BTF", &["system/BTF of the kernel"]),
];

/// The data of the template `templates/readme.md`.
#[derive(Template)]
#[template(path = "readme.md")]
struct Tables<'a> {
    /// The cases of the rows and of the host.
    cases: String,
    on_host: String,
    columns: &'a [(&'a str, &'a [&'a str])],
    rows: Vec<Row<'a>>,
    /// Group, feature, the kernels that lack it, what weir does there instead.
    differences: Vec<(&'a str, &'a str, String, &'a str)>,
}

struct Row<'a> {
    name: &'a str,
    version: &'a str,
    answers: Vec<&'static str>,
    /// The tally, or the reason why nothing ran.
    outcome: std::result::Result<Tally, &'a str>,
}

/// Renders the tables in Markdown: every kernel and variant except the host, then the differences between kernels. Before them is
/// the number of cases, which is the sum of the first table and of the host.
/// A run of only a part of the matrix is an error.
pub fn tables(run: &Run) -> Result<String> {
    let view = View::new(run);
    if !run.selection.is_empty() {
        let reason = format!("it is of a part of the matrix ({})", run.selection);
        return Err(Error::new("the report", reason, "Run all of it: ci/matrix"));
    }
    let groups = view.features();
    let find = |key: &&str| {
        let (group, name) = key.split_once('/').unwrap_or_default();
        let (_, features) = groups.iter().find(|(g, _)| *g == group)?;
        features.iter().find(|f| f.name == name)
    };
    let found = |key: &&str| {
        let reason = || format!("no environment was asked for {key}");
        let remedy = "Run the matrix again; if weir preflight has another name for it now, change it in readme.rs";
        find(key).ok_or_else(|| Error::new("the report", reason(), remedy))
    };
    let column = |(_, keys): &(&str, &[&str])| keys.iter().map(found).collect::<Result<Vec<_>>>();
    let columns = COLUMNS.iter().map(column).collect::<Result<Vec<_>>>()?;
    let row = |(at, name): (usize, &&str)| {
        let e = view.environment(name).filter(|_| *name != "host")?;
        let tally = view.tally_of(name);
        Some(Row {
            name: &e.name,
            version: version(e),
            answers: columns.iter().map(|of| verdict(of, at)).collect(),
            outcome: match tally.passed + tally.failed {
                0 => Err(e.unavailable.as_deref().unwrap_or("nothing ran")),
                _ => Ok(tally),
            },
        })
    };
    let environments = view.environments.iter().enumerate();
    let rows: Vec<Row<'_>> = environments.filter_map(row).collect();
    let shown = rows.iter().flat_map(|row| row.outcome);
    let (shown, on_host) = (
        shown.map(Tally::total).sum::<usize>(),
        view.tally_of("host").total(),
    );
    let tables = Tables {
        cases: thousands(shown + on_host),
        on_host: thousands(on_host),
        columns: COLUMNS,
        rows,
        differences: differences(&view, &groups),
    };
    let text = tables.render();
    text.map_err(|e| Error::new("the report", e, "Report it"))
}

/// A number with a comma before each group of three digits: `3,585`.
fn thousands(n: usize) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", thousands(n / 1000), n % 1000),
    }
}

fn verdict(features: &[&Feature<'_>], at: usize) -> &'static str {
    let answers = features.iter().filter_map(|f| f.words().get(at).copied());
    let answers: Vec<_> = answers.collect();
    let all = |word| answers.iter().all(|a| *a == word);
    match answers.contains(&"have") {
        true if all("have") => "yes",
        true => "**in part**",
        false if all("lack") => "**no**",
        false if all("-") => "-",
        false => "unknown",
    }
}

/// The features that some unmodified kernels lack, and what weir does there instead.
fn differences<'a>(
    view: &View<'a>,
    groups: &[(&'a str, Vec<Feature<'a>>)],
) -> Vec<(&'a str, &'a str, String, &'a str)> {
    let all = view.environments.iter().copied().enumerate();
    let is_whole = |name| view.environment(name).is_some_and(|e| e.variant.is_empty());
    let whole: Vec<(usize, &str)> = all
        .filter(|(_, name)| *name != "host" && is_whole(name))
        .collect();
    let features = groups.iter();
    let features = features.flat_map(|(group, of)| of.iter().map(move |f| (*group, f)));
    let row = |(group, feature): (&'a str, &Feature<'a>)| {
        let answers = whole.iter().filter_map(|(at, name)| {
            let answer = feature.answers.get(*at).copied().flatten();
            Some((*name, answer?))
        });
        let (lacking, others): (Vec<_>, Vec<_>) = answers.partition(|(_, c)| c.answer == "lack");
        let (_, first) = lacking.first()?;
        others.iter().find(|(_, c)| c.answer == "have")?;
        let names: Vec<&str> = lacking.iter().map(|(name, _)| *name).collect();
        let (names, then) = (names.join(", "), instead(&first.remark));
        Some((group, feature.name, names, then))
    };
    features.filter_map(row).collect()
}

/// Puts the tables of `run` between the markers of `file`. Returns whether that changed the file.
pub fn update(run: &Run, file: &Path) -> Result<bool> {
    let text = fs::read_to_string(file).at(file)?;
    let (before, old, after) = split(file, &text)?;
    let new = tables(run)?;
    if old == new {
        return Ok(false);
    }
    replace(file, &format!("{before}{START}{new}{END}{after}"))?;
    Ok(true)
}

/// The compared part of the tables: the kernels and their features in the first table, all of the second table. Not the sentence
/// before them.
fn comparable(tables: &str) -> Vec<String> {
    let mut is_first = true;
    let row = |line: &str| {
        is_first &= !line.is_empty();
        if !is_first {
            return line.to_owned();
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let features = cells.iter().skip(2).take(COLUMNS.len());
        let kept: Vec<&str> = cells.first().into_iter().chain(features).copied().collect();
        kept.join(" | ")
    };
    let lines = tables.lines().skip_while(|line| !line.starts_with('|'));
    lines.map(row).collect()
}

/// Checks that `file` lists the features that `run` found.
/// The error contains the first line that differs.
pub fn check(run: &Run, file: &Path) -> Result<()> {
    let text = fs::read_to_string(file).at(file)?;
    let (_, old, _) = split(file, &text)?;
    let (old, new) = (comparable(old), comparable(&tables(run)?));
    let rows = old.len().max(new.len());
    let mut pairs = (0..rows).map(|at| (old.get(at), new.get(at)));
    let Some((there, now)) = pairs.find(|(there, now)| there != now) else {
        return Ok(());
    };
    let said = |line: Option<&String>| line.map_or("nothing more", |line| line).to_owned();
    let (file, there, now) = (file.display().to_string(), said(there), said(now));
    let reason = format!(
        "it does not say what the last run of the matrix found. It has\n  {there}\nthe run says\n  {now}"
    );
    let remedy =
        format!("Run weir-vmtests report DIR --readme {file}, look at what changed, and commit it");
    Err(Error::new(file, reason, remedy))
}

/// Splits the text into the parts before, between and after the markers.
fn split<'a>(file: &Path, text: &'a str) -> Result<(&'a str, &'a str, &'a str)> {
    let parts = text.split_once(START).and_then(|(before, rest)| {
        let (content, after) = rest.split_once(END)?;
        Some((before, content, after))
    });
    let reason = || {
        format!(
            "it has no line {:?} with {END:?} after it",
            START.trim_end()
        )
    };
    let remedy = "Put both lines where the tables of the kernels belong";
    parts.ok_or_else(|| Error::new(file.display().to_string(), reason(), remedy))
}
