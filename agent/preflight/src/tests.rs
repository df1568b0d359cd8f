use super::*;
use std::collections::{BTreeMap, HashSet};
use weir_netfilter::probe::{Answer, Finding, finding, ipset, nft, xtables};

/// Every feature that can be found, had.
fn all_had() -> Vec<Finding> {
    let rows = [
        nft::untried(""),
        xtables::untried(""),
        ipset::untried(""),
        net::untried(""),
        bpf::ROWS
            .iter()
            .map(|r| finding(bpf::AREA, r.feature.into(), had(), r.needs, ("", "")))
            .collect(),
        system::findings(),
        process::findings(),
    ];
    let had = |f: Finding| Finding { answer: had(), ..f };
    let rows = rows.into_iter().flatten();
    rows.chain([system::untried("")]).map(had).collect()
}

fn had() -> Answer {
    Answer::Have(String::new())
}

/// Everything is had, except these: keys `AREA/FEATURE`, or beginnings of them.
fn with(changes: &[(&str, Answer)]) -> Survey {
    let mut findings = all_had();
    for (prefix, answer) in changes {
        let mut hits = 0;
        for f in &mut findings {
            if format!("{}/{}", f.area, f.feature).starts_with(prefix) {
                f.answer = answer.clone();
                hits += 1;
            }
        }
        assert!(hits > 0, "{prefix}");
    }
    Survey {
        release: "6.1".into(),
        modules: String::new(),
        facts: Vec::new(),
        untried: None,
        findings,
    }
}

fn lack() -> Answer {
    Answer::Lack("no".into())
}

fn unknown() -> Answer {
    Answer::Unknown("not asked".into())
}

fn outcomes(survey: &Survey) -> BTreeMap<&'static str, Outcome> {
    JOBS.iter()
        .map(|j| (j.name, j.judge(survey).outcome))
        .collect()
}

#[test]
fn every_key_of_a_job_is_a_feature_and_features_are_there_once() {
    let survey = with(&[]);
    let ways = JOBS.iter().flat_map(|j| j.needs).flat_map(|n| n.ways);
    for (area, feature) in ways.flat_map(jobs::Way::keys) {
        assert!(survey.find(area, &feature).is_some(), "{area} {feature}");
    }
    for job in JOBS {
        for name in job.capabilities {
            assert!(
                survey.find("process", &format!("CAP_{name}")).is_some(),
                "{name}"
            );
        }
    }
    let keys: HashSet<_> = survey
        .findings
        .iter()
        .map(|f| (f.area, &f.feature))
        .collect();
    assert_eq!(keys.len(), survey.findings.len());
}

#[test]
fn a_kernel_with_everything_does_every_job() {
    assert!(outcomes(&with(&[])).values().all(|o| *o == Outcome::Works));
}

#[test]
fn what_replaces_something_is_a_fallback_that_says_why() {
    let survey = with(&[("nf_tables/expression redir", lack())]);
    let got = outcomes(&survey);
    assert_eq!(got["sidecar"], Outcome::WorksWithFallback);
    assert_eq!(
        got["node-ambient"],
        Outcome::Works,
        "it redirects by TPROXY"
    );
    let reasons = jobs::find("sidecar").unwrap().judge(&survey).reasons;
    let want = "redirection: legacy tables (nf_tables: no expression redir (CONFIG_NFT_REDIR \
                CONFIG_NFT_NAT CONFIG_NF_NAT))";
    assert!(reasons.contains(&want.to_owned()), "{reasons:?}");
    let survey = with(&[("net/link geneve", lack()), ("ebpf/attach tcx", lack())]);
    let got = outcomes(&survey);
    assert_eq!(got["node-ambient"], Outcome::WorksWithFallback);
    assert_eq!(got["ebpf"], Outcome::DoesNotWork);
    assert_eq!(got["sidecar"], Outcome::Works);
    // `apply` mounts nothing.
    let survey = with(&[("system/bpffs", lack()), ("system/bpffs can", had())]);
    assert_eq!(outcomes(&survey)["ebpf"], Outcome::DoesNotWork);
    let survey = with(&[("ebpf/programs inside of pods", lack())]);
    let got = outcomes(&survey);
    assert_eq!(got["ebpf"], Outcome::DoesNotWork);
    assert_eq!(got["node-ebpf"], Outcome::Works);
    let survey = with(&[("ebpf/programs at the node", lack())]);
    let got = outcomes(&survey);
    assert_eq!(got["ebpf"], Outcome::Works);
    assert_eq!(got["node-ebpf"], Outcome::DoesNotWork);
}

