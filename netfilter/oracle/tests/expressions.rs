//! Compares the bytes of weir with those of libnftnl, for every expression that weir uses.
// Makes clippy treat helper functions as tests, which clippy.toml exempts from some lints.
#![cfg(test)]

mod common;

use common::{REG_1, cmp, immediate, meta, payload};
use nftnl::{Chain, ProtoFamily, Rule as CRule, Table};
use nftnl_sys::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use weir_netfilter::nft::expr::{self, DataAttrs, Expr, VerdictAttrs};
use weir_netfilter::nft::{
    self, CmpOp, L4Proto, NftOp, Rule, Statement, TableFamily, Transaction, raw,
};
use weir_netfilter_oracle::{Expr as C, message};
use weir_netlink::attr::Attrs;

/// The NEWRULE message of weir in table `inet x`, chain `c`.
fn ours(rule: Rule) -> Vec<u8> {
    let id = (TableFamily::Inet, "x".to_owned());
    let ops = vec![NftOp::AddRule(id, "c".to_owned(), rule, None)];
    let bytes = Transaction::guarded(1, ops).to_bytes().unwrap();
    let mut rest = bytes.as_slice();
    loop {
        let length = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
        if u16::from_ne_bytes(rest[4..6].try_into().unwrap()) == 0x0a00 | raw::NFT_MSG_NEWRULE {
            return rest[..length].to_vec();
        }
        rest = &rest[length..];
    }
}

