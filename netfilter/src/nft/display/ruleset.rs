//! Tables, chains and sets as blocks.

use super::object::object_text;
use super::value::{by_bit, duration, element, order};
use super::{concat, numbers, type_of, unread};
use crate::nft::compat;
use crate::nft::listing::rule_text_in;
use crate::nft::model::{
    BaseChain, Chain, DataType, Element, Hook, Object, ObjectKind, Policy, Rule, Ruleset, Set,
    SetData, Table, TableFamily, priority,
};
use crate::nft::raw;
use crate::nft::set::by_element;
use std::fmt;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        })
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|t| write!(f, "{t}"))
    }
}

/// The table remains when its owner closes its socket. Since 6.9
const NFT_TABLE_F_PERSIST: u32 = 4;

/// The names of a table's flags; empty without known ones.
pub(crate) fn table_flags(flags: u32) -> String {
    let names = [
        (raw::NFT_TABLE_F_DORMANT, "dormant"),
        (raw::NFT_TABLE_F_OWNER, "owner"),
        (NFT_TABLE_F_PERSIST, "persist"),
    ];
    numbers::of_bits(&names, flags).join(",")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `nft` prints it on standard error; as a comment, the text remains loadable.
        if compat::is_managed(self) {
            let (family, name) = (self.family, &self.name);
            writeln!(
                f,
                "# Warning: table {family} {name} is managed by iptables-nft, do not touch!"
            )?;
        }
        writeln!(f, "table {} {} {{", self.family, self.name)?;
        let flags = table_flags(self.flags);
        if !flags.is_empty() {
            writeln!(f, "\tflags {flags}")?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\tcomment \"{comment}\"")?;
        }
        let is_flowtable = |o: &&Object| o.kind == ObjectKind::Flowtable;
        let (flowtables, objects): (Vec<_>, Vec<_>) = self.objects.iter().partition(is_flowtable);
        let objects = objects.into_iter().map(object_text);
        let sets = self.sets.iter().map(set_text);
        let flowtables = flowtables.into_iter().map(object_text);
        let chains = self.chains.iter().map(|c| chain_text(c, self));
        let blocks = objects.chain(sets).chain(flowtables).chain(chains);
        for (i, block) in blocks.enumerate() {
            // `nft` prints an empty line after the flags.
            if i > 0 || !flags.is_empty() {
                writeln!(f)?;
            }
            f.write_str(&block)?;
        }
        writeln!(f, "}}")
    }
}

fn chain_text(c: &Chain, table: &Table) -> String {
    let mut text = format!("\tchain {} {{\n", c.name);
    if let Some(comment) = &c.comment {
        text += &format!("\t\tcomment \"{comment}\"\n");
    }
    if c.offload {
        text += "\t\tflags offload\n";
    }
    if let Some(base) = &c.base {
        text += &format!("\t\t{}\n", base_chain_text(base, table.family));
    }
    for rule in &c.rules {
        text += &rule_block(rule, table, 2);
    }
    text + "\t}\n"
}

/// A rule, indented by this many tabs, with the chain that belongs to it.
fn rule_block(rule: &Rule, table: &Table, tabs: usize) -> String {
    let indent = "\t".repeat(tabs);
    let text = |r: &Rule| rule_text_in(r, table.family, &table.sets);
    let Some(rules) = &rule.chain else {
        return format!("{indent}{}\n", text(rule));
    };
    let bare = text(&Rule {
        comment: None,
        chain: None,
        ..rule.clone()
    });
    let inner = rules.iter().map(|r| rule_block(r, table, tabs + 1));
    let inner: String = inner.collect();
    let comment = rule.comment.as_ref().map(|c| format!(" comment \"{c}\""));
    let comment = comment.unwrap_or_default();
    format!("{indent}{bare}{{\n{inner}{indent}}}{comment}\n")
}

