//! Targets that translate whole networks: NETMAP, and the prefix translation of RFC 6296.

use super::prelude::*;
use crate::address::Address;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first and the last address of `--to NET`. Their offsets are 8 and 12 in `nf_nat_ipv4_multi_range_compat` (IPv4), 4 and 20 in
/// `nf_nat_range` (IPv6).
const TO: Code = Code {
    show: |b, _, family| {
        let (first, last) = if family == Ip { (8, 12) } else { (4, 20) };
        let (first, last) = (address_at(b, first, family), address_at(b, last, family));
        let mask = match (first, last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => Ipv4Addr::from(!(a.to_bits() ^ b.to_bits())).into(),
            (IpAddr::V6(a), IpAddr::V6(b)) => Ipv6Addr::from(!(a.to_bits() ^ b.to_bits())).into(),
            _ => return None,
        };
        let length = IpNet::with_netmask(first, mask).ok()?.prefix_len();
        Some(vec![format!("{}/{length}", Address(first))])
    },
    read: |o, b, _, family| {
        let net = o.network(0, family)?.trunc();
        match (net.addr(), net.broadcast()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                b.set(8, &first.octets());
                b.set(12, &last.octets());
            }
            (first, last) => {
                b.set(4, &union_of(first));
                b.set(20, &union_of(last));
            }
        }
        Ok(())
    },
    ..Code::WORD
};

const PREFIXES: Options = Options::Fields(&[
    field(&["--src-pfx"], NetLength(32), 0).need(),
    field(&["--dst-pfx"], NetLength(33), 16).need(),
]);

rows! {
    // `rangesize` is 1.
    TARGET "NETMAP" { family: Some(Ip), size: 20, initial: &[(0, &1u32.to_ne_bytes())] } [
        field(&["--to"], Value::Code(&TO), 0).set(4, 4, 1).need(),
    ]
    TARGET "NETMAP" { family: Some(Ip6), size: 40 } [field(&["--to"], Value::Code(&TO), 0).set(0, 4, 1).need()]
    TARGET "SNPT" { family: Some(Ip6), size: 36, options: PREFIXES }
    TARGET "DNPT" { family: Some(Ip6), size: 36, options: PREFIXES }
}
