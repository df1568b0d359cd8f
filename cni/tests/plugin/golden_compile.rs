//! Compares compiled rules with those of another author: the real tools load both, and the kernel's
//! listings are compared. The printed text is compared with the listing as well.
// matrix: needs WEIR_GOLDEN

use crate::support::golden::{Case, cases};
use crate::support::oracle::{Bench, Listing, listed, saved};
use crate::support::owners::{self, unmapped_owner};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weir_cni::compile::{Engine, Rules, compile};
use weir_cni::config::{Intent, NameFiles};
use weir_cni::pod::{NodeEnvironment, PodFacts, Skip, redirect_from};
use weir_netfilter::{nft, xtables};
use weir_rules::SidecarConfig;

/// The intent of a pod, if the case has one; derived without a configuration as text.
fn of_pod(case: &Case) -> Option<Intent> {
    let (pod, addresses) = case.pod()?;
    let facts = PodFacts::of(&pod);
    assert_eq!(Skip::of(&facts), None, "{}", case.name);
    let environment = NodeEnvironment::read(&|_| None, &NameFiles::default().group).unwrap();
    let redirect = redirect_from(&facts).unwrap();
    assert_eq!(redirect.warnings, Vec::<String>::new(), "{}", case.name);
    Some(redirect.intent(&environment, &addresses).unwrap())
}

/// A pod must result in the intent of the expected configuration.
fn intent(case: &Case) -> Intent {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let unique = format!(
        "weir-group-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Relaxed)
    );
    let file = std::env::temp_dir().join(unique);
    std::fs::write(&file, case.group_file()).unwrap();
    let names = NameFiles {
        passwd: file.clone(),
        group: file.clone(),
    };
    let intent = case.config.intent(&names);
    std::fs::remove_file(&file).unwrap();
    let intent = intent.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    if let Some(of_pod) = of_pod(case) {
        assert_eq!(of_pod, intent, "{}", case.name);
    }
    intent
}

fn compiled_xtables(intent: &Intent) -> xtables::Ruleset {
    match compile(intent, Engine::Xtables).rules {
        Rules::Xtables(ruleset) => ruleset,
        Rules::Nft(_) => panic!("asked for xtables"),
    }
}

fn compiled_nft(intent: &Intent) -> nft::Ruleset {
    match compile(intent, Engine::Nft).rules {
        Rules::Nft(ruleset) => ruleset,
        Rules::Xtables(_) => panic!("asked for nft"),
    }
}

/// Applies natively; the real tools must list what weir prints.
fn load_xtables(name: &str, ruleset: &xtables::Ruleset) -> Listing {
    let bench = Bench::new();
    let ours = xtables::Ownership {
        prefix: "ISTIO_".into(),
        ..xtables::Ownership::default()
    };
    let apply = || xtables::XtEngine::open()?.apply(ruleset, &ours);
    let applied = bench.netns().run(apply).unwrap();
    applied.unwrap_or_else(|e| panic!("{name}: {e}"));
    let again = bench.netns().run(apply).unwrap().unwrap();
    assert_eq!((again.ops, again.replaced), (vec![], 0), "{name}: again");
    let kernel = bench.save();
    let rules_only = |lines: &[String]| -> Vec<String> {
        let rules = lines.iter().filter(|l| l.starts_with(['-', '!']));
        rules.cloned().collect()
    };
    for (family, text) in [
        ("ipv4", ruleset.family(xtables::XtFamily::Ip).to_string()),
        ("ipv6", ruleset.family(xtables::XtFamily::Ip6).to_string()),
    ] {
        for (table, chains) in &saved(family, &text) {
            for (chain, rules) in chains {
                let listed = rules_only(&kernel[table][chain]);
                assert_eq!(listed, rules_only(rules), "{name}: {table} {chain}");
            }
        }
    }
    kernel
}

