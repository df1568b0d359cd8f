//! The tables of docs/figures.md: generated from the report of a run, each between two markers. The other text is written by hand.

use std::path::Path;

use serde_json::Value;

/// A row: the goal (in [`TRAFFIC`], the way) that the runner measures, and its name in the document.
type Row = (&'static str, &'static str);

/// A table: the name in the markers, the first cell of the head, and the rows.
type Table = (&'static str, &'static str, &'static [Row]);

#[rustfmt::skip]
const TABLES: [Table; 5] = [
    ("redirection", "weir / the other", &[
        ("apply / shell-out, wall", "`weir apply` / `nft list` + `nft -f` under `nsenter`, wall time"),
        ("apply / shell-out, cpu", "the same, CPU time"),
        ("nothing to do / shell-out, wall", "second `weir apply`, nothing to do / the same, wall time"),
        ("nothing to do / replacing, wall", "second `weir apply` / the shell-out that replaces its tables, wall time"),
        ("apply / floor, wall", "`weir apply` / start of an empty program and a replay of the same system calls, wall time"),
        ("xtables apply / legacy tools, wall", "`weir apply --engine xtables` / `iptables-legacy-save` and `-restore`, both families, wall time"),
        ("add / ipset restore, wall", "65,536 addresses into an ipset / `ipset restore`, wall time"),
        ("add / ipset restore, peak memory", "the same, peak memory"),
        ("list / ipset save, wall", "listing them / `ipset save`, wall time"),
        ("list / ipset save, peak memory", "the same, peak memory"),
        ("remove / ipset restore of del, wall", "removing them / `ipset restore`, wall time"),
        ("remove / ipset restore of del, peak memory", "the same, peak memory"),
        ("sized set, one transaction / nft -f, wall", "100,000 elements into an nft set with a declared size / `nft -f`, wall time"),
        ("sized set, one transaction / nft -f, peak memory", "the same, peak memory"),
        ("set, one transaction / nft -f, wall", "100,000 elements into a set without a declared size / `nft -f`, wall time"),
        ("set, one transaction / nft -f, peak memory", "the same, peak memory"),
        ("show, nft / nft list ruleset, wall", "reading 10,000 rules / `nft list ruleset`, wall time"),
        ("show, xtables / iptables-legacy-save, wall", "reading 10,000 legacy rules / `iptables-legacy-save`, wall time"),
        ("agent / API server, wall", "ADD, pod from the node agent / from an API server on the same machine, wall time"),
        ("the same without sidecar, wall", "the same for a pod without sidecar"),
        ("resident memory / 20 MiB", "node agent with 250 local pods in a cluster of 15,000, resident memory / 20 MiB"),
        ("found right at start / 2 s", "node agent that starts where 250 pods run, CPU time until all are found right / 2 s"),
        ("ADD / shell-out, rate", "pods a second by `weir-cni` ADD, pod read over TLS / by the shell-out, which reads none"),
        ("apply / shell-out, rate", "pods a second by `weir apply` / by the shell-out"),
    ]),
    ("node", "on the node", &[
        ("node: agent / API server, wall", "ADD, pod from the node agent / from the API server, wall time"),
        ("node: ADD / shell-out, rate", "200 ADDs, 16 at a time, pods a second / by the shell-out, which reads no pod"),
        ("node: 99th percentile / median", "250 ADDs at once: 99th percentile / median"),
        ("node: share of a processor / 0.1 %", "agent at rest, share of a core / 0.1 %"),
        ("node: memory of its group / 30 MiB", "agent after that, memory of its control group with page cache / 30 MiB"),
    ]),
    ("ambient", "ambient mode", &[
        ("enrolment, wall / its system calls", "an enrolment / the time of its system calls"),
        ("cpu until all are enrolled / 3 s", "CPU time until 250 pods that run are enrolled / 3 s"),
        ("cpu of a sweep / 50 ms", "CPU time of a sweep over 250 healthy pods / 50 ms"),
        ("resident memory / 25 MiB", "resident memory with 250 pods / 25 MiB"),
        ("rules and routing / nsenter iptables-restore, both families, wall", "rules and routing of a pod / `nsenter iptables-restore`, both families, wall time"),
        ("the whole enrolment / nsenter iptables-restore, both families, wall", "the whole enrolment / the same"),
        ("rules and routing / nsenter iptables-restore, both families, cpu", "rules and routing of a pod / `nsenter iptables-restore`, both families, CPU time"),
        ("the whole enrolment / nsenter iptables-restore, both families, cpu", "the whole enrolment / the same"),
        ("rules and routing / nsenter nft -f, wall", "rules and routing of a pod / `nsenter nft -f`, wall time"),
        ("the whole enrolment / nsenter nft -f, wall", "the whole enrolment / the same"),
        ("rules and routing / nsenter nft -f, cpu", "rules and routing of a pod / `nsenter nft -f`, CPU time"),
        ("the whole enrolment / nsenter nft -f, cpu", "the whole enrolment / the same"),
    ]),
    (TRAFFIC, "pod to service", &[
        ("no redirection, no proxy", "no redirection, no proxy"),
        ("nft in the pod", "nft in the pod"),
        ("legacy tables in the pod", "legacy tables in the pod"),
        ("eBPF in the pod", "eBPF in the pod"),
        ("rules at the node", "rules at the node (VXLAN, nft)"),
        ("eBPF at the node", "eBPF at the node"),
    ]),
    ("ebpf", "eBPF", &[
        ("pod: connections a second", "in the pod: connections a second / nft in the pod"),
        ("pod: processor time for a connection", "in the pod: CPU time of a connection / nft in the pod"),
        ("pod: processor time for a GiB", "in the pod: CPU time of a GiB / nft in the pod"),
        ("node: connections a second", "at the node: connections a second / rules at the node"),
        ("node: processor time for a GiB", "at the node: CPU time of a GiB / rules at the node"),
        ("programs of one pod / 5 ms", "CPU time for the programs of one pod / 5 ms"),
        ("programs of all pods / 5 s", "CPU time for 1,000 pods / 5 s"),
        ("memory of that process / 40 MiB", "memory of the process that did that / 40 MiB"),
    ]),
];

/// The table with a column for each measurement of every way.
const TRAFFIC: &str = "traffic";

/// The columns of [`TRAFFIC`]: their names in [`crate::report::Report::cell`], and in the document.
pub(crate) const COLUMNS: [Row; 7] = [
    ("connections, one after the other", "connections a second"),
    (
        "processor time for a connection",
        "CPU time of a connection",
    ),
    ("round trip of 64 bytes", "round trip"),
    ("round trip beside 64 streams", "beside 64 streams"),
    ("one stream", "one stream"),
    ("64 streams", "64 streams"),
    (
        "processor time for a GiB by one stream",
        "CPU time of a GiB",
    ),
];

/// Whether the goal is a row of a table.
pub(crate) fn has(goal: &str) -> bool {
    let mut rows = TABLES.iter().flat_map(|(.., rows)| *rows);
    rows.any(|(key, _)| *key == goal)
}

/// Writes those tables between their markers for which the report has every row.
pub(crate) fn write(document: &Path, report: &Path) -> Result<(), String> {
    let at = |path: &Path| path.display().to_string();
    let read = |path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", at(path)));
    let parsed = serde_json::from_str(&read(report)?);
    let parsed: Value = parsed.map_err(|e| format!("{}: {e}", at(report)))?;
    let (text, said) = update(&read(document)?, &parsed)?;
    std::fs::write(document, text).map_err(|e| format!("{}: {e}", at(document)))?;
    said.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Returns the new text, and a message about each table.
fn update(text: &str, report: &Value) -> Result<(String, Vec<String>), String> {
    if report["is_quick"] != false {
        return Err("the report is of a quick run, or of an older runner: measure anew".into());
    }
    let (mut text, mut said) = (text.to_owned(), Vec::new());
    for table in &TABLES {
        let name = table.0;
        match lines(table, report) {
            Ok(new) => {
                let (before, _, after) = split(&text, name)?;
                text = format!("{before}{new}{after}");
                said.push(format!("{name}: written"));
            }
            Err(missing) => said.push(format!("{name}: as it was, the report lacks {missing:?}")),
        }
    }
    Ok((text, said))
}

/// Formats a table in Markdown; the error is a row that the report does not have.
fn lines((name, first, rows): &Table, report: &Value) -> Result<String, &'static str> {
    let mut text = head(name, first);
    for (key, title) in *rows {
        let cells = match *name {
            TRAFFIC => traffic(report, key),
            _ => ratio(report, key),
        };
        text += &format!("| {title} | {} |\n", cells.ok_or(*key)?);
    }
    Ok(text)
}

fn head(name: &str, first: &str) -> String {
    let mut titles = vec![first];
    match name {
        TRAFFIC => titles.extend(COLUMNS.map(|(_, title)| title)),
        _ => titles.extend(["ratio", "goal", ""]),
    }
    let (rule, titles) = (vec!["---"; titles.len()], titles.join(" | "));
    format!("| {} |\n| {} |\n", titles.trim_end(), rule.join(" | "))
}

/// Formats the cells of a goal: `0.29 | at most 0.5 | met`.
fn ratio(report: &Value, key: &str) -> Option<String> {
    let goal = report["goals"].as_array()?;
    let goal = goal.iter().find(|goal| goal["name"] == key)?;
    let limit = goal["goal"].as_str()?;
    let limit = limit.replace("<=", "at most").replace(">=", "at least");
    let verdict = match goal["met"].as_bool()? {
        true => "met",
        false => "**missed**",
    };
    let ratio = goal["ratio"].as_f64()?;
    Some(format!("{ratio:.2} | {limit} | {verdict}"))
}

/// Formats the medians of a way: `7092 | 168 µs | ...`
fn traffic(report: &Value, way: &str) -> Option<String> {
    let arms = report["arms"].as_array()?;
    let cell = |(column, _): Row| {
        let mut all = arms.iter();
        let arm = all.find(|arm| arm["column"] == column && arm["name"] == way)?;
        let median = arm["median"].as_f64()?;
        Some(match arm["unit"].as_str()? {
            "1/s" => format!("{median:.0}"),
            unit => format!("{median:.0} {}", unit.replace("us", "µs")),
        })
    };
    let cells: Option<Vec<String>> = COLUMNS.into_iter().map(cell).collect();
    Some(cells?.join(" | "))
}

/// Splits the text into the part up to the table including the marker, the table, and the rest.
fn split<'a>(text: &'a str, name: &str) -> Result<(&'a str, &'a str, &'a str), String> {
    let (start, end) = (
        format!("<!-- bench {name} -->\n"),
        format!("<!-- /bench {name} -->"),
    );
    let found = || {
        let from = text.find(&start)? + start.len();
        let to = from + text.get(from..)?.find(&end)?;
        Some((text.get(..from)?, text.get(from..to)?, text.get(to..)?))
    };
    let (start, end) = (start.trim_end(), &end);
    found().ok_or_else(|| format!("there is no line {start} with {end} after it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DOCUMENT: &str = include_str!("../../../docs/figures.md");

    #[test]
    fn the_document_has_the_rows_that_the_runner_makes() {
        for (name, first, rows) in TABLES {
            let (_, old, _) = split(DOCUMENT, name).unwrap();
            let rest = old.strip_prefix(&*head(name, first));
            let rest = rest.unwrap_or_else(|| panic!("{name}: another head: {old}"));
            let there: Vec<&str> = rest.lines().filter_map(|l| l.split(" | ").next()).collect();
            let wanted: Vec<String> = rows.iter().map(|(_, title)| format!("| {title}")).collect();
            assert_eq!(there, wanted, "{name}");
        }
    }

    #[test]
    fn a_table_is_written_when_the_report_has_all_of_its_rows() {
        let goal = |(key, _): &Row| json!({"name": key, "ratio": 0.256, "goal": "<= 0.5", "met": *key != "apply / floor, wall"});
        let (_, _, rows) = TABLES[0];
        let mut goals: Vec<Value> = rows.iter().map(goal).collect();
        let arm = |(column, _): Row| {
            TABLES[3].2.iter().map(move |(way, _)| {
                json!({"column": column, "name": way, "unit": "us", "median": 71.6})
            })
        };
        let arms: Vec<Value> = COLUMNS.into_iter().flat_map(arm).collect();
        let report = json!({"is_quick": false, "goals": goals, "arms": arms});
        let (text, said) = update(DOCUMENT, &report).unwrap();
        assert!(
            text.contains("wall time | 0.26 | at most 0.5 | met |\n"),
            "{text}"
        );
        assert!(
            text.contains("wall time | 0.26 | at most 0.5 | **missed** |\n"),
            "{text}"
        );
        assert!(
            text.contains("| eBPF in the pod | 72 µs | 72 µs |"),
            "{text}"
        );
        assert_eq!(said[0], "redirection: written");
        assert!(said[1].starts_with("node: as it was"), "{said:?}");
        // A second update changes nothing.
        assert_eq!(update(&text, &report).unwrap().0, text);
        let (_, old, _) = split(DOCUMENT, "node").unwrap();
        assert_eq!(split(&text, "node").unwrap().1, old);
        goals.pop();
        let report = json!({"is_quick": false, "goals": goals, "arms": []});
        assert_eq!(update(DOCUMENT, &report).unwrap().0, DOCUMENT);
        assert!(update(DOCUMENT, &json!({"is_quick": true})).is_err());
        assert!(update("no markers", &json!({"is_quick": false, "goals": []})).is_ok());
    }
}
