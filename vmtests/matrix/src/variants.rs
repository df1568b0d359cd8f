//! What each variant takes away. What runs on it is said by the tests: see [`crate::marks`].

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
}

const ROWS: &[Row] = &[
    Row {
        name: "no-xtables",
        absent: &[("xtables", "table ip nat"), ("xtables", "table ip6 mangle")],
        present: &[("nf_tables", "expression match")],
        taken: &["xtables", "table ip", "match ip", "target ip"],
    },
    Row {
        name: "no-nftables",
        absent: &[
            ("nf_tables", "family inet"),
            ("nf_tables", "expression redir"),
        ],
        present: &[("xtables", "table ip nat")],
        taken: &["nf_tables", "family", "expression", "chain"],
    },
    Row {
        name: "no-netfilter",
        absent: &[
            ("nf_tables", "family inet"),
            ("nf_tables", "expression redir"),
            ("xtables", "table ip nat"),
            ("xtables", "table ip6 mangle"),
            ("ipset", "hash:ip inet"),
        ],
        present: &[("ebpf", "programs inside of pods"), ("ebpf", "attach tcx")],
        taken: &[
            "nf_tables",
            "family",
            "expression",
            "chain",
            "xtables",
            "table ip",
            "match ip",
            "target ip",
            "hash:",
            "ipset",
        ],
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
    },
    Row {
        name: "no-ip6tables",
        absent: &[("xtables", "table ip6 nat")],
        present: &[("xtables", "table ip nat")],
        taken: &["table ip6", "match ip6", "target ip6"],
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
    },
    Row {
        name: "no-geneve",
        absent: &[("net", "link geneve")],
        present: &[("net", "link vxlan"), ("nf_tables", "expression tproxy")],
        taken: &["link geneve"],
    },
    Row {
        name: "no-ipv6",
        absent: &[("system", "IPv6"), ("net", "policy routing ip6")],
        present: &[("nf_tables", "family inet")],
        taken: &["IPv6"],
    },
    Row {
        name: "no-btf",
        absent: &[("system", "BTF of the kernel")],
        present: &[("nf_tables", "family inet")],
        taken: &["BTF"],
    },
    Row {
        name: "6.12-rt",
        absent: &[],
        present: &[("nf_tables", "family inet")],
        taken: &[],
    },
];

/// The row of a variant, or of a kernel of another flavour.
#[must_use]
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|r| r.name == name)
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
