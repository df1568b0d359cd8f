//! Notifications of the running kernel about changes by `ip`, by `nft` and by this crate.

use crate::common::{ip, routing, tool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::Transport;
use weir_netlink::events::{Events, Notification, Notifies};
use weir_netlink::message::{Netfilter, Rtnetlink};
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, message_type};
use weir_netlink::route::{
    Changed, Filter, LOOPBACK_IFINDEX, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEIGH,
    RTNLGRP_NSID, RTNLGRP_TC, RouteEvent, TcHandle,
};
use weir_testing::namespace_or_skip;

const PATIENCE: Duration = Duration::from_secs(10);

fn listen<P: Notifies>(netns: &Netns, groups: &[u32]) -> Events<P>
where
    P::Event: Send + 'static,
{
    let groups = groups.to_vec();
    netns
        .run(move || Events::open(&groups))
        .expect("entered")
        .expect("open")
}

/// The first event for which `f` returns a value.
fn find<P: Notifies, V>(events: &mut Events<P>, f: impl Fn(P::Event) -> Option<V>) -> V {
    let until = Instant::now() + PATIENCE;
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        match events.next(rest).expect("read") {
            Some(Notification::Event(event)) => {
                if let Some(found) = f(event) {
                    return found;
                }
            }
            Some(Notification::Overrun) => panic!("lost"),
            None => panic!("it did not come"),
        }
    }
}

#[test]
fn every_object_is_told_of() {
    let netns = namespace_or_skip!();
    let other = namespace_or_skip!();
    let routing = routing(&netns);
    let groups = [
        RTNLGRP_LINK,
        RTNLGRP_IPV4_IFADDR,
        RTNLGRP_IPV4_ROUTE,
        RTNLGRP_IPV4_RULE,
        RTNLGRP_NEIGH,
        RTNLGRP_TC,
        RTNLGRP_NSID,
    ];
    let mut events = listen::<Rtnetlink>(&netns, &groups);
    ip(&netns, "link add d0 type veth peer name d1");
    let index = find(&mut events, |e| match e {
        RouteEvent::Link(Changed::New(l)) if l.name == "d0" => Some(l.index),
        _ => None,
    });
    ip(&netns, "link set d0 up");
    find(&mut events, |e| match e {
        RouteEvent::Link(Changed::New(l)) if l.name == "d0" && l.up => Some(()),
        _ => None,
    });
    ip(&netns, "address add 10.1.2.3/24 dev d0");
    find(&mut events, |e| match e {
        RouteEvent::Address(Changed::New(a)) if a.index == index => {
            (a.net.to_string() == "10.1.2.3/24").then_some(())
        }
        _ => None,
    });
    find(&mut events, |e| match e {
        RouteEvent::Route(Changed::New(r)) if r.oif == Some(index) => {
            (r.dst.to_string() == "10.1.2.0/24").then_some(())
        }
        _ => None,
    });
    ip(&netns, "rule add fwmark 7 lookup 77");
    find(&mut events, |e| match e {
        RouteEvent::Rule(Changed::New(r)) => (r.fwmark == Some(7) && r.table == 77).then_some(()),
        _ => None,
    });
    ip(&netns, "neigh add 10.1.2.9 lladdr 02:00:00:00:00:09 dev d0");
    find(&mut events, |e| match e {
        RouteEvent::Neighbour(Changed::New(n)) => n.mac.filter(|mac| mac[5] == 9),
        _ => None,
    });
    tool(&netns, "tc", "qdisc add dev d0 clsact");
    find(&mut events, |e| match e {
        RouteEvent::Qdisc(Changed::New(q)) => (q.kind == "clsact").then_some(()),
        _ => None,
    });
    assert!(routing.set_nsid(&other, 3).expect("set"));
    find(&mut events, |e| match e {
        RouteEvent::Nsid(Changed::New(3)) => Some(()),
        _ => None,
    });
    ip(&netns, "link delete d0");
    find(&mut events, |e| match e {
        RouteEvent::Link(Changed::Gone(l)) if l.index == index => Some(()),
        _ => None,
    });
}

