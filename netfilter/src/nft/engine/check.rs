//! Values that no message can represent exactly: refused before anything is sent, so that nothing is truncated.

use super::{NftOp, Transaction};
use crate::nft::context;
use crate::nft::expr::Key;
use crate::nft::model::{
    Chain, Data, DataType, Match, Operand, Rule, Selector, Set, Source, Statement, TableFamily,
    Verdict,
};
use crate::nft::raw;
use std::net::IpAddr;
use std::time::Duration;
use weir_netlink::attr::bytes_of;
use weir_netlink::{Error, Result};

/// Maximum userdata of an object (`NFT_USERDATA_MAXLEN`).
const USERDATA: usize = 256;
/// Overhead of a userdata entry: type, length and the terminating NUL.
const ENTRY: usize = 3;
/// Bytes of a table's version with its header.
const VERSION: usize = 6;
/// Maximum length of a comment without other entries.
const COMMENT: usize = USERDATA - ENTRY;
/// The same for an element, for which the kernel keeps two bytes less: it silently drops 256 bytes and refuses 255 (`u8 ulen`
/// in `nft_add_set_elem`; the length including the header is one byte, too). A range without an end has an entry with a
/// number besides the comment.
const ELEM_COMMENT: usize = USERDATA - 2 - ENTRY - 6;
/// `NF_LOG_PREFIXLEN` of `linux/netfilter/nf_log.h`, without the terminating NUL.
const LOG_PREFIX: usize = 127;
/// `IFNAMSIZ` of `linux/if.h`, without the terminating NUL.
const IFNAME: usize = 15;

/// Checks that every value of every operation fits its attribute.
///
/// # Errors
/// The first value that does not fit, with its operation and the limit.
pub(super) fn fits(transaction: &Transaction) -> Result<()> {
    for op in &transaction.ops {
        one(op).map_err(|reason| Error::refused("write", op.to_string(), reason))?;
    }
    Ok(())
}

fn one(op: &NftOp) -> Result<(), String> {
    let (id, named) = match op {
        NftOp::AddTable(t) => {
            name("table", &t.name)?;
            let version = if t.version.is_some() { VERSION } else { 0 };
            return comment_of(t.comment.as_deref(), COMMENT - version);
        }
        NftOp::AddSet(id, s) => {
            set(s)?;
            elements(s, &s.elements)?;
            (id, &s.name)
        }
        NftOp::AddElements(id, s, e) => {
            elements(s, e)?;
            (id, &s.name)
        }
        // The kernel listed these elements, so they fit.
        NftOp::DeleteElements(id, s, _) => (id, &s.name),
        NftOp::AddObject(id, o) => {
            comment(o.comment.as_deref())?;
            (id, &o.name)
        }
        NftOp::AddChain(id, c) => {
            chain(c)?;
            (id, &c.name)
        }
        NftOp::AddRule(id, c, r, _) => {
            rule(r)?;
            (id, c)
        }
        NftOp::DeleteTable(id) | NftOp::ReplaceTable(id, _) => (id, &id.1),
        NftOp::DeleteSet(id, n)
        | NftOp::SetPolicy(id, n, _)
        | NftOp::DeleteChain(id, n)
        | NftOp::DeleteRule(id, n, ..) => (id, n),
    };
    name("table", &id.1)?;
    name("chain or set", named)
}

fn name(what: &str, name: &str) -> Result<(), String> {
    // Without the terminating NUL.
    let longest = raw::NFT_NAME_MAXLEN - 1;
    match bytes_of(name).len() {
        n @ 1.. if n <= longest && !name.contains('\0') => Ok(()),
        n => Err(format!(
            "the name of a {what} has {n} bytes or contains NUL; give one of 1 to {longest} bytes"
        )),
    }
}

fn comment(text: Option<&str>) -> Result<(), String> {
    comment_of(text, COMMENT)
}

fn comment_of(text: Option<&str>, longest: usize) -> Result<(), String> {
    match text {
        Some(t) if bytes_of(t).len() > longest || t.contains('\0') => Err(format!(
            "the comment has {} bytes or contains NUL; shorten it to {longest} bytes",
            bytes_of(t).len()
        )),
        _ => Ok(()),
    }
}

fn interface(name: &[u8]) -> Result<(), String> {
    match name.len() {
        1..=IFNAME if !name.contains(&0) => Ok(()),
        n => Err(format!(
            "the name of an interface has {n} bytes or contains NUL; it has 1 to {IFNAME}"
        )),
    }
}

fn chain(c: &Chain) -> Result<(), String> {
    let devices = c.base.iter().flat_map(|b| &b.devices);
    for device in devices {
        interface(device.as_bytes())?;
    }
    let kind = c.base.as_ref().map(|b| b.chain_type.as_str());
    if kind.is_some_and(|k| k.contains('\0')) {
        return Err("the type of a chain contains NUL; remove it".into());
    }
    comment(c.comment.as_deref())
}

fn set(s: &Set) -> Result<(), String> {
    let notes = s.to_attrs("", 0).userdata.map_or(0, |u| u.len());
    let text = s.comment.as_deref();
    // `Userdata::put` truncates a comment whose length exceeds one byte.
    let entry = text.map_or(0, |t| bytes_of(t).len().min(255) + ENTRY);
    comment_of(text, COMMENT.saturating_sub(notes.saturating_sub(entry)))?;
    if notes > USERDATA {
        return Err(format!(
            "its userdata (`typeof`, byte orders) has {notes} bytes, and the kernel keeps {USERDATA}; declare it with `type`"
        ));
    }
    let whole = |t: Duration| t.subsec_nanos().is_multiple_of(1_000_000);
    if !s.timeout.into_iter().chain(s.gc_interval).all(whole) {
        return Err("a time is not a whole number of milliseconds; round it".into());
    }
    if s.gc_interval
        .is_some_and(|t| t.as_millis() > u128::from(u32::MAX))
    {
        let reason = "the gc-interval is longer than 4294967295 milliseconds; shorten it";
        return Err(reason.into());
    }
    Ok(())
}

