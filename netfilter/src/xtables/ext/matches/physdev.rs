//! `-m physdev`: `struct xt_physdev_info` (`linux/netfilter/xt_physdev.h`), 66 bytes.

use super::super::structs::XtPhysdevInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::net::{interface_of, interface_wire};
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Interface, Not};
use std::fmt;

/// The bridge ports by which the packet arrived or leaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_physdev_info")]
pub struct Physdev {
    /// `--physdev-is-in`
    pub is_in: Option<Not>,
    /// `--physdev-in`
    pub in_interface: Option<(Not, Interface)>,
    /// `--physdev-is-out`
    pub is_out: Option<Not>,
    /// `--physdev-out`
    pub out_interface: Option<(Not, Interface)>,
    /// `--physdev-is-bridged`
    pub is_bridged: Option<Not>,
}

pub(crate) const KIND: Kind<Physdev> = Kind {
    name: "physdev",
    forms: |_| forms!["physdev" 0],
    encode,
    decode,
    options: &[
        ("--physdev-in", 1),
        ("--physdev-out", 1),
        ("--physdev-is-in", 0),
        ("--physdev-is-out", 0),
        ("--physdev-is-bridged", 0),
    ],
    parse,
};

fn encode(v: &Physdev, _: Form, _: &Context<'_>) -> Encoded {
    let (mut bitmask, mut invert) = (0, 0);
    let mut note = |not: Option<Not>, bit: u8| {
        bitmask |= if not.is_some() { bit } else { 0 };
        invert |= if not == Some(Not(true)) { bit } else { 0 };
    };
    note(v.in_interface.as_ref().map(|i| i.0), XT_PHYSDEV_OP_IN);
    note(v.out_interface.as_ref().map(|i| i.0), XT_PHYSDEV_OP_OUT);
    note(v.is_bridged, XT_PHYSDEV_OP_BRIDGED);
    note(v.is_in, XT_PHYSDEV_OP_ISIN);
    note(v.is_out, XT_PHYSDEV_OP_ISOUT);
    let (physindev, in_mask) = interface_wire(v.in_interface.as_ref().map(|i| &i.1))?;
    let (physoutdev, out_mask) = interface_wire(v.out_interface.as_ref().map(|i| &i.1))?;
    Ok(Some(written(&XtPhysdevInfo {
        physindev,
        in_mask,
        physoutdev,
        out_mask,
        invert,
        bitmask,
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Physdev> {
    let w: XtPhysdevInfo = read(b)?;
    let not = |bit: u8| (w.bitmask & bit != 0).then_some(Not(w.invert & bit != 0));
    let interface = |name: &[u8], mask: &[u8], bit: u8| -> Option<Option<(Not, Interface)>> {
        match not(bit) {
            None => Some(None),
            Some(n) => {
                let found = interface_of(name, mask)?;
                Some(Some((n, found.unwrap_or(Interface::Prefix(String::new())))))
            }
        }
    };
    Some(Physdev {
        in_interface: interface(&w.physindev, &w.in_mask, XT_PHYSDEV_OP_IN)?,
        out_interface: interface(&w.physoutdev, &w.out_mask, XT_PHYSDEV_OP_OUT)?,
        is_bridged: not(XT_PHYSDEV_OP_BRIDGED),
        is_in: not(XT_PHYSDEV_OP_ISIN),
        is_out: not(XT_PHYSDEV_OP_ISOUT),
    })
}

impl fmt::Display for Physdev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (is, name, interface) in [
            (self.is_in, "in", &self.in_interface),
            (self.is_out, "out", &self.out_interface),
        ] {
            is.iter()
                .try_for_each(|not| write!(f, "{not} --physdev-is-{name}"))?;
            if let Some((not, interface)) = interface {
                write!(f, "{not} --physdev-{name} {interface}")?;
            }
        }
        self.is_bridged
            .iter()
            .try_for_each(|not| write!(f, "{not} --physdev-is-bridged"))
    }
}

fn parse(given: &mut Given) -> Result<Physdev, Complaint> {
    let mut interface = |name: &str| {
        given
            .take(&[name])
            .map(|o| Ok((o.not, o.interface(0)?)))
            .transpose()
    };
    let in_interface = interface("--physdev-in")?;
    let out_interface = interface("--physdev-out")?;
    let mut is = |name: &str| given.take(&[name]).map(|o| o.not);
    let v = Physdev {
        in_interface,
        out_interface,
        is_in: is("--physdev-is-in"),
        is_out: is("--physdev-is-out"),
        is_bridged: is("--physdev-is-bridged"),
    };
    if v == Physdev::default() {
        return Err(given.lacks("--physdev-in, --physdev-out or another condition"));
    }
    Ok(v)
}