/// Whether the change is an object's beginning, or its end, and the object is the one that is expected.
fn is<T>(change: &Changed<T>, is_new: bool, expected: impl Fn(&T) -> bool) -> Option<()> {
    let told = match change {
        Changed::New(object) => is_new && expected(object),
        Changed::Gone(object) => !is_new && expected(object),
    };
    told.then_some(())
}

#[test]
fn every_object_of_ipv6_is_told_of_and_its_end() {
    let netns = namespace_or_skip!();
    ip(&netns, "link add d0 type veth peer name d1");
    ip(&netns, "link set d1 up");
    ip(&netns, "link set d0 up");
    let groups = [
        RTNLGRP_IPV6_IFADDR,
        RTNLGRP_IPV6_ROUTE,
        RTNLGRP_IPV6_RULE,
        RTNLGRP_NEIGH,
    ];
    let mut events = listen::<Rtnetlink>(&netns, &groups);
    for (command, is_new) in [(" add ", true), (" delete ", false)] {
        let ip = |arguments: &str| ip(&netns, &arguments.replace(" add ", command));
        ip("neigh add fd00::9 lladdr 02:00:00:00:00:09 dev d0");
        find(&mut events, |e| match e {
            RouteEvent::Neighbour(change) => is(&change, is_new, |n| n.ip.to_string() == "fd00::9"),
            _ => None,
        });
        ip("address add fd00::5/64 dev d0 nodad");
        find(&mut events, |e| match e {
            RouteEvent::Address(change) => {
                is(&change, is_new, |a| a.net.to_string() == "fd00::5/64")
            }
            _ => None,
        });
        ip("-6 route add blackhole 2001:db8::/64 table 77");
        find(&mut events, |e| match e {
            RouteEvent::Route(change) => is(&change, is_new, |r| {
                r.dst.to_string() == "2001:db8::/64" && r.table == 77
            }),
            _ => None,
        });
        ip("-6 rule add to 2001:db8::/64 lookup 77");
        find(&mut events, |e| match e {
            RouteEvent::Rule(change) => is(&change, is_new, |r| {
                let to = r.selectors.to.map(|to| to.to_string());
                to.as_deref() == Some("2001:db8::/64") && r.table == 77
            }),
            _ => None,
        });
    }
}

#[test]
fn qdiscs_and_filters_are_told_of_and_their_end() {
    let netns = namespace_or_skip!();
    ip(&netns, "link add d0 type veth peer name d1");
    let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_TC]);
    let add = crate::common::try_tool(&netns, "tc", "qdisc add dev d0 clsact");
    if let Err(e) = add {
        return weir_testing::lacks::skip("qdisc clsact", "4.5", e);
    }
    let filter = "dev d0 egress protocol ipv6 pref 7 handle 3 bpf";
    let add = format!("filter add {filter} bytecode");
    let words: Vec<&str> = add.split(' ').chain(["1,6 0 0 1,"]).collect();
    weir_testing::tool::tool(&netns, "tc", &words, "").expect("tc adds it");
    let expected = |f: &Filter| {
        let key = (f.parent, f.priority, f.protocol, f.handle, f.kind.word());
        key == (TcHandle::EGRESS, 7, 0x86dd, 3, "bpf")
    };
    find(&mut events, |e| match e {
        RouteEvent::Filter(change) => is(&change, true, expected),
        _ => None,
    });
    tool(&netns, "tc", &format!("filter delete {filter}"));
    find(&mut events, |e| match e {
        RouteEvent::Filter(change) => is(&change, false, expected),
        _ => None,
    });
    tool(&netns, "tc", "qdisc delete dev d0 clsact");
    find(&mut events, |e| match e {
        RouteEvent::Qdisc(change) => is(&change, false, |q| q.kind == "clsact"),
        _ => None,
    });
}