/// The kernel takes the one in the place of the other.
#[test]
fn cap_sys_admin_serves_for_cap_bpf() {
    let missing = |changes: &[(&str, Answer)]| {
        let verdict = jobs::find("ebpf").unwrap().judge(&with(changes));
        verdict.missing_capabilities.contains(&"BPF")
    };
    assert!(!missing(&[("process/CAP_BPF", lack())]));
    assert!(missing(&[
        ("process/CAP_BPF", lack()),
        ("process/CAP_SYS_ADMIN", lack())
    ]));
}

/// As on 5.10 to 6.5.
#[test]
fn programs_at_the_node_are_attached_without_tcx() {
    let survey = with(&[("ebpf/attach tcx", lack())]);
    let verdict = jobs::find("node-ebpf").unwrap().judge(&survey);
    assert_eq!(verdict.outcome, Outcome::WorksWithFallback);
    let reasons = verdict.reasons.join("; ");
    let want = "attachment: filters of a clsact qdisc (tcx links: no attach tcx";
    assert!(reasons.starts_with(want), "{reasons}");
    let survey = with(&[("ebpf/attach", lack())]);
    assert_eq!(outcomes(&survey)["node-ebpf"], Outcome::DoesNotWork);
}

/// Each namespace has its own engine.
#[test]
fn without_tproxy_of_nf_tables_only_the_proxy_has_legacy_tables() {
    let survey = with(&[("nf_tables/expression tproxy", lack())]);
    let verdict = jobs::find("node-ambient").unwrap().judge(&survey);
    assert_eq!(verdict.outcome, Outcome::WorksWithFallback);
    let of_proxy = |reason: &String| reason.contains("prox") && reason.contains("legacy tables");
    assert!(verdict.reasons.iter().all(of_proxy), "{verdict:?}");
    // Sets of ipset are the node's only.
    let survey = with(&[("nf_tables/expression tproxy", lack()), ("ipset/", lack())]);
    assert_eq!(
        outcomes(&survey)["node-ambient"],
        Outcome::WorksWithFallback
    );
}

/// What `auto` chooses is what the job counts as the best that is there.
#[test]
fn the_tunnel_of_the_job_is_that_which_is_chosen() {
    let job = jobs::find("node-ambient").unwrap();
    let mut needs = job.needs.iter();
    let need = needs.find(|need| need.what.contains("tunnel")).unwrap();
    let names: Vec<_> = need.ways.iter().map(|way| way.name).collect();
    let order = weir_node_ambient::CarrierChoice::ORDER;
    assert_eq!(names, order.map(weir_node_ambient::CarrierChoice::words));
    for (way, kind) in need.ways.iter().zip(order) {
        let [(area, feature)] = &way.keys()[..] else {
            panic!("{} needs more than its link", way.name)
        };
        assert_eq!(*area, "net");
        let row = net::ROWS.iter().find(|row| row.feature == *feature);
        let row = row.unwrap();
        let net::Trial::Carrier(tried) = row.probe else {
            panic!("{feature} is tried in another way")
        };
        assert_eq!(tried, kind);
    }
    let reasons = |survey: &Survey| job.judge(survey).reasons.join("; ");
    let survey = with(&[("net/link geneve", lack())]);
    assert!(reasons(&survey).starts_with("tunnel to the proxy: VXLAN tunnels (GENEVE"));
    let survey = with(&[("net/link geneve", lack()), ("net/link vxlan", lack())]);
    assert!(reasons(&survey).starts_with("tunnel to the proxy: veth pairs (GENEVE"));
    let survey = with(&[("net/link", lack())]);
    assert_eq!(job.judge(&survey).outcome, Outcome::DoesNotWork);
}

/// Redirection by eBPF is what runs on such a kernel; its probes need no rule at the node either.
#[test]
fn without_netfilter_pods_are_redirected_by_ebpf() {
    let survey = with(&[
        ("nf_tables/", lack()),
        ("xtables/", lack()),
        ("ipset/", lack()),
    ]);
    let got = outcomes(&survey);
    assert_eq!(got["ebpf"], Outcome::Works);
    for job in ["sidecar", "ambient", "node-ambient"] {
        assert_eq!(got[job], Outcome::DoesNotWork, "{job}");
    }
}

#[test]
fn what_nothing_replaces_is_a_refusal_even_beside_the_unknown() {
    let survey = with(&[
        ("nf_tables/", lack()),
        ("xtables/target ip TPROXY", lack()),
        ("net/link", unknown()),
    ]);
    let got = outcomes(&survey);
    assert_eq!(got["sidecar"], Outcome::WorksWithFallback);
    assert_eq!(got["sidecar-tproxy"], Outcome::DoesNotWork);
    assert_eq!(got["node-ambient"], Outcome::DoesNotWork);
    let verdict = jobs::find("sidecar-tproxy").unwrap().judge(&survey);
    let text = verdict.reasons.join("\n");
    assert!(text.contains("CONFIG_NETFILTER_XT_TARGET_TPROXY"), "{text}");
}

