//! One statement.

use super::numbers;
use super::object;
use super::selector::{ct, meta, selector};
use super::value::{address, bound, element, hex, value};
use crate::nft::compat::Compat;
use crate::nft::context::{Context, is_host_order};
use crate::nft::expr::Expr;
use crate::nft::headers::Field;
use crate::nft::model::{
    CmpOp, Data, DataType, ElementKey, Limit, LimitUnit, Log, Match, Nat, NatKind, Operand, Reject,
    Selector, Source, Statement, TableFamily, Tproxy,
};
use crate::nft::raw;
use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// A statement in a table of `family`, given what is known about the packet.
pub(super) fn statement(s: &Statement, family: TableFamily, context: Context) -> String {
    match s {
        Statement::Match(m) => matching(m, context),
        Statement::Counter(c) => format!("counter packets {} bytes {}", c.packets, c.bytes),
        Statement::Verdict(v) => v.to_string(),
        Statement::Vmap(s, set) => format!("{} vmap @{set}", selector(s, context)),
        Statement::MetaSet(key, s) => {
            let target = Selector::Meta(*key);
            format!("{} set {}", meta(*key), source(s, &target, context))
        }
        Statement::CtSet(key, direction, s) => {
            let target = Selector::Ct(*key, *direction);
            format!(
                "{} set {}",
                ct(*key, *direction),
                source(s, &target, context)
            )
        }
        Statement::Redirect(r) => format!(
            "redirect{}{}",
            to_ports(r.ports.as_ref()),
            nat_flags(r.flags)
        ),
        Statement::Masquerade(m) => {
            format!(
                "masquerade{}{}",
                to_ports(m.ports.as_ref()),
                nat_flags(m.flags)
            )
        }
        Statement::Nat(n) => nat(n, family),
        Statement::Tproxy(t) => tproxy(t, family),
        Statement::Notrack => "notrack".to_owned(),
        Statement::Log(l) => log(l),
        Statement::Limit(l) => limit(l),
        Statement::Reject(r) => reject(*r, family, context),
        Statement::Opaque(exprs) => {
            let texts: Vec<String> = exprs.iter().map(|e| opaque(e, family)).collect();
            texts.join(" ")
        }
    }
}

/// A match or target of xtables, or an expression of which only name and bytes are known.
fn opaque(e: &Expr, family: TableFamily) -> String {
    if let Some(compat) = Compat::read(e, family) {
        return compat.to_string();
    }
    if let (Expr::Opaque(a), "objref") = (e, e.name())
        && let Some(text) = object::reference(a.data.as_deref().unwrap_or_default())
    {
        return text;
    }
    match e {
        Expr::Opaque(a) => format!(
            "opaque({} {})",
            e.name(),
            hex(a.data.as_deref().unwrap_or_default())
        ),
        e => format!("opaque({e:?})"),
    }
}

fn typed(d: &Data, s: &Selector, context: Context) -> String {
    typed_as(d, s, context, value)
}

fn typed_as(
    d: &Data,
    s: &Selector,
    context: Context,
    value: fn(&Data, DataType, bool) -> String,
) -> String {
    if matches!(s, Selector::Payload { .. }) && context.field(s).is_none() {
        return hex_number(d);
    }
    value(d, context.data_type(s), is_host_order(s))
}

/// A number in hexadecimal without leading zeros, for an unnamed field.
fn hex_number(d: &Data) -> String {
    d.to_be().map_or_else(|| hex(&d.0), |n| format!("0x{n:x}"))
}

/// A comparison of some bits of the loaded bytes that have a name: the values are those of the field.
fn of_bits(m: &Match, field: &Field, right: u32) -> Option<String> {
    let shifted = |d: &Data| Some(Data::from((d.to_be()? >> right).to_be_bytes().as_slice()));
    let v = |d: &Data| Some(value(&shifted(d)?, field.data_type, false));
    let end = |d: &Data| Some(bound(&shifted(d)?, field.data_type, false));
    let left = format!("{} {} {}", field.header, field.name, op(m.op, ""));
    Some(match &m.operand {
        Operand::Value(d) => left + &v(d)?,
        Operand::Range(first, last) => format!("{left}{}-{}", end(first)?, end(last)?),
        Operand::Anonymous(elements) => {
            let texts: Option<Vec<String>> = elements
                .iter()
                .map(|e| match &e.key {
                    ElementKey::Value(d) => v(d),
                    ElementKey::Range(ends) => Some(format!("{}-{}", end(&ends.0)?, end(&ends.1)?)),
                })
                .collect();
            format!("{left}{{ {} }}", texts?.join(", "))
        }
        Operand::Named { set, .. } => format!("{left}@{set}"),
        _ => return None,
    })
}

