//! One rule as the kernel holds it: `struct ipt_entry` or `struct ip6t_entry`, then matches, then a target.
//!
//! ```text
//! ipt_entry  ip | target_offset next_offset | comefrom | counters      112 or 168 bytes
//! match      size name revision data                                   any number
//! target     size name revision data                                   one
//! ```

use super::bytes::{Build, Bytes, aligned};
use super::ext::{self, Context, Extension, Part, Unknown, Wire, matches, targets};
use super::net::{Network, interface_of, interface_wire};
use super::raw::layout::*;
use super::raw::*;
use super::{Interface, Match, Not, Protocol, Rule, Target, XtFamily};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_netlink::{Error, Result};

/// Offsets of the fields of a family.
pub(super) struct Shape {
    pub(super) size: usize,
    src: usize,
    dst: usize,
    smsk: usize,
    dmsk: usize,
    iniface: usize,
    outiface: usize,
    in_mask: usize,
    out_mask: usize,
    proto: usize,
    flags: usize,
    invflags: usize,
    pub(super) nfcache: usize,
    goto: u8,
    pub(super) target_offset: usize,
    pub(super) next_offset: usize,
    pub(super) comefrom: usize,
    pub(super) counters: usize,
}

/// IPv4
const IP: Shape = Shape {
    size: IP_SIZE,
    src: IP_SRC,
    dst: IP_DST,
    smsk: IP_SMSK,
    dmsk: IP_DMSK,
    iniface: IP_INIFACE,
    outiface: IP_OUTIFACE,
    in_mask: IP_INIFACE_MASK,
    out_mask: IP_OUTIFACE_MASK,
    proto: IP_PROTO,
    flags: IP_FLAGS,
    invflags: IP_INVFLAGS,
    nfcache: IP_NFCACHE,
    goto: IPT_F_GOTO,
    target_offset: IP_TARGET_OFFSET,
    next_offset: IP_NEXT_OFFSET,
    comefrom: IP_COMEFROM,
    counters: IP_COUNTERS,
};

/// IPv6
const IP6: Shape = Shape {
    size: IP6_SIZE,
    src: IP6_SRC,
    dst: IP6_DST,
    smsk: IP6_SMSK,
    dmsk: IP6_DMSK,
    iniface: IP6_INIFACE,
    outiface: IP6_OUTIFACE,
    in_mask: IP6_INIFACE_MASK,
    out_mask: IP6_OUTIFACE_MASK,
    proto: IP6_PROTO,
    flags: IP6_FLAGS,
    invflags: IP6_INVFLAGS,
    nfcache: IP6_NFCACHE,
    goto: IP6T_F_GOTO,
    target_offset: IP6_TARGET_OFFSET,
    next_offset: IP6_NEXT_OFFSET,
    comefrom: IP6_COMEFROM,
    counters: IP6_COUNTERS,
};

pub(super) fn shape(family: XtFamily) -> &'static Shape {
    match family {
        XtFamily::Ip => &IP,
        XtFamily::Ip6 => &IP6,
    }
}

/// The target of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// An extension, fully decoded in the rule's target.
    Extension,
    /// A standard target: a negative verdict, or the offset of the next entry.
    Verdict(i32),
    /// An ERROR target: the head of a user chain, or the end of the table.
    Error(String),
}

/// A decoded entry: the rule has no target if it is a jump.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rule: Rule,
    pub(super) goto: bool,
    pub(super) ending: Ending,
    /// Offset of the target in the entry.
    pub(super) target: usize,
    /// Length of the entry.
    pub(super) len: usize,
}

/// The first entry of these bytes and the offset of its target; `None` when its offsets or lengths are out of bounds.
fn bounds<'a>(blob: &'a [u8], shape: &Shape) -> Option<(Bytes<'a>, usize)> {
    let b = Bytes(blob);
    let target = usize::from(b.u16(shape.target_offset)?);
    let len = usize::from(b.u16(shape.next_offset)?);
    if target < shape.size || len % 8 != 0 || len < target.checked_add(HEADER_SIZE)? {
        return None;
    }
    Some((Bytes(b.slice(0, len)?), target))
}

