//! Connections with an unusual start.
//!
//! A client connects again from the port that it has just used, while ztunnel's end of the previous connection is in `TIME_WAIT`: for a
//! minute, if ztunnel closes first. With busy clients this happens by chance. Or the kernel stores nothing about a SYN and answers with a
//! SYN cookie, as it does when many handshakes stay incomplete.
// matrix: smoke; variants 6.12-rt

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use weir_demo::node_ambient::{Lab, Place};
use weir_demo::{PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_testing::BpfFs;

use crate::ambient_pods::{LIMIT, accept, connect, listen};
use crate::ambient_ways::{Case, WAYS, Way, apply};
use crate::ebpf;

const CLIENT_PORT: u16 = 43_210;
const APPLICATION_PORT: u16 = 8080;
/// `TCP_TIME_WAIT` of `net/tcp_states.h` in the notation of `/proc/net/tcp`. The state is 05 until the other end has closed.
const TIME_WAIT: &str = "06";

/// The sockets of a namespace: local and remote address, and state.
fn sockets(netns: &Netns, family: AddressFamily) -> Vec<[String; 3]> {
    let file = match family {
        AddressFamily::V4 => "/proc/thread-self/net/tcp",
        AddressFamily::V6 => "/proc/thread-self/net/tcp6",
    };
    let read = || std::fs::read_to_string(file).expect("read");
    let text = netns.run(read).expect("entered");
    let words = |line: &str| {
        let mut words = line.split_whitespace().skip(1).map(str::to_owned);
        Some([words.next()?, words.next()?, words.next()?])
    };
    text.lines().skip(1).filter_map(words).collect()
}

/// Whether the client's connection is in `TIME_WAIT` at the other end and the client has no socket of it any more.
///
/// The client closes last, and on a busy machine the answer to its last segment arrives later.
fn waits(proxy: &Netns, client: &Netns, family: AddressFamily) -> bool {
    let port = format!(":{CLIENT_PORT:04X}");
    let at_proxy = sockets(proxy, family);
    let is_it = |[_, peer, state]: &[String; 3]| peer.ends_with(&port) && state == TIME_WAIT;
    at_proxy.iter().any(is_it)
        && !sockets(client, family)
            .iter()
            .any(|[own, ..]| own.ends_with(&port))
}

/// Both connections of the client must reach the same listener of ztunnel, whose number is returned.
fn twice(way: Way, lab: &Lab, from: Place, to: SocketAddr, family: AddressFamily) -> usize {
    let unspecified: IpAddr = match family {
        AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let any = |port| SocketAddr::new(unspecified, port);
    let proxy = lab.netns(way.proxy());
    // The application's listener must not receive either connection.
    let listeners = [
        listen(proxy, any(PROXY_OUTBOUND_PORT), true),
        listen(proxy, any(PROXY_INBOUND_PORT), true),
        listen(lab.netns(Place::Web), any(APPLICATION_PORT), false),
    ];
    let mut got = [0, 1, 2].map(|n| {
        let begun = Instant::now();
        while n > 0 && !waits(proxy, lab.netns(from), family) {
            let late = begun.elapsed() < LIMIT;
            assert!(late, "{way:?}, {family:?}: no connection is in TIME_WAIT");
        }
        let client = connect(lab.netns(from), any(CLIENT_PORT), to, false);
        let (listener, taken) = accept(&listeners);
        drop(taken);
        let end = (&client).read(&mut [0]);
        assert_eq!(end.expect("the end"), 0, "{way:?}, {family:?}");
        listener
    });
    got.sort_unstable();
    assert_eq!(got[0], got[2], "{way:?}, {family:?}");
    got[0]
}

/// Each engine of ambient mode that this kernel supports, in a lab of its own.
fn each(check: impl Fn(Way, &Lab)) {
    drop(crate::lab_or_skip!());
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    let has_programs = ebpf::mount().is_some();
    for way in WAYS {
        let by_rules = matches!(way, Way::RulesInPod(_) | Way::RulesAtNode(_));
        if !by_rules && !has_programs {
            continue;
        }
        let lab = Lab::create().expect("a lab");
        let case = Case::default();
        apply(way, &case, &lab, &mounted).unwrap_or_else(|e| panic!("{way:?}: {e}"));
        println!("{way:?}");
        check(way, &lab);
    }
}

fn both_directions(way: Way, lab: &Lab) {
    for &family in lab.families {
        let service = SocketAddr::new(lab.service(family), 80);
        assert_eq!(twice(way, lab, Place::Web, service, family), 0, "{way:?}");
        let pod = SocketAddr::new(lab.address(Place::Web, family), APPLICATION_PORT);
        assert_eq!(twice(way, lab, Place::Outside, pod, family), 1, "{way:?}");
    }
}

#[test]
fn a_port_that_is_used_again_at_once_is_captured_at_once() {
    each(both_directions);
}

#[test]
fn connections_that_begin_with_a_cookie_are_captured() {
    each(|way, lab| {
        // A limitation, as in Istio 1.18 to 1.20: after the first packet, the rules at the node look up ztunnel's established sockets, but
        // not its listeners, which a connection with a cookie needs.
        if matches!(way, Way::RulesAtNode(_)) {
            return;
        }
        // The value 2 means always.
        let set = || std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2");
        let set = lab.netns(way.proxy()).run(set).expect("entered");
        set.expect("a kernel with SYN cookies");
        both_directions(way, lab);
        let read = || std::fs::read_to_string("/proc/thread-self/net/netstat").expect("read");
        let counted = lab.netns(way.proxy()).run(read).expect("entered");
        assert!(received_cookies(&counted) > 0, "{way:?}: {counted}");
    });
}

/// `SyncookiesRecv` of `/proc/net/netstat`.
fn received_cookies(counted: &str) -> u64 {
    let mut lines = counted.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next(), lines.next());
    let words = |line: Option<&str>| -> Vec<String> {
        let words = line.into_iter().flat_map(str::split_whitespace);
        words.map(str::to_owned).collect()
    };
    let names = words(names);
    let at = names.iter().position(|name| name == "SyncookiesRecv");
    words(values)[at.expect("counted")]
        .parse()
        .expect("a number")
}
