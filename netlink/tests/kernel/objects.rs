//! Links of every kind, neighbours, qdiscs, filters and namespace IDs on the running kernel.
//!
//! `ip` and `tc` are the oracles in both directions: this crate writes and they list, they write and this crate reads.

use crate::common::{ip, routing, tool};
use std::net::IpAddr;
use std::os::fd::AsFd;
use weir_netlink::Netns;
use weir_netlink::route::{
    BpfFilter, Bridge, Dummy, Filter, FilterKind, Geneve, InNetns, Link, LinkKind, Matchall,
    NUD_PERMANENT, Neighbour, Netkit, Qdisc, Routing, TcHandle, Vxlan,
};
use weir_netlink::{Error, ErrorKind};
use weir_testing::namespace_or_skip;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Creates a veth pair and sets both ends up, so that there is a carrier. Returns the index of one end.
fn link(routing: &Routing, name: &str) -> u32 {
    let peer = Link {
        name: format!("{name}-peer"),
        ..Link::default()
    };
    let kind = LinkKind::veth(&peer, None).expect("fits");
    routing
        .add_link(&Link::new(name, kind), None)
        .expect("a pair");
    let found = routing.link(name).expect("found");
    routing.set_up(found.lower.expect("a peer")).expect("up");
    routing.set_up(found.index).expect("up");
    found.index
}

/// Whether the kernel lacks the kind. Reports that in the form that the kernel matrix counts.
pub fn lacks(made: &Result<(), Error>, probe: &str, since: &str) -> bool {
    match made {
        Err(e) if e.errno() == Some(nix::libc::EOPNOTSUPP) => {
            weir_testing::lacks::skip(probe, since, e);
            true
        }
        other => {
            other.as_ref().expect("made");
            false
        }
    }
}

/// The output of `ip -d` about a link, on one line.
fn shown(netns: &Netns, name: &str) -> String {
    ip(netns, &format!("-d -o link show dev {name}")).concat()
}

#[test]
fn a_pair_has_its_other_end_where_it_was_put() {
    let (here, there) = (namespace_or_skip!(), namespace_or_skip!());
    let (h, t) = (routing(&here), routing(&there));
    assert!(h.set_nsid(&there, 7).expect("set"));
    // A process in the other namespace, which ends when its stdin is closed.
    let mut process = crate::common::process_in(&there);
    let ways = [("fd", (&there).into()), ("pid", InNetns::Pid(process.id()))];
    for (name, way) in ways {
        let peer = Link {
            name: format!("{name}-peer"),
            mac: Some([2, 0, 0, 0, 0, 9]),
            mtu: Some(1400),
            ..Link::default()
        };
        let kind = LinkKind::veth(&peer, Some(way)).expect("fits");
        h.add_link(&Link::new(name, kind), None).expect(name);
        let other = t.link(&peer.name).expect("the peer");
        assert_eq!((other.mac, other.mtu), (peer.mac, peer.mtu));
        let this = h.link(name).expect("this end");
        assert_eq!((this.lower, this.lower_nsid), (Some(other.index), Some(7)));
        let text = shown(&there, &peer.name);
        assert!(text.contains("mtu 1400") && text.contains("veth"), "{text}");
    }
    let far = Link::new("far", LinkKind::plain("bridge"));
    h.add_link(&far, Some(InNetns::Nsid(7))).expect("there");
    t.link("far").expect("found there");
    assert!(h.link("far").expect_err("not here").is_not_found());
    process.kill().expect("ended");
    process.wait().expect("gone");
}