/// The same message of libnftnl.
fn theirs(exprs: &[C]) -> Vec<u8> {
    let table = Table::new(c"x", ProtoFamily::Inet);
    let chain = Chain::new(c"c", &table);
    let mut rule = CRule::new(&chain);
    for e in exprs {
        rule.add_expr(e);
    }
    message(&rule)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(4)
        .map(|c| c.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n")
        .collect()
}

/// Compares the messages from `struct nfgenmsg` on; the flags and the sequence number depend on the batch.
#[track_caller]
fn same(rule: Rule, exprs: &[C]) {
    let (ours, theirs) = (ours(rule), theirs(exprs));
    assert_eq!(hex(&ours[16..]), hex(&theirs[16..]));
}

fn one(e: Expr) -> Rule {
    Rule {
        statements: vec![Statement::Opaque(vec![e])],
        ..Rule::default()
    }
}

const REG_2: u32 = raw::NFT_REG_2;

fn data(bytes: &[u8]) -> Option<DataAttrs> {
    Some(DataAttrs::of(bytes))
}

/// Each expression with as many attributes as both sides can set, and with numbers that change under a byte swap.
fn pairs() -> Vec<(Expr, C)> {
    let mut pairs = Vec::new();
    macro_rules! pair {
        ($variant:ident { $($field:ident: $value:expr),* $(,)? }, $c:expr) => {
            pairs.push((
                Expr::$variant(expr::$variant { $($field: $value,)* ..Default::default() }),
                $c,
            ));
        };
    }
    pair!(
        Bitwise {
            sreg: Some(REG_1),
            dreg: Some(REG_2),
            op: Some(0),
            len: Some(4),
            mask: data(&[1, 2, 3, 4]),
            xor: data(&[5, 6, 7, 8])
        },
        C::new(c"bitwise")
            .u32(NFTNL_EXPR_BITWISE_SREG, REG_1)
            .u32(NFTNL_EXPR_BITWISE_DREG, REG_2)
            .u32(NFTNL_EXPR_BITWISE_OP, 0)
            .u32(NFTNL_EXPR_BITWISE_LEN, 4)
            .bytes(NFTNL_EXPR_BITWISE_MASK, &[1, 2, 3, 4])
            .bytes(NFTNL_EXPR_BITWISE_XOR, &[5, 6, 7, 8])
    );
    pair!(
        Bitwise {
            sreg: Some(REG_1),
            dreg: Some(REG_2),
            op: Some(1),
            len: Some(4),
            data: data(&8u32.to_ne_bytes())
        },
        C::new(c"bitwise")
            .u32(NFTNL_EXPR_BITWISE_SREG, REG_1)
            .u32(NFTNL_EXPR_BITWISE_DREG, REG_2)
            .u32(NFTNL_EXPR_BITWISE_OP, 1)
            .u32(NFTNL_EXPR_BITWISE_LEN, 4)
            .bytes(NFTNL_EXPR_BITWISE_DATA, &8u32.to_ne_bytes())
    );
    pair!(
        Byteorder {
            sreg: Some(REG_1),
            dreg: Some(REG_2),
            op: Some(1),
            len: Some(4),
            size: Some(2)
        },
        C::new(c"byteorder")
            .u32(NFTNL_EXPR_BYTEORDER_SREG, REG_1)
            .u32(NFTNL_EXPR_BYTEORDER_DREG, REG_2)
            .u32(NFTNL_EXPR_BYTEORDER_OP, 1)
            .u32(NFTNL_EXPR_BYTEORDER_LEN, 4)
            .u32(NFTNL_EXPR_BYTEORDER_SIZE, 2)
    );
    pair!(
        Cmp {
            sreg: Some(REG_1),
            op: Some(raw::NFT_CMP_GTE),
            data: data(&[1, 2])
        },
        C::new(c"cmp")
            .u32(NFTNL_EXPR_CMP_SREG, REG_1)
            .u32(NFTNL_EXPR_CMP_OP, raw::NFT_CMP_GTE)
            .bytes(NFTNL_EXPR_CMP_DATA, &[1, 2])
    );
    pair!(
        Counter {
            bytes: Some(258),
            packets: Some(513)
        },
        C::new(c"counter")
            .u64(NFTNL_EXPR_CTR_BYTES, 258)
            .u64(NFTNL_EXPR_CTR_PACKETS, 513)
    );
    pair!(
        Ct {
            key: Some(raw::NFT_CT_PROTO_DST),
            dreg: Some(REG_1),
            direction: Some(1)
        },
        C::new(c"ct")
            .u32(NFTNL_EXPR_CT_KEY, raw::NFT_CT_PROTO_DST)
            .u32(NFTNL_EXPR_CT_DREG, REG_1)
            .u8(NFTNL_EXPR_CT_DIR, 1)
    );
    pair!(
        Ct {
            key: Some(raw::NFT_CT_MARK),
            sreg: Some(REG_1)
        },
        C::new(c"ct")
            .u32(NFTNL_EXPR_CT_KEY, raw::NFT_CT_MARK)
            .u32(NFTNL_EXPR_CT_SREG, REG_1)
    );
    pair!(
        Fib {
            dreg: Some(REG_1),
            result: Some(3),
            flags: Some(raw::NFTA_FIB_F_DADDR)
        },
        C::new(c"fib")
            .u32(NFTNL_EXPR_FIB_DREG, REG_1)
            .u32(NFTNL_EXPR_FIB_RESULT, 3)
            .u32(NFTNL_EXPR_FIB_FLAGS, raw::NFTA_FIB_F_DADDR)
    );
    pair!(
        Immediate {
            dreg: Some(REG_1),
            data: data(&[1, 2])
        },
        C::new(c"immediate")
            .u32(NFTNL_EXPR_IMM_DREG, REG_1)
            .bytes(NFTNL_EXPR_IMM_DATA, &[1, 2])
    );
    let jump = VerdictAttrs {
        code: Some(raw::NFT_JUMP),
        chain: Some("d".to_owned()),
        ..Default::default()
    };
    pair!(
        Immediate {
            dreg: Some(0),
            data: Some(DataAttrs {
                verdict: Some(jump),
                ..Default::default()
            })
        },
        C::new(c"immediate")
            .u32(NFTNL_EXPR_IMM_DREG, 0)
            .u32(NFTNL_EXPR_IMM_VERDICT, raw::NFT_JUMP.cast_unsigned())
            .text(NFTNL_EXPR_IMM_CHAIN, c"d")
    );
    pair!(
        Limit {
            rate: Some(258),
            unit: Some(60),
            burst: Some(7),
            kind: Some(1),
            flags: Some(1)
        },
        C::new(c"limit")
            .u64(NFTNL_EXPR_LIMIT_RATE, 258)
            .u64(NFTNL_EXPR_LIMIT_UNIT, 60)
            .u32(NFTNL_EXPR_LIMIT_BURST, 7)
            .u32(NFTNL_EXPR_LIMIT_TYPE, 1)
            .u32(NFTNL_EXPR_LIMIT_FLAGS, 1)
    );
    pair!(
        Log {
            prefix: Some("weir ".to_owned()),
            group: Some(258),
            snaplen: Some(513),
            qthreshold: Some(259),
            level: Some(7),
            flags: Some(8)
        },
        C::new(c"log")
            .text(NFTNL_EXPR_LOG_PREFIX, c"weir ")
            .u16(NFTNL_EXPR_LOG_GROUP, 258)
            .u32(NFTNL_EXPR_LOG_SNAPLEN, 513)
            .u16(NFTNL_EXPR_LOG_QTHRESHOLD, 259)
            .u32(NFTNL_EXPR_LOG_LEVEL, 7)
            .u32(NFTNL_EXPR_LOG_FLAGS, 8)
    );
    // A rule of weir numbers its sets from 0, a batch from 1.
    pair!(
        Lookup {
            sreg: Some(REG_1),
            dreg: Some(REG_2),
            set: Some("s".to_owned()),
            set_id: Some(257),
            flags: Some(1)
        },
        C::new(c"lookup")
            .u32(NFTNL_EXPR_LOOKUP_SREG, REG_1)
            .u32(NFTNL_EXPR_LOOKUP_DREG, REG_2)
            .text(NFTNL_EXPR_LOOKUP_SET, c"s")
            .u32(NFTNL_EXPR_LOOKUP_SET_ID, 258)
            .u32(NFTNL_EXPR_LOOKUP_FLAGS, 1)
    );
    pair!(
        Masq {
            flags: Some(4),
            reg_proto_min: Some(REG_1),
            reg_proto_max: Some(REG_2)
        },
        C::new(c"masq")
            .u32(NFTNL_EXPR_MASQ_FLAGS, 4)
            .u32(NFTNL_EXPR_MASQ_REG_PROTO_MIN, REG_1)
            .u32(NFTNL_EXPR_MASQ_REG_PROTO_MAX, REG_2)
    );
    pair!(
        Meta {
            key: Some(raw::NFT_META_SKUID),
            dreg: Some(REG_1)
        },
        C::new(c"meta")
            .u32(NFTNL_EXPR_META_KEY, raw::NFT_META_SKUID)
            .u32(NFTNL_EXPR_META_DREG, REG_1)
    );
    pair!(
        Meta {
            key: Some(raw::NFT_META_MARK),
            sreg: Some(REG_1)
        },
        C::new(c"meta")
            .u32(NFTNL_EXPR_META_KEY, raw::NFT_META_MARK)
            .u32(NFTNL_EXPR_META_SREG, REG_1)
    );
    pair!(
        Nat {
            kind: Some(1),
            family: Some(2),
            reg_addr_min: Some(REG_1),
            reg_addr_max: Some(REG_2),
            reg_proto_min: Some(3),
            reg_proto_max: Some(4),
            flags: Some(6)
        },
        C::new(c"nat")
            .u32(NFTNL_EXPR_NAT_TYPE, 1)
            .u32(NFTNL_EXPR_NAT_FAMILY, 2)
            .u32(NFTNL_EXPR_NAT_REG_ADDR_MIN, REG_1)
            .u32(NFTNL_EXPR_NAT_REG_ADDR_MAX, REG_2)
            .u32(NFTNL_EXPR_NAT_REG_PROTO_MIN, 3)
            .u32(NFTNL_EXPR_NAT_REG_PROTO_MAX, 4)
            .u32(NFTNL_EXPR_NAT_FLAGS, 6)
    );
    pair!(
        Payload {
            dreg: Some(REG_1),
            base: Some(1),
            offset: Some(258),
            len: Some(4)
        },
        C::new(c"payload")
            .u32(NFTNL_EXPR_PAYLOAD_DREG, REG_1)
            .u32(NFTNL_EXPR_PAYLOAD_BASE, 1)
            .u32(NFTNL_EXPR_PAYLOAD_OFFSET, 258)
            .u32(NFTNL_EXPR_PAYLOAD_LEN, 4)
    );
    pair!(
        Payload {
            sreg: Some(REG_1),
            base: Some(1),
            offset: Some(258),
            len: Some(4),
            csum_type: Some(1),
            csum_offset: Some(10),
            csum_flags: Some(1)
        },
        C::new(c"payload")
            .u32(NFTNL_EXPR_PAYLOAD_SREG, REG_1)
            .u32(NFTNL_EXPR_PAYLOAD_BASE, 1)
            .u32(NFTNL_EXPR_PAYLOAD_OFFSET, 258)
            .u32(NFTNL_EXPR_PAYLOAD_LEN, 4)
            .u32(NFTNL_EXPR_PAYLOAD_CSUM_TYPE, 1)
            .u32(NFTNL_EXPR_PAYLOAD_CSUM_OFFSET, 10)
            .u32(NFTNL_EXPR_PAYLOAD_FLAGS, 1)
    );
    pair!(
        Range {
            sreg: Some(REG_1),
            op: Some(1),
            from: data(&[1, 2]),
            to: data(&[3, 4])
        },
        C::new(c"range")
            .u32(NFTNL_EXPR_RANGE_SREG, REG_1)
            .u32(NFTNL_EXPR_RANGE_OP, 1)
            .bytes(NFTNL_EXPR_RANGE_FROM_DATA, &[1, 2])
            .bytes(NFTNL_EXPR_RANGE_TO_DATA, &[3, 4])
    );
    pair!(
        Redir {
            reg_proto_min: Some(REG_1),
            reg_proto_max: Some(REG_2),
            flags: Some(6)
        },
        C::new(c"redir")
            .u32(NFTNL_EXPR_REDIR_REG_PROTO_MIN, REG_1)
            .u32(NFTNL_EXPR_REDIR_REG_PROTO_MAX, REG_2)
            .u32(NFTNL_EXPR_REDIR_FLAGS, 6)
    );
    pair!(
        Reject {
            kind: Some(2),
            icmp_code: Some(3)
        },
        C::new(c"reject")
            .u32(NFTNL_EXPR_REJECT_TYPE, 2)
            .u8(NFTNL_EXPR_REJECT_CODE, 3)
    );
    pair!(
        Socket {
            key: Some(3),
            dreg: Some(REG_1),
            level: Some(258)
        },
        C::new(c"socket")
            .u32(NFTNL_EXPR_SOCKET_KEY, 3)
            .u32(NFTNL_EXPR_SOCKET_DREG, REG_1)
            .u32(NFTNL_EXPR_SOCKET_LEVEL, 258)
    );
    pair!(
        Tproxy {
            family: Some(10),
            reg_addr: Some(REG_1),
            reg_port: Some(REG_2)
        },
        C::new(c"tproxy")
            .u32(NFTNL_EXPR_TPROXY_FAMILY, 10)
            .u32(NFTNL_EXPR_TPROXY_REG_ADDR, REG_1)
            .u32(NFTNL_EXPR_TPROXY_REG_PORT, REG_2)
    );
    pair!(
        Connlimit {
            count: Some(0x0102),
            flags: Some(1)
        },
        C::new(c"connlimit")
            .u32(NFTNL_EXPR_CONNLIMIT_COUNT, 0x0102)
            .u32(NFTNL_EXPR_CONNLIMIT_FLAGS, 1)
    );
    pair!(
        Dup {
            sreg_addr: Some(REG_1),
            sreg_dev: Some(REG_2)
        },
        C::new(c"dup")
            .u32(NFTNL_EXPR_DUP_SREG_ADDR, REG_1)
            .u32(NFTNL_EXPR_DUP_SREG_DEV, REG_2)
    );
    pair!(
        Dynset {
            set: Some("s".to_owned()),
            op: Some(1),
            sreg_key: Some(REG_1),
            sreg_data: Some(REG_2),
            timeout: Some(0x0102_0304),
            flags: Some(1)
        },
        C::new(c"dynset")
            .text(NFTNL_EXPR_DYNSET_SET_NAME, c"s")
            .u32(NFTNL_EXPR_DYNSET_OP, 1)
            .u32(NFTNL_EXPR_DYNSET_SREG_KEY, REG_1)
            .u32(NFTNL_EXPR_DYNSET_SREG_DATA, REG_2)
            .u64(NFTNL_EXPR_DYNSET_TIMEOUT, 0x0102_0304)
            .u32(NFTNL_EXPR_DYNSET_FLAGS, 1)
    );
    pair!(
        Exthdr {
            dreg: Some(REG_1),
            kind: Some(43),
            offset: Some(2),
            len: Some(1),
            flags: Some(1),
            op: Some(1)
        },
        C::new(c"exthdr")
            .u32(NFTNL_EXPR_EXTHDR_DREG, REG_1)
            .u8(NFTNL_EXPR_EXTHDR_TYPE, 43)
            .u32(NFTNL_EXPR_EXTHDR_OFFSET, 2)
            .u32(NFTNL_EXPR_EXTHDR_LEN, 1)
            .u32(NFTNL_EXPR_EXTHDR_FLAGS, 1)
            .u32(NFTNL_EXPR_EXTHDR_OP, 1)
    );
    pair!(
        FlowOffload {
            table: Some("f".to_owned())
        },
        C::new(c"flow_offload").text(NFTNL_EXPR_FLOW_TABLE_NAME, c"f")
    );
    pair!(
        Fwd {
            sreg_dev: Some(REG_1),
            sreg_addr: Some(REG_2),
            nfproto: Some(2)
        },
        C::new(c"fwd")
            .u32(NFTNL_EXPR_FWD_SREG_DEV, REG_1)
            .u32(NFTNL_EXPR_FWD_SREG_ADDR, REG_2)
            .u32(NFTNL_EXPR_FWD_NFPROTO, 2)
    );
    pair!(
        Hash {
            sreg: Some(REG_1),
            dreg: Some(REG_2),
            len: Some(4),
            modulus: Some(0x0102),
            seed: Some(0x0304),
            offset: Some(0x0506),
            kind: Some(0)
        },
        C::new(c"hash")
            .u32(NFTNL_EXPR_HASH_SREG, REG_1)
            .u32(NFTNL_EXPR_HASH_DREG, REG_2)
            .u32(NFTNL_EXPR_HASH_LEN, 4)
            .u32(NFTNL_EXPR_HASH_MODULUS, 0x0102)
            .u32(NFTNL_EXPR_HASH_SEED, 0x0304)
            .u32(NFTNL_EXPR_HASH_OFFSET, 0x0506)
            .u32(NFTNL_EXPR_HASH_TYPE, 0)
    );
    pair!(
        Numgen {
            dreg: Some(REG_1),
            modulus: Some(0x0102),
            kind: Some(1),
            offset: Some(0x0304)
        },
        C::new(c"numgen")
            .u32(NFTNL_EXPR_NG_DREG, REG_1)
            .u32(NFTNL_EXPR_NG_MODULUS, 0x0102)
            .u32(NFTNL_EXPR_NG_TYPE, 1)
            .u32(NFTNL_EXPR_NG_OFFSET, 0x0304)
    );
    pair!(
        Objref {
            kind: Some(1),
            name: Some("o".to_owned())
        },
        C::new(c"objref")
            .u32(NFTNL_EXPR_OBJREF_IMM_TYPE, 1)
            .text(NFTNL_EXPR_OBJREF_IMM_NAME, c"o")
    );
    pair!(
        Osf {
            dreg: Some(REG_1),
            ttl: Some(2),
            flags: Some(1)
        },
        C::new(c"osf")
            .u32(NFTNL_EXPR_OSF_DREG, REG_1)
            .u8(NFTNL_EXPR_OSF_TTL, 2)
            .u32(NFTNL_EXPR_OSF_FLAGS, 1)
    );
    pair!(
        Queue {
            num: Some(0x0102),
            total: Some(0x0304),
            flags: Some(2)
        },
        C::new(c"queue")
            .u16(NFTNL_EXPR_QUEUE_NUM, 0x0102)
            .u16(NFTNL_EXPR_QUEUE_TOTAL, 0x0304)
            .u16(NFTNL_EXPR_QUEUE_FLAGS, 2)
    );
    pair!(
        Quota {
            bytes: Some(0x0102_0304_0506),
            flags: Some(1),
            consumed: Some(0x0708)
        },
        C::new(c"quota")
            .u64(NFTNL_EXPR_QUOTA_BYTES, 0x0102_0304_0506)
            .u32(NFTNL_EXPR_QUOTA_FLAGS, 1)
            .u64(NFTNL_EXPR_QUOTA_CONSUMED, 0x0708)
    );
    pair!(
        Rt {
            dreg: Some(REG_1),
            key: Some(1)
        },
        C::new(c"rt")
            .u32(NFTNL_EXPR_RT_DREG, REG_1)
            .u32(NFTNL_EXPR_RT_KEY, 1)
    );
    pair!(
        Synproxy {
            mss: Some(1460),
            wscale: Some(7),
            flags: Some(3)
        },
        C::new(c"synproxy")
            .u16(NFTNL_EXPR_SYNPROXY_MSS, 1460)
            .u8(NFTNL_EXPR_SYNPROXY_WSCALE, 7)
            .u32(NFTNL_EXPR_SYNPROXY_FLAGS, 3)
    );
    pair!(
        Xfrm {
            dreg: Some(REG_1),
            key: Some(5),
            dir: Some(1),
            spnum: Some(2)
        },
        C::new(c"xfrm")
            .u32(NFTNL_EXPR_XFRM_DREG, REG_1)
            .u32(NFTNL_EXPR_XFRM_KEY, 5)
            .u8(NFTNL_EXPR_XFRM_DIR, 1)
            .u32(NFTNL_EXPR_XFRM_SPNUM, 2)
    );
    pairs.push((Expr::Notrack, C::new(c"notrack")));
    pairs
}

/// Expressions that the version of libnftnl of the binding lacks.
const NEWER: [&str; 1] = ["last"];

/// Expressions whose attributes libnftnl writes in another order, or with a name without NUL; the kernel accepts both.
const OTHERWISE: [&str; 6] = ["dynset", "exthdr", "objref", "quota", "rt", "xfrm"];

/// The attributes of the only expression of a message, by number, without the differences of [`OTHERWISE`].
fn attributes(message: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let inside = |bytes: &[u8], number: u16| -> Vec<u8> {
        let mut all = Attrs::new(bytes).map(Result::unwrap);
        let found = all.find(|attr| attr.number == number).unwrap();
        found.payload.to_vec()
    };
    let attrs = message[20..].to_vec();
    // NFTA_RULE_EXPRESSIONS, NFTA_LIST_ELEM, NFTA_EXPR_DATA
    let data = [4, 1, 2]
        .into_iter()
        .fold(attrs, |bytes, n| inside(&bytes, n));
    let all = Attrs::new(&data).map(Result::unwrap);
    all.map(|attr| {
        let value = attr
            .payload
            .strip_suffix(&[0])
            .filter(|text| text.is_ascii());
        (attr.number, value.unwrap_or(attr.payload).to_vec())
    })
    .collect()
}

#[test]
fn every_expression_is_written_alike() {
    let mut missing: BTreeSet<&str> = Expr::KNOWN.iter().copied().collect();
    missing.retain(|name| !NEWER.contains(name));
    for (e, c) in pairs() {
        missing.remove(e.name());
        if OTHERWISE.contains(&e.name()) {
            let (ours, theirs) = (ours(one(e)), theirs(&[c]));
            assert_ne!(hex(&ours[16..]), hex(&theirs[16..]), "no exception");
            assert_eq!(attributes(&ours), attributes(&theirs));
        } else {
            same(one(e), &[c]);
        }
    }
    assert!(missing.is_empty(), "not compared: {missing:?}");
}

#[test]
fn a_redirect_of_one_port() {
    let rule = nft::Rule::builder()
        .dport(L4Proto::Tcp, CmpOp::Eq, 80..=80)
        .redirect(15001)
        .build();
    same(
        rule,
        &[
            meta(raw::NFT_META_L4PROTO),
            cmp(raw::NFT_CMP_EQ, &[6]),
            payload(raw::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2),
            cmp(raw::NFT_CMP_EQ, &80u16.to_be_bytes()),
            immediate(&15001u16.to_be_bytes()),
            C::new(c"redir")
                .u32(NFTNL_EXPR_REDIR_REG_PROTO_MIN, REG_1)
                .u32(NFTNL_EXPR_REDIR_FLAGS, raw::NF_NAT_RANGE_PROTO_SPECIFIED),
        ],
    );
}

#[test]
fn traffic_of_the_proxy_is_left_alone() {
    let rule = nft::Rule::builder()
        .oifname(CmpOp::Eq, "lo")
        .daddr(CmpOp::Neq, "127.0.0.1/32".parse().unwrap())
        .skuid(CmpOp::Eq, 1337..=1337)
        .counter()
        .verdict(nft::Verdict::Return);
    let mut name = b"lo".to_vec();
    name.resize(16, 0);
    same(
        rule,
        &[
            meta(raw::NFT_META_OIFNAME),
            cmp(raw::NFT_CMP_EQ, &name),
            meta(raw::NFT_META_NFPROTO),
            cmp(raw::NFT_CMP_EQ, &[2]),
            payload(raw::NFT_PAYLOAD_NETWORK_HEADER, 16, 4),
            cmp(raw::NFT_CMP_NEQ, &[127, 0, 0, 1]),
            meta(raw::NFT_META_SKUID),
            cmp(raw::NFT_CMP_EQ, &1337u32.to_ne_bytes()),
            C::new(c"counter"),
            C::new(c"immediate")
                .u32(NFTNL_EXPR_IMM_DREG, 0)
                .u32(NFTNL_EXPR_IMM_VERDICT, raw::NFT_RETURN.cast_unsigned()),
        ],
    );
}

#[test]
fn the_wrappers_of_the_crate_agree_too() {
    let table = Table::new(c"x", ProtoFamily::Inet);
    let chain = Chain::new(c"c", &table);
    let mut rule = CRule::new(&chain);
    rule.add_expr(&nftnl::nft_expr!(meta mark));
    rule.add_expr(&nftnl::nft_expr!(cmp == 0x0102_0304u32));
    rule.add_expr(&nftnl::nft_expr!(immediate data 0x0506_0708u32));
    rule.add_expr(&nftnl::nft_expr!(ct mark set));
    let ours = ours(
        nft::Rule::builder()
            .mark(CmpOp::Eq, 0x0102_0304)
            .push(Statement::CtSet(
                nft::CtKey::Mark,
                None,
                nft::Source::Value(nft::Data::ne32(0x0506_0708)),
            ))
            .build(),
    );
    assert_eq!(hex(&ours[16..]), hex(&message(&rule)[16..]));
}

#[test]
fn a_comment_is_the_same_userdata() {
    let comment: &CStr = c"weir:inbound";
    let table = Table::new(c"x", ProtoFamily::Inet);
    let chain = Chain::new(c"c", &table);
    let mut rule = CRule::new(&chain);
    rule.set_comment(comment).unwrap();
    let theirs = message(&rule);
    let text = comment.to_str().unwrap().to_owned();
    let ours = ours(Rule {
        comment: Some(text),
        ..Rule::default()
    });
    // The whole attribute is compared: libnftnl writes it before the (empty) list of expressions, nft after it.
    let userdata = &theirs[36..];
    assert_eq!(u16::from_ne_bytes(userdata[2..4].try_into().unwrap()), 7);
    assert!(
        hex(&ours).contains(&hex(&userdata[..userdata[0].next_multiple_of(4) as usize])),
        "{}",
        hex(&ours)
    );
}
