//! What each variant takes away, and what runs on it.

/// The row of one variant.
#[derive(Debug)]
pub struct Row {
    /// Its name in `kernels.toml`; for a kernel of another flavour, the kernel's name.
    pub name: &'static str,
    /// Rows of `weir preflight` that must be lacking there, or the variant is not one: area and feature.
    pub absent: &'static [(&'static str, &'static str)],
    /// Rows that must be there all the same.
    pub present: &'static [(&'static str, &'static str)],
    /// Probes that tests may skip there, whatever the kernel's version: how they start.
    pub taken: &'static [&'static str],
    /// What runs: how the names start.
    pub cases: &'static [&'static str],
}

/// What runs on every variant. The demonstration does, but not with the static program alone: what that can do
/// without is the same with fewer modules.
const ALWAYS: [&str; 3] = [
    super::case::PREFLIGHT,
    "agent::fallback::redirection_",
    "agent::command::demo::",
];

/// What weir does without a part of the kernel; a variant has those of the parts that it takes away.
const NFT_NAMED: &str = "agent::fallback::nf_tables_when_named_";
const LEGACY_NAMED: &str = "agent::fallback::legacy_tables_when_named_";
const LEGACY_IPV4: &str = "agent::fallback::legacy_tables_of_ipv4_";
const TPROXY: &str = "agent::fallback::transparent_proxying_";
const SETS: &str = "agent::fallback::sets_";
const CLEAN: &str = "agent::fallback::a_pod_without_rules_";
const FALLBACKS: &str = "agent::fallback::";

/// What `weir preflight` says of a part of the kernel, compared with what a tool then finds there. A variant has those
/// of the parts that it changes.
const NFT: &str = "agent::preflight::oracle::nft_";
const IPTABLES: &str = "agent::preflight::oracle::iptables_";
const IPSET: &str = "agent::preflight::oracle::ipset_";
const IPROUTE2: &str = "agent::preflight::oracle::iproute2_";
const ORACLES: &str = "agent::preflight::oracle::";

const ROWS: &[Row] = &[
    Row {
        name: "no-xtables",
        absent: &[("xtables", "table ip nat"), ("xtables", "table ip6 mangle")],
        present: &[("nf_tables", "expression match")],
        taken: &["xtables", "table ip", "match ip", "target ip"],
        cases: &[
            IPTABLES,
            LEGACY_NAMED,
            LEGACY_IPV4,
            CLEAN,
            "netfilter::oracle::",
            "netfilter::compat::",
            "cni::chain::",
        ],
    },
    Row {
        name: "no-nftables",
        absent: &[
            ("nf_tables", "family inet"),
            ("nf_tables", "expression redir"),
        ],
        present: &[("xtables", "table ip nat")],
        taken: &["nf_tables", "family", "expression", "chain"],
        cases: &[NFT, NFT_NAMED, TPROXY, CLEAN, "netfilter::xtables_oracle::"],
    },
    Row {
        name: "no-tproxy",
        absent: &[
            ("nf_tables", "expression tproxy"),
            ("xtables", "target ip TPROXY"),
            ("xtables", "match ip6 socket"),
        ],
        present: &[("nf_tables", "expression redir")],
        taken: &[
            "expression tproxy",
            "expression socket",
            "target ip",
            "match ip",
        ],
        cases: &[NFT, IPTABLES, TPROXY, "cni::chain::"],
    },
    Row {
        name: "no-nft-tproxy",
        absent: &[("nf_tables", "expression tproxy")],
        present: &[
            ("nf_tables", "expression redir"),
            ("xtables", "target ip TPROXY"),
            ("xtables", "target ip6 TPROXY"),
        ],
        taken: &["expression tproxy"],
        cases: &[TPROXY],
    },
    Row {
        name: "no-ip6tables",
        absent: &[("xtables", "table ip6 nat")],
        present: &[("xtables", "table ip nat")],
        taken: &["table ip6", "match ip6", "target ip6"],
        cases: &[IPTABLES, LEGACY_NAMED, LEGACY_IPV4, CLEAN],
    },
    Row {
        name: "no-ipset",
        absent: &[("ipset", "hash:ip inet"), ("xtables", "match ip set")],
        present: &[("xtables", "table ip nat")],
        taken: &[
            "hash:",
            "list:",
            "bitmap:",
            "ipset",
            "match ip set",
            "target ip SET",
        ],
        cases: &[IPSET, IPTABLES, SETS, "netfilter::oracle::", "cni::chain::"],
    },
    Row {
        name: "no-ipv6",
        absent: &[("system", "IPv6"), ("net", "policy routing ip6")],
        present: &[("nf_tables", "family inet")],
        taken: &["IPv6"],
        cases: &[ORACLES, FALLBACKS, "netlink::netns::"],
    },
    Row {
        name: "no-btf",
        absent: &[("system", "BTF of the kernel")],
        present: &[("nf_tables", "family inet")],
        taken: &["BTF"],
        cases: &[IPROUTE2],
    },
    Row {
        name: "6.12-rt",
        absent: &[],
        present: &[("nf_tables", "family inet")],
        taken: &[],
        cases: &[
            ORACLES,
            "agent::traffic::dns::",
            "agent::traffic::inbound::",
            "agent::traffic::outbound::",
            "agent::traffic::own::",
            "netfilter::oracle::",
            "netfilter::xtables_engine::",
            "cni::chain::",
        ],
    },
];

/// The row of a variant, or of a kernel of another flavour.
#[must_use]
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|r| r.name == name)
}

/// How the names start that these tables hold.
pub(super) fn starts() -> impl Iterator<Item = &'static str> {
    let of_rows = ROWS.iter().flat_map(|row| row.cases);
    ALWAYS.iter().chain(of_rows).copied()
}

impl Row {
    /// Does the case run on it?
    #[must_use]
    pub fn runs(&self, case: &str) -> bool {
        ALWAYS.iter().chain(self.cases).any(|c| case.starts_with(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_vm::Catalogue;

    #[test]
    fn every_variant_of_the_catalogue_has_a_row() {
        for variant in Catalogue::load().unwrap().variants {
            assert!(row(&variant.name).is_some(), "{}", variant.name);
        }
        assert!(row("6.12").is_none());
    }
}
