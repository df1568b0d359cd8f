//! One rule as the kernel holds it: `struct ipt_entry` or `struct ip6t_entry`, then matches, then a target.
//!
//! ```text
//! ipt_entry  ip | target_offset next_offset | comefrom | counters      112 or 168 bytes
//! match      size name revision data                                   any number
//! target     size name revision data                                   one
//! ```

use super::ext::{self, Context, Part, Unknown, Wire, matches, targets};
use super::net::{Field, Network, interface_of, interface_wire};
use super::raw::*;
use super::structs::{
    Head, InetAddr, Ip6tEntry, Ip6tIp6, IptEntry, IptIp, XtCounters, aligned, before_nul,
    name_field, name_of, read, read_at, written, zeroed,
};
use super::target::VERDICTS;
use super::text::shorten;
use super::{Counters, Interface, Match, Not, Protocol, Rule, Target, XtFamily};
use std::mem::offset_of;
use std::net::IpAddr;
use weir_netlink::{Error, Result};

/// The places of a family's entry that are read or changed without the rest.
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

/// The mark of the entry at this offset, in a field that the kernel no longer uses.
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

/// What an entry has besides its rule.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) goto: bool,
    pub(super) ending: Ending,
    /// Offset of the target in the entry.
    pub(super) target: usize,
    /// Length of the entry.
    pub(super) len: usize,
}

/// The first entry of these bytes and the offset of its target; `None` when its offsets or lengths are out of bounds.
fn bounds<'a>(blob: &'a [u8], shape: &Shape) -> Option<(&'a [u8], usize)> {
    let target = usize::from(read_at::<u16>(blob, shape.target_offset)?);
    let len = usize::from(read_at::<u16>(blob, shape.next_offset)?);
    if target < shape.size || len % 8 != 0 || len < target.checked_add(size_of::<Head>())? {
        return None;
    }
    Some((blob.get(..len)?, target))
}

/// Each entry of a table with its offset, its length and its target; the conditions and matches are not looked at. An error
/// ends it.
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

/// The length of the first entry, and its target; `None` when its offsets or lengths are out of bounds.
fn outline(blob: &[u8], family: XtFamily) -> Option<(usize, Ending)> {
    let (b, target) = bounds(blob, shape(family))?;
    let (name, _, data) = extension(b, target, b.len())?;
    Some((b.len(), ending(name, data)?))
}

/// What the target of this name does.
fn ending(name: &str, data: &[u8]) -> Option<Ending> {
    Some(match name {
        "" => Ending::Verdict(read(data)?),
        "ERROR" => Ending::Error(name_of(data.get(..XT_FUNCTION_MAXNAMELEN)?)?),
        _ => Ending::Extension,
    })
}

/// Decodes the first entry of these bytes to `rule`, which may hold another one; a jump has no target. `None` when its
/// offsets or lengths are out of bounds.
///
/// A rule is large: a listing decodes each to the place of the one before.
pub(super) fn decode(blob: &[u8], cx: &Context<'_>, rule: &mut Rule) -> Option<Entry> {
    let shape = shape(cx.family);
    let (b, target) = bounds(blob, shape)?;
    let len = b.len();
    let header = IpHeader::read(b, cx.family)?;
    // The conditions; as raw bytes where they cannot be decoded.
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
        // Most rules have one, and a match is large.
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

/// Name, revision and data of the match or target that begins here and ends at or before `end`.
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

/// The part of an entry that the packet's header is compared with.
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

    /// Every packet.
    fn every(family: XtFamily) -> Self {
        match family {
            XtFamily::Ip => Self::Ip(zeroed()),
            XtFamily::Ip6 => Self::Ip6(zeroed()),
        }
    }

    /// The entry before its matches.
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

/// The conditions of a rule; `None` when the bytes are none that a rule here has.
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
            // `-p all` sets the flag, too, and compares nothing.
            match number {
                0 => f.flags & IP6T_F_PROTO,
                _ => IP6T_F_PROTO,
            }
        }
    };
    (f.flags == wanted).then_some(())
}

/// `None` when the address has bits that are not compared, `Some(None)` for every address.
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
        None if not => None,
        None => Some(None),
    }
}

/// The bytes of a rule. The verdict of a jump is 0; the caller replaces it by the offset of the chain.
pub(super) fn encode(rule: &Rule, cx: &Context<'_>) -> Result<Vec<u8>> {
    let shape = shape(cx.family);
    let refuse = |why: String| {
        Error::refused(
            "write",
            format!(
                "{} rule `{}`",
                cx.family,
                shorten(rule.to_string().trim_start())
            ),
            why,
        )
    };
    let mut matches = Vec::new();
    for m in &rule.matches {
        let wire = match m {
            Match::Unknown(u) => as_is(u),
            Match::Extension(v) => v.wire(cx)?,
            _ => ext::encode(matches::KINDS, m, Part::Match, cx)?,
        };
        matches.extend(block(&wire).map_err(refuse)?);
    }
    let target = match &rule.target {
        Some(Target::Unknown(u)) => as_is(u),
        Some(Target::Extension(v)) => v.wire(cx)?,
        other => match verdict(other.as_ref()) {
            Some(verdict) => standard(verdict),
            None => match other {
                Some(target) => ext::encode(targets::KINDS, target, Part::Target, cx)?,
                None => standard(0),
            },
        },
    };
    let target = block(&target).map_err(refuse)?;
    let goto = matches!(rule.target, Some(Target::Goto(_)));
    let header = header(rule, cx.family, goto).map_err(refuse)?;
    let at = shape.size + matches.len();
    let too_long = || refuse("its matches have more than 65535 bytes; use several rules".into());
    let offset = u16::try_from(at).map_err(|_| too_long())?;
    let next = u16::try_from(at + target.len()).map_err(|_| too_long())?;
    let mut entry = header.entry(offset, next);
    entry.extend(matches);
    entry.extend(target);
    Ok(entry)
}

