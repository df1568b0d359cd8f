//! Where the two engines are meant to differ in what they do to traffic, they do.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use socket2::{Domain, Protocol as IpProtocol, Socket, Type};
use weir_cni::compile::Engine;
use weir_demo::{Flow, Lab, Mode, Place, Protocol, Receiver, Stage};
use weir_netlink::route::AddressFamily;

use crate::lab_or_skip;
use crate::support::{Case, FAMILIES, config, lab, program, tcp};

const ENGINES: [Engine; 2] = [Engine::Nft, Engine::Xtables];

/// A pod in which IPv6 is not to be programmed.
fn without_ipv6(engine: Engine, check: impl Fn(&dyn Fn(&Flow) -> Option<Receiver>, &Lab)) -> bool {
    let Some(lab) = lab() else { return false };
    let more = json!({
        "enable_ipv6": false,
        "redirect_dns": true,
        "capture_all_dns": true,
    });
    let case = Case {
        mode: Mode::Redirect,
        engine,
    };
    program(lab.netns(Place::Pod), case.engine, &config(case.mode, more));
    let stage = Stage::open(&lab, case.mode).expect("everybody in place");
    check(
        &|flow| stage.send(flow).unwrap_or_else(|e| panic!("{e}")).by(),
        &lab,
    );
    true
}

#[test]
fn without_ipv6_rules_of_no_family_take_ipv6_under_nf_tables_only() {
    for engine in ENGINES {
        let ran = without_ipv6(engine, |send, lab| {
            let is_nft = engine == Engine::Nft;
            for family in FAMILIES {
                let captured = is_nft || family == AddressFamily::V4;
                let or = |proxy, else_by| Some(if captured { proxy } else { else_by });
                let out = tcp("out", Place::Pod, (lab.service(family), 80).into());
                assert_eq!(
                    send(&out),
                    or(Receiver::ProxyOutbound, Receiver::Server),
                    "{engine:?}"
                );
                let to = (lab.address(Place::Pod, family), 8080).into();
                let by = send(&tcp("in", Place::Client, to));
                assert_eq!(
                    by,
                    or(Receiver::ProxyInbound, Receiver::Application),
                    "{engine:?}"
                );
                let to = (lab.service(family), 53).into();
                let by = send(&Flow::new("query", Protocol::Udp, Place::Pod, to));
                assert_eq!(by, or(Receiver::ProxyDns, Receiver::Server), "{engine:?}");
            }
        });
        if !ran {
            return;
        }
    }
}

/// An ICMP echo message. An answer (0) that nobody asked for belongs to no connection; a question
/// (8) begins one.
fn echo(kind: u8) -> [u8; 8] {
    let (identifier, sequence) = (0x77, 1);
    // The sum of the four words; none of them carries.
    let sum = (u16::from(kind) << 8) + identifier + sequence;
    let [high, low] = (!sum).to_be_bytes();
    [kind, 0, high, low, 0, 0x77, 0, 1]
}

/// Whether the pod gets an answer to a question that it never asked.
fn gets_stray_answer(lab: &Lab) -> bool {
    let raw = |place| {
        let opened = lab
            .netns(place)
            .run(|| Socket::new(Domain::IPV4, Type::RAW, Some(IpProtocol::ICMPV4)));
        let socket = opened.expect("entered").expect("raw socket");
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        socket
    };
    let (pod, client) = (raw(Place::Pod), raw(Place::Client));
    let to = SocketAddr::new(lab.address(Place::Pod, AddressFamily::V4), 0).into();
    for kind in [0, 8] {
        client.send_to(&echo(kind), &to).expect("sent");
    }
    let mut packet = [0; 256];
    loop {
        // The question is taken in any case and comes second.
        let length = (&pod).read(&mut packet).expect("the question");
        match packet[20..length] {
            [0, ..] => return true,
            [8, ..] => return false,
            _ => {}
        }
    }
}

#[test]
fn what_is_dropped_as_invalid_is_tcp_only_under_nf_tables() {
    for engine in ENGINES {
        for drop_invalid in [false, true] {
            let lab = lab_or_skip!();
            let more = json!({ "drop_invalid": drop_invalid });
            program(lab.netns(Place::Pod), engine, &config(Mode::Redirect, more));
            let dropped = drop_invalid && engine == Engine::Xtables;
            assert_eq!(
                gets_stray_answer(&lab),
                !dropped,
                "{engine:?}, {drop_invalid}"
            );
        }
    }
}
