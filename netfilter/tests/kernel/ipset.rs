//! The real `ipset` as oracle, both ways: we read what it wrote, it lists what we wrote.

use crate::bucketsize_or_skip;
use crate::option_or_skip;
use weir_testing::lacks;
use weir_testing::namespace_or_skip;
mod own;

use crate::common::assert_text;
use crate::common::ipset::{
    engine, ipset, load, our_load, our_save, save, seedless, sets, sorted, statements, timeless,
};
use ipnet::IpNet;
use std::net::IpAddr;
use weir_netfilter::ipset::{
    Entry, Existing, Header, IpsetOp, Key, KeyPart, ProtoPort, Protocol, Set, SetFamily, SetType,
    restore,
};
use weir_netlink::{ErrorKind, Netns};

fn names(sets: &[Set]) -> Vec<String> {
    sets.iter().map(|s| s.header.name.clone()).collect()
}

fn both_ways(text: &str) {
    let theirs = namespace_or_skip!();
    load(&theirs, text);
    let listing = save(&theirs);
    assert_eq!(listing.lines().count(), text.lines().count(), "{listing}");
    // Same entries in the same order: both print the kernel's.
    assert_text(&timeless(&our_save(&theirs)), &timeless(&listing));
    let read = sets(&theirs);
    let displayed: String = read.iter().map(ToString::to_string).collect();
    assert_text(&timeless(&displayed), &timeless(&listing));
    // What the tool wrote, restored by us.
    let ours = namespace_or_skip!();
    our_load(&ours, &listing).unwrap();
    assert_text(&sorted(&save(&ours)), &sorted(&listing));
    // What we wrote, restored by the tool.
    let back = namespace_or_skip!();
    load(&back, &our_save(&ours));
    assert_text(&sorted(&save(&back)), &sorted(&listing));
    // The hand-written text, restored by us: sizes and seeds are the kernel's own.
    let hand = namespace_or_skip!();
    our_load(&hand, text).unwrap();
    let entries = |text: &str| -> String {
        let only = text
            .lines()
            .filter(|l| l.starts_with("add "))
            .collect::<Vec<_>>()
            .join("\n");
        sorted(&only)
    };
    assert_text(&entries(&save(&hand)), &entries(&listing));
    // As values.
    let applied = namespace_or_skip!();
    engine(&applied, |e| {
        assert!(!e.apply(&read, &names(&read)).unwrap().ops.is_empty());
        assert_eq!(e.apply(&read, &names(&read)).unwrap().ops, vec![]);
    });
    let uncounted = |text: &str| {
        let text = sorted(text);
        let mut words: Vec<&str> = text.split(' ').collect();
        let mut i = 0;
        while i < words.len() {
            if matches!(words[i], "packets" | "bytes") {
                words[i + 1] = "N";
            }
            i += 1;
        }
        words.join(" ")
    };
    assert_text(&uncounted(&save(&applied)), &uncounted(&listing));
}

#[test]
fn addresses() {
    bucketsize_or_skip!();
    both_ways(include_str!("ipset/hash-ip.txt"));
}

#[test]
fn networks() {
    both_ways(include_str!("ipset/hash-net.txt"));
}

#[test]
fn ports() {
    bucketsize_or_skip!();
    both_ways(include_str!("ipset/hash-port.txt"));
}

/// Of any bits, and of sets with ports.
#[test]
fn masks() {
    option_or_skip!("bitmask", "255.255.0.255", since "6.2");
    both_ways(include_str!("ipset/hash-mask.txt"));
}

/// Of a range each address that the mask keeps apart is added once: the kernel refuses a second one. (The tool leaves
/// the range to the kernel, which masks only its first address; the others match no packet.)
#[test]
fn ranges_of_masked_addresses() {
    option_or_skip!("bitmask", "255.255.0.255", since "6.2");
    let ns = namespace_or_skip!();
    let text = "create odd hash:ip bitmask 255.255.0.254\nadd odd 10.0.1.2-10.0.2.5\n\
                create p hash:ip,port bitmask 255.255.0.0\nadd p 10.0.0.0/30,80-81\n";
    our_load(&ns, text).unwrap();
    let listing = save(&ns);
    let entries = |set: &str| {
        let lines = listing.lines().filter_map(|l| l.strip_prefix(set));
        let mut entries: Vec<String> = lines.map(str::to_owned).collect();
        entries.sort_unstable();
        entries
    };
    let mut odd: Vec<String> = (0..128).map(|n| format!("10.0.0.{}", 2 * n)).collect();
    odd.sort_unstable();
    assert_eq!(entries("add odd "), odd);
    assert_eq!(entries("add p "), ["10.0.0.0,tcp:80", "10.0.0.0,tcp:81"]);
}

