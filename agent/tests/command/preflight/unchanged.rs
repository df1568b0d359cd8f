//! `weir preflight` changes nothing of the machine: neither its own nor another namespace, nor the loaded modules.

use crate::support::{inside, lo_up, path};
use std::process::Command;
use weir_netfilter::nft::NftEngine;
use weir_netlink::Netns;
use weir_netlink::route::Routing;

/// Everything in a namespace that would show a change.
fn state(netns: &Netns) -> Vec<String> {
    let inner = netns.run(|| {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let routing = Routing::open().unwrap();
        vec![
            read("/proc/thread-self/net/ip_tables_names"),
            read("/proc/thread-self/net/ip6_tables_names"),
            // Without counters and times, which change on their own.
            routing
                .links()
                .unwrap()
                .iter()
                .map(|l| format!("{} {} {} {:?}", l.index, l.name, l.up, l.mtu))
                .collect::<Vec<_>>()
                .join("\n"),
            format!("{:?}", routing.rules().unwrap()),
            format!(
                "generation {}",
                NftEngine::open().and_then(|mut e| e.generation()).unwrap()
            ),
            // Only the names: reference counts change while the kernel frees what deleted namespaces used.
            read("/proc/modules")
                .lines()
                .filter_map(|l| l.split(' ').next())
                .collect::<Vec<_>>()
                .join(" "),
        ]
    });
    let mut all = inner.unwrap();
    all.push(inside(netns, "ip", &["route", "show", "table", "all"]));
    all.push(inside(netns, "tc", &["qdisc", "show"]));
    all.push(inside(netns, "ipset", &["save"]));
    all.push(inside(netns, "nft", &["list", "ruleset"]));
    all
}

/// Like [`state`], of the namespace of this test.
fn own() -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    vec![
        read("/proc/net/ip_tables_names"),
        read("/proc/net/ip6_tables_names"),
        format!(
            "generation {}",
            NftEngine::open().and_then(|mut e| e.generation()).unwrap()
        ),
    ]
}

#[test]
fn nothing_is_changed_where_it_runs_or_elsewhere() {
    let here = pod_or_skip!();
    let (used, bystander) = (pod_or_skip!(), pod_or_skip!());
    // One namespace with legacy tables and nf_tables tables, and one without any table.
    lo_up(&used);
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        let rule = ["-w", "-t", "mangle", "-A", "OUTPUT", "-j", "ACCEPT"];
        inside(&used, program, &rule);
    }
    inside(&used, "nft", &["add", "table", "inet", "mine"]);
    let all = || (state(&here), state(&used), state(&bystander), own());
    let before = all();
    for netns in [&here, &used] {
        let out = Command::new("nsenter")
            .arg(format!("--net={}", path(netns)))
            .arg(env!("CARGO_BIN_EXE_weir"))
            .arg("preflight")
            .output()
            .unwrap();
        assert_eq!(
            out.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    assert_eq!(all(), before);
    assert!(
        before.0[0].is_empty() && before.1[0] == "mangle\n",
        "{before:?}"
    );
    // This state has objects of every kind, so that a change is visible.
    inside(
        &bystander,
        "iptables-legacy",
        &["-w", "-t", "nat", "-L", "-n"],
    );
    assert_ne!(state(&bystander), before.2);
}
