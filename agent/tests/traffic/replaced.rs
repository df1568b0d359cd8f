//! The rules of a pod in ambient mode are replaced while new connections begin and others stay open.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use weir_ambient::AMBIENT;
use weir_cni::compile::{Engine, Rules};
use weir_cni::redirection::{Change, Desired as _, Sandbox};
use weir_demo::{Lab, Place, Receiver, Stage};
use weir_netfilter::nft::{NftEngine, TableFamily};
use weir_netfilter::xtables::{Ownership, XtEngine};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_testing::Ends;

use crate::ambient::{lab_with_probes, redirect, wanted};
use crate::support::{Pod, REDIRECT, tcp};

/// How often the rules are replaced.
const TIMES: usize = 12;

/// Opens connections out of the pod one after the other while `replace` runs, again and again until there were two rounds of them.
/// ztunnel must get each of them, before, during and after.
fn none_passes_by(lab: &Lab, replace: impl Fn(&Netns) + Send) {
    let stage = Stage::ambient(lab).expect("all listeners");
    let pod = Pod::on(stage, lab, REDIRECT[0]);
    let out = || {
        for &family in lab.families() {
            let flow = tcp("out", Place::Pod, pod.service(family, 80));
            pod.expect(flow, Receiver::ProxyOutbound);
        }
    };
    out();
    let (done, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let netns = lab.netns(Place::Pod).try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        let (ends, is_enough) = (Ends(&done), &enough);
        scope.spawn(move || {
            let _ends = ends;
            replace(&netns);
            while !is_enough.load(Ordering::Relaxed) {
                replace(&netns);
            }
        });
        let rounds = Ends(&enough);
        out();
        out();
        drop(rounds);
        while !done.load(Ordering::Relaxed) {
            out();
        }
    });
    out();
}

/// Every engine replaces every other one, and other settings replace the current ones.
#[test]
fn by_other_rules_of_our_own() {
    let Some(lab) = lab_with_probes() else { return };
    let ways = [
        (Engine::Nft, false),
        (Engine::Xtables, false),
        (Engine::Xtables, true),
        (Engine::Nft, true),
    ];
    let put = |netns: &Netns, (engine, dns)| redirect(netns, engine, dns, &json!({}));
    put(lab.netns(Place::Pod), ways[0]);
    none_passes_by(&lab, |netns| {
        let next = ways.iter().cycle().skip(1).take(TIMES);
        next.for_each(|way| put(netns, *way));
    });
}

/// Changes the rules of a pod to those of another version.
fn age(netns: &Netns, engine: Engine, version: u32) {
    let mut rules = wanted(false, &json!({})).compile(engine).rules;
    let write = || match &mut rules {
        Rules::Nft(ruleset) => {
            let named = |name: &&str| (TableFamily::Inet, (*name).to_owned());
            let owned: Vec<_> = AMBIENT.tables.iter().map(named).collect();
            for table in &mut ruleset.tables {
                table.version = Some(version);
            }
            NftEngine::open()
                .and_then(|mut engine| engine.apply(ruleset, &owned))
                .map(|applied| applied.ops.len())
        }
        Rules::Xtables(ruleset) => {
            let ours = Ownership {
                prefix: "ISTIO_".to_owned(),
                version,
                ..Ownership::default()
            };
            XtEngine::open()
                .and_then(|mut engine| engine.apply(ruleset, &ours))
                .map(|applied| applied.ops.len())
        }
    };
    let written = netns.run(write).expect("entered").expect("written");
    assert!(written > 0, "{engine}: the rules have that version already");
}

/// The differences between the rules and the desired ones, as text.
fn differences(netns: &Netns, engine: Engine) -> Vec<String> {
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    let plan = wanted(false, &json!({})).compile(engine);
    let found = sandbox.visit_for(&AMBIENT, |visit| visit.verify(&plan));
    let found = found.expect("entered").expect("compared");
    found.iter().map(Change::object).collect()
}