#[test]
fn tunnels_are_what_ip_shows_and_read_what_ip_makes() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let geneve = LinkKind::Geneve(Geneve {
        id: Some(0x00ab_cdef),
        remote: Some(address("192.0.2.1")),
        port: Some(6082),
        ttl: Some(3),
        ..Geneve::default()
    });
    let made = routing.add_link(&Link::new("g0", geneve), None);
    if !lacks(&made, "link geneve", "4.2") {
        let text = shown(&netns, "g0");
        for part in [
            "geneve id 11259375 remote 192.0.2.1",
            "ttl 3",
            "dstport 6082",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        ip(
            &netns,
            "link add g1 type geneve id 5 remote 2001:db8::1 dstport 700",
        );
        let Some(LinkKind::Geneve(read)) = routing.link("g1").expect("g1").kind else {
            panic!("no geneve");
        };
        let remote = Some(address("2001:db8::1"));
        assert_eq!(
            (read.id, read.port, read.remote6),
            (Some(5), Some(700), remote)
        );
        // The decoded description creates the same link again.
        routing
            .delete_link(routing.link("g1").expect("g1").index)
            .expect("deleted");
        let again = Link::new("g1", LinkKind::Geneve(read.clone()));
        routing.add_link(&again, None).expect("again");
        assert_eq!(
            routing.link("g1").expect("g1").kind,
            Some(LinkKind::Geneve(read))
        );
    }
    let vxlan = LinkKind::Vxlan(Vxlan {
        id: Some(42),
        remote: Some(address("192.0.2.7")),
        port: Some(4789),
        ..Vxlan::default()
    });
    let made = routing.add_link(&Link::new("v0", vxlan), None);
    if !lacks(&made, "link vxlan", "3.7") {
        let text = shown(&netns, "v0");
        assert!(text.contains("vxlan id 42 remote 192.0.2.7"), "{text}");
        assert!(text.contains("dstport 4789"), "{text}");
        ip(&netns, "link add v1 type vxlan external dstport 8472");
        let Some(LinkKind::Vxlan(read)) = routing.link("v1").expect("v1").kind else {
            panic!("no vxlan");
        };
        assert_eq!((read.collect_metadata, read.port), (Some(1), Some(8472)));
    }
}

#[test]
fn a_netkit_pair_knows_which_end_is_the_primary() {
    let (here, there) = (namespace_or_skip!(), namespace_or_skip!());
    let (h, t) = (routing(&here), routing(&there));
    let peer = Link {
        name: "nk1".to_owned(),
        ..Link::default()
    };
    let kind = LinkKind::netkit(&peer, Some((&there).into())).expect("fits");
    let made = h.add_link(&Link::new("nk0", kind), None);
    if lacks(&made, "link netkit", "6.7") {
        return;
    }
    let of = |routing: &Routing, name| match routing.link(name).expect("found").kind {
        Some(LinkKind::Netkit(Netkit { primary, mode, .. })) => (primary, mode),
        other => panic!("{other:?}"),
    };
    assert_eq!(of(&h, "nk0"), (Some(1), Some(1)));
    assert_eq!(of(&t, "nk1"), (Some(0), Some(1)));
    let text = shown(&here, "nk0");
    assert!(text.contains("netkit"), "{text}");
    // iproute2 knows the kind since 6.7.
    let theirs = "link add nk2 type netkit mode l2 blackhole peer blackhole name nk3";
    match crate::common::try_tool(&here, "ip", theirs) {
        Ok(_) => {
            assert!(
                text.contains("mode l3 type primary policy forward"),
                "{text}"
            );
            let Some(LinkKind::Netkit(read)) = h.link("nk2").expect("nk2").kind else {
                panic!("no netkit");
            };
            let key = (read.primary, read.mode, read.policy, read.peer_policy);
            assert_eq!(key, (Some(1), Some(0), Some(2), Some(2)));
        }
        // The random pairs of rtnetlink are read in `second_author_links`.
        Err(e) => println!("this iproute2 has no netkit: {}", e.trim()),
    }
}

#[test]
fn bridges_are_what_ip_shows_and_read_what_ip_makes_and_masters_are_set() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let ours = LinkKind::Bridge(Bridge {
        forward_delay: Some(400),
        ageing_time: Some(5000),
        priority: Some(4096),
        ..Bridge::default()
    });
    routing
        .add_link(&Link::new("br0", ours), None)
        .expect("bridge");
    let text = shown(&netns, "br0");
    for part in ["forward_delay 400", "ageing_time 5000", "priority 4096"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let add = "link add br1 type bridge hello_time 300 max_age 700 stp_state 1 group_fwd_mask 16";
    ip(&netns, add);
    let theirs = routing.link("br1").expect("br1");
    let Some(LinkKind::Bridge(read)) = &theirs.kind else {
        panic!("{theirs:?}");
    };
    let key = (read.hello_time, read.max_age, read.stp_state);
    assert_eq!(key, (Some(300), Some(700), Some(1)));
    assert_eq!(read.group_fwd_mask, Some(16));
    assert!(
        !read.unknown.is_empty() && !theirs.other.is_empty(),
        "what has no field is kept"
    );
    let bridge = routing.link("br0").expect("br0");
    let port = link(&routing, "d0");
    routing.set_master(port, bridge.index).expect("put in");
    assert_eq!(routing.link("d0").expect("d0").master, Some(bridge.index));
    assert!(shown(&netns, "d0").contains("master br0"));
    routing.set_master(port, 0).expect("taken out");
    assert_eq!(routing.link("d0").expect("d0").master, None);
    let member = Link {
        master: Some(bridge.index),
        ..Link::new("d1", LinkKind::plain("veth"))
    };
    routing.add_link(&member, None).expect("a member");
    assert_eq!(routing.link("d1").expect("d1").master, Some(bridge.index));
}

