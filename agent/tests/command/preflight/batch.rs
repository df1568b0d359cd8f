//! Runs many commands of the tools with few processes: each tool can read commands as text, and applies all of them or none.
//!
//! Starting a process for each feature takes most of the time of the comparison, above all on an emulated machine.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use super::tools::Commands;
use std::collections::BTreeMap;

/// A program with its arguments, and its input; the name of the input file becomes the last argument.
pub(crate) type Batch = (Vec<String>, String);

/// The commands as input for the programs that read many: sets come first, because rules refer to them.
///
/// Returns `None` if a command is for another program.
pub(crate) fn batches(commands: &[Commands]) -> Option<Vec<Batch>> {
    // By rank, then by program.
    let mut lines: BTreeMap<(usize, Vec<String>), Vec<Vec<String>>> = BTreeMap::new();
    for command in commands.iter().flatten() {
        let (program, arguments) = command.split_first()?;
        let (rank, batch): (usize, &[&str]) = match program.as_str() {
            "ipset" => (0, &["ipset", "restore", "-file"]),
            "iptables-legacy" => (1, &["iptables-legacy-restore", "--noflush"]),
            "ip6tables-legacy" => (1, &["ip6tables-legacy-restore", "--noflush"]),
            "ip" if command.get(1).is_some_and(|flag| flag == "-6") => (1, &["ip", "-6", "-batch"]),
            "ip" => (1, &["ip", "-batch"]),
            "tc" => (1, &["tc", "-batch"]),
            _ => return None,
        };
        let arguments = arguments.iter().filter(|word| *word != "-6").cloned();
        let batch = batch.iter().map(|word| (*word).to_owned()).collect();
        let lines = lines.entry((rank, batch)).or_default();
        let line = arguments.collect();
        // Two rules may need the same set.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let text =
        |program: &str, lines: Vec<Vec<String>>| match program.ends_with("tables-legacy-restore") {
            true => of_tables(lines),
            false => lines.iter().map(|line| line.join(" ") + "\n").collect(),
        };
    let batches = lines.into_iter().map(|((_, batch), lines)| {
        let text = text(&batch[0], lines);
        (batch, text)
    });
    Some(batches.collect())
}

/// The commands as restore input such as `-t mangle -A OUTPUT ...`, by table. A command that only lists a table contributes just its name.
fn of_tables(lines: Vec<Vec<String>>) -> String {
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for mut line in lines {
        let named = line.first().is_some_and(|word| word == "-t");
        let table = if named {
            line.drain(..2).nth(1).unwrap_or_default()
        } else {
            "filter".to_owned()
        };
        let rules = tables.entry(table).or_default();
        if line.first().is_some_and(|word| word == "-A") {
            *rules += &(line.join(" ") + "\n");
        }
    }
    let text = |(name, rules)| format!("*{name}\n{rules}COMMIT\n");
    tables.into_iter().map(text).collect()
}

#[test]
fn commands_become_what_the_tools_read() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let commands = [
        vec![words("iptables-legacy -t nat -L -n")],
        vec![
            words("ipset create s hash:ip"),
            words("iptables-legacy -A INPUT -j ACCEPT"),
        ],
        vec![
            words("ipset create s hash:ip"),
            words("ip -6 rule add fwmark 1 lookup 133"),
        ],
    ];
    let batch = |program: &str, text: &str| (words(program), text.to_owned());
    assert_eq!(
        batches(&commands).unwrap(),
        [
            batch("ipset restore -file", "create s hash:ip\n"),
            batch("ip -6 -batch", "rule add fwmark 1 lookup 133\n"),
            batch(
                "iptables-legacy-restore --noflush",
                "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n*nat\nCOMMIT\n"
            ),
        ]
    );
    assert_eq!(batches(&[vec![words("true")]]), None);
}