/// The bridge reports the removal of its port with `RTM_DELLINK`, while the link itself reports `RTM_NEWLINK`.
#[test]
fn a_port_that_leaves_its_bridge_is_still_there() {
    const RTM_DELLINK: u16 = 17;
    const AF_BRIDGE: u8 = 7;
    let netns = namespace_or_skip!();
    ip(&netns, "link add br0 type bridge");
    ip(&netns, "link add p0 type veth peer name p1");
    ip(&netns, "link set p0 master br0");
    let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_LINK]);
    ip(&netns, "link set p0 nomaster");
    ip(&netns, "link delete p0");
    let (left, of_bridge) = (Cell::new(false), Cell::new(false));
    find(&mut events, |e| match e {
        RouteEvent::Link(Changed::New(l)) if l.name == "p0" => {
            left.set(left.get() | l.master.is_none());
            None
        }
        // The first byte after the header is ifi_family.
        RouteEvent::Other(RTM_DELLINK, rest) => {
            of_bridge.set(of_bridge.get() | (rest.first() == Some(&AF_BRIDGE)));
            None
        }
        RouteEvent::Link(Changed::Gone(l)) if l.name == "p0" => {
            assert!(
                left.get() && of_bridge.get(),
                "gone before it left the bridge"
            );
            Some(())
        }
        _ => None,
    });
}

#[test]
fn nf_tables_tells_of_a_table() {
    const NFT_MSG_NEWTABLE: u16 = 0;
    let netns = namespace_or_skip!();
    let mut events = listen::<Netfilter>(&netns, &[NFNLGRP_NFTABLES]);
    tool(&netns, "nft", "add table ip6 news");
    let table = find(&mut events, |reply| {
        let is_table = reply.kind == message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWTABLE);
        is_table.then_some(reply)
    });
    assert_eq!(table.header.family, 10);
    assert!(table.attrs.windows(4).any(|w| w == b"news"));
}

/// An async runtime reports readiness, and the reader takes the events without waiting.
#[test]
fn the_descriptor_tells_when_something_is_there() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_IPV4_IFADDR]);
    let is_readable = |events: &Events<Rtnetlink>, wait: PollTimeout| {
        let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, wait).expect("polled") == 1
    };
    assert!(!is_readable(&events, PollTimeout::ZERO));
    assert_eq!(events.next(Duration::ZERO).expect("read"), None);
    let net = "127.0.0.9/32".parse().expect("a network");
    assert!(routing.add_address(LOOPBACK_IFINDEX, net).expect("added"));
    assert!(is_readable(&events, PollTimeout::from(5_000u16)));
    let found = events.next(Duration::ZERO).expect("read");
    let Some(Notification::Event(RouteEvent::Address(Changed::New(address)))) = found else {
        panic!("{found:?}");
    };
    assert_eq!(address.net, net);
    assert_eq!(events.next(Duration::ZERO).expect("read"), None);
}

/// Requests are synchronous, and short; notifications are awaited by their descriptor.
#[test]
fn requests_and_notifications_inside_of_a_runtime() {
    let netns = namespace_or_skip!();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let net = "127.0.0.9/32".parse().expect("a network");
    runtime.block_on(async {
        let routing = routing(&netns);
        let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_IPV4_IFADDR]);
        let descriptor = events.as_fd().try_clone_to_owned().expect("a descriptor");
        // `register` is an unsafe function.
        #[allow(deprecated)]
        let descriptor = tokio::io::unix::AsyncFd::new(descriptor).expect("registered");
        let adds = tokio::spawn(async move {
            assert!(routing.add_address(LOOPBACK_IFINDEX, net).expect("added"));
            routing.addresses().expect("listed")
        });
        let readable = tokio::time::timeout(PATIENCE, descriptor.readable());
        let readable = readable.await.expect("in time");
        readable.expect("watched").clear_ready();
        let told = events.next(Duration::ZERO).expect("read");
        let listed = adds.await.expect("ended");
        let Some(Notification::Event(RouteEvent::Address(Changed::New(address)))) = told else {
            panic!("{told:?}");
        };
        assert_eq!(address.net, net);
        assert!(listed.iter().any(|a| a.net == net));
    });
}

