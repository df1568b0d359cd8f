//! Output of the commands.

use super::failure::{Failure, code, one_line};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use weir_cni::compile::{Compiled, Engine, Rules};
use weir_cni::log::count;
use weir_cni::redirection::{Change, Difference};
use weir_netfilter::ipset::Set;
use weir_netfilter::nft::{Policy, Ruleset, Table, compat};
use weir_netlink::attr::bytes_of;

/// Writes text to stdout.
///
/// # Errors
/// Stdout cannot be written.
pub fn text(text: &str) -> Result<u8, Failure> {
    stream(|out| out.write_all(text.as_bytes()))
}

/// Writes a result to stdout, piece by piece. If it cannot be written, the exit code is [`code::UNKNOWN`]: 1 is
/// a result of its own (drift, a job that does not work).
pub(super) fn stream(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    written(write_out(write))
}

/// Converts the result of writing to stdout, as `stream` does.
///
/// # Errors
/// Stdout cannot be written.
pub fn written(result: io::Result<()>) -> Result<u8, Failure> {
    match result {
        Ok(()) => Ok(code::SUCCESS),
        // The reader closed the pipe (`weir show | head`): no message, but the exit code tells a script that output is missing.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unknown("")),
        Err(e) => Err(match e.downcast::<weir_netlink::Error>() {
            // The data to be written could not be read completely.
            Ok(e) => Failure::unknown(e),
            Err(e) => Failure::unknown(format!("cannot write to stdout: {e}")),
        }),
    }
}

/// Writes comments and names in the kernel's encoding, see [`bytes_of`].
pub(super) struct Bytes<'a>(pub(super) &'a mut dyn Write);

