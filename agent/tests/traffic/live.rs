//! The live proof of redirection, on pods whose redirection is known from other tests.
// matrix: smoke; variants 6.12-rt

use crate::ambient::{redirect, wanted};
use crate::ebpf;
use crate::support::{CASES, Case, REDIRECT, config, lab, program};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use weir_bpf::{Pinned, open_pin};
use weir_cni::redirection::Sandbox;
use weir_demo::{Lab, Mode, Place, Stage};
use weir_live::{Answer, Direction, Landed, Plan, Proof, prove};
use weir_netlink::route::{AddressFamily, Route, Routing};

/// Every requested direction, in both families if the kernel has them.
fn proof(lab: &Lab, caller: bool, dns: bool) -> Proof {
    let servers: Vec<IpAddr> = lab.families().iter().map(|f| lab.service(*f)).collect();
    let plan = Plan {
        name_servers: if dns { servers } else { Vec::new() },
        caller: caller.then(|| lab.netns(Place::Client)),
        ..Plan::default()
    };
    let proof = prove(lab.netns(Place::Pod), &plan).expect("entered");
    let each = 1 + usize::from(caller) + 2 * usize::from(dns);
    assert_eq!(proof.checks.len(), each * lab.families().len(), "{proof}");
    proof
}

#[track_caller]
fn expect(proof: &Proof, direction: Direction, answer: Answer, case: Case) {
    let of = |c: &&weir_live::Check| c.direction == direction;
    let checks: Vec<_> = proof.checks.iter().filter(of).collect();
    assert!(!checks.is_empty(), "{proof}");
    for check in checks {
        assert_eq!(check.answer, answer, "{case:?}\n{proof}");
    }
}

fn sidecar(lab: &Lab, case: Case, more: Value) {
    let config = config(case.mode, more);
    program(lab.netns(Place::Pod), case.engine, &config);
}

#[test]
fn a_redirected_pod_is_proved_to_be_with_a_proxy_and_without() {
    for case in CASES {
        let Some(lab) = lab() else { return };
        let dns = json!({ "redirect_dns": true, "capture_all_dns": true });
        sidecar(&lab, case, dns);
        let idle = proof(&lab, true, true);
        expect(&idle, Direction::Outbound, Answer::Yes, case);
        expect(&idle, Direction::Dns, Answer::Yes, case);
        match case.mode {
            Mode::Redirect => expect(&idle, Direction::Inbound, Answer::Yes, case),
            // Without a listener, nft's tproxy lets the packet continue, and that of legacy tables drops it.
            Mode::Tproxy => assert_ne!(idle.answer(), Answer::Yes, "{case:?}\n{idle}"),
        }

        let stage = Stage::open(&lab, case.mode).expect("all listeners");
        let running = proof(&lab, true, true);
        assert_eq!(running.answer(), Answer::Yes, "{case:?}\n{running}");
        for check in &running.checks {
            let landed = match (check.direction, case.mode, check.landed) {
                (Direction::Inbound, Mode::Tproxy, landed) => {
                    assert_eq!(landed, Some(Landed::Transparent), "{running}");
                    continue;
                }
                (_, _, Some(Landed::At(SocketAddr::V4(at)))) => at.port(),
                (_, _, Some(Landed::At(SocketAddr::V6(at)))) => at.port(),
                (_, _, other) => panic!("{other:?}: {running}"),
            };
            assert_eq!(landed, check.expected, "{running}");
        }
        drop(stage);
    }
}

#[test]
fn what_the_rules_leave_out_is_proved_not_to_be_redirected() {
    for case in REDIRECT {
        let Some(lab) = lab() else { return };
        // The redirection excludes the probed address and the probed port, and has no rule for DNS.
        let some = json!({ "outbound_ip_ranges_include": "10.96.0.0/16,fd00:10:96::/112" });
        sidecar(&lab, case, some);
        let found = proof(&lab, true, true);
        expect(&found, Direction::Outbound, Answer::No, case);
        expect(&found, Direction::Dns, Answer::No, case);
        expect(&found, Direction::Inbound, Answer::Yes, case);
        assert_eq!(found.answer(), Answer::No, "{found}");

        let Some(lab) = crate::support::lab() else {
            return;
        };
        sidecar(&lab, case, json!({ "inbound_ports_include": "8080" }));
        let found = proof(&lab, true, false);
        expect(&found, Direction::Outbound, Answer::Yes, case);
        expect(&found, Direction::Inbound, Answer::No, case);

        let pod = lab.netns(Place::Pod).try_clone().expect("a descriptor");
        let sandbox = Sandbox::of(pod).expect("a pod");
        sandbox.clean(None).expect("removed");
        let found = proof(&lab, true, false);
        expect(&found, Direction::Outbound, Answer::No, case);
        expect(&found, Direction::Inbound, Answer::No, case);
    }
}

#[test]
fn a_pod_of_ambient_mode_is_proved_by_a_caller_in_another_pod() {
    for case in REDIRECT {
        let Some(lab) = lab() else { return };
        redirect(lab.netns(Place::Pod), case.engine, true, &json!({}));
        let idle = proof(&lab, true, true);
        assert_eq!(idle.answer(), Answer::Yes, "{case:?}\n{idle}");
        let stage = Stage::ambient(&lab).expect("all listeners");
        let running = proof(&lab, true, true);
        assert_eq!(running.answer(), Answer::Yes, "{case:?}\n{running}");
        drop(stage);

        // Ingress mode has no rule for inbound traffic; the other rules stay.
        let Some(lab) = crate::support::lab() else {
            return;
        };
        let ingress = json!({ "ingress_mode": true });
        redirect(lab.netns(Place::Pod), case.engine, false, &ingress);
        let found = proof(&lab, true, true);
        expect(&found, Direction::Outbound, Answer::Yes, case);
        expect(&found, Direction::Inbound, Answer::No, case);
        assert_eq!(found.answer(), Answer::No, "{found}");
    }
}