/// The length of the first entry, and the name of the chain if it is the head of a user chain.
pub(super) fn outline(blob: &[u8], family: XtFamily) -> Option<(usize, Option<String>)> {
    let (b, target) = bounds(blob, shape(family))?;
    let len = b.0.len();
    let (name, _, data) = extension(b, target, len)?;
    let head = match name {
        "ERROR" => Some(Bytes(data).name(0, XT_FUNCTION_MAXNAMELEN)?),
        _ => None,
    };
    Some((len, head))
}

/// Decodes the first entry of these bytes; `None` when its offsets or lengths are out of bounds.
pub(super) fn decode(blob: &[u8], cx: &Context<'_>) -> Option<Entry> {
    let shape = shape(cx.family);
    let (b, target) = bounds(blob, shape)?;
    let len = b.0.len();
    let mut rule = header(b, cx.family)?;
    let mut at = shape.size;
    while at < target {
        let (name, revision, data) = extension(b, at, target)?;
        at += HEADER_SIZE + data.len();
        // Most rules have one, and a match is large.
        rule.matches.reserve_exact(1);
        rule.matches.push(
            match ext::decode(matches::KINDS, name, revision, data, cx) {
                Some(decoded) => decoded,
                None => Extension::decode(Part::Match, name, revision, data, cx.family)
                    .map_or_else(
                        || Match::Unknown(unknown(name, revision, data)),
                        Match::Extension,
                    ),
            },
        );
    }
    let (name, revision, data) = extension(b, target, len)?;
    let ending = match name {
        "" => Ending::Verdict(Bytes(data).i32(0)?),
        "ERROR" => Ending::Error(Bytes(data).name(0, XT_FUNCTION_MAXNAMELEN)?),
        _ => {
            rule.target = Some(
                match ext::decode(targets::KINDS, name, revision, data, cx) {
                    Some(decoded) => decoded,
                    None => Extension::decode(Part::Target, name, revision, data, cx.family)
                        .map_or_else(
                            || Target::Unknown(unknown(name, revision, data)),
                            Target::Extension,
                        ),
                },
            );
            Ending::Extension
        }
    };
    let goto = b.u8(shape.flags)? & shape.goto != 0;
    Some(Entry {
        rule,
        goto,
        ending,
        target,
        len,
    })
}

/// Name, revision and data of the match or target that begins here and ends at or before `end`.
fn extension<'a>(b: Bytes<'a>, at: usize, end: usize) -> Option<(&'a str, u8, &'a [u8])> {
    let size = usize::from(b.u16(at)?);
    if size < HEADER_SIZE || size % 8 != 0 || at.checked_add(size)? > end {
        return None;
    }
    let name = b.text(at + HEADER_NAME, XT_EXTENSION_MAXNAMELEN)?;
    let data = b.slice(at + HEADER_SIZE, size - HEADER_SIZE)?;
    Some((name, b.u8(at + HEADER_REVISION)?, data))
}

/// The conditions; as raw bytes where they cannot be decoded.
fn header(b: Bytes<'_>, family: XtFamily) -> Option<Rule> {
    let shape = shape(family);
    Some(conditions(b, family).unwrap_or(Rule {
        header: Some(b.slice(0, shape.nfcache)?.to_vec()),
        ..Rule::default()
    }))
}