#[test]
fn an_overrun_is_told_and_not_the_end() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_IPV4_IFADDR]);
    let net = "127.0.0.9/32".parse().expect("a network");
    let turn = || {
        assert!(routing.add_address(LOOPBACK_IFINDEX, net).expect("added"));
        assert!(routing.del_address(LOOPBACK_IFINDEX, net).expect("deleted"));
    };
    // Far more than the buffer of a socket holds (net.core.rmem_default).
    (0..3000).for_each(|_| turn());
    let first = events.next(Duration::ZERO).expect("read");
    assert_eq!(first, Some(Notification::Overrun));
    let mut older = 0;
    while let Some(next) = events.next(Duration::ZERO).expect("read") {
        assert!(matches!(next, Notification::Event(_)), "{next:?}");
        older += 1;
    }
    assert!(older > 10 && older < 6000, "{older}");
    turn();
    let after = events.next(PATIENCE).expect("read");
    assert!(matches!(after, Some(Notification::Event(_))), "{after:?}");
}

#[test]
fn what_is_discarded_is_told_once() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let mut events = listen::<Rtnetlink>(&netns, &[RTNLGRP_IPV4_IFADDR]);
    let net = "127.0.0.9/32".parse().expect("a network");
    let mut discard = || events.discard().expect("read");
    assert!(!discard());
    assert!(routing.add_address(LOOPBACK_IFINDEX, net).expect("added"));
    assert!(discard());
    assert!(!discard());
    // Lost notifications count, and so do later ones.
    for _ in 0..3000 {
        assert!(routing.del_address(LOOPBACK_IFINDEX, net).expect("deleted"));
        assert!(routing.add_address(LOOPBACK_IFINDEX, net).expect("added"));
    }
    assert!(discard());
    assert!(!discard());
    // The notification of `lo` belongs to another group.
    routing.set_up(LOOPBACK_IFINDEX).expect("set up");
    assert!(routing.del_address(LOOPBACK_IFINDEX, net).expect("deleted"));
    assert!(discard());
}

/// Returns these results one after the other.
struct Script(RefCell<Vec<io::Result<Vec<u8>>>>);

impl Transport for Script {
    fn send(&self, _: &[u8]) -> io::Result<()> {
        unreachable!("nothing is sent")
    }
    fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
        let mut says = self.0.borrow_mut();
        if says.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let datagram = says.remove(0)?;
        let kept = datagram.len().min(buf.len());
        buf[..kept].copy_from_slice(&datagram[..kept]);
        Ok(datagram.len())
    }
    fn reopen(&self) -> weir_netlink::Result<Self> {
        unreachable!("nothing is opened again")
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_the_next_is_read() {
    const NLMSG_OVERRUN: u16 = 4;
    let message = |kind: u16, payload: &[u8]| {
        let length = u32::try_from(16 + payload.len()).expect("short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(payload);
        bytes
    };
    let datagram = [
        message(16, &[0; 3]),
        message(NLMSG_OVERRUN, &[]),
        message(99, &[1, 2, 3, 4]),
    ];
    // The first message is padded.
    let padded = [datagram[0].clone(), vec![0], datagram[1..].concat()].concat();
    let script = vec![
        Ok(padded),
        Ok(vec![0; 100_000]),
        Err(io::Error::from_raw_os_error(105)),
        Ok(vec![99, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let mut events = Events::<Rtnetlink, _>::with_transport(Script(RefCell::new(script)));
    let mut next = || events.next(Duration::ZERO);
    assert!(
        next()
            .expect_err("too short")
            .to_string()
            .contains("too short")
    );
    assert_eq!(next().expect("told"), Some(Notification::Overrun));
    let other = RouteEvent::Other(99, vec![1, 2, 3, 4]);
    assert_eq!(next().expect("kept"), Some(Notification::Event(other)));
    assert_eq!(next().expect("cut off"), Some(Notification::Overrun));
    assert_eq!(next().expect("ENOBUFS"), Some(Notification::Overrun));
    assert!(next().expect_err("torn").to_string().contains("cut off"));
    assert_eq!(next().expect("empty"), None);
}
