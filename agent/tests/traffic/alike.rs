//! If the engine nf_tables is named, the two engines differ where they are meant to. If nf_tables is chosen automatically, its rules have
//! the same effect as those for legacy tables.

use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Protocol as IpProtocol, Socket, Type};
use weir_cni::compile::Engine;
use weir_demo::{Flow, Lab, Mode, Place, Protocol, Receiver, Stage};
use weir_netfilter::conntrack::{Conntrack, Entry};
use weir_netlink::route::AddressFamily;

use crate::lab_or_skip;
use crate::support::{FAMILIES, config, lab, program_for, tcp};

/// The named engine, if any, and the engine that has the rules.
const WAYS: [(Option<Engine>, Engine); 3] = [
    (Some(Engine::Nft), Engine::Nft),
    (None, Engine::Nft),
    (None, Engine::Xtables),
];

/// Whether the rules are upstream's for nf_tables.
fn is_native(way: (Option<Engine>, Engine)) -> bool {
    way == WAYS[0]
}

/// A deadline for work of the kernel.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks a pod in which IPv6 is not to be programmed.
fn without_ipv6(
    (named, engine): (Option<Engine>, Engine),
    check: impl Fn(&dyn Fn(&Flow) -> Option<Receiver>, &Lab),
) -> bool {
    let Some(lab) = lab() else { return false };
    let more = json!({
        "enable_ipv6": false,
        "redirect_dns": true,
        "capture_all_dns": true,
    });
    let mode = Mode::Redirect;
    program_for(lab.netns(Place::Pod), named, engine, &config(mode, more));
    let stage = Stage::open(&lab, mode).expect("everybody in place");
    check(
        &|flow| stage.send(flow).unwrap_or_else(|e| panic!("{e}")).by(),
        &lab,
    );
    true
}

#[test]
fn without_ipv6_rules_of_no_family_take_ipv6_where_nf_tables_are_named_only() {
    for way in WAYS {
        let ran = without_ipv6(way, |send, lab| {
            for family in FAMILIES {
                let captured = is_native(way) || family == AddressFamily::V4;
                let or = |proxy, else_by| Some(if captured { proxy } else { else_by });
                let out = tcp("out", Place::Pod, (lab.service(family), 80).into());
                assert_eq!(
                    send(&out),
                    or(Receiver::ProxyOutbound, Receiver::Server),
                    "{way:?}"
                );
                let to = (lab.address(Place::Pod, family), 8080).into();
                let by = send(&tcp("in", Place::Client, to));
                assert_eq!(
                    by,
                    or(Receiver::ProxyInbound, Receiver::Application),
                    "{way:?}"
                );
                let to = (lab.service(family), 53).into();
                let by = send(&Flow::new("query", Protocol::Udp, Place::Pod, to));
                assert_eq!(by, or(Receiver::ProxyDns, Receiver::Server), "{way:?}");
            }
        });
        if !ran {
            return;
        }
    }
}

/// An ICMP echo message. A reply (0) without a request belongs to no connection; a request (8) begins one.
fn echo(kind: u8) -> [u8; 8] {
    let (identifier, sequence) = (0x77, 1);
    // The sum of the four 16-bit words, which never carries.
    let sum = (u16::from(kind) << 8) + identifier + sequence;
    let [high, low] = (!sum).to_be_bytes();
    [kind, 0, high, low, 0, 0x77, 0, 1]
}

/// Whether the pod receives a reply to a request that it never sent.
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
        // The request is accepted in any case and arrives second.
        let length = (&pod).read(&mut packet).expect("the question");
        match packet[20..length] {
            [0, ..] => return true,
            [8, ..] => return false,
            _ => {}
        }
    }
}

#[test]
fn what_is_dropped_as_invalid_is_tcp_only_where_nf_tables_are_named() {
    for way in WAYS {
        for drop_invalid in [false, true] {
            let lab = lab_or_skip!();
            let more = json!({ "drop_invalid": drop_invalid });
            let (named, engine) = way;
            let config = config(Mode::Redirect, more);
            program_for(lab.netns(Place::Pod), named, engine, &config);
            let dropped = drop_invalid && !is_native(way);
            assert_eq!(gets_stray_answer(&lab), !dropped, "{way:?}, {drop_invalid}");
        }
    }
}

/// The destination of packets to port 53 of a server that the kernel itself sends: packets of a tunnel with ARP inside have no socket.
///
/// Returns `None` if this kernel has no tunnel.
fn tunnel_lands_at(lab: &Lab) -> Option<u16> {
    let (from, to) = (
        lab.address(Place::Pod, AddressFamily::V4),
        lab.service(AddressFamily::V4),
    );
    let pod = lab.netns(Place::Pod);
    let ip = |args: &str| {
        let run = || Command::new("ip").args(args.split_whitespace()).output();
        match pod.run(run).expect("entered") {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    };
    let tunnel = format!("link add vx0 type vxlan id 1 local {from} remote {to} dstport 53");
    if let Err(error) = ip(&tunnel) {
        let is_lack = ["Unknown device type", "No such file"].map(|words| error.contains(words));
        assert!(is_lack.contains(&true), "{error}");
        println!("skipped: no vxlan, or no ip: {error}");
        return None;
    }
    ip("link set vx0 up").expect("up");
    ip("address add 10.9.9.1/24 dev vx0").expect("added");
    pod.run(|| {
        let inside = UdpSocket::bind("10.9.9.1:0").expect("bound");
        let mut table = Conntrack::open().expect("a socket");
        let until = Instant::now() + PATIENCE;
        loop {
            inside.send_to(b"x", "10.9.9.2:9").expect("sent");
            let mut found = None;
            let of_tunnel = |entry: Entry| {
                if entry.original.destination == SocketAddr::from((to, 53)) {
                    found = Some(entry.lands_at().port());
                }
                Ok(())
            };
            table.each(false, of_tunnel).expect("read");
            if found.is_some() {
                return found;
            }
            assert!(Instant::now() < until, "the tunnel sent nothing");
            thread::sleep(Duration::from_millis(20));
        }
    })
    .expect("entered")
}

/// Rules of legacy tables treat a packet without a socket like one of a group that is not in the list.
#[test]
fn packets_without_a_socket_are_captured_where_nf_tables_are_named_only() {
    for way in WAYS {
        let lab = lab_or_skip!();
        let more = json!({
            "owner_groups_include": "2000",
            "redirect_dns": true,
            "capture_all_dns": true,
        });
        let (named, engine) = way;
        program_for(
            lab.netns(Place::Pod),
            named,
            engine,
            &config(Mode::Redirect, more),
        );
        let Some(port) = tunnel_lands_at(&lab) else {
            return;
        };
        assert_eq!(port == 15053, is_native(way), "{way:?}: {port}");
    }
}
