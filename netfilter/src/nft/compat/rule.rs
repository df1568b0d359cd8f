//! Converts a whole rule of `iptables-nft` to the equivalent rule of a legacy table.

use super::{Compat, legacy};
use crate::nft::expr::Expr;
use crate::nft::model::{
    CmpOp, Data, Match, MetaKey, Operand, PayloadBase, Rule, Selector, Statement, TableFamily,
    Verdict,
};
use crate::xtables::{self, Interface, Mark, Not, Protocol, Target};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Converts a rule of `iptables-nft` to the legacy rule with the same options.
///
/// Interfaces, protocol, addresses, the packet's mark, `match` and `target` expressions, counters (without their values)
/// and verdicts are supported. `None` if the conversion is uncertain: an expression that `iptables-nft` does not use for
/// such options, a condition that occurs twice, a family without legacy tables.
#[must_use]
pub fn legacy_rule(rule: &Rule, family: TableFamily) -> Option<xtables::Rule> {
    legacy(family)?;
    if rule.comment.is_some() || rule.chain.is_some() {
        return None;
    }
    let mut made = xtables::Rule::default();
    for statement in &rule.statements {
        // The target or verdict must be the last statement.
        if made.target.is_some() {
            return None;
        }
        match statement {
            Statement::Counter(_) => {}
            Statement::Match(m) => condition(&mut made, m, family)?,
            Statement::Verdict(verdict) => made.target = Some(target(verdict)?),
            Statement::Opaque(exprs) => exprs
                .iter()
                .try_for_each(|e| extension(&mut made, e, family))?,
            _ => return None,
        }
    }
    Some(made)
}

fn extension(made: &mut xtables::Rule, expr: &Expr, family: TableFamily) -> Option<()> {
    match Compat::read(expr, family)? {
        Compat::Match(m) => made.matches.push(m),
        Compat::Target(t) if made.target.is_none() => made.target = Some(t),
        Compat::Target(_) => return None,
    }
    Some(())
}

fn target(verdict: &Verdict) -> Option<Target> {
    Some(match verdict {
        Verdict::Accept => Target::Accept,
        Verdict::Drop => Target::Drop,
        Verdict::Return => Target::Return,
        Verdict::Jump(chain) => Target::Jump(chain.clone()),
        Verdict::Goto(chain) => Target::Goto(chain.clone()),
        Verdict::Continue | Verdict::Other(_) => return None,
    })
}

fn condition(made: &mut xtables::Rule, m: &Match, family: TableFamily) -> Option<()> {
    let not = match m.op {
        CmpOp::Eq => Not(false),
        CmpOp::Neq => Not(true),
        _ => return None,
    };
    if m.mask.is_some() {
        return None;
    }
    match &m.selector {
        Selector::Meta(MetaKey::Iifname) => {
            once(&mut made.in_interface, (not, interface(&m.operand)?))
        }
        Selector::Meta(MetaKey::Oifname) => {
            once(&mut made.out_interface, (not, interface(&m.operand)?))
        }
        Selector::Meta(MetaKey::L4proto) => {
            let Operand::Value(value) = &m.operand else {
                return None;
            };
            let number = u8::try_from(value.to_be()?).ok()?;
            once(&mut made.protocol, (not, Protocol(number)))
        }
        Selector::Meta(MetaKey::Mark) => {
            let Operand::Value(value) = &m.operand else {
                return None;
            };
            made.matches.push(xtables::Match::Mark(Mark {
                not,
                value: value.to_ne32()?,
                mask: u32::MAX,
            }));
            Some(())
        }
        Selector::Payload {
            base: PayloadBase::Network,
            offset,
            ..
        } => {
            let net = network(&m.operand, family)?;
            match (family, *offset) {
                (TableFamily::Ip, 12) | (TableFamily::Ip6, 8) => {
                    once(&mut made.source, (not, net.into()))
                }
                (TableFamily::Ip, 16) | (TableFamily::Ip6, 24) => {
                    once(&mut made.destination, (not, net.into()))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn interface(operand: &Operand) -> Option<Interface> {
    match operand {
        Operand::IfnamePrefix(prefix) => Some(Interface::Prefix(prefix.clone())),
        Operand::Value(Data(bytes)) => {
            let name = bytes.split(|b| *b == 0).next()?;
            Some(Interface::Name(std::str::from_utf8(name).ok()?.to_owned()))
        }
        _ => None,
    }
}

fn network(operand: &Operand, family: TableFamily) -> Option<IpNet> {
    let (Data(bytes), len) = match operand {
        Operand::Value(data) => (data, None),
        Operand::Prefix(data, len) => (data, Some(*len)),
        _ => return None,
    };
    if family == TableFamily::Ip {
        let bytes: [u8; 4] = bytes.as_slice().try_into().ok()?;
        return Ipv4Net::new(Ipv4Addr::from(bytes), len.unwrap_or(32))
            .ok()
            .map(IpNet::V4);
    }
    let bytes: [u8; 16] = bytes.as_slice().try_into().ok()?;
    Ipv6Net::new(Ipv6Addr::from(bytes), len.unwrap_or(128))
        .ok()
        .map(IpNet::V6)
}