fn conditions(b: Bytes<'_>, family: XtFamily) -> Option<Rule> {
    let shape = shape(family);
    let (flags, invert) = (b.u8(shape.flags)? & !shape.goto, b.u8(shape.invflags)?);
    let known = IPT_INV_VIA_IN
        | IPT_INV_VIA_OUT
        | IPT_INV_SRCIP
        | IPT_INV_DSTIP
        | IPT_INV_PROTO
        | if family == XtFamily::Ip {
            IPT_INV_FRAG
        } else {
            0
        };
    if invert & !known != 0 {
        return None;
    }
    let has = |bit: u8| invert & bit != 0;
    let mut rule = Rule {
        source: network(b, shape.src, shape.smsk, family, has(IPT_INV_SRCIP))?,
        destination: network(b, shape.dst, shape.dmsk, family, has(IPT_INV_DSTIP))?,
        in_interface: interface(b, shape.iniface, shape.in_mask, has(IPT_INV_VIA_IN))?,
        out_interface: interface(b, shape.outiface, shape.out_mask, has(IPT_INV_VIA_OUT))?,
        ..Rule::default()
    };
    let number = u8::try_from(b.u16(shape.proto)?).ok()?;
    if number != 0 {
        rule.protocol = Some((Not(has(IPT_INV_PROTO)), Protocol(number)));
    } else if has(IPT_INV_PROTO) {
        return None;
    }
    match family {
        XtFamily::Ip => {
            rule.fragment = (flags & IPT_F_FRAG != 0).then_some(Not(has(IPT_INV_FRAG)));
            (flags & !IPT_F_FRAG == 0 && (rule.fragment.is_some() || !has(IPT_INV_FRAG)))
                .then_some(rule)
        }
        XtFamily::Ip6 => {
            let wanted = if number == 0 { 0 } else { IP6T_F_PROTO };
            (flags == wanted).then_some(rule)
        }
    }
}

/// `None` when the address has bits that are not compared, `Some(None)` for every address.
#[allow(clippy::option_option)]
fn network(
    b: Bytes<'_>,
    addr: usize,
    mask: usize,
    family: XtFamily,
    not: bool,
) -> Option<Option<(Not, Network)>> {
    let address = b.address(addr, family)?;
    let net = Network::new(address, b.address(mask, family)?)?;
    if net.address != address {
        return None;
    }
    Some((not || !net.is_any()).then_some((Not(not), net)))
}

