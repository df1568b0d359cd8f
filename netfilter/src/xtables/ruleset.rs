//! Rulesets, tables and chains.

use super::Rule;
use std::fmt;

/// The tables of both families, each with what it holds or shall hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// IPv4 tables before IPv6 tables; a pair of family and name occurs once.
    pub tables: Vec<Table>,
}

/// `*NAME` in the text of `iptables-save` or `ip6tables-save`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Whose packets it sees.
    pub family: Family,
    /// `filter`, `nat`, `mangle`, `raw` or `security`.
    pub name: String,
    /// Built-in chains and user chains.
    pub chains: Vec<Chain>,
}

/// `:NAME POLICY`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name, at most 28 bytes (`XT_EXTENSION_MAXNAMELEN` less the zero).
    pub name: String,
    /// Whether the kernel calls it or rules jump to it.
    pub kind: ChainKind,
    /// Evaluated in this order.
    pub rules: Vec<Rule>,
}

/// Who enters a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainKind {
    /// The kernel, at the hook of that name. Without a policy the chain is wished for its rules only
    /// and keeps the policy that it has.
    Builtin(Option<Policy>),
    /// Rules that jump to it (`iptables -N`).
    User,
}

/// What happens to a packet at the end of a built-in chain (`iptables -P`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `ACCEPT`: it goes on.
    Accept,
    /// `DROP`: it is gone.
    Drop,
}

/// The protocol family of a table: two sets of tables that know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `iptables`
    Ip,
    /// `ip6tables`
    Ip6,
}

impl Ruleset {
    /// The table of that family and name.
    #[must_use]
    pub fn table(&self, family: Family, name: &str) -> Option<&Table> {
        self.tables
            .iter()
            .find(|t| t.family == family && t.name == name)
    }

    /// The tables of one family: the text of `iptables-save` or of `ip6tables-save`, as
    /// `iptables-restore --noflush` reads it.
    #[must_use]
    pub fn family(&self, family: Family) -> Self {
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
    /// A table with no chains in it.
    #[must_use]
    pub fn new(family: Family, name: &str) -> Self {
        Self {
            family,
            name: name.to_owned(),
            chains: Vec::new(),
        }
    }

    /// The chain of that name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|c| c.name == name)
    }
}

impl Chain {
    /// A chain that rules jump to.
    #[must_use]
    pub fn user(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ChainKind::User,
            rules: Vec::new(),
        }
    }

    /// A chain that the kernel calls, whose policy stays as it is.
    #[must_use]
    pub fn builtin(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: ChainKind::Builtin(None),
            rules: Vec::new(),
        }
    }
}

/// A comment names the program before each family's half, because their texts look alike.
impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for table in &self.tables {
            if last.replace(table.family) != Some(table.family) {
                writeln!(f, "# {}-save", table.family)?;
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
            match chain.kind {
                // Naming the chain here would set a policy.
                ChainKind::Builtin(None) => {}
                ChainKind::Builtin(Some(policy)) => writeln!(f, ":{} {policy} [0:0]", chain.name)?,
                ChainKind::User => writeln!(f, ":{} - [0:0]", chain.name)?,
            }
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

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "iptables",
            Self::Ip6 => "ip6tables",
        })
    }
}
