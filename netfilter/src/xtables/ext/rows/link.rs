//! Matches on how the packet came over its link: `-m pkttype` (`linux/netfilter/xt_pkttype.h`), and `-m physdev`
//! (`linux/netfilter/xt_physdev.h`), the ports of a bridge.

use super::super::blob::Blob;
use super::super::field::{Field, field};
use super::super::row::{Options, Row};
use super::super::value::{Code, Value, named};
use crate::xtables::Interface;
use crate::xtables::net::{interface_of, interface_wire};
use crate::xtables::raw::*;
use crate::xtables::text::{Complaint, Opt};

/// `PACKET_*` of `linux/if_packet.h`; the last name is another one of the first number.
const TYPES: &[(&str, u64)] = &[
    ("unicast", 0),
    ("broadcast", 1),
    ("multicast", 2),
    ("otherhost", 3),
    ("host", 0),
];

const TYPE: Code = Code {
    show: |b, _| {
        let (name, _) = TYPES.iter().find(|(_, n)| *n == b.uint(0, 4))?;
        Some(vec![(*name).to_owned()])
    },
    read: |o, b, _| {
        b.put(0, 4, named(o, o.word(0), TYPES)?);
        Ok(())
    },
    ..Code::WORD
};

/// A name and its mask.
fn show_port(b: &Blob, at: usize) -> Option<Vec<String>> {
    let found = interface_of(b.bytes(at, IFNAMSIZ), b.bytes(at + IFNAMSIZ, IFNAMSIZ))?;
    let port = found.unwrap_or(Interface::Prefix(String::new()));
    Some(vec![port.to_string()])
}

fn read_port(o: &Opt, b: &mut Blob, at: usize) -> Result<(), Complaint> {
    let (name, mask) = interface_wire(Some(&o.interface(0)?)).map_err(|why| o.wrong(&why))?;
    b.set(at, &name);
    b.set(at + IFNAMSIZ, &mask);
    Ok(())
}

const IN: Code = Code {
    show: |b, _| show_port(b, 0),
    read: |o, b, _| read_port(o, b, 0),
    ..Code::WORD
};

const OUT: Code = Code {
    show: |b, _| show_port(b, 32),
    read: |o, b, _| read_port(o, b, 32),
    ..Code::WORD
};

/// Given and inverted by bits of the same value.
const fn bit(option: Field, bit: u8) -> Field {
    option.set(65, 1, bit as u64).not(64, 1, bit as u64)
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "pkttype",
        size: 8,
        options: Options::Fields(&[field(&["--pkt-type"], Value::Code(&TYPE), 0)
            .not(4, 4, 1)
            .need()]),
        ..Row::MATCH
    },
    Row {
        name: "physdev",
        size: 66,
        one_of: &[
            "--physdev-is-in",
            "--physdev-in",
            "--physdev-is-out",
            "--physdev-out",
            "--physdev-is-bridged",
        ],
        options: Options::Fields(&[
            bit(
                field(&["--physdev-is-in"], Value::Nothing, 65),
                XT_PHYSDEV_OP_ISIN,
            ),
            bit(
                field(&["--physdev-in"], Value::Code(&IN), 0),
                XT_PHYSDEV_OP_IN,
            ),
            bit(
                field(&["--physdev-is-out"], Value::Nothing, 65),
                XT_PHYSDEV_OP_ISOUT,
            ),
            bit(
                field(&["--physdev-out"], Value::Code(&OUT), 32),
                XT_PHYSDEV_OP_OUT,
            ),
            bit(
                field(&["--physdev-is-bridged"], Value::Nothing, 65),
                XT_PHYSDEV_OP_BRIDGED,
            ),
        ]),
        ..Row::MATCH
    },
];
