//! The options of `create`. One row for each declares how it is parsed, printed, encoded, decoded and compared, and since which revision
//! of a type it exists.

use super::codec::{MAX_TIMEOUT, from_ip, to_ip};
use super::model::{Dimension, Header, NEVER, SetFamily, SetType, Since};
use super::raw;
use super::restore::{Token, Wrong, address, bounds, number, port_range, wrong};
use super::wire::{CreateAttrs, IpAttrs};
use crate::address::Address;
use std::fmt::{self, Formatter};
use std::net::{IpAddr, Ipv4Addr};

type FirstRevision = fn(&SetType, &Since) -> u8;

/// One option.
pub(super) struct CreateOption {
    /// The word after the type.
    pub(super) name: &'static str,
    /// Whether it has no value.
    pub(super) is_flag: bool,
    /// The types that take it.
    pub(super) takes: fn(&SetType) -> bool,
    /// An example of its value, if the option is mandatory.
    pub(super) needed: Option<&'static str>,
    /// The first revision of a type with the option, and the first release of Linux; `None` if every revision has it.
    pub(super) since: Option<(FirstRevision, &'static str)>,
    pub(super) is_given: fn(&Header) -> bool,
    /// Prints its value.
    pub(super) print: fn(&Header, &mut Formatter<'_>) -> fmt::Result,
    pub(super) parse: fn(&mut Header, &Token<'_>) -> Result<(), Wrong>,
    pub(super) encode: fn(&Header, &mut CreateAttrs),
    pub(super) decode: fn(&mut Header, &CreateAttrs),
    /// Replaces the value with the one that the kernel stores for it, or removes it if a difference from the desired set has no meaning.
    pub(super) normalize: fn(&mut Header, desired: &Header),
}

const BLANK: CreateOption = CreateOption {
    name: "",
    is_flag: false,
    takes: |_| true,
    needed: None,
    since: None,
    is_given: |_| false,
    print: |_, _| Ok(()),
    parse: |_, _| Ok(()),
    encode: |_, _| {},
    decode: |_, _| {},
    normalize: |_, _| {},
};

const ALL: u64 = u32::MAX as u64;

/// A number, whose field in the header has the same name as in the attributes.
macro_rules! number {
    ($name:literal, $field:ident in $range:expr, $format:literal) => {
        CreateOption {
            name: $name,
            is_given: |h| h.$field.is_some(),
            print: |h, f| h.$field.map_or(Ok(()), |value| write!(f, $format, value)),
            parse: |h, value| {
                let (min, max): (u64, u64) = $range;
                h.$field = Some(number(value, min, max)?);
                Ok(())
            },
            encode: |h, a| a.$field = h.$field,
            decode: |h, a| h.$field = a.$field,
            ..BLANK
        }
    };
}

/// A flag, with its bit in `IPSET_ATTR_CADT_FLAGS`.
macro_rules! flag {
    ($name:literal, $field:ident, $bit:ident, $release:literal) => {
        CreateOption {
            name: $name,
            is_flag: true,
            since: Some((|_, since| since.$field, $release)),
            is_given: |h| h.$field,
            parse: |h, _| {
                h.$field = true;
                Ok(())
            },
            encode: |h, a| {
                if h.$field {
                    a.flags = Some(a.flags.unwrap_or(0) | raw::$bit);
                }
            },
            decode: |h, a| h.$field = a.flags.unwrap_or(0) & raw::$bit != 0,
            ..BLANK
        }
    };
}

/// The size and the range of a set.
static SIZES: [CreateOption; 6] = [
    CreateOption {
        takes: |kind| kind.has(Dimension::Mark),
        // The kernel sends it in host order (`nla_put_u32()` in ip_set_hash_gen.h), unlike all other numbers.
        decode: |h, a| {
            h.mark_mask = a
                .mark_mask
                .map(|mask| u32::from_ne_bytes(mask.to_be_bytes()))
        },
        normalize: |h, _| h.mark_mask = default(h.kind.has(Dimension::Mark), h.mark_mask, u32::MAX),
        ..number!("markmask", mark_mask in (1, ALL), "0x{:08x}")
    },
    CreateOption {
        name: "range",
        takes: |kind| kind.has(Dimension::Number),
        needed: Some("0-65535"),
        is_given: |h| h.range.is_some(),
        print: |h, f| h.range.map_or(Ok(()), |(a, b)| write!(f, "{a}-{b}")),
        parse: |h, value| {
            if !value.text.contains('-') {
                let why = format!("\"{}\" is no range: write it as 0-65535", value.text);
                return wrong(value, why);
            }
            h.range = Some(port_range(value)?);
            Ok(())
        },
        encode: |h, a| (a.port, a.port_to) = h.range.unzip(),
        decode: |h, a| h.range = a.port.zip(a.port_to),
        normalize: |h, _| h.range = h.range.map(|(a, b)| (a.min(b), a.max(b))),
        ..BLANK
    },
    CreateOption {
        name: "range",
        takes: |kind| kind.is_bitmap() && kind.has(Dimension::Ip),
        needed: Some("10.0.0.0/16"),
        is_given: |h| h.addresses.is_some(),
        print: |h, f| h.addresses.map_or(Ok(()), |(a, b)| write!(f, "{a}-{b}")),
        parse: |h, value| {
            h.addresses = Some(address_range(value)?);
            Ok(())
        },
        encode: |h, a| {
            (a.ip, a.ip_to) = h
                .addresses
                .map(|(a, b)| (to_ip(a.into()), to_ip(b.into())))
                .unzip();
        },
        decode: |h, a| {
            let v4 = |ip: &Option<IpAttrs>| ip.as_ref().and_then(|ip| ip.v4);
            h.addresses = v4(&a.ip).zip(v4(&a.ip_to));
        },
        ..BLANK
    },
    CreateOption {
        takes: |kind| kind.has(Dimension::Set),
        normalize: |h, _| {
            h.size = default(h.kind.has(Dimension::Set), h.size, 8).map(|size| size.max(4));
        },
        ..number!("size", size in (0, ALL), "{}")
    },
    CreateOption {
        takes: SetType::is_hash,
        // The kernel enlarges the hash when it fills up.
        normalize: |h, _| h.hash_size = None,
        ..number!("hashsize", hash_size in (1, ALL), "{}")
    },
    CreateOption {
        takes: SetType::is_hash,
        normalize: |h, _| h.max_elem = default(h.kind.is_hash(), h.max_elem, 65536),
        ..number!("maxelem", max_elem in (0, ALL), "{}")
    },
];

/// The masks of addresses. `hash:ip` and `bitmap:ip` had `netmask` before other types, and are printed with both masks at its old position.
static MASKS: [CreateOption; 2] = [
    CreateOption {
        takes: |kind| has_mask(kind) || is_early(kind),
        since: Some((
            |kind, since| if is_early(kind) { 0 } else { since.masks },
            "Linux 6.2",
        )),
        parse: |h, value| {
            h.netmask = Some(number(value, 1, full(h.family).into())?);
            Ok(())
        },
        normalize: |h, _| h.netmask = h.netmask.filter(|n| *n != full(h.family)),
        ..number!("netmask", netmask in (0, 0), "{}")
    },
    CreateOption {
        name: "bitmask",
        takes: has_mask,
        since: Some((|_, since| since.masks, "Linux 6.2")),
        is_given: |h| h.bitmask.is_some(),
        print: |h, f| {
            h.bitmask
                .map_or(Ok(()), |mask| write!(f, "{}", Address(mask)))
        },
        parse: |h, value| {
            h.bitmask = Some(address(h.family, value, &value.text)?);
            Ok(())
        },
        encode: |h, a| a.bitmask = h.bitmask.map(to_ip),
        decode: |h, a| h.bitmask = from_ip(a.bitmask.as_ref()),
        ..BLANK
    },
];

/// Options that permit properties of entries, and options of the hash.
static OTHERS: [CreateOption; 7] = [
    number!("timeout", timeout in (0, MAX_TIMEOUT.into()), "{}"),
    flag!("counters", counters, IPSET_FLAG_WITH_COUNTERS, "Linux 3.10"),
    flag!("comment", comment, IPSET_FLAG_WITH_COMMENT, "Linux 3.13"),
    CreateOption {
        takes: SetType::is_hash,
        ..flag!("forceadd", forceadd, IPSET_FLAG_WITH_FORCEADD, "Linux 3.15")
    },
    flag!("skbinfo", skbinfo, IPSET_FLAG_WITH_SKBINFO, "Linux 3.18"),
    CreateOption {
        takes: SetType::is_hash,
        since: Some((|_, since| since.buckets, "Linux 5.11")),
        normalize: |h, desired| {
            let size = desired.bucket_size.and(h.bucket_size);
            h.bucket_size = size.map(|size| size.clamp(2, 12).next_multiple_of(2));
        },
        ..number!("bucketsize", bucket_size in (1, 255), "{}")
    },
    CreateOption {
        takes: SetType::is_hash,
        since: Some((|_, since| since.buckets, "Linux 5.11")),
        normalize: |h, desired| h.init_val = desired.init_val.and(h.init_val),
        ..number!("initval", init_val in (0, ALL), "0x{:08x}")
    },
];

/// Every option, in the order in which sets of this type are printed.
pub(super) fn options(kind: &SetType) -> impl Iterator<Item = &'static CreateOption> {
    let (early, late) = if is_early(kind) {
        (MASKS.as_slice(), [].as_slice())
    } else {
        ([].as_slice(), MASKS.as_slice())
    };
    SIZES.iter().chain(early).chain(&OTHERS).chain(late)
}

fn is_early(kind: &SetType) -> bool {
    kind.dimensions() == [Dimension::Ip]
}

fn has_mask(kind: &SetType) -> bool {
    kind.since().is_some_and(|since| since.masks != NEVER)
}

/// The prefix length of a single address.
fn full(family: SetFamily) -> u8 {
    if family == SetFamily::Inet6 { 128 } else { 32 }
}

/// The value in a set of a type that has this option; `None` for other types.
fn default(takes: bool, value: Option<u32>, default: u32) -> Option<u32> {
    takes.then(|| value.unwrap_or(default))
}

/// `FROM-TO` or a network.
fn address_range(value: &Token<'_>) -> Result<(Ipv4Addr, Ipv4Addr), Wrong> {
    match bounds(SetFamily::Inet, value, &value.text)? {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok((from, to)),
        _ => wrong(value, "the range has addresses of IPv4: write those"),
    }
}
