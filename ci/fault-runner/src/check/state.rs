//! What a network namespace holds, ours and foreign, as text that is compared.

use std::collections::BTreeSet;

use weir_cni::redirection::RTPROT_WEIR;
use weir_cni::redirection::TABLES;
use weir_netfilter::nft::{self, Ruleset, TableFamily as NftFamily};
use weir_netfilter::xtables::{self, XtFamily};
use weir_netlink::route::{RouteProtocol, Routing};
use weir_netlink::{Netns, Result};

/// Tables of routes that are looked at: that of our TPROXY routes, a foreign one, main and local.
const ROUTE_TABLES: [u32; 4] = [133, crate::check::foreign::TABLE, 254, 255];
/// The source of the proxy's connections to the application over IPv6.
const PASSTHROUGH: &str = "::6/128";

/// What a namespace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Our tables of nf_tables.
    pub(crate) nft: String,
    /// Legacy tables, as `iptables-save -c` lists them, but for those that hold nothing: looking at a table makes it.
    pub(crate) legacy: String,
    /// Our policy rules, routes and addresses.
    pub(crate) routing: BTreeSet<String>,
    /// Whatever is not ours: with handles and counters.
    pub(crate) foreign: String,
}

impl State {
    /// Reads all of it.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub(crate) fn read(netns: &Netns) -> Result<Self> {
        netns.run(|| {
            let mut state = Self::default();
            state.read_nft()?;
            state.read_legacy()?;
            state.read_routing()?;
            Ok(state)
        })?
    }

    fn read_nft(&mut self) -> Result<()> {
        let snapshot = nft::NftEngine::open()?.read()?;
        let mut texts = Vec::new();
        for (t, table) in snapshot.ruleset.tables.iter().enumerate() {
            let only = Ruleset {
                tables: vec![table.clone()],
            };
            let mut text = only.to_string();
            let is_ours = table.family == NftFamily::Inet && TABLES.contains(&table.name.as_str());
            if !is_ours {
                for c in 0..table.chains.len() {
                    text += &format!("# handles {:?}\n", snapshot.handles(t, c));
                }
            }
            texts.push((is_ours, text));
        }
        // The kernel lists tables in the order in which they were made.
        texts.sort();
        for (is_ours, text) in texts {
            match is_ours {
                true => self.nft += &text,
                false => self.foreign += &text,
            }
        }
        Ok(())
    }

    fn read_legacy(&mut self) -> Result<()> {
        let snapshot = xtables::XtEngine::open()?.read()?;
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let mut tables: Vec<String> = snapshot
                .save(family)
                .split_inclusive("COMMIT\n")
                .filter(|text| !is_untouched(text))
                .map(str::to_owned)
                .collect();
            tables.sort();
            for text in tables {
                self.legacy += &format!("# {family:?}\n{text}");
                for line in text.lines().filter(|l| is_foreign(l)) {
                    self.foreign += &format!("{family:?} {line}\n");
                }
            }
        }
        Ok(())
    }

    fn read_routing(&mut self) -> Result<()> {
        let routing = Routing::open()?;
        let weir = RouteProtocol::Other(RTPROT_WEIR);
        let mut foreign = BTreeSet::new();
        let mut put = |is_ours: bool, text: String| match is_ours {
            true => self.routing.insert(text),
            false => foreign.insert(text),
        };
        for rule in routing.rules()? {
            put(rule.protocol == weir, format!("{rule} {rule:?}"));
        }
        for table in ROUTE_TABLES {
            for route in routing.routes(table)? {
                // The kernel's own, which follow from addresses.
                if route.dst.to_string() == PASSTHROUGH {
                    continue;
                }
                put(route.protocol == weir, format!("{route} {route:?}"));
            }
        }
        for address in routing.addresses()? {
            let is_ours = address.net.to_string() == PASSTHROUGH;
            put(is_ours, format!("{address:?}"));
        }
        for line in foreign {
            self.foreign += &line;
            self.foreign.push('\n');
        }
        Ok(())
    }

    /// The same without the counters of legacy rules.
    ///
    /// The kernel replaces a table with counters at zero and adds the old ones in a call of its own: a process that is
    /// killed between loses them, that of the iptables tools too.
    pub(crate) fn without_legacy_counters(&self) -> Self {
        Self {
            legacy: uncounted(&self.legacy),
            // A policy is listed there for its counters.
            foreign: uncounted(&self.foreign)
                .lines()
                .filter(|line| !line.ends_with(" ACCEPT [0:0]"))
                .map(|line| format!("{line}\n"))
                .collect(),
            ..self.clone()
        }
    }

    /// What differs from another state, by part.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let mut text = String::new();
        let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
        let parts = [
            ("nft", lines(&self.nft), lines(&other.nft)),
            ("legacy", lines(&self.legacy), lines(&other.legacy)),
            (
                "routing",
                self.routing.iter().cloned().collect(),
                other.routing.iter().cloned().collect(),
            ),
            ("foreign", lines(&self.foreign), lines(&other.foreign)),
        ];
        for (part, left, right) in parts {
            let only = |a: &[String], b: &[String], sign: &str| -> String {
                let lines = a.iter().filter(|l| !b.contains(l));
                lines.map(|l| format!("  {part} {sign} {l}\n")).collect()
            };
            text += &only(&left, &right, "-");
            text += &only(&right, &left, "+");
        }
        text
    }
}

