//! Runs that were made by hand: one as it looks in life, and one with everything that can go wrong in a text.
use weir_vmtests::matrix::model::{Capability, CaseResult, Environment, Run, Verdict};

/// Name, release, package, what the variant leaves out.
const ENVIRONMENTS: &[(&str, &str, &str, &str)] = &[
    ("host", "6.18.5-amd64", "", ""),
    ("5.10", "5.10.0-39-cloud-amd64", "5.10.262-1", ""),
    ("6.1", "6.1.0-45-cloud-amd64", "6.1.192-2", ""),
    ("6.12", "6.12.117+deb13-cloud-amd64", "6.12.117-1", ""),
    ("6.18", "6.18.15+deb13-cloud-amd64", "6.18.15-1~bpo13+1", ""),
    ("7.2", "7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1", ""),
    ("6.12-rt", "6.12.117+deb13-rt-amd64", "6.12.117-1", ""),
    (
        "5.10-no-nftables",
        "5.10.0-39-cloud-amd64",
        "5.10.262-1",
        "no nf_tables: only the legacy tables are left",
    ),
    (
        "6.1-no-xtables",
        "6.1.0-45-cloud-amd64",
        "6.1.192-2",
        "no legacy iptables and ip6tables",
    ),
    (
        "6.1-no-tproxy",
        "6.1.0-45-cloud-amd64",
        "6.1.192-2",
        "no transparent proxying",
    ),
    (
        "6.12-no-ip6tables",
        "6.12.117+deb13-cloud-amd64",
        "6.12.117-1",
        "legacy tables for IPv4 only",
    ),
    (
        "6.18-no-ipset",
        "6.18.15+deb13-cloud-amd64",
        "6.18.15-1~bpo13+1",
        "no ipset, and no match on one",
    ),
    (
        "7.2-no-ipv6",
        "7.2.12+deb13-cloud-amd64",
        "7.2.12-1~bpo13+1",
        "IPv6 is switched off at boot",
    ),
];

/// Group, feature, what weir does instead, the environments that lack it.
const FEATURES: &[(&str, &str, &str, &[&str])] = &[
    (
        "nf_tables",
        "family inet",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "chain inet nat",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "expression redir",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables"],
    ),
    (
        "nf_tables",
        "expression socket",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables", "6.1-no-tproxy"],
    ),
    (
        "nf_tables",
        "expression tproxy",
        "legacy tables (--engine xtables)",
        &["5.10-no-nftables", "6.1-no-tproxy"],
    ),
    (
        "nf_tables",
        "generation guard",
        "a change of somebody else is found by reading back",
        &[],
    ),
    (
        "xtables",
        "table ip nat",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables"],
    ),
    (
        "xtables",
        "table ip6 nat",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables", "6.12-no-ip6tables"],
    ),
    (
        "xtables",
        "target ip REDIRECT",
        "nf_tables (--engine nft)",
        &["6.1-no-xtables"],
    ),
    (
        "ipset",
        "hash:ip inet",
        "sets of nf_tables (--engine nft)",
        &["6.18-no-ipset"],
    ),
    (
        "ipset",
        "hash:mac",
        "sets of nf_tables (--engine nft)",
        &[
            "host",
            "5.10",
            "6.1",
            "6.12",
            "6.18",
            "7.2",
            "6.12-rt",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
            "6.12-no-ip6tables",
            "6.18-no-ipset",
            "7.2-no-ipv6",
        ],
    ),
    (
        "net",
        "link veth",
        "geneve or vxlan as carrier of node-level ambient",
        &[],
    ),
    (
        "net",
        "link netkit",
        "veth",
        &[
            "5.10",
            "6.1",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
        ],
    ),
    (
        "ebpf",
        "attach tcx",
        "clsact with cls_bpf",
        &[
            "5.10",
            "6.1",
            "5.10-no-nftables",
            "6.1-no-xtables",
            "6.1-no-tproxy",
        ],
    ),
    ("system", "IPv6", "IPv4 only", &["7.2-no-ipv6"]),
    (
        "system",
        "BTF of the kernel",
        "programs that need no BTF",
        &[],
    ),
];