/// The node's connections pass; those of others are dropped without a listener, which counts as captured.
#[test]
fn connections_to_a_pod_that_programs_redirect_are_proved_by_a_caller_in_another_pod() {
    let Some(mounted) = ebpf::mount() else { return };
    let Some(lab) = lab() else { return };
    let (netns, bpffs) = (lab.netns(Place::Pod), ebpf::bpffs(&mounted));
    let (node, other) = (lab.netns(Place::Client), lab.netns(Place::Server));
    let pod = weir_ebpf::Pod::of(netns, &bpffs).expect("a pod");
    let pod = pod.beside(node);
    pod.apply(&wanted(true, &json!({}))).expect("applied");
    let counted = |of: Direction| match of {
        Direction::Inbound => pod.captured_inbound(),
        _ => pod.captured(of == Direction::Dns),
    };
    let inbound = |caller: &weir_netlink::Netns| {
        let plan = Plan {
            caller: Some(caller),
            counted: Some(&counted),
            passes: pod.lets_pass(caller).expect("read"),
            ..Plan::default()
        };
        let mut checks = prove(netns, &plan).expect("entered").checks;
        checks.retain(|check| check.direction == Direction::Inbound);
        assert_eq!(checks.len(), lab.families().len());
        checks
    };
    let expect = |caller, answer, words: &str| {
        for check in inbound(caller) {
            assert_eq!(check.answer, answer, "{check}");
            assert!(check.reason.contains(words), "{check}");
        }
    };
    expect(node, Answer::Unknown, "give a caller in another pod");
    expect(other, Answer::Yes, "nothing listens there");
    let stage = Stage::ambient(&lab).expect("all listeners");
    expect(other, Answer::Yes, "captured by a program");
    drop(stage);
    let ingress = json!({ "ingress_mode": true });
    pod.apply(&wanted(true, &ingress)).expect("applied");
    expect(other, Answer::No, "not redirected");
    // As a rule of the node would, before the packet reaches the pod.
    let rules = "table inet t { chain c { type filter hook output priority 0; tcp flags & (syn | ack) == syn reject with tcp reset; }; }";
    let mut nft = std::process::Command::new("nft");
    let rejects = other.run(|| nft.arg(rules).status());
    assert!(
        rejects
            .expect("entered")
            .expect("nft is needed here")
            .success()
    );
    expect(other, Answer::Unknown, "not by the pod");
}

/// Conntrack has no entry of such a connection.
#[test]
fn a_pod_that_programs_redirect_is_proved_by_what_they_count() {
    let Some(mounted) = ebpf::mount() else { return };
    let Some(lab) = lab() else { return };
    let (netns, bpffs) = (lab.netns(Place::Pod), ebpf::bpffs(&mounted));
    ebpf::redirect(&mounted, netns, &wanted(true, &json!({})));
    let pod = weir_ebpf::Pod::of(netns, &bpffs).expect("a pod");
    let counted = |of: Direction| pod.captured(of == Direction::Dns);
    let servers: Vec<IpAddr> = lab.families().iter().map(|f| lab.service(*f)).collect();
    let proof = || {
        let plan = Plan {
            name_servers: servers.clone(),
            counted: Some(&counted),
            ..Plan::default()
        };
        let proof = prove(netns, &plan).expect("entered");
        assert_eq!(proof.checks.len(), 3 * lab.families().len(), "{proof}");
        proof
    };
    let idle = proof();
    assert_eq!(idle.answer(), Answer::Yes, "{idle}");
    let stage = Stage::ambient(&lab).expect("all listeners");
    let running = proof();
    assert_eq!(running.answer(), Answer::Yes, "{running}");
    drop(stage);

    let shown = weir_ebpf::show::read(netns, Some(&bpffs)).expect("read");
    let mut programs = shown.programs.into_iter();
    let egress = programs.find(|p| (&*p.interface, &*p.hook) == ("eth0", "tcx egress"));
    let pin = egress.and_then(|program| program.pin).expect("its pin");
    let Ok(Pinned::Link(link)) = open_pin(&pin) else {
        panic!("no link: {}", pin.display())
    };
    link.detach().expect("detached");
    for check in proof().checks {
        assert_eq!(check.answer, Answer::No, "{check}");
    }
    // The next hop does not exist, so nothing leaves.
    let routing = Routing::open_in(netns).expect("a socket");
    for route in routing.routes(254).expect("routes") {
        let (Some(IpAddr::V4(gateway)), 0) = (route.gateway, route.dst.prefix_len()) else {
            continue;
        };
        routing.del_route(&route).expect("deleted");
        let [a, b, c, _] = gateway.octets();
        let nobody = Some(IpAddr::from([a, b, c, 77]));
        let route = Route::unicast(route.dst, nobody, route.oif);
        routing.add_route(&route).expect("added");
    }
    let lost = proof();
    let of_v4 = |check: &&weir_live::Check| check.family == AddressFamily::V4;
    for check in lost.checks.iter().filter(of_v4) {
        assert_eq!(check.answer, Answer::Unknown, "{check}");
    }
}
