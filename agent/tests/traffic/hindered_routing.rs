//! Policy rules of another writer that precede weir's: `verify` names those that lead replies past the proxy, and no others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use serde_json::json;
use weir_ambient::Redirect;
use weir_cni::compile::{Compiled, Engine};
use weir_cni::config::{Intent, NameFiles};
use weir_cni::redirection::{Change, Desired, Sandbox, Scheme};
use weir_demo::{Flow, Lab, Mode, Owner, Place, Receiver, Stage, ZTUNNEL_MARK};
use weir_netlink::route::{AddressFamily, Routing};
use weir_rules::SidecarConfig;
use weir_testing::container;

use crate::ambient::wanted;
use crate::ebpf;
use crate::lab_or_skip;
use crate::support::{config, lab, tcp};

/// Table 50 has a default route out of the pod, 51 is empty, and 52 has only a throw route. OWN is the source address of replies.
const RULES: [&str; 12] = [
    "from OWN lookup 50",
    "from ANOTHER lookup 50",
    "from OWN lookup 51",
    "from OWN lookup 52",
    "from OWN suppress_prefixlength 0 lookup 50",
    "from OWN fwmark 0x777 lookup 50",
    "from OWN goto 32766",
    "iif lo lookup 50",
    "iif eth0 lookup 50",
    "ipproto tcp lookup 50",
    "ipproto udp lookup 50",
    "from OWN iif lo ipproto tcp blackhole",
];

/// Changes sysctls in the pod.
fn sysctl(lab: &Lab, keys: &[&str], value: &str) {
    for key in keys {
        let write = || weir_rules::sysctl::write(key, value);
        let written = lab.netns(Place::Pod).run(write).expect("entered");
        written.unwrap_or_else(|e| panic!("{key}: {e}"));
    }
}

pub(super) fn ip(lab: &Lab, family: AddressFamily, arguments: &str) {
    let option = match family {
        AddressFamily::V4 => "-4",
        AddressFamily::V6 => "-6",
    };
    let run = || {
        let mut ip = Command::new("ip");
        ip.arg(option).args(arguments.split(' ')).output()
    };
    let run = lab
        .netns(Place::Pod)
        .run(run)
        .expect("entered")
        .expect("ip");
    assert!(run.status.success(), "{arguments}: {run:?}");
}

/// The warnings of `verify`.
fn named(lab: &Lab, compiled: &Compiled, scheme: &'static Scheme) -> Vec<String> {
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let found = sandbox.visit_for(scheme, |visit| visit.verify(compiled));
    let found = found.expect("entered").expect("compared");
    let object = |change: &Change| match change {
        Change::Hindrance(line) => line.clone(),
        other => panic!("{other}"),
    };
    found.iter().map(object).collect()
}

