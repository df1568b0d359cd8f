//! Hand-made runs: a realistic one, and one with hostile text.
mod tables;

use tables::{ENVIRONMENTS, FEATURES, PROGRAMS, TESTS};
use weir_vmtests::model::{Capability, CaseResult, Environment, Run, Verdict};
use weir_vmtests::skip::Skip;

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

/// A realistic run: 13 environments, 309 cases. `failing`: with two failures.
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
        return Verdict::Failed { text: "thread 'main' panicked at netfilter/tests/kernel/sets.rs:88:9:\n\
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
        ("6.1-no-tproxy", "traffic") if n.is_multiple_of(5) => {
            Some(("nf_tables/expression tproxy", ""))
        }
        ("5.10", "oracle") if n.is_multiple_of(20) => Some(("nf_tables/destroy", "6.3")),
        _ => None,
    };
    lacks.map_or(Verdict::Passed, |(probe, since)| {
        Verdict::Skipped(Skip {
            probe: probe.into(),
            since: since.into(),
            reason: "Operation not supported (EOPNOTSUPP)".into(),
        })
    })
}

/// A text with characters that are special in the formats of the report.
pub(crate) const HOSTILE: &str = "<script>alert(1)</script>&amp;\"'`|*_ \u{202e}dlog\u{7} \u{1b}[2J]]>\0 \u{ffff} größer ✓ 中文 <!-- /matrix -->\r\n-->";

/// The run with hostile text in every text field.
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
        Verdict::Skipped(Skip {
            probe: HOSTILE.into(),
            since: HOSTILE.into(),
            reason: long,
        }),
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