#[test]
fn the_unknown_is_no_answer_unless_another_way_is_known() {
    let survey = with(&[("nf_tables/", unknown())]);
    assert_eq!(outcomes(&survey)["sidecar"], Outcome::WorksWithFallback);
    let survey = with(&[("nf_tables/", unknown()), ("xtables/", unknown())]);
    assert_eq!(outcomes(&survey)["sidecar"], Outcome::Unknown);
    let survey = with(&[("nf_tables/", unknown()), ("xtables/", lack())]);
    assert_eq!(
        outcomes(&survey)["sidecar"],
        Outcome::Unknown,
        "nf_tables may have it"
    );
}

/// Where none is writable, programs at the node work if none has to be changed, and redirection in a pod by rules needs none.
#[test]
fn sysctls_that_cannot_be_written_are_a_refusal_where_some_are_always_written() {
    let got = outcomes(&with(&[("system/writable", lack())]));
    for job in ["node-ambient", "ebpf", "node-ebpf"] {
        assert_eq!(got[job], Outcome::DoesNotWork, "{job}");
    }
    assert_eq!(got["ambient"], Outcome::Works);
}

#[test]
fn missing_capabilities_are_said_and_do_not_decide() {
    let survey = with(&[("process/CAP_NET_ADMIN", lack())]);
    let verdict = jobs::find("sidecar").unwrap().judge(&survey);
    assert_eq!(verdict.outcome, Outcome::Works);
    assert_eq!(verdict.missing_capabilities, ["NET_ADMIN"]);
}

#[test]
fn text_has_a_line_for_each_feature_and_each_job() {
    let survey = with(&[
        ("nf_tables/expression tproxy", lack()),
        ("net/link geneve", unknown()),
    ]);
    let verdicts: Vec<_> = JOBS.iter().map(|j| (j, j.judge(&survey))).collect();
    let plain = text(&survey, &verdicts, false);
    for f in &survey.findings {
        assert!(
            plain.lines().any(|l| l.starts_with(&f.feature)),
            "{}",
            f.feature
        );
    }
    for job in JOBS {
        assert!(
            plain
                .lines()
                .any(|l| l.starts_with(&format!("{} ", job.name))),
            "{}",
            job.name
        );
    }
    assert!(
        plain.contains("CONFIG_NFT_TPROXY (nft_tproxy), Linux 4.19"),
        "{plain}"
    );
    assert!(plain.contains("[1] not asked"), "{plain}");
    assert!(!plain.contains('\x1b'));
    assert!(text(&survey, &verdicts, true).contains("\x1b[31mlack\x1b[0m"));
}

#[test]
fn the_first_line_is_about_what_weir_does() {
    let first = |changes: &[(&str, Answer)], jobs: &[&str]| {
        let survey = with(changes);
        let asked = JOBS
            .iter()
            .filter(|j| jobs.is_empty() || jobs.contains(&j.name));
        let verdicts: Vec<_> = asked.map(|j| (j, j.judge(&survey))).collect();
        let text = text(&survey, &verdicts, false);
        text.lines().next().unwrap().to_owned()
    };
    let all = "works here: sidecar, sidecar-tproxy, ambient";
    assert_eq!(first(&[], &[]), all);
    // Nothing that weir does without a setting is made of it.
    assert_eq!(
        first(
            &[("net/link netkit", lack()), ("ebpf/attach tcx", unknown())],
            &[]
        ),
        all
    );
    let routing = first(&[("net/policy routing ip", lack())], &[]);
    let beginning = "does not work here: sidecar-tproxy, ambient; works here: sidecar. The table";
    assert!(routing.starts_with(beginning), "{routing}");
    let untold = first(&[("net/policy routing ip", unknown())], &[]);
    assert!(
        untold.starts_with("unknown: sidecar-tproxy, ambient; "),
        "{untold}"
    );
    assert_eq!(first(&[], &["ebpf"]), "works here: ebpf");
    let without = first(&[("ebpf/attach tcx", lack())], &["ebpf"]);
    assert!(without.starts_with("does not work here: ebpf"), "{without}");
}

#[test]
fn capabilities_are_decoded_by_name() {
    let status = "Name:\tx\nCapEff:\t0000008000003000\nCapBnd:\t000001ffffffffff\n";
    assert_eq!(
        process::effective(status).unwrap(),
        ["NET_ADMIN", "NET_RAW", "BPF"]
    );
    assert_eq!(
        process::effective("CapEff:\t0000000000000000\n").unwrap(),
        Vec::<&str>::new()
    );
    assert_eq!(
        process::effective("CapEff:\tffffffffffffffff\n")
            .unwrap()
            .len(),
        41
    );
    assert_eq!(process::effective("nothing"), None);
    assert_eq!(process::effective("CapEff:\tzzz"), None);
}