/// Applies natively; the real `nft` must list what weir prints.
fn load_nft(name: &str, ruleset: &nft::Ruleset) -> Listing {
    let bench = Bench::new();
    let owned: Vec<nft::TableId> = ruleset
        .tables
        .iter()
        .map(|t| (t.family, t.name.clone()))
        .collect();
    let apply = || nft::NftEngine::open().unwrap().apply(ruleset, &owned);
    let applied = bench.netns().run(apply).unwrap();
    applied.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(
        bench.netns().run(apply).unwrap().unwrap().ops,
        vec![],
        "{name}: again"
    );
    let kernel = bench.nft_list();
    assert_eq!(
        kernel,
        listed(&ruleset.to_string()),
        "{name}: printed and listed"
    );
    kernel
}

/// The expected rules of a case in legacy tables.
fn expected_xtables(case: &Case) -> Listing {
    let bench = Bench::new();
    for (family, block) in case.blocks() {
        bench.restore(family, &block);
    }
    bench.save()
}

/// Calls `check` with the rules of all cases that this kernel accepts.
fn each_loadable(cases: &[Case], check: impl Fn(&Case, &xtables::Ruleset)) {
    let compiled = cases.iter().map(|case| {
        let ruleset = compiled_xtables(&intent(case));
        let refused = unmapped_owner(&ruleset.to_string());
        ((case, ruleset), refused)
    });
    owners::each_loadable(compiled, |(case, ruleset)| check(case, &ruleset));
}

#[test]
fn xtables_cases_make_the_expected_rules() {
    each_loadable(&cases("iptables").unwrap_or_default(), |case, ruleset| {
        let ours = load_xtables(&case.name, ruleset);
        assert_eq!(ours, expected_xtables(case), "{}", case.name);
    });
}

#[test]
fn nftables_cases_make_the_expected_rules() {
    for case in cases("nftables").unwrap_or_default() {
        let ours = load_nft(&case.name, &compiled_nft(&intent(&case)));
        let bench = Bench::new();
        bench.nft(&case.rules);
        assert_eq!(ours, bench.nft_list(), "{}", case.name);
    }
}

#[test]
fn each_engine_loads_the_other_ones_cases() {
    for case in cases("iptables").unwrap_or_default() {
        load_nft(&case.name, &compiled_nft(&intent(&case)));
    }
    each_loadable(&cases("nftables").unwrap_or_default(), |case, ruleset| {
        load_xtables(&case.name, ruleset);
    });
}

/// Elements at the limits of a list.
fn edges(wildcard: &str) -> Intent {
    let config = SidecarConfig {
        proxy_uid: "0-5,1337".into(),
        proxy_gid: "0,4294967294".into(),
        inbound_interception_mode: "TPROXY".into(),
        inbound_ports_include: "80,8000:9000".into(),
        outbound_ports_include: "0,65535,0-65534".into(),
        outbound_ports_exclude: "1:1,1,1".into(),
        outbound_ip_ranges_include: "0.0.0.0/0,10.1.2.3/9,10.0.0.1/31,::/0,::ffff:10.0.0.0/104"
            .into(),
        outbound_ip_ranges_exclude: "127.0.0.1/8,::127.0.0.53/128,fd12:3456::/33,::1/127".into(),
        owner_groups_include: "1,2-3".into(),
        reroute_virtual_interfaces: format!("abcdefghijklmno,{wildcard}"),
        exclude_interfaces: "a.b-c:1".into(),
        host_ipv4_loopback_cidr: "127.0.0.1/8".into(),
        redirect_dns: true,
        drop_invalid: true,
        enable_ipv6: true,
        dns_servers_v4: vec!["127.0.0.53".into(), "127.0.0.53".into()],
        dns_servers_v6: vec!["::127.0.0.53".into()],
        ..SidecarConfig::default()
    };
    config.intent(&NameFiles::default()).unwrap()
}

#[test]
fn edges_load_as_they_are_printed() {
    load_nft("edges", &compiled_nft(&edges("eth*")));
    let legacy = compiled_xtables(&edges("eth+"));
    match unmapped_owner(&legacy.to_string()) {
        Some(reason) => println!("skipped, the legacy rules: {reason}"),
        None => drop(load_xtables("edges", &legacy)),
    }
}
