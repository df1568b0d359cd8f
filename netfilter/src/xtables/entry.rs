//! One rule as the kernel stores it: `struct ipt_entry` or `struct ip6t_entry`, then matches, then a target.
//!
//! ```text
//! ipt_entry  ip | target_offset next_offset | comefrom | counters      112 or 168 bytes
//! match      size name revision data                                   any number
//! target     size name revision data                                   one
//! ```

mod encode;

pub(super) use encode::{encode, end_of_chain, error, verdict};

use super::ext::{self, Context};
use super::net::{Field, Network, interface_of};
use super::raw::*;
use super::structs::{
    Head, Ip6tEntry, Ip6tIp6, IptEntry, IptIp, XtCounters, before_nul, name_of, read, read_at,
    written, zeroed,
};
use super::{Counters, Interface, Not, Protocol, Rule, XtFamily};
use std::mem::offset_of;
use std::net::IpAddr;

/// The size of a family's entry, its goto flag, and the offsets of the fields that are read or changed individually.
pub(super) struct Shape {
    pub(super) size: usize,
    flags: usize,
    goto: u8,
    pub(super) nfcache: usize,
    pub(super) target_offset: usize,
    next_offset: usize,
    pub(super) comefrom: usize,
    pub(super) counters: usize,
}

macro_rules! shape {
    ($entry:ty, $header:ident, $goto:expr) => {
        Shape {
            size: size_of::<$entry>(),
            flags: offset_of!($entry, $header.flags),
            goto: $goto,
            nfcache: offset_of!($entry, nfcache),
            target_offset: offset_of!($entry, target_offset),
            next_offset: offset_of!($entry, next_offset),
            comefrom: offset_of!($entry, comefrom),
            counters: offset_of!($entry, counters),
        }
    };
}

pub(super) fn shape(family: XtFamily) -> &'static Shape {
    match family {
        XtFamily::Ip => const { &shape!(IptEntry, ip, IPT_F_GOTO) },
        XtFamily::Ip6 => const { &shape!(Ip6tEntry, ipv6, IP6T_F_GOTO) },
    }
}

/// The counters of the entry at this offset.
pub(super) fn counters(blob: &[u8], at: usize, family: XtFamily) -> Option<Counters> {
    read_at::<XtCounters>(blob, at.checked_add(shape(family).counters)?).map(Counters::from)
}

/// The tag of the entry at this offset: `nfcache`, which the kernel no longer uses.
pub(super) fn tag(blob: &[u8], at: usize, family: XtFamily) -> Option<u32> {
    read_at(blob, at.checked_add(shape(family).nfcache)?)
}

/// The target of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// An extension.
    Extension,
    /// A standard target: a negative verdict, or the offset of the next entry.
    Verdict(i32),
    /// An ERROR target: the head of a user chain, or the end of the table.
    Error(String),
}

/// Properties of an entry that are not in its [`Rule`].
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) goto: bool,
    pub(super) ending: Ending,
    /// Offset of the target in the entry.
    pub(super) target: usize,
    /// Length of the entry.
    pub(super) len: usize,
}

/// The first entry of these bytes and the offset of its target; `None` if its offsets or lengths are out of bounds.
fn bounds<'a>(blob: &'a [u8], shape: &Shape) -> Option<(&'a [u8], usize)> {
    let target = usize::from(read_at::<u16>(blob, shape.target_offset)?);
    let len = usize::from(read_at::<u16>(blob, shape.next_offset)?);
    if target < shape.size || len % 8 != 0 || len < target.checked_add(size_of::<Head>())? {
        return None;
    }
    Some((blob.get(..len)?, target))
}

/// The offset, length and target of each entry of a table, without decoding conditions and matches. The iterator ends after an error.
pub(super) fn outlines(
    blob: &[u8],
    family: XtFamily,
) -> impl Iterator<Item = Result<(usize, usize, Ending), String>> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let (at, rest) = (next, blob.get(next..).filter(|rest| !rest.is_empty())?);
        let found = outline(rest, family);
        next = found.as_ref().map_or(blob.len(), |(len, _)| at + len);
        let found = found.map(|(len, ending)| (at, len, ending));
        Some(found.ok_or_else(|| format!("no rule begins at offset {at}")))
    })
}

