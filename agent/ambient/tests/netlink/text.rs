//! Expressions as weir has them, in the notation of libnftnl.

use std::fmt::Write as _;
use weir_netfilter::nft::expr::{DataAttrs, Expr};
use weir_netfilter::nft::raw;

/// The bytes of a value as 32-bit numbers in host byte order.
fn value(data: &Option<DataAttrs>) -> String {
    let bytes = data
        .as_ref()
        .and_then(|d| d.value.as_deref())
        .expect("a value");
    let words = bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        format!("{:#010x}", u32::from_ne_bytes(word))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn name(names: &[(u32, &str)], number: Option<u32>) -> String {
    let found = names.iter().find(|(n, _)| Some(*n) == number);
    found.map_or_else(|| format!("{number:?}"), |(_, name)| (*name).to_owned())
}

const META: &[(u32, &str)] = &[
    (raw::NFT_META_MARK, "mark"),
    (raw::NFT_META_IIFNAME, "iifname"),
    (raw::NFT_META_OIFNAME, "oifname"),
    (raw::NFT_META_SKUID, "skuid"),
    (raw::NFT_META_NFPROTO, "nfproto"),
    (raw::NFT_META_L4PROTO, "l4proto"),
];
const CT: &[(u32, &str)] = &[(raw::NFT_CT_MARK, "mark"), (raw::NFT_CT_ZONE, "zone")];
const OPERATORS: &[(u32, &str)] = &[(raw::NFT_CMP_EQ, "eq"), (raw::NFT_CMP_NEQ, "neq")];
const HEADERS: &[(u32, &str)] = &[
    (raw::NFT_PAYLOAD_NETWORK_HEADER, "network"),
    (raw::NFT_PAYLOAD_TRANSPORT_HEADER, "transport"),
];

/// `KIND load KEY => reg N`, or `KIND set KEY with reg N`
fn load_or_set(kind: &str, key: &str, to: Option<u32>, from: Option<u32>) -> String {
    match (to, from) {
        (Some(to), None) => format!("{kind} load {key} => reg {to}"),
        (None, Some(from)) => format!("{kind} set {key} with reg {from}"),
        other => panic!("{kind} {key}: {other:?}"),
    }
}

/// An expression in the notation of libnftnl. Expressions that no rule contains are printed in a form that equals nothing.
pub(super) fn text(expr: &Expr) -> String {
    let number = |n: Option<u32>| n.expect("a number");
    match expr {
        Expr::Meta(x) => load_or_set("meta", &name(META, x.key), x.dreg, x.sreg),
        Expr::Ct(x) => load_or_set("ct", &name(CT, x.key), x.dreg, x.sreg),
        Expr::Cmp(x) => {
            let operator = name(OPERATORS, x.op);
            format!("cmp {operator} reg {} {}", number(x.sreg), value(&x.data))
        }
        Expr::Payload(x) => format!(
            "payload load {}b @ {} header + {} => reg {}",
            number(x.len),
            name(HEADERS, x.base),
            number(x.offset),
            number(x.dreg)
        ),
        Expr::Bitwise(x) => format!(
            "bitwise reg {} = ( reg {} & {} ) ^ {}",
            number(x.dreg),
            number(x.sreg),
            value(&x.mask),
            value(&x.xor)
        ),
        Expr::Counter(x) => format!(
            "counter pkts {} bytes {}",
            x.packets.unwrap_or(0),
            x.bytes.unwrap_or(0)
        ),
        Expr::Lookup(x) => {
            let set = x.set.as_deref().expect("a set");
            format!("lookup reg {} set {set}", number(x.sreg))
        }
        Expr::Immediate(x) => {
            let mut text = format!("immediate reg {} ", number(x.dreg));
            let verdict = x.data.as_ref().and_then(|data| data.verdict.as_ref());
            match verdict.map(|v| (v.code, v.chain.as_deref())) {
                None => text += &value(&x.data),
                Some((Some(raw::NF_ACCEPT), None)) => text += "accept",
                Some((Some(raw::NFT_RETURN), None)) => text += "return",
                Some((Some(raw::NFT_JUMP), Some(to))) => write!(text, "jump -> {to}").unwrap(),
                Some(other) => panic!("{other:?}"),
            }
            text
        }
        Expr::Redir(x) if x.reg_proto_max.is_none() => format!(
            "redir proto_min reg {} flags {:#x}",
            number(x.reg_proto_min),
            x.flags.unwrap_or(0)
        ),
        Expr::Nat(x) if (x.reg_addr_max, x.reg_proto_min, x.flags) == (None, None, None) => {
            let kinds = [(raw::NFT_NAT_SNAT, "snat"), (raw::NFT_NAT_DNAT, "dnat")];
            let families = [
                (raw::NFPROTO_IPV4.into(), "ip"),
                (raw::NFPROTO_IPV6.into(), "ip6"),
            ];
            let (kind, family) = (name(&kinds, x.kind), name(&families, x.family));
            format!(
                "nat {kind} {family} addr_min reg {}",
                number(x.reg_addr_min)
            )
        }
        other => format!("{other:?}"),
    }
}