/// Lines with `[PACKETS:BYTES]` as if nothing had been counted.
fn uncounted(text: &str) -> String {
    let line = |line: &str| match (line.find('['), line.find(']')) {
        (Some(from), Some(to)) if line[from..to].contains(':') => {
            format!("{}[0:0]{}\n", &line[..from], &line[to + 1..])
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// A table as the kernel makes it when it is looked up.
fn is_untouched(text: &str) -> bool {
    text.lines().all(|line| match line.split_once(' ') {
        Some((_, rest)) if line.starts_with(':') => rest == "ACCEPT [0:0]",
        _ => !line.starts_with('['),
    })
}

/// A line of [`crate::check::foreign`], or a policy that saw packets.
fn is_foreign(line: &str) -> bool {
    line.contains("FOREIGN")
        || (line.starts_with(':') && !line.contains("ISTIO") && !line.ends_with("[0:0]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_only_looked_at_holds_nothing() {
        let untouched = "*nat\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";
        assert!(is_untouched(untouched));
        for text in [
            untouched.replace("ACCEPT [0:0]\n:O", "DROP [0:0]\n:O"),
            untouched.replace("[0:0]\n:O", "[1:20]\n:O"),
            untouched.replace("COMMIT", ":MINE - [0:0]\nCOMMIT"),
            untouched.replace("COMMIT", "[0:0] -A OUTPUT -j ACCEPT\nCOMMIT"),
        ] {
            assert!(!is_untouched(&text), "{text}");
        }
    }

    #[test]
    fn only_counters_of_legacy_rules_are_left_out() {
        let text = "# Ip\n:INPUT ACCEPT [1:2]\n[3:4] -A INPUT -j X\n\tcounter packets 5 bytes 6\n";
        let without =
            "# Ip\n:INPUT ACCEPT [0:0]\n[0:0] -A INPUT -j X\n\tcounter packets 5 bytes 6\n";
        assert_eq!(uncounted(text), without);
    }

    #[test]
    fn differences_name_their_part() {
        let left = State {
            nft: "a\nb\n".into(),
            ..State::default()
        };
        let right = State {
            nft: "b\n".into(),
            routing: ["r".to_owned()].into(),
            ..State::default()
        };
        assert_eq!(left.difference(&right), "  nft - a\n  routing + r\n");
        assert_eq!(left.difference(&left), "");
    }
}