/// The length of the first entry, and its target; `None` if its offsets or lengths are out of bounds.
fn outline(blob: &[u8], family: XtFamily) -> Option<(usize, Ending)> {
    let (b, target) = bounds(blob, shape(family))?;
    let (name, _, data) = extension(b, target, b.len())?;
    Some((b.len(), ending(name, data)?))
}

/// The kind of the target with this name and data; `None` if the data are too short.
fn ending(name: &str, data: &[u8]) -> Option<Ending> {
    Some(match name {
        "" => Ending::Verdict(read(data)?),
        "ERROR" => Ending::Error(name_of(data.get(..XT_FUNCTION_MAXNAMELEN)?)?),
        _ => Ending::Extension,
    })
}

/// Decodes the first entry of these bytes into `rule`, and overwrites its previous content.
///
/// `None` if offsets or lengths are out of bounds. A standard target is returned in [`Entry::ending`], and `rule.target` is
/// `None`.
/// A [`Rule`] is large, so a listing decodes all rules into the same one.
pub(super) fn decode(blob: &[u8], cx: &Context<'_>, rule: &mut Rule) -> Option<Entry> {
    let shape = shape(cx.family);
    let (b, target) = bounds(blob, shape)?;
    let len = b.len();
    let header = IpHeader::read(b, cx.family)?;
    // Conditions that cannot be decoded are kept as raw bytes.
    rule.matches.clear();
    (rule.header, rule.target) = (None, None);
    if conditions(&header, rule).is_none() {
        *rule = Rule {
            header: Some(b.get(..shape.nfcache)?.to_vec()),
            ..Rule::default()
        };
    }
    let mut at = shape.size;
    while at < target {
        let (name, revision, data) = extension(b, at, target)?;
        at += size_of::<Head>() + data.len();
        // Most rules have one match, and a match is large.
        rule.matches.reserve_exact(1);
        rule.matches.push(ext::read_match(name, revision, data, cx));
    }
    let (name, revision, data) = extension(b, target, len)?;
    let ending = ending(name, data)?;
    if ending == Ending::Extension {
        rule.target = Some(ext::read_target(name, revision, data, cx));
    }
    let goto = b.get(shape.flags)? & shape.goto != 0;
    Some(Entry {
        goto,
        ending,
        target,
        len,
    })
}

/// Name, revision and data of the match or target that begins at `at` and ends at or before `end`.
fn extension(b: &[u8], at: usize, end: usize) -> Option<(&str, u8, &[u8])> {
    let b = b.get(at..end)?;
    let head: Head = read(b)?;
    let size = usize::from(head.size);
    if size < size_of::<Head>() || size % 8 != 0 {
        return None;
    }
    let name = b.get(offset_of!(Head, name)..offset_of!(Head, revision))?;
    let name = std::str::from_utf8(before_nul(name)?).ok()?;
    Some((name, head.revision, b.get(size_of::<Head>()..size)?))
}

/// The part of an entry with the conditions on the packet's headers and interfaces.
enum IpHeader {
    Ip(IptIp),
    Ip6(Ip6tIp6),
}

impl IpHeader {
    fn read(b: &[u8], family: XtFamily) -> Option<Self> {
        match family {
            XtFamily::Ip => read(b).map(Self::Ip),
            XtFamily::Ip6 => read(b).map(Self::Ip6),
        }
    }

    /// Conditions that every packet fulfils.
    fn every(family: XtFamily) -> Self {
        match family {
            XtFamily::Ip => Self::Ip(zeroed()),
            XtFamily::Ip6 => Self::Ip6(zeroed()),
        }
    }

    /// The bytes of the entry without matches and target.
    fn entry(self, target_offset: u16, next_offset: u16) -> Vec<u8> {
        match self {
            Self::Ip(ip) => written(&IptEntry {
                ip,
                target_offset,
                next_offset,
                ..zeroed()
            }),
            Self::Ip6(ipv6) => written(&Ip6tEntry {
                ipv6,
                target_offset,
                next_offset,
                ..zeroed()
            }),
        }
    }

