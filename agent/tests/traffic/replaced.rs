//! The rules of a pod in ambient mode are replaced while new connections begin and others stay open.

mod upstream;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use socket2::Socket;
use weir_ambient::AMBIENT;
use weir_cni::compile::{Engine, Rules};
use weir_cni::redirection::{Change, Desired as _, Sandbox};
use weir_demo::{
    Flow, Lab, PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT, Place, Protocol, Receiver, Stage,
    ZTUNNEL_MARK,
};
use weir_netfilter::nft::{NftEngine, TableFamily};
use weir_netfilter::xtables::{Ownership, XtEngine};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_testing::Ends;

use crate::ambient::{lab_with_probes, redirect, wanted};
use crate::ambient_pods::{accept, connect, listen};
use crate::support::{Pod, REDIRECT, tcp};
use upstream::{FORMS, Upstream, upstream_routing};

/// How often the rules are replaced.
const TIMES: usize = 12;

/// One connection of each kind: of the pod, to the pod, and of ztunnel to the application in the name of a client; with `dns`, also
/// queries of the pod and of ztunnel. None may pass ztunnel by, and each must be answered.
fn one_of_each(pod: &Pod<'_>, dns: bool) {
    for &family in pod.lab.families() {
        let out = tcp("out", Place::Pod, pod.service(family, 80));
        pod.expect(out, Receiver::ProxyOutbound);
        let to = pod.at(Place::Pod, family, 8080);
        pod.expect(tcp("in", Place::Client, to), Receiver::ProxyInbound);
        let client = (pod.lab.address(Place::Client, family), 0).into();
        let of_ztunnel = tcp("as the client", Place::Pod, to).source(client);
        pod.expect(of_ztunnel.mark(ZTUNNEL_MARK), Receiver::Application);
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let query = || Flow::new("query", protocol, Place::Pod, pod.service(family, 53));
            if dns {
                pod.expect(query(), Receiver::ProxyDns);
                pod.expect(query().mark(ZTUNNEL_MARK), Receiver::Server);
            }
        }
    }
}

/// Opens connections one after the other while `replace` runs, again and again until there were two rounds of them.
/// ztunnel must get each of them, before, during and after.
fn none_passes_by(lab: &Lab, dns: bool, replace: impl Fn(&Netns) + Send) {
    let stage = Stage::ambient(lab).expect("all listeners");
    let pod = Pod::on(stage, lab, REDIRECT[0]);
    let round = || one_of_each(&pod, dns);
    round();
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
        round();
        round();
        drop(rounds);
        while !done.load(Ordering::Relaxed) {
            round();
        }
    });
    round();
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
    none_passes_by(&lab, false, |netns| {
        let next = ways.iter().cycle().skip(1).take(TIMES);
        next.for_each(|way| put(netns, *way));
    });
}

/// Changes the rules of a pod to those of another version.
fn age(netns: &Netns, engine: Engine, dns: bool, version: u32) {
    let mut rules = wanted(dns, &json!({})).compile(engine).rules;
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
fn differences(netns: &Netns, engine: Engine, dns: bool) -> Vec<String> {
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    let plan = wanted(dns, &json!({})).compile(engine);
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
        redirect(netns, engine, true, &json!({}));
        assert_eq!(differences(netns, engine, true), [""; 0], "{engine}");
        age(netns, engine, true, 7);
        let found = differences(netns, engine, true);
        let says = |text: &String| text.contains("of version 7, not 2");
        let whole = match engine {
            Engine::Nft => found.iter().all(says),
            Engine::Xtables => found.iter().any(says),
        };
        assert!(whole && !found.is_empty(), "{engine}: {found:#?}");
        none_passes_by(&lab, true, |netns| {
            for version in 8..8 + 12 {
                redirect(netns, engine, true, &json!({}));
                age(netns, engine, true, version);
            }
            redirect(netns, engine, true, &json!({}));
        });
        assert_eq!(differences(netns, engine, true), [""; 0], "{engine}");
    }
}

/// Connections that ztunnel has accepted, of the pod and to it, and its own ones to the application in the name of a client.
struct Open(Vec<[Socket; 2]>);