/// Room, test program, how many tests.
const PROGRAMS: &[(&str, &str, usize)] = &[
    ("netlink", "netns", 12),
    ("netlink", "route", 29),
    ("netfilter", "bytes", 18),
    ("netfilter", "oracle", 41),
    ("netfilter", "sets", 22),
    ("netfilter", "xtables_engine", 35),
    ("netfilter", "ipset", 28),
    ("cni", "chain", 16),
    ("cni", "plugin", 33),
    ("cni", "runtime", 21),
    ("agent", "traffic", 30),
    ("agent", "command", 24),
];

const TESTS: &[&str] = &[
    "a_redirect_keeps_the_original_destination",
    "apply_twice_changes_nothing",
    "drift_is_named",
    "ipv6_goes_the_same_way",
    "rules_of_others_stay",
    "a_set_with_intervals_is_read_back",
    "a_failed_change_leaves_the_namespace_as_it_was",
    "the_proxy_reaches_the_server",
];

pub(crate) fn environment(name: &str) -> Environment {
    let known = ENVIRONMENTS.iter().find(|e| e.0 == name);
    let (_, release, version, variant) = *known.unwrap_or(&("", "1.0", "1.0-1", ""));
    let host = name == "host";
    Environment {
        name: name.into(),
        release: release.into(),
        package: if host {
            "the running kernel".into()
        } else {
            format!("linux-image-{release} {version}")
        },
        sources: if host {
            Vec::new()
        } else {
            vec![(
                format!("linux-image-{release}_{version}_amd64.deb"),
                "5cb31d4bfb82a09e".repeat(4),
            )]
        },
        variant: variant.into(),
        config: [
            "NF_TABLES=m",
            "IP_NF_IPTABLES=m",
            "NETFILTER_XTABLES_LEGACY=y",
            "IP_SET=m",
            "DEBUG_INFO_BTF=y",
        ]
        .map(|c| format!("CONFIG_{c}"))
        .to_vec(),
        cold_boot: (!host).then_some(2.04),
        unavailable: None,
    }
}

pub(crate) fn result(environment: &str, case: &str, verdict: Verdict) -> CaseResult {
    CaseResult {
        environment: environment.into(),
        case: case.into(),
        verdict,
        seconds: 0.31,
        restored: environment != "host",
    }
}

/// One as it looks in life: 13 environments, 309 cases. `failing`: with two failures.
pub(crate) fn lifelike(failing: bool) -> Run {
    let mut run = Run {
        started: "2026-01-31T12:00:00Z".into(),
        seconds: 312.4,
        host: "6.18.5-amd64".into(),
        qemu: "7.2.22".into(),
        accelerator: "tcg".into(),
        selection: String::new(),
        environments: ENVIRONMENTS.iter().map(|e| environment(e.0)).collect(),
        results: Vec::new(),
        capabilities: Vec::new(),
    };
    for (name, ..) in ENVIRONMENTS {
        for (group, feature, instead, lacking) in FEATURES {
            run.capabilities.push(Capability {
                environment: (*name).into(),
                group: (*group).into(),
                name: (*feature).into(),
                answer: if lacking.contains(name) {
                    "lack"
                } else {
                    "have"
                }
                .into(),
                remark: (*instead).into(),
            });
        }
        for (room, program, tests) in PROGRAMS {
            for n in 0..*tests {
                let test = TESTS[n % TESTS.len()];
                let case = format!("{room}::{program}::part_{}::{test}", n / TESTS.len());
                run.results
                    .push(result(name, &case, ending(name, program, n, failing)));
            }
        }
    }
    run
}

