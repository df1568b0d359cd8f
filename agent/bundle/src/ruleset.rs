//! The known content of rules. Foreign rules have comments, log prefixes, search strings
//! and names of sets, any of which may be confidential.
//!
//! Of a foreign nf_tables table, the report contains the chains (names, hooks, priorities) and the number of rules per final
//! verdict. Legacy tables are shared and the order of rules in a built-in chain matters: each such rule is kept, without
//! the parts that contain free text.

use super::forms::is_name;
use super::secrets::CUT;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_cni::redirection::TABLES;
use weir_netfilter::ipset::Header;
use weir_netfilter::nft::{self, Statement, Verdict};
use weir_netfilter::xtables::{self, ChainKind, Match, Target};

/// Prefix of the names of Istio's chains.
const CHAINS: &str = "ISTIO_";

/// Formats rules like `nft list ruleset`, with a comment for omitted content.
pub(super) fn nft(rules: &nft::Ruleset) -> String {
    let mut text = String::new();
    for (n, table) in rules.tables.iter().enumerate() {
        let is_ours =
            table.family == nft::TableFamily::Inet && TABLES.contains(&table.name.as_str());
        match is_ours {
            true => text += &own(table).to_string(),
            false => text += &foreign(table, n),
        }
    }
    text
}

/// Returns one of our tables without texts that only another writer can have added.
fn own(table: &nft::Table) -> nft::Table {
    let cut = |text: &mut Option<String>| {
        if text.is_some() {
            *text = Some(CUT.to_owned());
        }
    };
    let mut table = table.clone();
    cut(&mut table.comment);
    table.objects.clear();
    for set in &mut table.sets {
        cut(&mut set.comment);
        set.unread.clear();
        set.elements.retain(|e| e.extra().comment.is_none());
    }
    for chain in &mut table.chains {
        cut(&mut chain.comment);
        for rule in &mut chain.rules {
            cut(&mut rule.comment);
            for statement in &mut rule.statements {
                if let Statement::Log(log) = statement {
                    cut(&mut log.prefix);
                }
            }
            let is_opaque = |s: &Statement| matches!(s, Statement::Opaque(_));
            let own = rule.chain.take();
            if own.is_some() || rule.statements.iter().any(is_opaque) {
                rule.statements.clear();
                rule.sets.clear();
                rule.comment = Some(CUT.to_owned());
            }
        }
    }
    table
}

/// Returns the chains of a table and, as comments, the number of rules.
fn foreign(table: &nft::Table, n: usize) -> String {
    let mut bare = table.clone();
    (bare.name, bare.comment) = (numbered(&table.name, n), None);
    bare.sets.clear();
    bare.objects.clear();
    for (n, chain) in bare.chains.iter_mut().enumerate() {
        (chain.name, chain.comment) = (numbered(&chain.name, n), None);
        chain.rules.clear();
        if let Some(base) = &mut chain.base {
            base.devices.iter_mut().for_each(|d| *d = name(d));
            if let nft::ChainType::Other(text) = &mut base.chain_type {
                *text = name(text);
            }
        }
    }
    // Writing to a String does not fail.
    let mut text = bare.to_string();
    let (family, called) = (bare.family, &bare.name);
    let elements: usize = table.sets.iter().map(|s| s.elements.len()).sum();
    let _ = writeln!(
        text,
        "# {family} {called} is another writer's: {} sets with {elements} elements and {} objects {CUT}",
        table.sets.len(),
        table.objects.len()
    );
    for (chain, bare) in table.chains.iter().zip(&bare.chains) {
        let ends = chain.rules.iter().map(|rule| end(&rule.statements));
        let _ = writeln!(
            text,
            "# {family} {called} {}: {} rules {CUT}{}",
            bare.name,
            chain.rules.len(),
            counts(ends)
        );
    }
    text
}

/// Formats counts as ", of which N accept, N jump", sorted by word.
fn counts(words: impl Iterator<Item = &'static str>) -> String {
    let mut counts = BTreeMap::<_, usize>::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    let counts: Vec<String> = counts
        .iter()
        .map(|(word, n)| format!("{n} {word}"))
        .collect();
    match counts.is_empty() {
        true => String::new(),
        false => format!(", of which {}", counts.join(", ")),
    }
}

/// Returns the word for the final verdict of a rule.
fn end(statements: &[Statement]) -> &'static str {
    match statements.last() {
        Some(Statement::Verdict(verdict)) => match verdict {
            Verdict::Accept => "accept",
            Verdict::Drop => "drop",
            Verdict::Continue => "continue",
            Verdict::Return => "return",
            Verdict::Jump(_) => "jump",
            Verdict::Goto(_) => "goto",
            _ => "end otherwise",
        },
        Some(Statement::Vmap(..)) => "vmap",
        Some(Statement::Redirect(_)) => "redirect",
        Some(Statement::Masquerade(_)) => "masquerade",
        Some(Statement::Nat(_)) => "nat",
        Some(Statement::Tproxy(_)) => "tproxy",
        Some(Statement::Notrack) => "notrack",
        Some(Statement::Reject(_)) => "reject",
        _ => "end otherwise",
    }
}