/// `type T hook H priority P; policy P;`
pub(crate) fn base_chain_text(base: &BaseChain, family: TableFamily) -> String {
    let hook = match (base.hook, family) {
        (Hook::Prerouting, TableFamily::Netdev) => "ingress".to_owned(),
        (Hook::Input, TableFamily::Netdev) => "egress".to_owned(),
        (Hook::Prerouting, TableFamily::Arp) => "input".to_owned(),
        (Hook::Input, TableFamily::Arp) => "output".to_owned(),
        (hook, _) => hook.to_string(),
    };
    let mut devices = base.devices.clone();
    devices.sort();
    let devices = match devices.as_slice() {
        [] => String::new(),
        [one] => format!(" device \"{one}\""),
        many => format!(" devices = {{ {} }}", many.join(", ")),
    };
    let policy = base.policy;
    let priority = priority_text(base.priority, base.hook, family);
    let kind = base.chain_type.as_str();
    format!("type {kind} hook {hook}{devices} priority {priority}; policy {policy};")
}

/// A named priority plus an offset of at most 10, or the number.
pub(super) fn priority_text(n: i32, hook: Hook, family: TableFamily) -> String {
    let prerouting = hook == Hook::Prerouting;
    let postrouting = hook == Hook::Postrouting;
    let names: &[(i32, &str, bool)] = match family {
        TableFamily::Inet | TableFamily::Ip | TableFamily::Ip6 => &[
            (priority::RAW, "raw", true),
            (priority::MANGLE, "mangle", true),
            (priority::DSTNAT, "dstnat", prerouting),
            (priority::FILTER, "filter", true),
            (priority::SECURITY, "security", true),
            (priority::SRCNAT, "srcnat", postrouting),
        ],
        // linux/netfilter_bridge.h, enum nf_br_hook_priorities
        TableFamily::Bridge => &[
            (-300, "dstnat", prerouting),
            (-200, "filter", true),
            (100, "out", hook == Hook::Output),
            (300, "srcnat", postrouting),
        ],
        _ => &[(0, "filter", true)],
    };
    for (value, name, here) in names.iter().copied() {
        match n.checked_sub(value) {
            Some(0) if here => return name.to_owned(),
            Some(d @ 1..=10) if here => return format!("{name} + {d}"),
            Some(d @ -10..=-1) if here => return format!("{name} - {}", -d),
            _ => {}
        }
    }
    n.to_string()
}

pub(super) fn type_name(t: DataType) -> String {
    if t.is_concatenation() {
        return concat::name(t);
    }
    let named = t.row().map(|row| row.name.to_owned());
    named.unwrap_or_else(|| format!("type {}", t.0))
}

/// A set or a map as `nft` lists it.
pub(crate) fn set_text(s: &Set) -> String {
    let lines: String = lines(s).iter().map(|l| format!("\t\t{l}\n")).collect();
    format!(
        "\t{} {} {{\n{lines}{}\t}}\n",
        set_word(s),
        s.name,
        elements_text(s)
    )
}

/// The same block in one line, without keyword and name.
pub(crate) fn set_line(s: &Set) -> String {
    let mut lines = lines(s);
    if !s.elements.is_empty() {
        lines.push(format!("elements = {{ {} }}", element_texts(s).join(", ")));
    }
    format!("{{ {} }}", lines.join(" "))
}

/// `set` or `map`
pub(crate) fn set_word(s: &Set) -> &'static str {
    match s.data {
        SetData::None if unread::object(s).is_none() => "set",
        _ => "map",
    }
}

/// The lines of the block before its elements.
fn lines(s: &Set) -> Vec<String> {
    let (word, key, data) = match type_of::declaration(s) {
        Some((key, data)) => ("typeof", key, data),
        None => ("type", type_name(s.key_type), None),
    };
    let to = match s.data {
        SetData::None => unread::object(s),
        SetData::Verdict => Some("verdict".to_owned()),
        SetData::Value(t, _) => Some(data.unwrap_or_else(|| type_name(t))),
    };
    let ranges = if s.value_ranges { "interval " } else { "" };
    let to = to.map_or_else(String::new, |to| format!(" : {ranges}{to}"));
    let mut lines = vec![format!("{word} {key}{to}")];
    if s.memory {
        lines.push("policy memory".to_owned());
    }
    // nft does not list the size of a constant set, which is the number of its elements.
    lines.extend(s.size.filter(|_| !s.constant).map(|n| format!("size {n}")));
    let flags: Vec<&str> = [
        (s.constant, "constant"),
        (s.dynamic, "dynamic"),
        (s.interval, "interval"),
        (s.timeouts, "timeout"),
    ]
    .into_iter()
    .filter_map(|(on, name)| on.then_some(name))
    .collect();
    // A default timeout implies the flag `timeout`, which is then omitted.
    let implied = s.timeout.is_some() && flags == ["timeout"];
    if !flags.is_empty() && !implied {
        lines.push(format!("flags {}", flags.join(",")));
    }
    lines.extend(unread::statements_of_set(s));
    if s.auto_merge {
        lines.push("auto-merge".to_owned());
    }
    lines.extend(s.timeout.map(|t| format!("timeout {}", duration(t))));
    let gc = s
        .gc_interval
        .map(|t| format!("gc-interval {}", duration(t)));
    lines.extend(gc);
    lines.extend(s.comment.as_ref().map(|c| format!("comment \"{c}\"")));
    lines.extend(unread::of_set(s));
    lines
}

