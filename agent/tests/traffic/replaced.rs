//! Rules of a pod in ambient mode are replaced while connections are made all the time.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use weir_cni::compile::Engine;
use weir_demo::{Lab, Place, Receiver, Stage};
use weir_netlink::Netns;

use crate::ambient::{lab_with_probes, redirect};
use crate::support::{Pod, REDIRECT, tcp};

/// How often the rules are replaced.
const TIMES: usize = 12;

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Connections out of the pod, one after the other, until `replace` has ended: ztunnel gets each of them, before, meanwhile and
/// after. How many there were meanwhile.
fn none_passes_by(lab: &Lab, replace: impl FnOnce(&Netns) + Send) -> usize {
    let stage = Stage::ambient(lab).expect("all listeners");
    let pod = Pod::on(stage, lab, REDIRECT[0]);
    let out = || {
        for &family in lab.families() {
            let flow = tcp("out", Place::Pod, pod.service(family, 80));
            pod.expect(flow, Receiver::ProxyOutbound);
        }
    };
    out();
    let done = AtomicBool::new(false);
    let netns = lab.netns(Place::Pod).try_clone().expect("a descriptor");
    let mut meanwhile = 0;
    std::thread::scope(|scope| {
        let ends = Ends(&done);
        scope.spawn(move || {
            let _ends = ends;
            replace(&netns);
        });
        while !done.load(Ordering::Relaxed) {
            out();
            meanwhile += 1;
        }
    });
    out();
    meanwhile
}

/// Every engine by every other one, and other settings.
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
    let meanwhile = none_passes_by(&lab, |netns| {
        let next = ways.iter().cycle().skip(1).take(TIMES);
        next.for_each(|way| put(netns, *way));
    });
    assert!(
        meanwhile > 1,
        "the rules were replaced too quickly for a test"
    );
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

/// What upstream's agent left, in each of its forms, by ours of each engine.
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