    fn set_goto(&mut self, goto: bool) {
        let (flags, bit) = match self {
            Self::Ip(ip) => (&mut ip.flags, IPT_F_GOTO),
            Self::Ip6(ip) => (&mut ip.flags, IP6T_F_GOTO),
        };
        *flags = *flags & !bit | if goto { bit } else { 0 };
    }
}

/// The fields that both families have.
struct Fields {
    source: [IpAddr; 2],
    destination: [IpAddr; 2],
    input: [Field; 2],
    output: [Field; 2],
    proto: u16,
    flags: u8,
    invflags: u8,
}

macro_rules! fields {
    ($ip:expr, $goto:expr, $address:expr) => {
        Fields {
            source: [$ip.src, $ip.smsk].map($address),
            destination: [$ip.dst, $ip.dmsk].map($address),
            input: [$ip.iniface, $ip.iniface_mask],
            output: [$ip.outiface, $ip.outiface_mask],
            proto: $ip.proto,
            flags: $ip.flags & !$goto,
            invflags: $ip.invflags,
        }
    };
}

/// Decodes the conditions into `rule`; `None` if its fields cannot represent these bytes.
fn conditions(header: &IpHeader, rule: &mut Rule) -> Option<()> {
    let (f, more) = match header {
        IpHeader::Ip(ip) => (fields!(ip, IPT_F_GOTO, IpAddr::from), IPT_INV_FRAG),
        IpHeader::Ip6(ip) => (fields!(ip, IP6T_F_GOTO, |a| a.ip(XtFamily::Ip6)), 0),
    };
    let known =
        IPT_INV_VIA_IN | IPT_INV_VIA_OUT | IPT_INV_SRCIP | IPT_INV_DSTIP | IPT_INV_PROTO | more;
    if f.invflags & !known != 0 {
        return None;
    }
    let has = |bit: u8| f.invflags & bit != 0;
    rule.source = network(f.source, has(IPT_INV_SRCIP))?;
    rule.destination = network(f.destination, has(IPT_INV_DSTIP))?;
    rule.in_interface = interface(&f.input, has(IPT_INV_VIA_IN))?;
    rule.out_interface = interface(&f.output, has(IPT_INV_VIA_OUT))?;
    let number = u8::try_from(f.proto).ok()?;
    if number == 0 && has(IPT_INV_PROTO) {
        return None;
    }
    rule.protocol = (number != 0).then_some((Not(has(IPT_INV_PROTO)), Protocol(number)));
    let wanted = match header {
        IpHeader::Ip(_) => {
            let is_fragment = f.flags & IPT_F_FRAG != 0;
            if !is_fragment && has(IPT_INV_FRAG) {
                return None;
            }
            rule.fragment = is_fragment.then_some(Not(has(IPT_INV_FRAG)));
            f.flags & IPT_F_FRAG
        }
        IpHeader::Ip6(_) => {
            rule.fragment = None;
            // `-p all` sets the flag as well, without effect.
            match number {
                0 => f.flags & IP6T_F_PROTO,
                _ => IP6T_F_PROTO,
            }
        }
    };
    (f.flags == wanted).then_some(())
}

/// `None` if the address has bits outside of the mask, `Some(None)` if every address matches.
#[allow(clippy::option_option)]
fn network([address, mask]: [IpAddr; 2], not: bool) -> Option<Option<(Not, Network)>> {
    let net = Network::new(address, mask)?;
    if net.address != address {
        return None;
    }
    Some((not || !net.is_any()).then_some((Not(not), net)))
}

#[allow(clippy::option_option)]
fn interface([name, mask]: &[Field; 2], not: bool) -> Option<Option<(Not, Interface)>> {
    match interface_of(name, mask)? {
        Some(interface) => Some(Some((Not(not), interface))),
        // `! -i +`, which no packet matches.
        None if not => Some(Some((Not(true), Interface::Prefix(String::new())))),
        None => Some(None),
    }
}