/// The mistakes of `verify` about foreign rules beside this kind of redirection.
///
/// A packet that does not pass the proxy is lost; otherwise the receiver gets it. `verify` must return a line exactly if a packet is lost.
fn mistaken(
    (lab, stage): (&Lab, &Stage<'_>),
    verify: impl Fn() -> Vec<String>,
    (family, own): (AddressFamily, IpAddr),
    flows: &[(Flow, Receiver)],
) -> Vec<String> {
    assert_eq!(verify(), [""; 0], "without foreign rules");
    let own = own.to_string();
    let another = lab.address(Place::Client, family).to_string();
    ip(lab, family, "route add default dev eth0 table 50");
    ip(lab, family, "route add throw default table 52");
    let mut mistaken = Vec::new();
    for rule in RULES {
        let rule = rule.replace("OWN", &own).replace("ANOTHER", &another);
        ip(lab, family, &format!("rule add priority 50 {rule}"));
        let found = verify();
        for (flow, receiver) in flows {
            // The kernel does not send a packet without a route.
            let outcome = stage.send(flow);
            let returns = outcome.as_ref().is_ok_and(|o| o.by() == Some(*receiver));
            let outcome = outcome.map_or_else(|e| e.to_string(), |o| o.to_string());
            let text = format!("{family} {rule}: {outcome}; {found:?}");
            println!("{text}");
            // The kernel routes a packet again after it gets a mark. Older kernels ignore the protocol then, so that such a rule has no
            // effect.
            let is_lenient = returns && rule.starts_with("ipproto tcp");
            if found.is_empty() != returns && !is_lenient {
                mistaken.push(text);
            }
        }
        ip(lab, family, "rule delete priority 50");
    }
    mistaken
}

fn in_ambient_mode(family: AddressFamily) -> Vec<String> {
    let Some(lab) = lab() else { return Vec::new() };
    let wanted = wanted(false, &json!({}));
    crate::ambient::redirect(lab.netns(Place::Pod), Engine::Nft, false, &json!({}));
    let stage = Stage::ambient(&lab).expect("all listeners");
    let compiled = wanted.compile_for(None, Engine::Nft);
    let verify = || named(&lab, &compiled, Redirect::SCHEME);
    let own = lab.address(Place::Pod, family);
    let flows = [of_ztunnel(&lab, family)];
    mistaken((&lab, &stage), verify, (family, own), &flows)
}

/// ztunnel connects with the address of the client.
fn of_ztunnel(lab: &Lab, family: AddressFamily) -> (Flow, Receiver) {
    let to = (lab.address(Place::Pod, family), 8080).into();
    let client = (lab.address(Place::Client, family), 0).into();
    let flow = tcp("as the client", Place::Pod, to).source(client);
    (flow.mark(ZTUNNEL_MARK), Receiver::Application)
}

/// With programs, outbound packets return through `lo` as well.
fn by_programs(family: AddressFamily) -> Vec<String> {
    let Some(mounted) = ebpf::mount() else {
        return Vec::new();
    };
    let Some(lab) = lab() else { return Vec::new() };
    let wanted = wanted(false, &json!({}));
    ebpf::redirect(&mounted, lab.netns(Place::Pod), &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let without = wanted.compile_without_rules();
    let verify = || named(&lab, &without, Redirect::SCHEME);
    let service = (lab.service(family), 80).into();
    let out = (tcp("out", Place::Pod, service), Receiver::ProxyOutbound);
    let flows = [of_ztunnel(&lab, family), out];
    let own = lab.address(Place::Pod, family);
    mistaken((&lab, &stage), verify, (family, own), &flows)
}

/// The redirection of a sidecar in the pod.
fn sidecar(lab: &Lab, mode: Mode) -> Compiled {
    let given = config(mode, json!({}));
    crate::support::program_for(lab.netns(Place::Pod), None, Engine::Nft, &given);
    let given: SidecarConfig = serde_json::from_value(given).expect("a configuration");
    let intent = given.intent(&NameFiles::default()).expect("an intent");
    intent.compile_for(None, Engine::Nft)
}

/// The proxy connects to the application at this address, with that of the client.
///
/// It runs as user 0, as in Istio with TPROXY: packets of user 1337 to the pod's own address go to the inbound port.
fn as_the_client(lab: &Lab, own: IpAddr) -> (Flow, Receiver) {
    let client = lab.address(Place::Client, AddressFamily::of_address(own));
    let flow = tcp("as the client", Place::Pod, (own, 8080).into()).of(Owner::ROOT);
    let flow = flow.source((client, 0).into()).mark(1337);
    (flow, Receiver::Application)
}

fn loopback(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::LOCALHOST.into(),
        AddressFamily::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

fn of_sidecar(family: AddressFamily, own: impl Fn(&Lab) -> IpAddr) -> Vec<String> {
    let Some(lab) = lab() else { return Vec::new() };
    // Otherwise the kernel does not send packets with another source address to 127.0.0.1.
    sysctl(&lab, &["ipv4/conf/all/route_localnet"], "1");
    let compiled = sidecar(&lab, Mode::Tproxy);
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let verify = || named(&lab, &compiled, Intent::SCHEME);
    let own = own(&lab);
    let flows = [as_the_client(&lab, own)];
    mistaken((&lab, &stage), verify, (family, own), &flows)
}

fn beside_a_sidecar(family: AddressFamily) -> Vec<String> {
    of_sidecar(family, |lab| lab.address(Place::Pod, family))
}

fn beside_a_sidecar_by_lo(family: AddressFamily) -> Vec<String> {
    of_sidecar(family, |_| loopback(family))
}

/// Without route_localnet the kernel does not send packets with a source in 127.0.0.0/8 through another interface.
///
/// The proxy then makes no such connection, and a policy rule for it changes nothing. With route_localnet, `verify` names the rule.
#[test]
fn policy_rules_for_loopback_count_where_it_may_be_left() {
    let lab = lab_or_skip!();
    let (family, own) = (AddressFamily::V4, loopback(AddressFamily::V4));
    let compiled = sidecar(&lab, Mode::Tproxy);
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let (flow, receiver) = as_the_client(&lab, own);
    let reaches = || {
        stage
            .send(&flow)
            .is_ok_and(|got| got.by() == Some(receiver))
    };
    let rule = "priority 50 from 127.0.0.1 lookup 50";
    ip(&lab, family, "route add default dev eth0 table 50");
    for (value, is_routed) in [("0", false), ("1", true)] {
        sysctl(&lab, &["ipv4/conf/eth0/route_localnet"], value);
        assert_eq!(reaches(), is_routed, "route_localnet={value}");
        ip(&lab, family, &format!("rule add {rule}"));
        let found = named(&lab, &compiled, Intent::SCHEME);
        assert_eq!(found.len(), usize::from(is_routed), "{value}: {found:?}");
        assert!(!reaches(), "route_localnet={value}");
        ip(&lab, family, &format!("rule delete {rule}"));
    }
}

/// Runs the kinds and families in parallel, because each lost answer takes a timeout.
#[test]
fn policy_rules_that_lead_replies_past_the_proxy_are_named_and_nothing_else() {
    let families = lab_or_skip!().families().to_vec();
    let mistaken: Vec<String> = std::thread::scope(|scope| {
        let kinds: [fn(AddressFamily) -> Vec<String>; 4] = [
            in_ambient_mode,
            by_programs,
            beside_a_sidecar,
            beside_a_sidecar_by_lo,
        ];
        let each = families
            .iter()
            .flat_map(|family| kinds.map(|kind| (kind, *family)));
        let running: Vec<_> = each
            .map(|(kind, family)| scope.spawn(move || kind(family)))
            .collect();
        let joined = running.into_iter().map(|one| one.join().expect("said"));
        joined.flatten().collect()
    });
    assert!(mistaken.is_empty(), "{mistaken:#?}");
}

/// Programs capture, and a foreign rule takes weir's packets by their mark: replies to the client do not return.
#[test]
fn a_policy_rule_that_takes_the_mark_is_named_beside_programs() {
    let Some(mounted) = ebpf::mount() else {
        return;
    };
    let lab = lab_or_skip!();
    let wanted = wanted(false, &json!({}));
    ebpf::redirect(&mounted, lab.netns(Place::Pod), &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let without = wanted.compile_without_rules();
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let named = || {
        let found = sandbox.visit_for(Redirect::SCHEME, |visit| {
            visit.hindrances_of_programs(&without)
        });
        found.expect("entered").expect("read")
    };
    for &family in lab.families() {
        let (flow, receiver) = of_ztunnel(&lab, family);
        assert_eq!(named(), [""; 0]);
        let got = stage.send(&flow).expect("sent").by();
        assert_eq!(got, Some(receiver));
        ip(
            &lab,
            family,
            "rule add priority 50 fwmark 0x111/0xfff blackhole",
        );
        let found = named();
        assert_eq!(found.len(), 1, "{found:?}");
        let line = found.first().expect("one");
        assert!(line.contains("takes its packets"), "{line}");
        let got = stage.send(&flow).map(|outcome| outcome.by());
        assert!(!matches!(got, Ok(Some(_))), "{got:?}");
        ip(&lab, family, "rule delete priority 50");
    }
}

/// The answers of the application have ztunnel's mark then, so that the programs let them pass: ztunnel receives none.
#[test]
fn a_sysctl_that_gives_answers_the_mark_is_named_beside_programs() {
    let Some(mounted) = ebpf::mount() else {
        return;
    };
    let lab = lab_or_skip!();
    let wanted = wanted(false, &json!({}));
    ebpf::redirect(&mounted, lab.netns(Place::Pod), &wanted);
    let stage = Stage::ambient(&lab).expect("all listeners");
    let without = wanted.compile_without_rules();
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let named = |is_hidden: bool| {
        let found = sandbox.visit_for(Redirect::SCHEME, |visit| {
            if is_hidden && let Err(e) = container::empty("/proc/sys/net".as_ref()) {
                println!("skipped: no mounts of its own: {e}");
                return None;
            }
            let found = visit.hindrances_of_programs(&without);
            Some(found.unwrap_or_else(|why| vec![why]))
        });
        found.expect("entered")
    };
    let reaches = || {
        let reaches = |&family: &AddressFamily| {
            let (flow, receiver) = of_ztunnel(&lab, family);
            stage
                .send(&flow)
                .is_ok_and(|got| got.by() == Some(receiver))
        };
        lab.families().iter().all(reaches)
    };
    for (value, is_lost) in [("0", false), ("1", true), ("0", false)] {
        sysctl(&lab, &["ipv4/tcp_fwmark_accept"], value);
        let found = named(false).expect("read");
        assert_eq!(reaches(), !is_lost, "{value}: {found:?}");
        assert_eq!(found.len(), usize::from(is_lost), "{value}: {found:?}");
        assert!(found.iter().all(|line| line.contains("tcp_fwmark_accept")));
    }
    // What cannot be read may be on.
    let Some(found) = named(true) else { return };
    let is_unknown = |line: &String| line.contains("not known") && line.contains("/proc/sys/net");
    assert!(found.iter().any(is_unknown), "{found:?}");
}

/// When the redirection is applied again, weir's rule is placed before a rule that another writer has added since.
#[test]
fn later_policy_rules_that_lead_replies_past_a_sidecar_are_stepped_over() {
    let lab = lab_or_skip!();
    // Otherwise the kernel does not send packets with another source address to 127.0.0.1.
    sysctl(&lab, &["ipv4/conf/all/route_localnet"], "1");
    let compiled = sidecar(&lab, Mode::Tproxy);
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let planned = || {
        let planned = sandbox.visit(|visit| visit.dry_run(&compiled));
        planned.expect("entered").expect("planned").len()
    };
    for &family in lab.families() {
        let own = lab.address(Place::Pod, family);
        ip(&lab, family, "route add default dev eth0 table 50");
        let (flow, receiver) = as_the_client(&lab, own);
        let rules = [
            format!("priority 50 from {own} lookup 50"),
            format!("priority 40 from {} lookup 50", loopback(family)),
            "priority 30 iif lo lookup 50".to_owned(),
            "priority 20 ipproto tcp lookup 50".to_owned(),
        ];
        for rule in rules {
            ip(&lab, family, &format!("rule add {rule}"));
            let found = named(&lab, &compiled, Intent::SCHEME);
            assert_eq!(found.len(), 1, "{family} {rule}: {found:?}");
            let planned = planned();
            let done = sandbox.apply(&compiled).unwrap_or_else(|e| panic!("{e}"));
            // Weir's previous rule, behind the foreign one, is deleted.
            assert_eq!((planned, done.len()), (2, 2), "{family} {rule}: {done:?}");
            let found = named(&lab, &compiled, Intent::SCHEME);
            assert_eq!(found, [""; 0], "{family} {rule}");
            let got = stage.send(&flow).expect("sent").by();
            assert_eq!(got, Some(receiver), "{family} {rule}");
            assert_eq!(sandbox.apply(&compiled).expect("compared"), []);
        }
    }
}

/// `src_valid_mark` makes IPv4 validate the source with the mark; `tcp_fwmark_accept` makes TCP answer with the mark of the first packet.
#[test]
fn sysctls_that_lose_marked_packets_are_named_where_they_do() {
    let settings: [&[&str]; 5] = [
        &["ipv4/conf/all/src_valid_mark"],
        &["ipv4/conf/eth0/src_valid_mark"],
        &["ipv4/conf/lo/src_valid_mark"],
        &[
            "ipv4/conf/all/src_valid_mark",
            "ipv4/conf/eth0/accept_local",
        ],
        &["ipv4/tcp_fwmark_accept"],
    ];
    let inbound = |lab: &Lab, stage: &Stage<'_>| {
        let reaches = |family: &AddressFamily| {
            let to = (lab.address(Place::Pod, *family), 8080).into();
            let got = stage.send(&tcp("in", Place::Client, to)).expect("sent");
            got.by() == Some(Receiver::ProxyInbound)
        };
        lab.families().iter().all(reaches)
    };
    let check = |lab: &Lab, stage: &Stage<'_>, compiled: &Compiled, scheme, lost: [bool; 5]| {
        for (keys, is_lost) in settings.iter().zip(lost) {
            assert!(inbound(lab, stage), "before {keys:?}");
            sysctl(lab, keys, "1");
            let found = named(lab, compiled, scheme);
            println!("{keys:?}: {found:?}");
            assert_eq!(inbound(lab, stage), !is_lost, "{keys:?}: {found:?}");
            assert_eq!(found.len(), usize::from(is_lost), "{keys:?}: {found:?}");
            let key = keys.first().expect("one");
            assert!(found.iter().all(|line| line.contains(key)), "{found:?}");
            sysctl(lab, keys, "0");
        }
    };
    let without = lab_or_skip!();
    let stage = Stage::open(&without, Mode::Redirect).expect("everybody in place");
    let compiled = sidecar(&without, Mode::Redirect);
    check(&without, &stage, &compiled, Intent::SCHEME, [false; 5]);
    let lab = lab_or_skip!();
    // An interface that is down receives no packets, whatever its sysctls are.
    let routing = Routing::open_in(lab.netns(Place::Pod)).expect("a socket");
    let other_end = lab.netns(Place::Server);
    routing
        .add_veth("down0", "down1", other_end)
        .expect("a pair of links");
    let stage = Stage::open(&lab, Mode::Tproxy).expect("everybody in place");
    let compiled = sidecar(&lab, Mode::Tproxy);
    let lost = [true, true, false, false, true];
    check(&lab, &stage, &compiled, Intent::SCHEME, lost);
    let lab = lab_or_skip!();
    crate::ambient::redirect(lab.netns(Place::Pod), Engine::Nft, false, &json!({}));
    let stage = Stage::ambient(&lab).expect("all listeners");
    let compiled = wanted(false, &json!({})).compile_for(None, Engine::Nft);
    check(&lab, &stage, &compiled, Redirect::SCHEME, [false; 5]);
}

/// A sysctl that cannot be read may be on.
#[test]
fn sysctls_that_cannot_be_read_are_not_taken_for_off() {
    let lab = lab_or_skip!();
    let compiled = sidecar(&lab, Mode::Tproxy);
    let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
    let sandbox = sandbox.expect("a pod");
    let found = |is_hidden: bool| {
        let found = sandbox.visit_for(Intent::SCHEME, |visit| {
            if is_hidden && let Err(e) = container::empty("/proc/sys/net".as_ref()) {
                println!("skipped: no mounts of its own: {e}");
                return None;
            }
            let found = visit.hindrances(&compiled);
            Some(found.unwrap_or_else(|why| vec![why]))
        });
        found.expect("entered")
    };
    assert_eq!(found(false).expect("looked"), [""; 0]);
    let Some(found) = found(true) else { return };
    assert_eq!(found.len(), 1, "{found:?}");
    let line = found.first().expect("one");
    assert!(
        line.contains("not known") && line.contains("/proc/sys/net"),
        "{line}"
    );
}

/// Rules redirect outbound packets to an address of `lo`. They are lost while it is down, which is reported in ambient mode.
#[test]
fn lo_that_is_down_is_named_beside_rules() {
    let family = AddressFamily::V4;
    let check = |lab: &Lab, stage: &Stage<'_>, compiled: &Compiled, scheme| {
        let sandbox = Sandbox::of(lab.netns(Place::Pod).try_clone().expect("a descriptor"));
        let sandbox = sandbox.expect("a pod");
        for state in ["up", "down", "up"] {
            ip(lab, family, &format!("link set lo {state}"));
            let found = sandbox.visit_for(scheme, |visit| visit.hindrances(compiled));
            let found = found.expect("entered").expect("read");
            let outcome = stage.send(&tcp("out", Place::Pod, (lab.service(family), 80).into()));
            println!("{state}: {outcome:?}, {found:?}");
            let is_taken = outcome.is_ok_and(|got| got.by() == Some(Receiver::ProxyOutbound));
            assert_eq!(is_taken, state == "up", "{found:?}");
            // Of a sidecar's pod the loopback plugin reports it.
            let is_told = !is_taken && scheme != Intent::SCHEME;
            assert_eq!(found.len(), usize::from(is_told), "{found:?}");
            assert!(found.iter().all(|line| line.contains("`lo` is down")));
        }
    };
    for engine in [Engine::Nft, Engine::Xtables] {
        let lab = lab_or_skip!();
        crate::ambient::redirect(lab.netns(Place::Pod), engine, false, &json!({}));
        let stage = Stage::ambient(&lab).expect("all listeners");
        let compiled = wanted(false, &json!({})).compile_for(None, engine);
        check(&lab, &stage, &compiled, Redirect::SCHEME);
    }
    for mode in [Mode::Redirect, Mode::Tproxy] {
        let lab = lab_or_skip!();
        let stage = Stage::open(&lab, mode).expect("everybody in place");
        let compiled = sidecar(&lab, mode);
        check(&lab, &stage, &compiled, Intent::SCHEME);
    }
}
