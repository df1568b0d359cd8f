//! Generates random sets that the kernel accepts, for property tests.

use super::{
    Counters, Dimension, Entry, Header, Key, KeyPart, ProtoPort, Set, SetFamily, SetType, SkbInfo,
};
use crate::ipset::raw::{IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP};
use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A set of any known type except lists, which need other sets.
pub fn set(name: &'static str) -> impl Strategy<Value = Set> {
    let kind = prop::sample::select(vec![
        SetType::HashIp,
        SetType::HashNet,
        SetType::HashIpPort,
        SetType::HashNetPort,
        SetType::HashIpPortIp,
        SetType::HashIpPortNet,
        SetType::HashIpMark,
        SetType::HashNetNet,
        SetType::HashNetPortNet,
        SetType::HashNetIface,
        SetType::BitmapPort,
    ]);
    let family = prop_oneof![Just(SetFamily::Inet), Just(SetFamily::Inet6)];
    (
        kind,
        family,
        any::<[bool; 4]>(),
        of(prop_oneof![Just(0), 5000u32..1_000_000]),
    )
        .prop_flat_map(move |(kind, family, flags, timeout)| {
            let [counters, comment, skbinfo, forceadd] = flags;
            let mut h = Header::new(name, kind, family);
            (h.counters, h.comment, h.skbinfo) = (counters, comment, skbinfo);
            h.forceadd = forceadd && h.kind.is_hash();
            h.timeout = timeout;
            h.range = (h.kind == SetType::BitmapPort).then_some((0, u16::MAX));
            header(h)
        })
        .prop_flat_map(|h| {
            let entries = vec(entry(&h), 0..40);
            (Just(h), entries).prop_map(|(header, entries)| Set { header, entries })
        })
}

fn header(h: Header) -> BoxedStrategy<Header> {
    if !h.kind.is_hash() {
        return Just(h).boxed();
    }
    let bits = if h.family == SetFamily::Inet6 {
        128u8
    } else {
        32
    };
    (
        of(64u32..5000),
        of(100u32..100_000),
        of(1..=bits),
        of(1u8..=16),
        of(any::<u32>()),
    )
        .prop_map(
            move |(hash_size, max_elem, netmask, bucket_size, init_val)| Header {
                hash_size,
                max_elem,
                // A short netmask could make addresses zero, which the kernel does not store in a hash.
                netmask: netmask.filter(|n| h.kind == SetType::HashIp && *n >= 8),
                bucket_size,
                init_val,
                ..h.clone()
            },
        )
        .boxed()
}

fn ip(family: SetFamily) -> BoxedStrategy<IpAddr> {
    match family {
        // The highest bit is set, so no netmask makes the address zero.
        SetFamily::Inet6 => any::<u128>()
            .prop_map(|n| IpAddr::V6(Ipv6Addr::from_bits(n | 1 << 127)))
            .boxed(),
        _ => any::<u32>()
            .prop_map(|n| IpAddr::V4(Ipv4Addr::from_bits(n | 1 << 31)))
            .boxed(),
    }
}

fn net(family: SetFamily) -> impl Strategy<Value = IpNet> {
    let bits = if family == SetFamily::Inet6 {
        128u8
    } else {
        32
    };
    (ip(family), 1..=bits).prop_map(|(ip, n)| IpNet::new(ip, n).unwrap_or_else(|_| IpNet::from(ip)))
}

fn port(family: SetFamily) -> impl Strategy<Value = ProtoPort> {
    let icmp = if family == SetFamily::Inet6 {
        IPPROTO_ICMPV6
    } else {
        IPPROTO_ICMP
    };
    let with_port = prop::sample::select(vec![IPPROTO_TCP, IPPROTO_UDP, IPPROTO_SCTP, icmp]);
    let without = prop::sample::select(vec![2u8, 47, 50, 112, 255]);
    prop_oneof![
        (with_port, any::<u16>()).prop_map(|(protocol, port)| ProtoPort { protocol, port }),
        without.prop_map(|protocol| ProtoPort { protocol, port: 0 }),
    ]
}

fn key(h: &Header) -> BoxedStrategy<Key> {
    let f = h.family;
    match h.kind {
        SetType::BitmapPort => any::<u16>().prop_map(Key::Port).boxed(),
        ref other => {
            let parts = other.dimensions().iter().map(|d| part(*d, f));
            parts.collect::<Vec<_>>().prop_map(Key::Parts).boxed()
        }
    }
}

fn part(dimension: Dimension, f: SetFamily) -> BoxedStrategy<KeyPart> {
    match dimension {
        Dimension::Net => net(f).prop_map(KeyPart::Net).boxed(),
        Dimension::Port => port(f).prop_map(KeyPart::Port).boxed(),
        Dimension::Mark => any::<u32>().prop_map(KeyPart::Mark).boxed(),
        Dimension::Interface => ("[a-z][a-z0-9]{0,14}", any::<bool>())
            .prop_map(|(name, is_port)| KeyPart::Interface {
                name,
                is_port,
                is_prefix: false,
            })
            .boxed(),
        Dimension::Mac | Dimension::MacOrNone => any::<[u8; 6]>()
            .prop_map(|mac| KeyPart::Mac(Some(mac)))
            .boxed(),
        _ => ip(f).prop_map(KeyPart::Ip).boxed(),
    }
}

/// An entry that the set accepts.
pub fn entry(h: &Header) -> BoxedStrategy<Entry> {
    let can_except = h.kind.has_nomatch();
    let (timeout, counters, comment, skbinfo) = (h.timeout, h.counters, h.comment, h.skbinfo);
    let skb = (of(any::<(u32, u32)>()), of(any::<u32>()), of(any::<u16>()));
    (
        key(h),
        of(prop_oneof![Just(0), 5000u32..2_000_000]),
        any::<bool>(),
        of((any::<u64>(), any::<u64>())),
        of("[ -!#-~äß漢]{0,80}"),
        skb,
    )
        .prop_map(
            move |(key, wait, nomatch, counts, text, (mark, prio, queue))| Entry {
                key,
                timeout: wait.filter(|_| timeout.is_some()),
                nomatch: nomatch && can_except,
                counters: counts
                    .filter(|_| counters)
                    .map(|(packets, bytes)| Counters { packets, bytes }),
                comment: text.filter(|_| comment),
                skbinfo: if skbinfo {
                    SkbInfo { mark, prio, queue }
                } else {
                    SkbInfo::default()
                },
            },
        )
        .boxed()
}