fn matching(m: &Match, context: Context) -> String {
    let bits = m
        .mask
        .as_ref()
        .and_then(|mask| context.masked(&m.selector, mask));
    if let Some(text) = bits.and_then(|(field, right)| of_bits(m, field, right)) {
        return text;
    }
    let left = selector(&m.selector, context);
    let v = |d: &Data| typed(d, &m.selector, context);
    let data_type = context.data_type(&m.selector);
    let mut eq = "";
    let left = match &m.mask {
        Some(mask) if data_type == DataType::TCP_FLAG => {
            if let Operand::Value(d) = &m.operand {
                return format!("{left} {}{} / {}", op(m.op, ""), v(d), v(mask));
            }
            Cow::Owned(format!("{left} & {}", v(mask)))
        }
        Some(mask) => {
            eq = "== ";
            Cow::Owned(format!("{left} & {}", v(mask)))
        }
        None => left,
    };
    let op = op(m.op, eq);
    match &m.operand {
        Operand::Value(d) => format!("{left} {op}{}", v(d)),
        Operand::Prefix(d, len) => format!("{left} {op}{}/{len}", v(d)),
        Operand::IfnamePrefix(name) => format!("{left} {op}\"{name}*\""),
        Operand::Range(first, last) => {
            let v = |d: &Data| typed_as(d, &m.selector, context, bound);
            format!("{left} {op}{}-{}", v(first), v(last))
        }
        Operand::AnyBit(d) if m.op == CmpOp::Neq => format!("{left} ! {}", v(d)),
        Operand::AnyBit(d) => format!("{left} {}", v(d)),
        Operand::Anonymous(elements) => {
            let host_order = is_host_order(&m.selector);
            let texts: Vec<String> = elements
                .iter()
                .map(|e| element(e, data_type, host_order, None))
                .collect();
            format!("{left} {op}{{ {} }}", texts.join(", "))
        }
        Operand::Named { set, .. } => format!("{left} {op}@{set}"),
    }
}

fn op(op: CmpOp, eq: &'static str) -> &'static str {
    match op {
        CmpOp::Eq => eq,
        CmpOp::Neq => "!= ",
        CmpOp::Lt => "< ",
        CmpOp::Lte => "<= ",
        CmpOp::Gt => "> ",
        CmpOp::Gte => ">= ",
    }
}

/// The value that is stored into `target`, whose type it has.
fn source(s: &Source, target: &Selector, context: Context) -> String {
    match s {
        Source::Value(d) => typed(d, target, context),
        Source::Selector(s) => selector(s, context).into_owned(),
        Source::Map(s, map) => format!("{} map @{map}", selector(s, context)),
        Source::Bitwise {
            selector: s,
            mask,
            xor,
        } => {
            // (value & mask) ^ xor, split into bits that are kept, inverted and set.
            let pairs = || mask.0.iter().zip(&xor.0);
            let or: Vec<u8> = pairs().map(|(m, x)| x & !m).collect();
            let flip: Vec<u8> = pairs().map(|(m, x)| x & m).collect();
            let keep: Vec<u8> = mask.0.iter().zip(&or).map(|(m, o)| m | o).collect();
            let mut text = selector(s, context).into_owned();
            let mut add = |sign: &str, bits: Vec<u8>| {
                text += &format!(" {sign} {}", typed(&bits.into(), s, context));
            };
            if keep.iter().any(|b| *b != 0xff) {
                add("&", keep);
            }
            if flip.iter().any(|b| *b != 0) {
                add("^", flip);
            }
            if or.iter().any(|b| *b != 0) {
                add("|", or);
            }
            text
        }
    }
}

fn ports(p: &RangeInclusive<u16>) -> String {
    if p.start() == p.end() {
        p.start().to_string()
    } else {
        format!("{}-{}", p.start(), p.end())
    }
}

fn to_ports(p: Option<&RangeInclusive<u16>>) -> String {
    p.map_or_else(String::new, |p| format!(" to :{}", ports(p)))
}

fn nat_flags(flags: u32) -> String {
    let names: Vec<&str> = [
        (raw::NF_NAT_RANGE_PROTO_RANDOM, "random"),
        (raw::NF_NAT_RANGE_PROTO_RANDOM_FULLY, "fully-random"),
        (raw::NF_NAT_RANGE_PERSISTENT, "persistent"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (flags & bit != 0).then_some(name))
    .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" {}", names.join(","))
    }
}

fn family_word(of: TableFamily, table: TableFamily) -> &'static str {
    match (table, of) {
        (TableFamily::Inet, TableFamily::Ip) => " ip",
        (TableFamily::Inet, TableFamily::Ip6) => " ip6",
        _ => "",
    }
}

/// An address that may be followed by a port.
fn bracketed(a: IpAddr, port: bool) -> String {
    let text = match a {
        IpAddr::V4(a) => address(&a.octets()),
        IpAddr::V6(a) => address(&a.octets()),
    };
    if port && a.is_ipv6() {
        format!("[{text}]")
    } else {
        text
    }
}