/// From the first address of a range on the kernel steps by whole networks: in a bitmap from that address, in a hash
/// from its network. A bitmap of ports takes a protocol and ignores it.
#[test]
fn ranges_of_masked_networks() {
    let text = "create b bitmap:ip range 10.0.0.0/16 netmask 24\ncreate h hash:ip netmask 24\n\
                add b 10.0.6.1-10.0.9.0\nadd h 10.0.6.1-10.0.9.0\nadd b 10.0.20.0-10.0.21.255\n\
                create p bitmap:port range 0-1000\nadd p tcp:80\nadd p tcp:85-86\n";
    let (theirs, ours) = (namespace_or_skip!(), namespace_or_skip!());
    load(&theirs, text);
    our_load(&ours, text).unwrap();
    let entries = |ns: &Netns| {
        let listing = save(ns);
        let mut lines: Vec<String> = listing.lines().map(str::to_owned).collect();
        lines.retain(|l| l.starts_with("add "));
        lines.sort_unstable();
        lines
    };
    assert_eq!(entries(&ours), entries(&theirs));
}

/// What is applied is in sync afterwards, unless the kernel lacks the type.
fn in_sync(ns: &Netns, header: Header, key: Vec<KeyPart>) {
    let mut set = Set::new(header);
    set.entries = vec![Entry::new(Key::Parts(key))];
    let owned = [set.header.name.clone()];
    engine(ns, |e| match e.apply(std::slice::from_ref(&set), &owned) {
        Err(error) => {
            assert!(matches!(error.kind, ErrorKind::Unsupported(_)), "{error}");
            println!("left out: {error}");
        }
        Ok(_) => assert_eq!(e.apply(&[set], &owned).unwrap().ops, vec![]),
    });
}

/// The kernel clears host bits, and masks both networks of a pair.
#[test]
fn what_the_kernel_clears_is_no_difference() {
    let ns = namespace_or_skip!();
    let net = |text: &str| KeyPart::Net(text.parse().unwrap());
    let address = KeyPart::Ip([10, 1, 2, 3].into());
    let gre = KeyPart::Port(ProtoPort {
        protocol: 47,
        port: 0,
    });
    let header = |name: &str, kind| Header::new(name, kind, SetFamily::Inet);
    let of_three = vec![address, gre, net("10.2.3.4/24")];
    in_sync(&ns, header("three", SetType::HashIpPortNet), of_three);
    let interface = KeyPart::Interface {
        name: "eth0".to_owned(),
        is_port: false,
        is_prefix: false,
    };
    let of_link = vec![net("10.1.2.3/16"), interface];
    in_sync(&ns, header("link", SetType::HashNetIface), of_link);
    let pair = vec![net("10.31.2.3/24"), net("192.168.7.9/20")];
    in_sync(&ns, header("pair", SetType::HashNetNet), pair.clone());
    let mut masked = header("masked", SetType::HashNetNet);
    masked.netmask = Some(12);
    in_sync(&ns, masked, pair);
}

#[test]
fn bitmaps_and_lists() {
    both_ways(include_str!("ipset/others.txt"));
}

/// They are read, and listed by their new names.
#[test]
fn older_names_of_types() {
    bucketsize_or_skip!();
    both_ways(
        "create iphash iphash\nadd iphash 10.0.0.1\ncreate nethash nethash\nadd nethash 10.0.0.0/24\n\
         create ipport ipporthash\nadd ipport 10.0.0.1,80\ncreate netport netporthash\nadd netport 10.0.0.0/24,80\n\
         create portip ipportiphash\nadd portip 10.0.0.1,80,10.0.0.2\n\
         create portnet ipportnethash\nadd portnet 10.0.0.1,80,10.0.0.0/24\n\
         create iface netifacehash\nadd iface 10.0.0.0/24,eth0\n\
         create ipmap ipmap range 10.0.0.0/24\nadd ipmap 10.0.0.1\n\
         create macipmap macipmap range 10.0.0.0/24\nadd macipmap 10.0.0.1,00:11:22:33:44:55\n\
         create portmap portmap range 1-100\nadd portmap 80\ncreate setlist setlist\nadd setlist ipmap\n",
    );
}

