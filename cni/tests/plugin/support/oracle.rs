//! The real tools in a separate namespace, and their listings in a comparable form.

use std::collections::BTreeMap;
use weir_netlink::Netns;
use weir_testing::tool::tool;

/// Tables by family and name, with their chains: the line of the chain itself, followed by its rules in order.
pub type Listing = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// A fresh namespace.
pub struct Bench {
    netns: Netns,
}

impl Bench {
    pub fn new() -> Self {
        Self {
            netns: Netns::create().unwrap(),
        }
    }

    /// The namespace.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Runs a tool in the namespace; a failure of the tool fails the test and prints its input.
    fn run(&self, command: &[&str], input: &str) -> String {
        let (program, args) = command.split_first().unwrap();
        let run = tool(&self.netns, program, args, input);
        run.unwrap_or_else(|e| panic!("{command:?}: {e}\n{input}"))
    }

    /// `iptables-legacy-restore --noflush`, or the one for IPv6.
    pub fn restore(&self, family: &str, text: &str) {
        let tool = format!("{}-legacy-restore", program(family));
        self.run(&[&tool, "--noflush", "-w", "60"], text);
    }

    /// `iptables-nft-restore --noflush`, or the one for IPv6.
    pub fn restore_nft(&self, family: &str, text: &str) {
        let tool = format!("{}-nft-restore", program(family));
        self.run(&[&tool, "--noflush"], text);
    }

    /// `iptables-nft-save` and `ip6tables-nft-save`
    pub fn save_nft(&self) -> Listing {
        let mut listing = saved("ipv4", &self.run(&["iptables-nft-save"], ""));
        listing.extend(saved("ipv6", &self.run(&["ip6tables-nft-save"], "")));
        listing
    }

    /// `iptables-legacy-save` and `ip6tables-legacy-save`
    pub fn save(&self) -> Listing {
        let mut listing = saved("ipv4", &self.run(&["iptables-legacy-save"], ""));
        listing.extend(saved("ipv6", &self.run(&["ip6tables-legacy-save"], "")));
        listing
    }

    /// `nft -f -`
    pub fn nft(&self, text: &str) {
        self.run(&["nft", "-f", "-"], text);
    }

    /// `nft list ruleset`
    pub fn nft_list(&self) -> Listing {
        listed(&self.run(&["nft", "list", "ruleset"], ""))
    }
}

fn program(family: &str) -> &'static str {
    match family {
        "ipv6" => "ip6tables",
        _ => "iptables",
    }
}

/// Parses the text of `iptables-save`.
pub fn saved(family: &str, text: &str) -> Listing {
    let mut listing = Listing::new();
    let mut table = String::new();
    for line in text
        .lines()
        .filter(|l| !l.starts_with('#') && *l != "COMMIT")
    {
        if let Some(name) = line.strip_prefix('*') {
            table = format!("{family} {name}");
            listing.entry(table.clone()).or_default();
            continue;
        }
        let chains = listing
            .get_mut(&table)
            .unwrap_or_else(|| panic!("no table before {line}"));
        if let Some(declaration) = line.strip_prefix(':') {
            let (declaration, _counters) = declaration.rsplit_once(' ').unwrap();
            let (name, _policy) = declaration.split_once(' ').unwrap();
            chains
                .entry(name.to_owned())
                .or_default()
                .insert(0, declaration.to_owned());
        } else {
            let rule = line
                .strip_prefix("-A ")
                .unwrap_or_else(|| panic!("not a rule: {line}"));
            let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
            chains
                .entry(chain.to_owned())
                .or_default()
                .push(rule.to_owned());
        }
    }
    listing
}

/// Parses the text of `nft list ruleset`, without packet counts.
pub fn listed(text: &str) -> Listing {
    let mut listing = Listing::new();
    let (mut table, mut chain) = (String::new(), String::new());
    for line in text
        .lines()
        .map(str::trim)
        .filter(|l| !matches!(*l, "" | "}") && !l.starts_with('#'))
    {
        let opened = line.strip_suffix(" {");
        if let Some(name) = opened.and_then(|l| l.strip_prefix("table ")) {
            table = name.to_owned();
            listing.entry(table.clone()).or_default();
        } else if let Some(name) = opened.and_then(|l| l.strip_prefix("chain ")) {
            chain = name.to_owned();
            listing
                .get_mut(&table)
                .unwrap()
                .entry(chain.clone())
                .or_default();
        } else {
            let lines = listing.get_mut(&table).and_then(|t| t.get_mut(&chain));
            lines
                .unwrap_or_else(|| panic!("no chain before {line}"))
                .push(without_counts(line));
        }
    }
    listing
}

fn without_counts(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    while let Some(n) = words.iter().position(|w| *w == "packets") {
        assert_eq!(words[n + 2], "bytes", "{line}");
        words.drain(n..n + 4);
    }
    words.join(" ")
}