/// Formats rules like `iptables-save`; of foreign chains only the number of rules is shown.
pub(super) fn legacy(rules: &xtables::Ruleset) -> String {
    let (mut text, mut last) = (String::new(), None);
    for table in &rules.tables {
        // Writing to a String does not fail.
        if last.replace(table.family) != Some(table.family) {
            let _ = writeln!(text, "# {}-save", table.family);
        }
        let _ = writeln!(text, "*{}", name(&table.name));
        let called = |chain: &str| {
            let at = table.chains.iter().position(|c| c.name == chain);
            at.map_or_else(|| name(chain), |n| numbered(chain, n))
        };
        for chain in &table.chains {
            let policy = match chain.kind {
                ChainKind::Builtin(Some(policy)) => policy.to_string(),
                _ => "-".to_owned(),
            };
            let _ = writeln!(text, ":{} {policy} [0:0]", called(&chain.name));
        }
        for chain in &table.chains {
            let own = called(&chain.name);
            if chain.kind == ChainKind::User && !chain.name.starts_with(CHAINS) {
                let _ = writeln!(text, "# {own}: {} rules {CUT}", chain.rules.len());
                continue;
            }
            for rule in &chain.rules {
                let _ = writeln!(text, "-A {own}{}", known(rule, &called));
            }
        }
        text += "COMMIT\n";
    }
    text
}

/// Returns a rule with only those matches and targets that contain no free text.
fn known(rule: &xtables::Rule, called: &dyn Fn(&str) -> String) -> String {
    let mut bare = rule.clone();
    bare.header = None;
    bare.matches.retain(is_known);
    let mut is_whole = bare.matches.len() == rule.matches.len() && rule.header.is_none();
    let mut target = String::new();
    if let Some(to) = &rule.target {
        let known = match to {
            Target::Set(_) | Target::Unknown(_) => false,
            Target::Extension(to) => to.name() == "REJECT",
            to => to.chain().is_none_or(|chain| chain == called(chain)),
        };
        if !known {
            is_whole = false;
            bare.target = None;
            let word = match (to.extension(), to.chain()) {
                (Some(extension), _) => name(extension),
                (None, chain) => chain.map_or_else(|| CUT.to_owned(), called),
            };
            target = format!(" -j {word}");
        }
    }
    let interfaces = [&mut bare.in_interface, &mut bare.out_interface];
    for interface in interfaces {
        let is_plain = |i: &str| i.trim_end_matches('+') == name(i.trim_end_matches('+'));
        let text = interface.as_ref().map(|(_, i)| i.to_string());
        if text.is_some_and(|text| !is_plain(&text)) {
            (*interface, is_whole) = (None, false);
        }
    }
    match is_whole {
        true => bare.to_string(),
        false => format!("{bare}{target}  # parts {CUT}"),
    }
}

/// True if a match consists of numbers, addresses and words of the kernel.
fn is_known(part: &Match) -> bool {
    match part {
        Match::Extension(part) => {
            ["addrtype", "icmp", "icmp6", "limit", "socket"].contains(&part.name())
        }
        Match::Tcp(_)
        | Match::Udp(_)
        | Match::Multiport(_)
        | Match::Owner(_)
        | Match::Mark(_)
        | Match::Connmark(_)
        | Match::Conntrack(_)
        | Match::State(_) => true,
        _ => false,
    }
}

/// Returns one line per set type: a set name may be a secret.
pub(super) fn sets(sets: &[Header]) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for set in sets {
        let kind = format!("{} family {}", name(set.kind.name()), set.family);
        *counts.entry(kind).or_default() += 1;
    }
    let line =
        |(kind, n): (&String, &usize)| format!("{n} of type {kind}; names and entries {CUT}\n");
    counts.iter().map(line).collect()
}

/// Returns a short name of plain characters, or the mark.
fn name(text: &str) -> String {
    // Names of ipset types contain colons and commas.
    let of_name = text.split([':', ',']).all(is_name);
    if of_name { text } else { CUT }.to_owned()
}

/// Returns a short name, or the mark with a number that identifies it.
fn numbered(text: &str, n: usize) -> String {
    match is_name(text) {
        true => text.to_owned(),
        false => format!("{} {n})", CUT.trim_end_matches(')')),
    }
}

#[cfg(test)]
mod tests {
    use super::known;
    use weir_netfilter::xtables::{Script, Snapshot, XtFamily, plan_restore};

    /// Of the extensions without a type, a limit and an answer have no words of a user.
    #[test]
    fn extensions_are_shown_by_what_they_can_hold() {
        let text = "*filter\n-A INPUT -m limit --limit 5/min -j REJECT\n\
                    -A INPUT -m string --string secret --algo bm -j LOG --log-prefix secret\nCOMMIT\n";
        let script = Script::parse(XtFamily::Ip, text).unwrap();
        let planned = plan_restore(&script, &Snapshot::default(), false).unwrap();
        let tables = planned.tables().tables;
        let rules = tables.iter().flat_map(|t| &t.chains).flat_map(|c| &c.rules);
        let shown: Vec<String> = rules.map(|r| known(r, &str::to_owned)).collect();
        assert_eq!(
            shown,
            [
                " -m limit --limit 5/min -j REJECT --reject-with icmp-port-unreachable",
                " -j LOG  # parts (left out)",
            ]
        );
    }
}