#[test]
fn every_other_type() {
    let probe = namespace_or_skip!();
    let mut text = String::new();
    for sets in include_str!("ipset/parts.txt").split_inclusive("\n\n") {
        let create = sets.lines().next().unwrap();
        match our_load(&probe, create) {
            Ok(()) => text += sets,
            Err(e) => {
                assert!(
                    matches!(e.kind, weir_netlink::ErrorKind::Unsupported(_)),
                    "{e}"
                );
                // The others are compared, so the test is not skipped.
                println!("left out: {e}");
            }
        }
    }
    both_ways(&text.replace("\n\n", "\n"));
}

#[test]
fn hardware_addresses() {
    let ns = namespace_or_skip!();
    let set = Header::new("m", SetType::HashMac, SetFamily::Inet);
    assert_eq!(set.family, SetFamily::Unspec);
    match engine(&ns, |e| e.create(&set, Existing::Refuse)) {
        Ok(()) => both_ways(
            "create m hash:mac timeout 50 counters comment\n\
             add m 00:11:22:AA:BB:CC timeout 0 packets 1 bytes 2 comment \"x\"\n",
        ),
        Err(e) => {
            assert!(matches!(e.kind, ErrorKind::Unsupported(_)), "{e}");
            assert!(e.to_string().contains("CONFIG_IP_SET_HASH_MAC"), "{e}");
            // The tool says the same.
            assert!(ipset(&ns, "create m hash:mac", "").is_err());
        }
    }
}

/// Every protocol and every ICMP name that the tool prints.
#[test]
fn every_name_of_a_protocol_and_of_an_icmp_type() {
    let ns = namespace_or_skip!();
    let mut text = String::from("create p hash:ip,port\ncreate p6 hash:ip,port family inet6\n");
    for n in (2..=255).filter(|n| ![6, 17, 58, 132, 136].contains(n)) {
        text += &format!("add p 10.0.0.1,{n}:0\n");
    }
    for kind in 0..=255 {
        for code in 0..=17 {
            text += &format!("add p 10.0.0.1,icmp:{kind}/{code}\n");
            text += &format!("add p6 ::1,icmpv6:{kind}/{code}\n");
        }
    }
    our_load(&ns, &text).unwrap();
    let listing = save(&ns);
    assert!(listing.contains("icmp:TOS-host-redirect") && listing.contains(",mpls-in-ip:0"));
    assert_text(&our_save(&ns), &listing);
    let again = namespace_or_skip!();
    our_load(&again, &listing).unwrap();
    assert_text(&seedless(&save(&again)), &seedless(&listing));
}

/// ipset 7.17 does not print it, and so would make another set of its own text.
#[test]
fn forceadd_is_kept() {
    let ns = namespace_or_skip!();
    load(&ns, "create f hash:ip forceadd comment skbinfo\n");
    assert!(sets(&ns)[0].header.forceadd);
    let ours = our_save(&ns);
    assert!(
        ours.replace('\n', " ")
            .contains(" comment forceadd skbinfo "),
        "{ours}"
    );
    let again = namespace_or_skip!();
    our_load(&again, &ours).unwrap();
    assert_eq!(sets(&again), sets(&ns));
}