/// An update changes the rules. Their recorded version distinguishes this from a change by another writer.
#[test]
fn by_another_version_of_them() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(lab) = lab_with_probes() else { return };
        let netns = lab.netns(Place::Pod);
        redirect(netns, engine, false, &json!({}));
        assert_eq!(differences(netns, engine), [""; 0], "{engine}");
        age(netns, engine, 7);
        let found = differences(netns, engine);
        let says = |text: &String| text.contains("of version 7, not 2");
        let whole = match engine {
            Engine::Nft => found.iter().all(says),
            Engine::Xtables => found.iter().any(says),
        };
        assert!(whole && !found.is_empty(), "{engine}: {found:#?}");
        none_passes_by(&lab, |netns| {
            for version in 8..8 + 12 {
                redirect(netns, engine, false, &json!({}));
                age(netns, engine, version);
            }
            redirect(netns, engine, false, &json!({}));
        });
        assert_eq!(differences(netns, engine), [""; 0], "{engine}");
    }
}

/// A connection that ztunnel has already accepted is not reset by any replacement.
#[test]
fn open_connections_stay() {
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    redirect(netns, Engine::Nft, false, &json!({}));
    let service = SocketAddr::new(lab.service(AddressFamily::V4), 80);
    let patience = Duration::from_secs(10);
    let connect = || {
        let ztunnel = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 15001))?;
        let client = TcpStream::connect_timeout(&service, patience)?;
        let (accepted, _) = ztunnel.accept()?;
        for end in [&client, &accepted] {
            end.set_read_timeout(Some(patience))?;
        }
        Ok((client, accepted))
    };
    let connected: std::io::Result<_> = netns.run(connect).expect("entered");
    let (client, accepted) = connected.expect("ztunnel gets it");
    let passes = |what: &str| {
        for (mut from, mut to) in [(&client, &accepted), (&accepted, &client)] {
            let mut got = [0; 4];
            from.write_all(b"data").expect(what);
            to.read_exact(&mut got).expect(what);
            assert_eq!(&got, b"data", "{what}");
        }
    };
    passes("before");
    age(netns, Engine::Nft, 7);
    passes("older rules of nf_tables");
    for engine in [Engine::Nft, Engine::Xtables] {
        redirect(netns, engine, false, &json!({}));
        passes("rules of ours");
        redirect(netns, engine, true, &json!({}));
        passes("with DNS");
        age(netns, engine, 8);
        passes("older rules");
        redirect(netns, engine, false, &json!({}));
        passes("ours again");
    }
}

fn fed(netns: &Netns, program: &str, args: &[&str], text: &str) {
    let run = || {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(text.as_bytes()).expect("fed");
        drop(stdin);
        assert!(child.wait().expect("waited").success(), "{program}: {text}");
    };
    netns.run(run).expect("entered");
}

/// The policy rules and routes of upstream's agent.
fn upstream_routing(netns: &Netns) {
    for family in ["-4", "-6"] {
        let rule = "rule add fwmark 0x111/0xfff pref 32764 lookup 100";
        let route = "route add local default dev lo table 100";
        for what in [rule, route] {
            let args: Vec<&str> = [family].into_iter().chain(what.split(' ')).collect();
            fed(netns, "ip", &args, "");
        }
    }
}

/// Each engine replaces the rules that upstream's agent left, in each of their forms.
// matrix: needs WEIR_GOLDEN
#[test]
fn upstreams_by_our_own() {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return;
    };
    let text = |name: &str| {
        let path = root.join("ambient").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let case = "iptables-dns_pod_disabled_and_on_globally_ipv6";
    let legacy = [("iptables", "v4.save"), ("ip6tables", "v6.save")];
    for engine in [Engine::Nft, Engine::Xtables] {
        for form in ["legacy", "nft", "native"] {
            let Some(lab) = lab_with_probes() else { return };
            let netns = lab.netns(Place::Pod);
            match form {
                "native" => fed(
                    netns,
                    "nft",
                    &["-f", "-"],
                    &text("nftables-default_ipv6.golden"),
                ),
                tool => {
                    for (program, ending) in legacy {
                        let program = format!("{program}-{tool}-restore");
                        fed(netns, &program, &[], &text(&format!("{case}.{ending}")));
                    }
                }
            }
            upstream_routing(netns);
            none_passes_by(&lab, |netns| redirect(netns, engine, false, &json!({})));
        }
    }
}