/// The head of a user chain, or the end of the table: an ERROR target that no packet reaches.
pub(super) fn error(family: XtFamily, name: &str) -> Result<Vec<u8>> {
    let refuse = || {
        Error::refused(
            "write",
            format!("chain {name}"),
            "a name has at most 28 bytes",
        )
    };
    let field: [u8; XT_FUNCTION_MAXNAMELEN] = name_field(name).ok_or_else(refuse)?;
    let mut data = written(&field);
    data.resize(ERROR_SIZE, 0);
    let wire = Wire {
        name: "ERROR".into(),
        revision: 0,
        data,
    };
    let target =
        block(&wire).map_err(|why| Error::refused("write", format!("chain {name}"), why))?;
    Ok(bare(family, &target))
}

/// A rule for every packet with this verdict: the end of a chain.
pub(super) fn end_of_chain(family: XtFamily, verdict: i32) -> Vec<u8> {
    bare(family, &block(&standard(verdict)).unwrap_or_default())
}

fn bare(family: XtFamily, target: &[u8]) -> Vec<u8> {
    let word = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let at = shape(family).size;
    let mut entry = IpHeader::every(family).entry(word(at), word(at + target.len()));
    entry.extend_from_slice(target);
    entry
}

fn as_is(u: &Unknown) -> Wire {
    Wire {
        name: u.name.clone(),
        revision: u.revision,
        data: u.data.clone(),
    }
}

fn standard(verdict: i32) -> Wire {
    Wire {
        name: String::new(),
        revision: 0,
        data: written(&verdict),
    }
}

/// The standard verdicts; that of a jump is set later.
pub(super) fn verdict(target: Option<&Target>) -> Option<i32> {
    match target {
        Some(Target::Jump(_) | Target::Goto(_)) | None => Some(0),
        Some(target) => VERDICTS.iter().find(|(t, _)| t == target).map(|(_, n)| *n),
    }
}

fn block(wire: &Wire) -> Result<Vec<u8>, String> {
    let len = size_of::<Head>() + aligned(wire.data.len());
    let size =
        u16::try_from(len).map_err(|_| format!("{} is longer than 65535 bytes", wire.name))?;
    let name = name_field(&wire.name)
        .ok_or_else(|| format!("the name {} is longer than 28 bytes", wire.name))?;
    let mut block = written(&Head {
        size,
        name,
        revision: wire.revision,
    });
    block.extend_from_slice(&wire.data);
    block.resize(len, 0);
    Ok(block)
}

fn header(rule: &Rule, family: XtFamily, goto: bool) -> Result<IpHeader, String> {
    if let Some(header) = &rule.header {
        let read = IpHeader::read(header, family);
        let mut read = read
            .filter(|_| header.len() == shape(family).nfcache)
            .ok_or_else(|| format!("its header is not one of {family}"))?;
        read.set_goto(goto);
        return Ok(read);
    }
    let inverted = |not: Option<Not>, bit: u8| if not == Some(Not(true)) { bit } else { 0 };
    let invflags = inverted(rule.source.map(|n| n.0), IPT_INV_SRCIP)
        | inverted(rule.destination.map(|n| n.0), IPT_INV_DSTIP)
        | inverted(rule.in_interface.as_ref().map(|i| i.0), IPT_INV_VIA_IN)
        | inverted(rule.out_interface.as_ref().map(|i| i.0), IPT_INV_VIA_OUT)
        | inverted(rule.protocol.map(|p| p.0), IPT_INV_PROTO)
        | inverted(rule.fragment, IPT_INV_FRAG);
    let (iniface, iniface_mask) = interface_wire(rule.in_interface.as_ref().map(|i| &i.1))?;
    let (outiface, outiface_mask) = interface_wire(rule.out_interface.as_ref().map(|i| &i.1))?;
    let protocol = rule.protocol.map_or(0, |(_, p)| p.0);
    if protocol == 0 && rule.protocol.is_some() {
        return Err("protocol 0 is every protocol; leave it out".into());
    }
    let proto = protocol.into();
    let addresses = |net: Option<(Not, Network)>| match net {
        None => Ok([InetAddr::ANY; 2]),
        Some((_, net)) if net.address.is_ipv4() == (family == XtFamily::Ip) => {
            Ok([net.address, net.mask].map(InetAddr::from))
        }
        Some((_, net)) => Err(format!(
            "{net} is no address of {family}; give one of its family"
        )),
    };
    let ([src, smsk], [dst, dmsk]) = (addresses(rule.source)?, addresses(rule.destination)?);
    let mut header = match family {
        XtFamily::Ip => IpHeader::Ip(IptIp {
            src: src.v4(),
            dst: dst.v4(),
            smsk: smsk.v4(),
            dmsk: dmsk.v4(),
            iniface,
            outiface,
            iniface_mask,
            outiface_mask,
            proto,
            flags: if rule.fragment.is_some() {
                IPT_F_FRAG
            } else {
                0
            },
            invflags,
        }),
        XtFamily::Ip6 if rule.fragment.is_some() => {
            return Err("only IPv4 has -f; match the fragment header".into());
        }
        XtFamily::Ip6 => IpHeader::Ip6(Ip6tIp6 {
            src,
            dst,
            smsk,
            dmsk,
            iniface,
            outiface,
            iniface_mask,
            outiface_mask,
            proto,
            // The type of service is never matched.
            tos: 0,
            flags: if protocol == 0 { 0 } else { IP6T_F_PROTO },
            invflags,
            ..zeroed()
        }),
    };
    header.set_goto(goto);
    Ok(header)
}