fn ending(environment: &str, program: &str, n: usize, failing: bool) -> Verdict {
    if failing && n == 3 && program == "sets" && environment == "5.10" {
        return Verdict::Failed { text: "thread 'main' panicked at netfilter/tests/sets.rs:88:9:\n\
            assertion `left == right` failed: read back\n  left: \"{ 10.0.0.0/8, 192.0.2.1 }\"\n right: \"{ 10.0.0.0/8 }\"".into() };
    }
    if failing && n == 7 && program == "traffic" && environment == "7.2" {
        return Verdict::Failed { text: "the kernel warned while it ran\n\
            \x1b[33m[    3.120394]\x1b[0m ------------[ cut here ]------------\r\r\n\
            [    3.120401] WARNING: CPU: 0 PID: 214 at net/netfilter/nf_tables_api.c:1242 nft_chain_del+0x9b/0xb0 [nf_tables]\r\r\n\
            [    3.120411] Call Trace:\r\r\n[    3.120415]  __nf_tables_abort+0x6b2/0xd90 [nf_tables]\r\r\n".into() };
    }
    let lacks: Option<(&str, &str)> = match (environment, program) {
        ("5.10-no-nftables", "bytes" | "oracle" | "sets") => Some(("nf_tables/family inet", "")),
        ("6.1-no-xtables", "xtables_engine") => Some(("xtables/table ip nat", "")),
        ("6.18-no-ipset", "ipset") => Some(("ipset/hash:ip inet", "")),
        ("6.1-no-tproxy", "traffic") if n % 5 == 0 => Some(("nf_tables/expression tproxy", "")),
        ("5.10", "oracle") if n % 20 == 0 => Some(("nf_tables/destroy", "6.3")),
        _ => None,
    };
    lacks.map_or(Verdict::Passed, |(probe, since)| Verdict::Skipped {
        probe: probe.into(),
        since: since.into(),
        reason: "Operation not supported (EOPNOTSUPP)".into(),
    })
}

/// What no reader of a report may stumble over.
pub(crate) const HOSTILE: &str = "<script>alert(1)</script>&amp;\"'`|*_ \u{202e}dlog\u{7} \u{1b}[2J]]>\0 \u{ffff} größer ✓ 中文 <!-- /matrix -->\r\n-->";

/// Hostile text wherever there is text.
pub(crate) fn hostile() -> Run {
    let long = "x".repeat(3000);
    let mut run = lifelike(true);
    run.started = HOSTILE.into();
    run.host = HOSTILE.into();
    run.qemu = HOSTILE.into();
    run.seconds = f64::INFINITY;
    run.environments.truncate(3);
    run.results
        .retain(|r| ["host", "5.10", "6.1"].contains(&&*r.environment));
    run.capabilities
        .retain(|r| ["host", "5.10", "6.1"].contains(&&*r.environment));
    let mut odd = environment("odd");
    odd.name = HOSTILE.into();
    odd.release = long.clone();
    odd.package = HOSTILE.into();
    odd.sources = vec![(HOSTILE.into(), HOSTILE.into())];
    odd.variant = HOSTILE.into();
    odd.config = vec![HOSTILE.into(), long.clone()];
    odd.cold_boot = Some(f64::NAN);
    odd.unavailable = Some(HOSTILE.into());
    run.environments.push(odd);
    let text = format!("{HOSTILE}\n{long}\n{HOSTILE}");
    run.results
        .push(result(HOSTILE, HOSTILE, Verdict::Failed { text }));
    run.results
        .push(result("6.1", &format!("netlink::{long}"), Verdict::Passed));
    run.results.push(result(
        "6.1",
        "",
        Verdict::Failed {
            text: String::new(),
        },
    ));
    run.results.push(result(
        "nobody knows it",
        HOSTILE,
        Verdict::Ignored {
            reason: HOSTILE.into(),
        },
    ));
    run.results.push(result(
        "6.1",
        "a::b::c",
        Verdict::Skipped {
            probe: HOSTILE.into(),
            since: HOSTILE.into(),
            reason: long,
        },
    ));
    run.capabilities.push(Capability {
        environment: HOSTILE.into(),
        group: HOSTILE.into(),
        name: HOSTILE.into(),
        answer: HOSTILE.into(),
        remark: HOSTILE.into(),
    });
    run
}