fn elements(s: &Set, elements: &[crate::nft::Element]) -> Result<(), String> {
    for e in elements {
        let extra = e.extra();
        comment_of(extra.comment.as_deref(), ELEM_COMMENT)?;
        if let Some(Verdict::Jump(to) | Verdict::Goto(to)) = &extra.verdict {
            name("chain", to)?;
        }
        if extra
            .timeout
            .is_some_and(|t| !t.subsec_nanos().is_multiple_of(1_000_000))
        {
            return Err(
                "the timeout of an element is not a whole number of milliseconds; round it".into(),
            );
        }
        if s.key_type == DataType::IFNAME {
            padded(e.key.first())?;
        }
    }
    Ok(())
}

/// Checks an interface name that is padded to the 16 bytes of the register.
fn padded(name: &Data) -> Result<(), String> {
    let end = name.0.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    match name.0.len() <= IFNAME + 1 && end <= IFNAME {
        true => Ok(()),
        false => interface(name.0.get(..end).unwrap_or_default()),
    }
}

fn rule(r: &Rule) -> Result<(), String> {
    let mut statements = r.statements.as_slice();
    if let Some(rules) = &r.chain {
        if !r.leads_to_its_chain() {
            return Err("it has a chain of its own, and does not end with a jump or goto without a name; add that".into());
        }
        statements = statements.split_last().map_or(&[], |(_, rest)| rest);
        rules.iter().try_for_each(rule)?;
    }
    statements.iter().try_for_each(statement)?;
    comment(r.comment.as_deref())
}

fn statement(s: &Statement) -> Result<(), String> {
    match s {
        Statement::Match(m) => matching(m),
        Statement::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => name("chain", to),
        Statement::Vmap(selector, set) => {
            key(selector)?;
            name("set", set)
        }
        Statement::MetaSet(key, from) => source(&Selector::Meta(*key), from),
        Statement::CtSet(key, direction, from) => source(&Selector::Ct(*key, *direction), from),
        Statement::Nat(n) => {
            let addrs = n.addrs.into_iter().flat_map(|(first, last)| [first, last]);
            addrs.into_iter().try_for_each(|a| family(n.family, a))
        }
        Statement::Tproxy(t) => t.addr.map_or(Ok(()), |a| family(t.family, a)),
        Statement::Log(l) => match &l.prefix {
            Some(p) if bytes_of(p).len() > LOG_PREFIX || p.contains('\0') => Err(format!(
                "the prefix of the log has {} bytes or contains NUL; shorten it to {LOG_PREFIX} bytes",
                bytes_of(p).len()
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The row of a selector's key: a value is written by its width and its byte order.
fn key(selector: &Selector) -> Result<Key, String> {
    context::key(selector).ok_or_else(|| {
        format!(
            "the width of {selector:?} is not known to this version; give the expressions (`Statement::Opaque`)"
        )
    })
}

fn matching(m: &Match) -> Result<(), String> {
    let is_name = key(&m.selector)?.data_type == DataType::IFNAME;
    match &m.operand {
        Operand::Value(name) if is_name => padded(name),
        Operand::IfnamePrefix(name) => interface(name.as_bytes()),
        Operand::Anonymous(elements) => {
            let keys = elements.iter().map(|e| e.key.first());
            let mut names = keys.filter(|_| is_name);
            names.try_for_each(padded)?;
            let mut comments = elements.iter().map(|e| e.extra().comment.as_deref());
            comments.try_for_each(|c| comment_of(c, ELEM_COMMENT))
        }
        Operand::Named { set, .. } => name("set", set),
        Operand::Prefix(address, len) if usize::from(*len) > address.0.len() * 8 => Err(format!(
            "the prefix length {len} is longer than the {} bits of its address; lower it",
            address.0.len() * 8
        )),
        _ => Ok(()),
    }
}

/// Checks that a stored value has the width of its destination: the kernel stores only the first bytes of a longer value.
fn source(to: &Selector, from: &Source) -> Result<(), String> {
    let width = key(to)?.len;
    let fits = match from {
        Source::Value(value) => value.0.len() == width as usize,
        // nft gives a mask as many bytes as the load, or as the destination, which may be longer.
        Source::Bitwise {
            selector,
            mask,
            xor,
        } => {
            let lens = [width, key(selector)?.len.min(width)].map(|len| len as usize);
            lens.contains(&mask.0.len()) && mask.0.len() == xor.0.len()
        }
        Source::Map(selector, map) => {
            key(selector)?;
            return name("map", map);
        }
        Source::Selector(from) => key(from).map(|_| true)?,
    };
    match fits {
        true => Ok(()),
        false => Err(format!(
            "a stored value, or its mask, does not have the {width} bytes of its destination; give as many"
        )),
    }
}

/// Checks the family of an address: the kernel reads as many bytes as an address of the family has.
fn family(family: TableFamily, address: IpAddr) -> Result<(), String> {
    let fits = match family {
        TableFamily::Ip => address.is_ipv4(),
        TableFamily::Ip6 => address.is_ipv6(),
        _ => true,
    };
    match fits {
        true => Ok(()),
        false => Err(format!(
            "{address} is no address of the family {family}; give one of its family"
        )),
    }
}