/// Ranges become what the kernel makes of them.
#[test]
fn ranges() {
    let text = "create a hash:ip\ncreate c hash:ip netmask 28\ncreate n hash:net\n\
                create p hash:ip,port\ncreate np hash:net,port\ncreate t hash:ip,port,ip\n\
                create b bitmap:port range 90-80\n\
                add a 10.0.0.1-10.0.1.3\nadd a 10.9.0.7/30\nadd c 10.0.0.0/24\nadd c 10.1.0.5-10.1.0.40\n\
                add n 10.0.0.1-10.0.0.14\nadd n 20.0.0.1-20.200.0.5\nadd n 10.7.7.7/9\n\
                add p 10.0.0.0/31,tcp:80-82\nadd p 10.0.0.9,99\n\
                add np 10.0.0.3-10.0.0.9,udp:1-2\nadd t 10.0.0.1-10.0.0.2,5-6,10.0.0.8\nadd b 84-81\n";
    let (theirs, ours) = (namespace_or_skip!(), namespace_or_skip!());
    load(&theirs, text);
    our_load(&ours, text).unwrap();
    let entries = |ns: &Netns| -> Vec<String> {
        let text = sorted(&save(ns));
        text.lines()
            .filter(|l| l.starts_with("add "))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(entries(&ours), entries(&theirs));
}

#[test]
fn every_verb() {
    let ns = namespace_or_skip!();
    let ip = |n: u8| Entry::new(Key::from(IpAddr::from([10, 0, 0, n])));
    engine(&ns, |e| {
        assert!(matches!(
            e.protocol(),
            Protocol {
                version: 6..=u8::MAX,
                minimum: 1..=6
            }
        ));
        e.create(
            &Header::new("a", SetType::HashIp, SetFamily::Inet),
            Existing::Refuse,
        )
        .unwrap();
        e.create(
            &Header::new("b", SetType::HashIp, SetFamily::Inet),
            Existing::Refuse,
        )
        .unwrap();
        e.create(
            &Header::new("n", SetType::HashNet, SetFamily::Inet6),
            Existing::Refuse,
        )
        .unwrap();
        e.add("a", [ip(1), ip(2)], Existing::Refuse).unwrap();
        assert!(e.test("a", &ip(1)).unwrap());
        assert!(!e.test("a", &ip(3)).unwrap());
        e.add(
            "n",
            [Entry::new(Key::from(
                "2001:db8::/32".parse::<IpNet>().unwrap(),
            ))],
            Existing::Refuse,
        )
        .unwrap();
        assert!(
            e.test(
                "n",
                &Entry::new(Key::from("2001:db8::5/128".parse::<IpNet>().unwrap()))
            )
            .unwrap()
        );
        e.swap("a", "b").unwrap();
        assert!(e.test("b", &ip(1)).unwrap());
        e.delete("b", [ip(1)], Existing::Refuse).unwrap();
        assert!(!e.test("b", &ip(1)).unwrap());
        e.rename("b", "c").unwrap();
        assert_eq!(e.names().unwrap(), ["a", "c", "n"]);
        assert_eq!(
            e.type_of("n").unwrap(),
            (SetType::HashNet, SetFamily::Inet6)
        );
        let listed = &e.headers(Some("c")).unwrap()[0];
        assert_eq!((listed.set.entries.len(), listed.elements), (0, Some(1)));
        assert!(listed.index.is_some() && listed.memory > 0 && listed.references == 0);
        e.flush("c").unwrap();
        assert_eq!(e.list(Some("c")).unwrap()[0].set.entries, vec![]);
        e.destroy("c").unwrap();
        e.flush_all().unwrap();
        assert_eq!(
            e.list(None)
                .unwrap()
                .iter()
                .map(|l| l.set.entries.len())
                .sum::<usize>(),
            0
        );
        e.destroy_all().unwrap();
        assert!(e.list(None).unwrap().is_empty());
    });
    assert_eq!(save(&ns), "");
}

#[test]
fn an_added_entry_replaces_comment_and_timeout() {
    let ns = namespace_or_skip!();
    load(
        &ns,
        "create s hash:ip comment timeout 100\nadd s 10.0.0.1 comment \"old\" timeout 50\n",
    );
    let entry = Entry {
        timeout: Some(0),
        ..Entry::new(Key::from(IpAddr::from([10, 0, 0, 1])))
    };
    engine(&ns, |e| {
        e.add("s", [entry.with_comment("new")], Existing::Accept)
    })
    .unwrap();
    assert!(
        save(&ns).contains("add s 10.0.0.1 timeout 0 comment \"new\"\n"),
        "{}",
        save(&ns)
    );
}

#[test]
fn sets_of_another_owner_are_left_alone() {
    let ns = namespace_or_skip!();
    load(
        &ns,
        "create z bitmap:ip range 10.0.0.0/24 comment\nadd z 10.0.0.1 comment \"c\"\n",
    );
    assert_eq!(our_save(&ns), save(&ns));
    let before = save(&ns);
    engine(&ns, |e| {
        assert_eq!(e.apply(&[], &["mine".to_owned()]).unwrap().ops, vec![])
    });
    assert_eq!(save(&ns), before);
    let error = our_load(&ns, "add z 10.0.1.1\n").unwrap_err();
    assert!(error.to_string().contains("10.0.1.1"), "{error}");
}

fn desired(text: &str) -> Vec<Set> {
    let mut sets: Vec<Set> = Vec::new();
    for s in statements(text).unwrap() {
        match s.command {
            restore::Command::Create(h) => sets.push(Set::new(*h)),
            restore::Command::Add(name, entries) => {
                sets.iter_mut()
                    .find(|s| s.header.name == name)
                    .unwrap()
                    .entries
                    .extend(entries);
            }
            other => panic!("{other:?}"),
        }
    }
    sets
}

fn applied(ns: &Netns, text: &str, owned: &[&str]) -> Vec<String> {
    let sets = desired(text);
    let owned: Vec<String> = owned.iter().map(|n| (*n).to_owned()).collect();
    engine(ns, |e| {
        let ops = e.apply(&sets, &owned).unwrap().ops;
        assert_eq!(e.apply(&sets, &owned).unwrap().ops, vec![]);
        ops.iter().map(IpsetOp::to_string).collect()
    })
}

#[test]
fn apply_does_what_is_missing_and_no_more() {
    let ns = namespace_or_skip!();
    load(&ns, "create other hash:ip\nadd other 1.1.1.1\n");
    let owned = ["a", "n", "l"];
    let first = "create a hash:ip comment\nadd a 10.0.0.1 comment \"x\"\nadd a 10.0.0.2\n\
                 create l list:set\ncreate n hash:net timeout 100\nadd l n\nadd n 10.0.0.0/8 timeout 90\n";
    let ops = applied(&ns, first, &owned);
    assert_eq!(ops[0], "create a hash:ip family inet comment");
    assert_eq!(*ops.last().unwrap(), "add l n");
    // An entry goes, one comes, one gets another comment.
    let second = first
        .replace("\"x\"", "\"y\"")
        .replace("add a 10.0.0.2", "add a 10.0.0.3");
    assert_eq!(
        applied(&ns, &second, &owned),
        [
            "del a 10.0.0.2",
            "add a 10.0.0.1 comment \"y\"\nadd a 10.0.0.3"
        ]
    );
    // Other options: built beside it and swapped.
    let third = second.replace("hash:ip comment", "hash:ip comment counters");
    let ops = applied(&ns, &third, &owned);
    assert_eq!(
        ops[0],
        "create a.weir-new hash:ip family inet counters comment"
    );
    assert_eq!(ops[2..], ["swap a.weir-new a", "destroy a.weir-new"]);
    // Another family, while nothing uses it.
    let fourth = "create a hash:ip family inet6\n";
    let ops = applied(&ns, fourth, &owned);
    assert_eq!(
        ops,
        [
            "destroy a",
            "create a hash:ip family inet6",
            "destroy l",
            "destroy n"
        ]
    );
    // What somebody left half-built goes.
    load(&ns, "create a.weir-new hash:ip\n");
    assert_eq!(applied(&ns, fourth, &owned), ["destroy a.weir-new"]);
    assert_eq!(applied(&ns, "", &owned), ["destroy a"]);
    assert!(save(&ns).contains("add other 1.1.1.1"));
}

#[test]
fn the_order_of_a_list_counts() {
    let ns = namespace_or_skip!();
    let members = "create a hash:ip\ncreate b hash:ip\ncreate c hash:ip\ncreate l list:set\n";
    let owned = ["a", "b", "c", "l"];
    applied(&ns, &format!("{members}add l a\nadd l b\n"), &owned);
    assert_eq!(
        applied(
            &ns,
            &format!("{members}add l a\nadd l b\nadd l c\n"),
            &owned
        ),
        ["add l c"]
    );
    let ops = applied(&ns, &format!("{members}add l c\nadd l a\n"), &owned);
    assert_eq!(ops[2], "swap l.weir-new l");
    assert!(save(&ns).ends_with("add l c\nadd l a\n"), "{}", save(&ns));
}