fn nat(n: &Nat, family: TableFamily) -> String {
    let kind = match n.kind {
        NatKind::Snat => "snat",
        NatKind::Dnat => "dnat",
    };
    let has_port = n.ports.is_some();
    let addrs = n.addrs.map_or_else(String::new, |(a, b)| {
        let first = bracketed(a, has_port);
        if a == b {
            first
        } else {
            format!("{first}-{}", bracketed(b, has_port))
        }
    });
    let ports = n
        .ports
        .as_ref()
        .map_or_else(String::new, |p| format!(":{}", ports(p)));
    format!(
        "{kind}{} to {addrs}{ports}{}",
        family_word(n.family, family),
        nat_flags(n.flags)
    )
}

fn tproxy(t: &Tproxy, family: TableFamily) -> String {
    let addr = t
        .addr
        .map_or_else(String::new, |a| bracketed(a, t.port.is_some()));
    let port = t.port.map_or_else(String::new, |p| format!(":{p}"));
    format!("tproxy{} to {addr}{port}", family_word(t.family, family))
}

fn log(l: &Log) -> String {
    let mut text = String::from("log");
    if let Some(prefix) = &l.prefix {
        text += &format!(" prefix \"{prefix}\"");
    }
    if let Some(group) = l.group {
        text += &format!(" group {group}");
        if let Some(n) = l.snaplen {
            text += &format!(" snaplen {n}");
        }
        if let Some(n) = l.qthreshold {
            text += &format!(" queue-threshold {n}");
        }
    }
    if let Some(level) = l.level.filter(|n| *n != 4) {
        let name = numbers::name(numbers::LOG_LEVELS, u64::from(level)).unwrap_or("unknown");
        text += &format!(" level {name}");
    }
    let flags = l.flags.unwrap_or(0);
    if flags & raw::NF_LOG_MASK == raw::NF_LOG_MASK {
        return text + " flags all";
    }
    match (
        flags & raw::NF_LOG_TCPSEQ != 0,
        flags & raw::NF_LOG_TCPOPT != 0,
    ) {
        (true, true) => text += " flags tcp sequence,options",
        (true, false) => text += " flags tcp sequence",
        (false, true) => text += " flags tcp options",
        (false, false) => {}
    }
    for (bit, words) in [
        (raw::NF_LOG_IPOPT, " flags ip options"),
        (raw::NF_LOG_UID, " flags skuid"),
        (raw::NF_LOG_MACDECODE, " flags ether"),
    ] {
        if flags & bit != 0 {
            text += words;
        }
    }
    text
}

/// Bytes in the largest unit that divides them.
pub(super) fn bytes(n: u64) -> String {
    match n {
        n if n != 0 && n % (1 << 20) == 0 => format!("{} mbytes", n >> 20),
        n if n != 0 && n % (1 << 10) == 0 => format!("{} kbytes", n >> 10),
        n => format!("{n} bytes"),
    }
}

pub(super) fn limit(l: &Limit) -> String {
    let over = if l.over { "over " } else { "" };
    let per = match l.per {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        604_800 => "week".to_owned(),
        n => format!("{n}s"),
    };
    match l.unit {
        LimitUnit::Packets if l.burst == 5 => format!("limit rate {over}{}/{per}", l.rate),
        LimitUnit::Packets => {
            format!(
                "limit rate {over}{}/{per} burst {} packets",
                l.rate, l.burst
            )
        }
        LimitUnit::Bytes if l.burst == 0 => format!("limit rate {over}{}/{per}", bytes(l.rate)),
        LimitUnit::Bytes => {
            let burst = bytes(u64::from(l.burst));
            format!("limit rate {over}{}/{per} burst {burst}", bytes(l.rate))
        }
    }
}

fn reject(r: Reject, family: TableFamily, context: Context) -> String {
    let code = |table, n: u8| {
        numbers::name(table, u64::from(n)).map_or_else(|| n.to_string(), str::to_owned)
    };
    let v6 = context.nfproto == Some(raw::NFPROTO_IPV6);
    match r {
        Reject::TcpReset => "reject with tcp reset".to_owned(),
        // The meaning of `reject` alone: in `inet` the icmpx code, in a single family its own code.
        Reject::Icmpx(raw::NFT_REJECT_ICMPX_PORT_UNREACH) => "reject".to_owned(),
        Reject::Icmpx(n) => format!("reject with icmpx {}", code(numbers::ICMPX_CODES, n)),
        Reject::Icmp(3) if family == TableFamily::Ip => "reject".to_owned(),
        Reject::Icmp(4) if family == TableFamily::Ip6 => "reject".to_owned(),
        Reject::Icmp(n) if v6 => format!("reject with icmpv6 {}", code(numbers::ICMPV6_CODES, n)),
        Reject::Icmp(n) => format!("reject with icmp {}", code(numbers::ICMP_CODES, n)),
    }
}