#[test]
fn a_dummy_is_what_ip_shows_and_reads_what_ip_makes() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let dummy = LinkKind::Dummy(Dummy::default());
    let made = routing.add_link(&Link::new("u0", dummy.clone()), None);
    if lacks(&made, "link dummy", "2.6.12") {
        return;
    }
    let text = shown(&netns, "u0");
    assert!(text.contains(" dummy "), "{text}");
    ip(&netns, "link add u1 type dummy");
    assert_eq!(routing.link("u1").expect("u1").kind, Some(dummy));
}

/// Kinds and options without a declaration.
#[test]
fn other_kinds_stay_opaque() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let macvlan = LinkKind::Other("macvlan".to_owned(), None);
    let lower = link(&routing, "d0");
    let over = Link {
        lower: Some(lower),
        ..Link::new("m0", macvlan)
    };
    let made = routing.add_link(&over, None);
    if lacks(&made, "link macvlan", "2.6.23") {
        return;
    }
    let Some(LinkKind::Other(word, Some(data))) = routing.link("m0").expect("m0").kind else {
        panic!("a declaration");
    };
    assert!(word == "macvlan" && !data.is_empty());
}

#[test]
fn neighbours_are_those_of_ip() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let index = link(&routing, "d0");
    for text in ["10.0.0.9", "fd00::9"] {
        let ours = Neighbour::permanent(index, address(text), [2, 0, 0, 0, 0, 1]);
        routing.replace_neighbour(&ours).expect("added");
        let listed = ip(&netns, &format!("neigh show {text} dev d0"));
        assert_eq!(
            listed,
            [format!("{text} lladdr 02:00:00:00:00:01 PERMANENT")]
        );
        let found = routing.neighbours().expect("listed");
        let found = found.iter().find(|n| n.ip == ours.ip).expect("ours");
        let key = |n: &Neighbour| (n.mac, n.state, n.link);
        assert_eq!(key(found), (ours.mac, NUD_PERMANENT, index));
        // Replacing changes the hardware address.
        let other = Neighbour {
            mac: Some([2, 0, 0, 0, 0, 2]),
            ..ours.clone()
        };
        routing.replace_neighbour(&other).expect("replaced");
        let found = routing.neighbours().expect("listed");
        assert!(found.iter().any(|n| n.ip == ours.ip && n.mac == other.mac));
        assert!(routing.delete_neighbour(&other).expect("deleted"));
        // An IPv4 entry may remain for a while in the state NUD_FAILED.
        routing.delete_neighbour(&other).expect("absent or failed");
        let found = routing.neighbours().expect("listed");
        assert!(!found.iter().any(|n| n.ip == ours.ip && n.mac.is_some()));
    }
    ip(
        &netns,
        "neigh add 10.0.0.8 lladdr 02:00:00:00:00:03 dev d0 nud stale",
    );
    let found = routing.neighbours().expect("listed");
    let theirs = found.iter().find(|n| n.ip == address("10.0.0.8"));
    let theirs = theirs.expect("theirs");
    assert_eq!((theirs.mac, theirs.state), (Some([2, 0, 0, 0, 0, 3]), 4));
}

/// A clsact qdisc on a new link, or `None` if the kernel has none.
fn clsact(netns: &Netns, routing: &Routing) -> Option<Qdisc> {
    let clsact = Qdisc::clsact(link(routing, "d0"));
    match routing.add_qdisc(&clsact) {
        Err(e) if e.is_not_found() => {
            weir_testing::lacks::skip("qdisc clsact", "4.5", e);
            return None;
        }
        added => assert!(added.expect("added")),
    }
    let listed = tool(netns, "tc", "qdisc show dev d0");
    let ours = "qdisc clsact ffff: parent ffff:fff1".to_owned();
    assert!(listed.contains(&ours), "{listed:?}");
    Some(clsact)
}

