//! Matches on the link layer: `-m pkttype` (`linux/netfilter/xt_pkttype.h`), and `-m physdev`
//! (`linux/netfilter/xt_physdev.h`) on the ports of a bridge.

use super::prelude::*;
use crate::xtables::Interface;
use crate::xtables::net::{interface_of, interface_wire};
use crate::xtables::raw::*;

/// `PACKET_*` of `linux/if_packet.h`; the last three names are only parsed.
const TYPES: &[(&str, u64)] = &[
    ("unicast", 0),
    ("broadcast", 1),
    ("multicast", 2),
    ("otherhost", 3),
    ("host", 0),
    ("bcast", 1),
    ("mcast", 2),
];

/// The name of an interface and its mask.
const PORT: Code = Code {
    show: |b, at, _| {
        let found = interface_of(b.bytes(at, IFNAMSIZ), b.bytes(at + IFNAMSIZ, IFNAMSIZ))?;
        let port = found.unwrap_or(Interface::Prefix(String::new()));
        Some(vec![port.to_string()])
    },
    read: |o, b, at, _| {
        let wire = interface_wire(Some(&o.interface(0)?));
        let (name, mask) = wire.map_err(|why| o.wrong(&why))?;
        b.set(at, &name);
        b.set(at + IFNAMSIZ, &mask);
        Ok(())
    },
    ..Code::WORD
};

/// An option whose bit has the same value in the flags of given and of inverted options.
const fn bit(names: &'static [&'static str], value: Value, at: usize, bit: u8) -> Field {
    field(names, value, at)
        .set(65, 1, bit as u64)
        .not(64, 1, bit as u64)
}

rows! {
    MATCH "pkttype" { size: 8 } [field(&["--pkt-type"], Choice(4, TYPES), 0).not(4, 4, 1).need()]
    MATCH "physdev" { size: 66,
        one_of: &["--physdev-is-in", "--physdev-in", "--physdev-is-out", "--physdev-out", "--physdev-is-bridged"] } [
        bit(&["--physdev-is-in"], Nothing, 65, XT_PHYSDEV_OP_ISIN),
        bit(&["--physdev-in"], Value::Code(&PORT), 0, XT_PHYSDEV_OP_IN),
        bit(&["--physdev-is-out"], Nothing, 65, XT_PHYSDEV_OP_ISOUT),
        bit(&["--physdev-out"], Value::Code(&PORT), 32, XT_PHYSDEV_OP_OUT),
        bit(&["--physdev-is-bridged"], Nothing, 65, XT_PHYSDEV_OP_BRIDGED),
    ]
}