fn elements_text(s: &Set) -> String {
    if s.elements.is_empty() {
        return String::new();
    }
    let per_line = s.key_type.row().map_or(1, |row| row.per_line);
    let mut text = String::from("\t\telements = { ");
    for (i, e) in element_texts(s).iter().enumerate() {
        if i > 0 {
            let breaks = i % per_line == 0;
            text += if breaks { ",\n\t\t\t     " } else { ", " };
        }
        text += e;
    }
    text + " }\n"
}

/// The elements of a set, one text each.
pub(super) fn element_texts(s: &Set) -> Vec<String> {
    let fields = type_of::key(s).unwrap_or_default();
    let data = type_of::data(s);
    let unread = by_element(&s.unread);
    let mut elements = std::borrow::Cow::Borrowed(s.elements.as_slice());
    let by_bits = match fields.as_slice() {
        [f] if f.data_type.is_bits() && !s.interval => {
            let is_map = s.data != SetData::None;
            let by = |e: &Element| by_bit(e, f.host_order, is_map);
            elements.to_mut().sort_by_key(by);
            true
        }
        _ => s.interval,
    };
    let text = |e: &Element| element(e, &fields, data.as_deref(), &unread);
    let mut texts: Vec<String> = elements.iter().map(text).collect();
    order(&mut texts, &elements, by_bits);
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::model::TypeOf;

    /// Flags that weir does not write and not every host accepts: an owner needs an open socket, offloading needs hardware.
    #[test]
    fn flags_of_tables_and_chains() {
        let mut table = Table::new(TableFamily::Netdev, "t");
        table.flags = raw::NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST;
        table.chains.push(Chain {
            offload: true,
            ..Chain::regular("c")
        });
        let text = table.to_string();
        for line in ["\tflags owner,persist\n", "\t\tflags offload\n"] {
            assert!(text.contains(line), "{text}");
        }
    }

    /// nft 1.1 notes a concatenation of constants for a key that was declared with `type`.
    #[test]
    fn constants_are_no_selectors() {
        let concatenation = DataType(DataType::IPV4_ADDR.0 << 6 | DataType::INET_SERVICE.0);
        let mut set = Set::new("m", concatenation, 8);
        set.data = SetData::Value(concatenation, 8);
        let noted = [0, 4, 13, 0, 0, 0, 1, 10, 0, 0, 0, 4, 4, 0, 0, 0, 1, 0];
        set.type_of = Some(Box::new(TypeOf {
            key: Some(noted.to_vec()),
            data: Some(noted.to_vec()),
            ..TypeOf::default()
        }));
        let declared = "type ipv4_addr . inet_service : ipv4_addr . inet_service\n";
        assert!(set_text(&set).contains(declared), "{}", set_text(&set));
    }

    /// Without a path, `nft` lists the id of a cgroup, a number in host order.
    #[test]
    fn numbers_of_cgroups() {
        let concatenation = DataType(DataType::IPV4_ADDR.0 << 6 | DataType::CGROUPV2.0);
        let mut set = Set::new("s", concatenation, 12);
        let key = [[10, 0, 0, 1].as_slice(), &1_u64.to_ne_bytes()].concat();
        set.elements = vec![Element::value(key.as_slice().into())];
        let text = set_text(&set);
        assert!(text.contains("type ipv4_addr . cgroupsv2\n"), "{text}");
        assert!(text.contains("{ 10.0.0.1 . 1 }"), "{text}");
    }
}