#[test]
fn filters_are_those_of_tc() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let Some(clsact) = clsact(&netns, &routing) else {
        return;
    };
    assert!(!routing.add_qdisc(&clsact).expect("there already"));
    let found = routing.qdiscs().expect("listed");
    let found = found.iter().find(|q| q.kind == "clsact").expect("ours");
    assert_eq!((found.handle, found.parent), (clsact.handle, clsact.parent));

    let kind = FilterKind::Matchall(Matchall {
        classid: Some(0x0001_0002),
        ..Matchall::default()
    });
    let ours = Filter {
        handle: 9,
        ..Filter::new(clsact.link, TcHandle::EGRESS, 77, kind)
    };
    match routing.add_filter(&ours) {
        Err(e) if e.is_not_found() => {
            return weir_testing::lacks::skip("filter matchall", "4.8", e);
        }
        added => assert!(added.expect("added")),
    }
    assert!(!routing.add_filter(&ours).expect("there already"));
    let listed = tool(&netns, "tc", "filter show dev d0 egress").join(" ");
    let text = "protocol all pref 77 matchall chain 0 handle 0x9 flowid 1:2";
    assert!(listed.contains(text), "{listed}");

    let theirs = "filter add dev d0 ingress protocol ipv6 pref 6 matchall classid 1:4";
    tool(&netns, "tc", theirs);
    let found = routing
        .filters(clsact.link, TcHandle::INGRESS)
        .expect("listed");
    let all = found.iter().find(|f| f.priority == 6 && f.handle != 0);
    let all = all.expect("matchall");
    assert_eq!((all.protocol, all.chain), (0x86dd, Some(0)));
    let FilterKind::Matchall(read) = &all.kind else {
        panic!("{all:?}")
    };
    assert_eq!(read.classid, Some(0x0001_0004));

    assert!(routing.delete_filter(&ours).expect("deleted"));
    assert!(!routing.delete_filter(&ours).expect("absent"));
    assert!(routing.delete_qdisc(&clsact).expect("deleted"));
    assert!(!routing.delete_qdisc(&clsact).expect("absent"));
}

#[test]
fn filters_of_ebpf_are_those_of_tc() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let Some(clsact) = clsact(&netns, &routing) else {
        return;
    };
    let Some(program) = crate::second_author_others::program() else {
        return;
    };
    let ours = Filter {
        handle: 9,
        ..Filter::new(
            clsact.link,
            TcHandle::EGRESS,
            77,
            FilterKind::bpf(program.as_fd(), "pass"),
        )
    };
    assert!(routing.add_filter(&ours).expect("added"));
    let found = routing
        .filters(clsact.link, TcHandle::EGRESS)
        .expect("listed");
    let found = found.iter().find(|f| f.handle == 9).expect("ours");
    let FilterKind::Bpf(read) = &found.kind else {
        panic!("{found:?}")
    };
    let listed = tool(&netns, "tc", "filter show dev d0 egress").join(" ");
    let text = "protocol all pref 77 bpf chain 0 handle 0x9 pass direct-action";
    let id = format!(" id {} ", read.id.expect("an id"));
    assert!(
        listed.contains(text) && listed.contains(&id),
        "{id}{listed}"
    );
    let tag = read.tag.as_deref().expect("a tag");
    let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(listed.contains(&format!("tag {tag}")), "{listed}");

    // A classic program, whose instructions are attributes without a field.
    let words = "filter add dev d0 ingress pref 5 handle 7 bpf bytecode CODE classid 1:5";
    let words: Vec<&str> = words
        .split(' ')
        .map(|word| match word {
            "CODE" => "1,6 0 0 1,",
            word => word,
        })
        .collect();
    weir_testing::tool::tool(&netns, "tc", &words, "").expect("tc adds it");
    let found = routing
        .filters(clsact.link, TcHandle::INGRESS)
        .expect("listed");
    let found = found.iter().find(|f| f.handle == 7).expect("theirs");
    let FilterKind::Bpf(BpfFilter {
        classid,
        id,
        unknown,
        ..
    }) = &found.kind
    else {
        panic!("{found:?}")
    };
    assert_eq!((*classid, *id), (Some(0x0001_0005), None));
    assert!(!unknown.is_empty());
}

