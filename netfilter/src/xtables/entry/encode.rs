//! The bytes of an entry.

use super::{IpHeader, shape};
use crate::xtables::ext::{self, Context, Part, Unknown, Wire, matches, targets};
use crate::xtables::net::{Network, interface_wire};
use crate::xtables::raw::*;
use crate::xtables::structs::{
    Head, InetAddr, Ip6tIp6, IptIp, aligned, name_field, written, zeroed,
};
use crate::xtables::target::VERDICTS;
use crate::xtables::text::shorten;
use crate::xtables::{Match, Not, Rule, Target, XtFamily};
use weir_netlink::{Error, Result};

/// Encodes a rule. The verdict of a jump is 0; the caller replaces it with the offset of the chain.
pub(in crate::xtables) fn encode(rule: &Rule, cx: &Context<'_>) -> Result<Vec<u8>> {
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
pub(in crate::xtables) fn error(family: XtFamily, name: &str) -> Result<Vec<u8>> {
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
pub(in crate::xtables) fn end_of_chain(family: XtFamily, verdict: i32) -> Vec<u8> {
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

/// The number of a standard verdict; 0 for a jump, which the caller replaces; `None` for an extension.
pub(in crate::xtables) fn verdict(target: Option<&Target>) -> Option<i32> {
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
