//! A foreign object blocks the routing of a pod: a captured pod gets its rules anyway, and a new pod gets nothing.

use serde_json::json;
use weir_cni::compile::Engine;
use weir_cni::config::NameFiles;
use weir_cni::redirection::{Change, Desired, Sandbox};
use weir_demo::{Lab, Mode, Place, Receiver, Stage};
use weir_netfilter::nft::{NftEngine, Ruleset, Table, TableFamily};
use weir_netlink::route::AddressFamily;
use weir_rules::SidecarConfig;

use crate::ambient::wanted;
use crate::hindered_routing::ip;
use crate::support::{config, lab, tcp};

/// The object that another writer adds, and the command that removes it.
type Block = (AddressFamily, &'static str, &'static str);

/// `nft flush ruleset`
fn flush<D: Desired>(lab: &Lab) {
    let named = |name: &&str| (TableFamily::Inet, (*name).to_owned());
    let owned: Vec<_> = D::SCHEME.tables.iter().map(named).collect();
    let none = Ruleset { tables: Vec::new() };
    let flush = || NftEngine::open().and_then(|mut engine| engine.apply(&none, &owned));
    let done = lab.netns(Place::Pod).run(flush).expect("entered");
    assert!(!done.expect("flushed").ops.is_empty());
}

/// Deletes the policy rules, routes and addresses of weir; foreign ones stay.
fn flush_routing(lab: &Lab) {
    for family in lab.families() {
        ip(lab, *family, "rule flush protocol 119");
        ip(lab, *family, "route flush table all proto 119");
    }
    if lab.families().contains(&AddressFamily::V6) {
        ip(lab, AddressFamily::V6, "address flush dev lo to ::6/128");
    }
}

fn check<D: Desired + Sync>((lab, stage): (&Lab, &Stage<'_>), wanted: &D, blocks: &[Block]) {
    let netns = lab.netns(Place::Pod).try_clone().expect("a descriptor");
    let sandbox = Sandbox::of(netns).expect("a pod");
    let again = || {
        let again = |visit: &weir_cni::redirection::Visit<'_>| {
            visit
                .apply_again(wanted, None)
                .map(|done| done.changes.len())
        };
        sandbox.visit_for(D::SCHEME, again).expect("entered")
    };
    let differences = || -> Vec<Change> {
        let found = sandbox.verify(&wanted.compile_for(None, Engine::Nft));
        found.expect("compared")
    };
    let reaches = |receiver: Receiver, block: &str| {
        for family in lab.families() {
            let flow = tcp("out", Place::Pod, (lab.service(*family), 80).into());
            let got = stage.send(&flow).expect("sent");
            assert_eq!(got.by(), Some(receiver), "{block}, {family}: {got}");
        }
    };
    // A table of another program that uses iptables-nft, which is no redirection.
    let nat = Table::new(TableFamily::Ip, "nat");
    let named = [(nat.family, nat.name.clone())];
    let foreign = Ruleset { tables: vec![nat] };
    let make = || NftEngine::open().and_then(|mut engine| engine.apply(&foreign, &named));
    let made = lab.netns(Place::Pod).run(make).expect("entered");
    made.expect("a table of another program");
    let &(family, block, undo) = blocks.first().expect("one");
    ip(lab, family, block);
    let refused = again().expect_err("it was never captured");
    assert!(refused.ends_with("nothing is changed"), "{refused}");
    reaches(Receiver::Server, block);
    ip(lab, family, undo);
    assert!(again().expect("nothing is in the way") > 0);
    reaches(Receiver::ProxyOutbound, "none");
    for &(family, block, undo) in blocks {
        if !lab.families().contains(&family) {
            continue;
        }
        for all in [false, true] {
            ip(lab, family, block);
            flush::<D>(lab);
            if all {
                flush_routing(lab);
            }
            reaches(Receiver::Server, block);
            for _ in 0..2 {
                let why = again().expect_err("it is blocked");
                let is_told =
                    why.contains("takes its packets") && why.contains("the rules are in force");
                assert!(is_told && !why.contains("besides"), "{why}");
                reaches(Receiver::ProxyOutbound, block);
                let found = differences();
                let is_blocked = |change: &Change| matches!(change, Change::Blocked(..));
                assert!(
                    !found.is_empty() && found.iter().all(is_blocked),
                    "{block}: {found:?}"
                );
            }
            ip(lab, family, undo);
            // After everything was flushed, the blocked item is still to be written.
            assert!(again().is_ok_and(|changes| all || changes == 0), "{block}");
            assert_eq!(differences(), [], "{block}");
        }
    }
    // The pod is no longer captured.
    let clean = |visit: &weir_cni::redirection::Visit<'_>| visit.clean(None).map(|gone| gone.len());
    let gone = sandbox.visit_for(D::SCHEME, clean).expect("entered");
    assert!(gone.expect("removed") > 0);
    ip(lab, family, block);
    let refused = again().expect_err("it is not captured");
    assert!(refused.ends_with("nothing is changed"), "{refused}");
    reaches(Receiver::Server, block);
}

#[test]
fn a_pod_of_ambient_mode() {
    let Some(lab) = lab() else { return };
    let stage = Stage::ambient(&lab).expect("all listeners");
    let blocks = [
        (
            AddressFamily::V4,
            "route add blackhole 192.0.2.0/24 table 100",
            "route delete blackhole 192.0.2.0/24 table 100",
        ),
        (
            AddressFamily::V4,
            "rule add fwmark 0x111/0xfff lookup main priority 100",
            "rule delete priority 100",
        ),
        (
            AddressFamily::V6,
            "route add unreachable 2001:db8:77::/48 table 100",
            "route delete unreachable 2001:db8:77::/48 table 100",
        ),
    ];
    check((&lab, &stage), &wanted(false, &json!({})), &blocks);
}

#[test]
fn a_pod_with_a_sidecar() {
    let Some(lab) = lab() else { return };
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let given: SidecarConfig =
        serde_json::from_value(config(Mode::Tproxy, json!({}))).expect("a configuration");
    let intent = given.intent(&NameFiles::default()).expect("an intent");
    let blocks = [(
        AddressFamily::V4,
        "route add blackhole 192.0.2.0/24 table 133",
        "route delete blackhole 192.0.2.0/24 table 133",
    )];
    check((&lab, &stage), &intent, &blocks);
}