/// Options without a declaration are written as they were read.
#[test]
fn opaque_options_are_copied() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let Some(clsact) = clsact(&netns, &routing) else {
        return;
    };
    let add =
        "filter add dev d0 ingress protocol ip pref 5 u32 match ip dst 10.0.0.0/8 classid 1:3";
    match crate::common::try_tool(&netns, "tc", add) {
        Err(e) => weir_testing::lacks::skip("filter u32", "2.6.12", e),
        Ok(_) => {
            let found = routing.filters(clsact.link, TcHandle::INGRESS);
            let found = found.expect("listed");
            // A hash table precedes the filter in the list; the low 12 bits of its handle are 0.
            let is_filter = |f: &&Filter| f.priority == 5 && f.handle & 0xfff != 0;
            let theirs = found.iter().find(is_filter).expect("the filter");
            let FilterKind::Other(word, Some(_)) = &theirs.kind else {
                panic!("{theirs:?}")
            };
            assert_eq!(word, "u32");
            let copy = Filter {
                parent: TcHandle::EGRESS,
                handle: 0,
                ..theirs.clone()
            };
            // The classifier creates a hash table of its own.
            if let Err(e) = routing.add_filter(&copy) {
                assert_eq!(e.errno(), Some(nix::libc::EINVAL), "{e}");
            }
        }
    }
    let root =
        match crate::common::try_tool(&netns, "tc", "qdisc add dev d0 root fq_codel limit 1000") {
            Ok(_) => "fq_codel",
            Err(e) => {
                println!("skipped, fq_codel: {}", e.trim());
                tool(&netns, "tc", "qdisc add dev d0 root pfifo limit 1000");
                "pfifo"
            }
        };
    let found = routing.qdiscs().expect("listed");
    let theirs = found.iter().find(|q| q.kind == root).expect("theirs");
    assert_eq!((theirs.link, theirs.parent), (clsact.link, TcHandle::ROOT));
    let copy = Qdisc {
        link: link(&routing, "d1"),
        ..theirs.clone()
    };
    // The kernel ignores the default qdisc of a new link, which has no handle, so the copy can be added.
    assert!(routing.add_qdisc(&copy).expect("copied"));
    let listed = tool(&netns, "tc", "qdisc show dev d1").concat();
    assert!(
        listed.contains(root) && listed.contains("limit 1000p"),
        "{listed}"
    );
}

#[test]
fn namespaces_have_ids_in_each_other() {
    let (here, there) = (namespace_or_skip!(), namespace_or_skip!());
    let h = routing(&here);
    assert_eq!(h.nsid(&there).expect("asked"), None);
    assert!(h.set_nsid(&there, 12).expect("set"));
    assert!(!h.set_nsid(&there, 13).expect("it has one"));
    let third = namespace_or_skip!();
    assert!(!h.set_nsid(&third, 12).expect("it is taken"));
    let fourth = namespace_or_skip!();
    let f = routing(&fourth);
    assert!(f.set_nsid(&third, -1).expect("the kernel chooses"));
    assert_eq!(f.nsid(&third).expect("asked"), Some(0));
    assert_eq!(h.nsid(&there).expect("asked"), Some(12));
    assert_eq!(h.nsids().expect("listed"), [12]);
    let listed = ip(&here, "netns list-id");
    assert!(
        listed.iter().any(|line| line.starts_with("nsid 12")),
        "{listed:?}"
    );
}

#[test]
fn an_id_of_ip_netns_is_read() {
    let (here, there) = (namespace_or_skip!(), namespace_or_skip!());
    let h = routing(&here);
    let mut process = crate::common::process_in(&there);
    // `ip netns` needs a name in /run/netns; those of the host are not touched.
    let script = format!(
        "mount -t tmpfs none /run && ip netns attach other {} && ip netns set other 23",
        process.id()
    );
    let words = ["-m", "sh", "-c", script.as_str()];
    let set = weir_testing::tool::tool(&here, "unshare", &words, "");
    process.kill().expect("ended");
    process.wait().expect("gone");
    set.expect("ip sets it");
    assert_eq!(h.nsid(&there).expect("asked"), Some(23));
    assert_eq!(h.nsids().expect("listed"), [23]);
}

#[test]
fn an_error_points_at_the_attribute_inside_of_a_link() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    let bad = LinkKind::Vxlan(Vxlan {
        id: Some(1 << 24),
        ..Vxlan::default()
    });
    let made = routing.add_link(&Link::new("v0", bad), None);
    let error = made.expect_err("24 bits are all");
    if error.errno() == Some(nix::libc::EOPNOTSUPP) {
        return weir_testing::lacks::skip("link vxlan", "3.7", error);
    }
    let ErrorKind::Kernel {
        attribute: Some(path),
        ..
    } = &error.kind
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        path.to_string(),
        "IFLA_LINKINFO > IFLA_INFO_DATA > IFLA_VXLAN_ID"
    );
}

#[test]
fn filters_of_what_does_not_exist_are_an_empty_list() {
    let netns = namespace_or_skip!();
    let routing = routing(&netns);
    for link in [weir_netlink::route::LOOPBACK_IFINDEX, 4711] {
        let filters = routing.filters(link, TcHandle::INGRESS);
        assert_eq!(filters.expect("listed"), []);
    }
}
