//! What no message can say as it is: refused before anything is sent, so that nothing is cut to fit.

use super::{Op, Transaction};
use crate::nft::model::{
    Chain, Data, DataType, Match, MetaKey, Operand, Rule, Selector, Set, Statement,
};
use crate::nft::raw;
use std::time::Duration;
use weir_netlink::{Error, Result};

/// An entry of the userdata has one byte for its length, and a text ends with a zero.
const COMMENT: usize = 254;
/// `IFNAMSIZ` of `linux/if.h`, less the zero at the end.
const IFNAME: usize = 15;

/// Every value of every operation fits into its attribute.
///
/// # Errors
/// The first that does not, with its operation and the limit.
pub(super) fn fits(transaction: &Transaction) -> Result<()> {
    for op in &transaction.ops {
        one(op).map_err(|reason| Error::refused("write", op.to_string(), reason))?;
    }
    Ok(())
}

fn one(op: &Op) -> Result<(), String> {
    let (id, named) = match op {
        Op::AddTable(t) => {
            name("table", &t.name)?;
            return comment(t.comment.as_deref());
        }
        Op::AddSet(id, s) => {
            set(s)?;
            elements(s, &s.elements)?;
            (id, &s.name)
        }
        Op::AddElements(id, s, e) | Op::DeleteElements(id, s, e) => {
            elements(s, e)?;
            (id, &s.name)
        }
        Op::AddChain(id, c) => {
            chain(c)?;
            (id, &c.name)
        }
        Op::AddRule(id, c, r, _) => {
            rule(r)?;
            (id, c)
        }
        Op::DeleteTable(id) | Op::ReplaceTable(id, _) => (id, &id.1),
        Op::DeleteSet(id, n)
        | Op::SetPolicy(id, n, _)
        | Op::DeleteChain(id, n)
        | Op::DeleteRule(id, n, ..) => (id, n),
    };
    name("table", &id.1)?;
    name("chain or set", named)
}

fn name(what: &str, name: &str) -> Result<(), String> {
    // With its zero.
    let longest = raw::NFT_NAME_MAXLEN - 1;
    match name.len() {
        1.. if name.len() <= longest && !name.contains('\0') => Ok(()),
        n => Err(format!(
            "the name of a {what} has {n} bytes or a zero in it; give one of 1 to {longest} bytes"
        )),
    }
}

fn comment(text: Option<&str>) -> Result<(), String> {
    match text {
        Some(t) if t.len() > COMMENT || t.contains('\0') => Err(format!(
            "the comment has {} bytes or a zero in it; shorten it to {COMMENT} bytes",
            t.len()
        )),
        _ => Ok(()),
    }
}

fn interface(name: &[u8]) -> Result<(), String> {
    match name.len() {
        1..=IFNAME if !name.contains(&0) => Ok(()),
        n => Err(format!(
            "the name of an interface has {n} bytes or a zero in it; it has 1 to {IFNAME}"
        )),
    }
}

fn chain(c: &Chain) -> Result<(), String> {
    let devices = c.base.iter().flat_map(|b| &b.devices);
    for device in devices {
        interface(device.as_bytes())?;
    }
    comment(c.comment.as_deref())
}

fn set(s: &Set) -> Result<(), String> {
    comment(s.comment.as_deref())?;
    let whole = |t: Duration| t.subsec_nanos().is_multiple_of(1_000_000);
    if !s.timeout.into_iter().chain(s.gc_interval).all(whole) {
        return Err("a time is no number of milliseconds; round it".into());
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
        comment(extra.comment.as_deref())?;
        if extra
            .timeout
            .is_some_and(|t| !t.subsec_nanos().is_multiple_of(1_000_000))
        {
            return Err("the timeout of an element is no number of milliseconds; round it".into());
        }
        if s.key_type == DataType::IFNAME {
            padded(e.key.first())?;
        }
    }
    Ok(())
}

/// A name in the 16 bytes of the register that holds it.
fn padded(name: &Data) -> Result<(), String> {
    let end = name.0.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    match name.0.len() <= IFNAME + 1 && end <= IFNAME {
        true => Ok(()),
        false => interface(name.0.get(..end).unwrap_or_default()),
    }
}

fn rule(r: &Rule) -> Result<(), String> {
    for s in &r.statements {
        let Statement::Match(Match {
            selector: Selector::Meta(key),
            operand,
            ..
        }) = s
        else {
            continue;
        };
        let is_name = matches!(key, MetaKey::Iifname | MetaKey::Oifname);
        match operand {
            Operand::Value(name) if is_name => padded(name)?,
            Operand::IfnamePrefix(name) => interface(name.as_bytes())?,
            _ => {}
        }
    }
    comment(r.comment.as_deref())
}
