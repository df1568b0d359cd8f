//! Rulesets, tables and chains.

use super::Rule;
use std::fmt;

/// The tables of both families, with their actual or desired content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// IPv4 tables before IPv6 tables; a pair of family and name occurs once.
    pub tables: Vec<Table>,
}

/// `*NAME` in the text of `iptables-save` or `ip6tables-save`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The family of the packets that its chains see.
    pub family: XtFamily,
    /// `filter`, `nat`, `mangle`, `raw` or `security`.
    pub name: String,
    /// Built-in chains and user chains.
    pub chains: Vec<Chain>,
}

/// `:NAME POLICY`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name, at most 28 bytes (`XT_EXTENSION_MAXNAMELEN` without the NUL).
    pub name: String,
    /// Whether the kernel calls it or rules jump to it.
    pub kind: ChainKind,
    /// Evaluated in this order.
    pub rules: Vec<Rule>,
}

/// How packets enter a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// Called by the kernel, at the hook of that name. Without a policy, only the chain's rules are desired and its
    /// policy is kept.
    Builtin(Option<Policy>),
    /// Called by rules that jump to it (`iptables -N`).
    User,
}

/// The verdict for a packet at the end of a built-in chain (`iptables -P`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `ACCEPT`: the packet continues.
    Accept,
    /// `DROP`: the packet is dropped.
    Drop,
}

/// The protocol family of a table: each has its own, independent tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "NFPROTO_IPV4")]
pub enum XtFamily {
    /// `iptables`
    Ip,
    /// `ip6tables`
    Ip6,
}

impl Ruleset {
    /// The table with this family and name.
    #[must_use]
    pub fn table(&self, family: XtFamily, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|t| t.family == family && t.name == name)
    }

    /// The tables of one family: the text of `iptables-save` or of `ip6tables-save`, as
    /// `iptables-restore --noflush` reads it.
    #[must_use]
    pub fn family(&self, family: XtFamily) -> Self {
        let tables = self
            .tables
            .iter()
            .filter(|t| t.family == family)
            .cloned()
            .collect();
        Self { tables }
    }
}

impl Table {
    /// A table without chains.
    #[must_use]
    pub fn new(family: XtFamily, name: &str) -> Self {
        Self {
            family,
            name: name.to_owned(),
            chains: Vec::new(),
        }
    }

    /// The chain with this name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|c| c.name == name)
    }
}

impl Chain {
    /// A user chain, which rules jump to.
    #[must_use]
    pub fn user(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ChainKind::User,
            rules: Vec::new(),
        }
    }

    /// A built-in chain, which the kernel calls; its policy is kept.
    #[must_use]
    pub fn builtin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ChainKind::Builtin(None),
            rules: Vec::new(),
        }
    }
}

/// The line before the tables of a family, which distinguishes them from those of the other family.
pub(super) fn family_line(family: XtFamily) -> String {
    format!("# {family}-save\n")
}

/// `:NAME POLICY [0:0]`
pub(super) fn declare(out: &mut impl fmt::Write, name: &str, kind: ChainKind) -> fmt::Result {
    match kind {
        // A declaration of the chain would set its policy.
        ChainKind::Builtin(None) => Ok(()),
        ChainKind::Builtin(Some(policy)) => writeln!(out, ":{name} {policy} [0:0]"),
        ChainKind::User => writeln!(out, ":{name} - [0:0]"),
    }
}

/// Prints the text of `iptables-save` and `ip6tables-save`. A comment before the tables of each family names the program,
/// because the tables have the same form.
impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for table in &self.tables {
            if last.replace(table.family) != Some(table.family) {
                f.write_str(&family_line(table.family))?;
            }
            table.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*{}", self.name)?;
        for chain in &self.chains {
            declare(f, &chain.name, chain.kind)?;
        }
        for chain in &self.chains {
            for rule in &chain.rules {
                writeln!(f, "-A {}{rule}", chain.name)?;
            }
        }
        writeln!(f, "COMMIT")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
        })
    }
}

impl fmt::Display for XtFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "iptables",
            Self::Ip6 => "ip6tables",
        })
    }
}