impl Write for Bytes<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(part) {
            Ok(text) => self.0.write_all(&bytes_of(text))?,
            Err(_) => self.0.write_all(part)?,
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a report of changes. If it cannot be written, the exit code is as in `stream`, even if the reader closed the pipe;
/// the message adds `is_so`, the state that is in force nevertheless.
///
/// # Errors
/// Stdout cannot be written.
pub fn report(text: &str, is_so: &str) -> Result<u8, Failure> {
    match write_out(|out| out.write_all(text.as_bytes())) {
        Ok(()) => Ok(code::SUCCESS),
        Err(e) => Err(Failure::unknown(format!(
            "cannot write to stdout: {e}; {is_so}"
        ))),
    }
}

fn write_out(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    write(&mut out).and_then(|()| out.flush())
}

/// Writes JSON to stdout, with a newline.
///
/// # Errors
/// Stdout cannot be written.
pub fn json(value: &Value) -> Result<u8, Failure> {
    text(&json_text(value))
}

/// The text that [`json()`] writes.
pub fn json_text(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Appends the value as [`one_line`].
pub fn push_line(text: &mut String, value: &impl Display) {
    text.push_str(&one_line(&value.to_string()));
    text.push('\n');
}

/// Writes to a terminal without control characters other than line breaks and tabs: a listing contains names and comments that any program with
/// the right to write rules has chosen. Other outputs get them as they are, as from the tools.
pub(super) struct Harmless<'a> {
    to: &'a mut dyn Write,
    is_terminal: bool,
}

impl<'a> Harmless<'a> {
    pub(super) fn new(to: &'a mut dyn Write) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { to, is_terminal }
    }
}

impl Write for Harmless<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.to.write(part);
        }
        let mut rest = part;
        // C0, DEL, and C1 in UTF-8.
        while let Some(at) = rest.iter().position(|b| is_obeyed(*b)) {
            let (before, from) = rest.split_at(at);
            self.to.write_all(before)?;
            let (obeyed, after) = match from {
                [0xc2, c1 @ 0x80..=0x9f, after @ ..] => (Some(*c1), after),
                [0xc2, after @ ..] => (None, after),
                [c0, after @ ..] => (Some(*c0), after),
                [] => break,
            };
            match obeyed {
                Some(code) => write!(self.to, "\\x{code:02x}")?,
                None => self.to.write_all(&[0xc2])?,
            }
            rest = after;
        }
        self.to.write_all(rest)?;
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn is_obeyed(byte: u8) -> bool {
    byte == 0xc2 || (byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t'))
}

/// A plan as JSON.
pub(super) fn compiled(c: &Compiled, engine: Engine) -> Value {
    let routing: Vec<String> = c.routing.iter().map(ToString::to_string).collect();
    let tables = match &c.rules {
        Rules::Nft(rules) => ruleset(rules, |_| true),
        Rules::Xtables(rules) => xtables(rules),
    };
    json!({ "redirected": true, "engine": engine.to_string(), "tables": tables, "routing": routing })
}

/// Tables of nf_tables as JSON; rules as text.
pub(super) fn ruleset(rules: &Ruleset, is_ours: impl Fn(&Table) -> bool) -> Value {
    let table = |t: &Table| {
        let chains: Vec<Value> = t
            .chains
            .iter()
            .map(|c| {
                let rules: Vec<String> = c.rules.iter().map(|r| r.text(t.family)).collect();
                let mut chain = json!({ "name": c.name, "rules": rules });
                if let (Some(base), Some(object)) = (&c.base, chain.as_object_mut()) {
                    object.insert("type".into(), json!(base.chain_type.as_str()));
                    object.insert("hook".into(), json!(base.hook.to_string()));
                    object.insert("priority".into(), json!(base.priority));
                    object.insert(
                        "policy".into(),
                        json!(match base.policy {
                            Policy::Accept => "accept",
                            Policy::Drop => "drop",
                        }),
                    );
                }
                chain
            })
            .collect();
        let objects: Vec<Value> = t
            .objects
            .iter()
            .map(|o| json!({ "kind": o.kind.word(), "name": o.name, "text": o.to_string() }))
            .collect();
        let sets: Vec<Value> = t
            .sets
            .iter()
            .map(|s| json!({ "name": s.name, "elements": s.element_texts() }))
            .collect();
        json!({
            "family": t.family.to_string(),
            "name": t.name,
            "ours": is_ours(t),
            "managedBy": compat::is_managed(t).then_some("iptables-nft"),
            "objects": objects,
            "sets": sets,
            "chains": chains,
        })
    };
    rules.tables.iter().map(table).collect()
}

pub(super) fn xtables(rules: &weir_netfilter::xtables::Ruleset) -> Value {
    let table = |t: &weir_netfilter::xtables::Table| {
        let chains: Vec<Value> = t
            .chains
            .iter()
            .map(|c| {
                let rules: Vec<String> = c
                    .rules
                    .iter()
                    .map(|r| format!("-A {} {r}", c.name))
                    .collect();
                json!({ "name": c.name, "rules": rules })
            })
            .collect();
        json!({ "family": format!("{:?}", t.family).to_lowercase(), "name": t.name, "chains": chains })
    };
    rules.tables.iter().map(table).collect()
}

/// Sets of ipset as JSON; entries as text.
pub(super) fn sets(sets: &[Set]) -> Value {
    let set = |s: &Set| {
        let entries: Vec<String> = s.entries.iter().map(ToString::to_string).collect();
        json!({
            "name": s.header.name,
            "type": s.header.kind.to_string(),
            "family": s.header.family.to_string(),
            "create": s.header.to_string(),
            "entries": entries,
        })
    };
    sets.iter().map(set).collect()
}

/// A short diff for people.
pub(super) fn differences(changes: &[Change], programs: &[String], netns: &str) -> String {
    let places = count(changes.len() + programs.len(), "place");
    let mut text = format!("drift: {netns} differs from what is desired in {places}\n");
    let changes = changes.iter().map(|c| (c.difference(), c.object()));
    let programs = programs.iter().map(|p| (Difference::Unexpected, p.clone()));
    for (difference, object) in changes.chain(programs) {
        text += match difference {
            Difference::Missing => "- missing   ",
            Difference::Unexpected => "+ unexpected",
        };
        text += "  ";
        push_line(&mut text, &object);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_no_listing() {
        let shown = |is_terminal, text: &str| {
            let mut to = Vec::new();
            let mut out = Harmless {
                to: &mut to,
                is_terminal,
            };
            out.write_all(text.as_bytes()).unwrap();
            String::from_utf8(to).unwrap()
        };
        let text = "\t-A \u{1b}[31mX © é \u{9b}1m\u{7f}\r\n";
        assert_eq!(shown(false, text), text);
        assert_eq!(shown(true, text), "\t-A \\x1b[31mX © é \\x9b1m\\x7f\\x0d\n");
    }
}