#[allow(clippy::option_option)]
fn interface(
    b: Bytes<'_>,
    name: usize,
    mask: usize,
    not: bool,
) -> Option<Option<(Not, Interface)>> {
    match interface_of(b.slice(name, IFNAMSIZ)?, b.slice(mask, IFNAMSIZ)?)? {
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
            format!("{} rule `{}`", cx.family, rule.to_string().trim_start()),
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
    let mut entry = header_wire(rule, cx.family, goto).map_err(refuse)?;
    let at = shape.size + matches.len();
    let too_long = || refuse("its matches have more than 65535 bytes; use several rules".into());
    let offset = u16::try_from(at).map_err(|_| too_long())?;
    let next = u16::try_from(at + target.len()).map_err(|_| too_long())?;
    entry.resize(shape.target_offset, 0);
    entry.extend(offset.to_ne_bytes());
    entry.extend(next.to_ne_bytes());
    entry.resize(shape.size, 0);
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
    let data = Build::new()
        .name(name, XT_FUNCTION_MAXNAMELEN)
        .ok_or_else(refuse)?;
    let data = data
        .zeros(ERROR_SIZE - HEADER_SIZE - XT_FUNCTION_MAXNAMELEN)
        .done();
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
pub(super) fn ending(family: XtFamily, verdict: i32) -> Vec<u8> {
    bare(family, &block(&standard(verdict)).unwrap_or_default())
}

fn bare(family: XtFamily, target: &[u8]) -> Vec<u8> {
    let shape = shape(family);
    let word = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let head = Build::new().zeros(shape.target_offset);
    let head = head
        .u16(word(shape.size))
        .u16(word(shape.size + target.len()));
    let rest = shape.size - shape.target_offset - 4;
    head.zeros(rest).bytes(target).done()
}

fn unknown(name: &str, revision: u8, data: &[u8]) -> Unknown {
    Unknown {
        name: name.to_owned(),
        revision,
        data: data.to_vec(),
    }
}

fn as_is(u: &Unknown) -> Wire {
    Wire {
        name: u.name.clone(),
        revision: u.revision,
        data: u.data.clone(),
    }
}

fn standard(verdict: i32) -> Wire {
    let data = Build::new().bytes(&verdict.to_ne_bytes()).done();
    Wire {
        name: String::new(),
        revision: 0,
        data,
    }
}

/// The standard verdicts; that of a jump is set later.
pub(super) fn verdict(target: Option<&Target>) -> Option<i32> {
    match target {
        Some(Target::Accept) => Some(-NF_ACCEPT - 1),
        Some(Target::Drop) => Some(-NF_DROP - 1),
        Some(Target::Queue) => Some(-NF_QUEUE - 1),
        Some(Target::Return) => Some(XT_RETURN),
        Some(Target::Jump(_) | Target::Goto(_)) | None => Some(0),
        Some(_) => None,
    }
}

fn block(wire: &Wire) -> Result<Vec<u8>, String> {
    let len = HEADER_SIZE + aligned(wire.data.len());
    let size =
        u16::try_from(len).map_err(|_| format!("{} is longer than 65535 bytes", wire.name))?;
    let head = Build::new()
        .u16(size)
        .name(&wire.name, XT_EXTENSION_MAXNAMELEN);
    let head = head.ok_or_else(|| format!("the name {} is longer than 28 bytes", wire.name))?;
    Ok(head.u8(wire.revision).bytes(&wire.data).done())
}

fn header_wire(rule: &Rule, family: XtFamily, goto: bool) -> Result<Vec<u8>, String> {
    let shape = shape(family);
    let goto = if goto { shape.goto } else { 0 };
    if let Some(header) = &rule.header {
        let mut header = header.clone();
        if header.len() != shape.nfcache {
            return Err(format!("its header is not one of {family}"));
        }
        if let Some(flags) = header.get_mut(shape.flags) {
            *flags = *flags & !shape.goto | goto;
        }
        return Ok(header);
    }
    let inverted = |not: Option<Not>, bit: u8| if not == Some(Not(true)) { bit } else { 0 };
    let invert = inverted(rule.source.map(|n| n.0), IPT_INV_SRCIP)
        | inverted(rule.destination.map(|n| n.0), IPT_INV_DSTIP)
        | inverted(rule.in_interface.as_ref().map(|i| i.0), IPT_INV_VIA_IN)
        | inverted(rule.out_interface.as_ref().map(|i| i.0), IPT_INV_VIA_OUT)
        | inverted(rule.protocol.map(|p| p.0), IPT_INV_PROTO)
        | inverted(rule.fragment, IPT_INV_FRAG);
    let (source, source_mask) = address(rule.source, family)?;
    let (destination, destination_mask) = address(rule.destination, family)?;
    let (input, input_mask) = interface_wire(rule.in_interface.as_ref().map(|i| &i.1))?;
    let (output, output_mask) = interface_wire(rule.out_interface.as_ref().map(|i| &i.1))?;
    let wire = Build::new().address(source).address(destination);
    let wire = wire.address(source_mask).address(destination_mask);
    let wire = wire
        .bytes(&input)
        .bytes(&output)
        .bytes(&input_mask)
        .bytes(&output_mask);
    let protocol = rule.protocol.map_or(0, |(_, p)| p.0);
    if protocol == 0 && rule.protocol.is_some() {
        return Err("protocol 0 is every protocol; leave it out".into());
    }
    let wire = wire.u16(protocol.into());
    Ok(match family {
        XtFamily::Ip => {
            let fragment = if rule.fragment.is_some() {
                IPT_F_FRAG
            } else {
                0
            };
            wire.u8(fragment | goto).u8(invert).done()
        }
        XtFamily::Ip6 if rule.fragment.is_some() => {
            return Err("only IPv4 has -f; match the fragment header".into());
        }
        XtFamily::Ip6 => {
            let flags = if protocol == 0 { 0 } else { IP6T_F_PROTO };
            // The type of service, which weir never matches.
            wire.u8(0).u8(flags | goto).u8(invert).done()
        }
    })
}

fn address(net: Option<(Not, Network)>, family: XtFamily) -> Result<(IpAddr, IpAddr), String> {
    let any = match family {
        XtFamily::Ip => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        XtFamily::Ip6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    match net {
        None => Ok((any, any)),
        Some((_, net)) if net.address.is_ipv4() == any.is_ipv4() => Ok((net.address, net.mask)),
        Some((_, net)) => Err(format!(
            "{net} is no address of {family}; give one of its family"
        )),
    }
}