impl Open {
    fn begin(lab: &Lab) -> Self {
        let pod = lab.netns(Place::Pod);
        let all = lab.families().iter().flat_map(|&family| {
            let any: IpAddr = match family {
                AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
                AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
            };
            let client = lab.address(Place::Client, family);
            let service = SocketAddr::new(lab.service(family), 80);
            let application = SocketAddr::new(lab.address(Place::Pod, family), 8080);
            let connections = [
                (Place::Pod, any, service, PROXY_OUTBOUND_PORT),
                (Place::Client, any, application, PROXY_INBOUND_PORT),
                (Place::Pod, client, application, application.port()),
            ];
            connections.map(|(from, source, to, port)| {
                let by_ztunnel = source == client;
                let listener = listen(pod, SocketAddr::new(any, port), !by_ztunnel);
                let source = SocketAddr::new(source, 0);
                let begun = connect(lab.netns(from), source, to, by_ztunnel);
                [begun, accept(&[listener]).1]
            })
        });
        Self(all.collect())
    }

    fn pass(&self, what: &str) {
        for (number, [one, other]) in self.0.iter().enumerate() {
            // A packet of ztunnel may restore what the answers need: they come first.
            for (mut from, mut to) in [(other, one), (one, other)] {
                let what = format!("{what}: connection {number}");
                let mut got = [0; 4];
                from.write_all(b"data").expect(&what);
                to.read_exact(&mut got).expect(&what);
                assert_eq!(&got, b"data", "{what}");
            }
        }
    }
}

/// A connection that ztunnel has already accepted is not reset by any replacement.
#[test]
fn open_connections_stay() {
    let Some(lab) = lab_with_probes() else { return };
    let netns = lab.netns(Place::Pod);
    redirect(netns, Engine::Nft, false, &json!({}));
    let open = Open::begin(&lab);
    open.pass("before");
    age(netns, Engine::Nft, false, 7);
    open.pass("older rules of nf_tables");
    for engine in [Engine::Nft, Engine::Xtables] {
        redirect(netns, engine, false, &json!({}));
        open.pass("rules of ours");
        redirect(netns, engine, true, &json!({}));
        open.pass("with DNS");
        age(netns, engine, false, 8);
        open.pass("older rules");
        redirect(netns, engine, false, &json!({}));
        open.pass("ours again");
    }
}

/// Each engine replaces the rules that upstream's agent left, in each of their forms, again and again.
// matrix: needs WEIR_GOLDEN
#[test]
fn upstreams_by_our_own() {
    let Some(upstream) = Upstream::golden() else {
        return;
    };
    for engine in [Engine::Nft, Engine::Xtables] {
        for form in FORMS {
            let Some(lab) = lab_with_probes() else { return };
            let netns = lab.netns(Place::Pod);
            upstream.load(netns, form);
            upstream_routing(netns);
            none_passes_by(&lab, true, |netns| {
                for _ in 0..TIMES {
                    upstream.load(netns, form);
                    let before = differences(netns, engine, true);
                    assert!(!before.is_empty(), "{engine}, {form:?}: nothing to migrate");
                    redirect(netns, engine, true, &json!({}));
                    let after = differences(netns, engine, true);
                    assert_eq!(after, [""; 0], "{engine}, {form:?}");
                }
            });
        }
    }
}

/// Connections from the time of upstream's agent are not reset, in either direction.
// matrix: needs WEIR_GOLDEN
#[test]
fn open_connections_of_upstreams_stay() {
    let Some(upstream) = Upstream::golden() else {
        return;
    };
    for form in FORMS {
        let Some(lab) = lab_with_probes() else { return };
        let netns = lab.netns(Place::Pod);
        upstream.load(netns, form);
        upstream_routing(netns);
        let open = Open::begin(&lab);
        open.pass("before");
        for engine in [Engine::Nft, Engine::Xtables] {
            let what = format!("{form:?} to {engine}");
            redirect(netns, engine, true, &json!({}));
            open.pass(&what);
            let of_ours = Open::begin(&lab);
            upstream.load(netns, form);
            open.pass(&format!("{what}, and back"));
            redirect(netns, engine, true, &json!({}));
            open.pass(&format!("{what} again"));
            of_ours.pass(&format!("{what} again, begun in between"));
            upstream.load(netns, form);
        }
    }
}
