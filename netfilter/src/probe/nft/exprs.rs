//! One minimal rule for each expression.

use crate::nft::compat::MatchAttrs;
use crate::nft::expr::{DataAttrs, Expr, ExprAttrs, expr};
use crate::nft::{Verdict, linearize, raw};
use weir_netlink::attr::{AttrSet as _, Writer};

const REG: u32 = raw::NFT_REG_1;

fn load(key: u32) -> Expr {
    expr!(Meta { key, dreg: REG })
}

fn value(bytes: &[u8]) -> Expr {
    linearize::immediate(REG, bytes)
}

/// `meta mark & 0xff`
pub(super) fn bitwise() -> Vec<Expr> {
    let e = expr!(Bitwise {
        sreg: REG,
        dreg: REG,
        len: 4,
        mask: DataAttrs::of(&[0, 0, 0, 0xff]),
        xor: DataAttrs::of(&[0; 4]),
    });
    vec![load(raw::NFT_META_MARK), e]
}

pub(super) fn byteorder() -> Vec<Expr> {
    let e = expr!(Byteorder {
        sreg: REG,
        dreg: REG,
        op: raw::NFT_BYTEORDER_HTON,
        len: 4,
        size: 4,
    });
    vec![load(raw::NFT_META_MARK), e]
}

fn equal(bytes: &[u8]) -> Expr {
    expr!(Cmp {
        sreg: REG,
        op: raw::NFT_CMP_EQ,
        data: DataAttrs::of(bytes)
    })
}

/// `meta mark 0`
pub(super) fn cmp() -> Vec<Expr> {
    vec![load(raw::NFT_META_MARK), equal(&[0; 4])]
}

/// `ct count over 1`
pub(super) fn connlimit() -> Vec<Expr> {
    vec![expr!(Connlimit { count: 1 })]
}

pub(super) fn counter() -> Vec<Expr> {
    vec![expr!(Counter {})]
}

pub(super) fn ct_state() -> Vec<Expr> {
    vec![expr!(Ct {
        key: raw::NFT_CT_STATE,
        dreg: REG
    })]
}

/// `ct mark set meta mark`
pub(super) fn ct_mark_set() -> Vec<Expr> {
    let e = expr!(Ct {
        key: raw::NFT_CT_MARK,
        sreg: REG
    });
    vec![load(raw::NFT_META_MARK), e]
}

/// `ct zone set 1`: a number of two bytes in host order.
pub(super) fn ct_zone_set() -> Vec<Expr> {
    let e = expr!(Ct {
        key: raw::NFT_CT_ZONE,
        sreg: REG
    });
    vec![value(&1u16.to_ne_bytes()), e]
}

/// `dup to 127.0.0.1`
pub(super) fn dup() -> Vec<Expr> {
    vec![value(&[127, 0, 0, 1]), expr!(Dup { sreg_addr: REG })]
}

/// `exthdr hbh exists`
pub(super) fn exthdr() -> Vec<Expr> {
    vec![expr!(Exthdr {
        dreg: REG,
        kind: 0,
        offset: 0,
        len: 1,
        flags: raw::NFT_EXTHDR_F_PRESENT,
        op: raw::NFT_EXTHDR_OP_IPV6,
    })]
}

/// `fib daddr type`
pub(super) fn fib() -> Vec<Expr> {
    vec![expr!(Fib {
        flags: raw::NFTA_FIB_F_DADDR,
        result: raw::NFT_FIB_RESULT_ADDRTYPE,
        dreg: REG,
    })]
}

/// `fwd to lo`: the number of the interface, in host order.
pub(super) fn fwd() -> Vec<Expr> {
    vec![value(&1u32.to_ne_bytes()), expr!(Fwd { sreg_dev: REG })]
}

/// `symhash mod 2`
pub(super) fn hash() -> Vec<Expr> {
    vec![expr!(Hash {
        dreg: REG,
        modulus: 2,
        kind: raw::NFT_HASH_SYM
    })]
}

/// `accept`
pub(super) fn immediate() -> Vec<Expr> {
    vec![linearize::immediate_verdict(&Verdict::Accept)]
}

pub(super) fn last() -> Vec<Expr> {
    vec![expr!(Last {})]
}

/// `limit rate 5/second`
pub(super) fn limit() -> Vec<Expr> {
    vec![expr!(Limit {
        rate: 5,
        unit: 1,
        burst: 5
    })]
}

pub(super) fn log() -> Vec<Expr> {
    vec![expr!(Log {
        prefix: "weir".to_owned()
    })]
}

pub(super) fn masq() -> Vec<Expr> {
    vec![expr!(Masq {})]
}

pub(super) fn meta() -> Vec<Expr> {
    vec![load(raw::NFT_META_OIFNAME)]
}

pub(super) fn skuid() -> Vec<Expr> {
    vec![load(raw::NFT_META_SKUID)]
}

/// `meta mark set 1`
pub(super) fn mark_set() -> Vec<Expr> {
    let e = expr!(Meta {
        key: raw::NFT_META_MARK,
        sreg: REG
    });
    vec![value(&[1, 0, 0, 0]), e]
}

/// `dnat ip to 127.0.0.1`
pub(super) fn nat() -> Vec<Expr> {
    let e = expr!(Nat {
        kind: raw::NFT_NAT_DNAT,
        family: u32::from(raw::NFPROTO_IPV4),
        reg_addr_min: REG,
    });
    vec![value(&[127, 0, 0, 1]), e]
}

pub(super) fn notrack() -> Vec<Expr> {
    vec![Expr::Notrack]
}

/// `numgen inc mod 2`
pub(super) fn numgen() -> Vec<Expr> {
    vec![expr!(Numgen {
        dreg: REG,
        modulus: 2,
        kind: raw::NFT_NG_INCREMENTAL
    })]
}

/// `osf name`
pub(super) fn osf() -> Vec<Expr> {
    vec![expr!(Osf { dreg: REG, ttl: 0 })]
}

/// `@th,16,16`
pub(super) fn payload() -> Vec<Expr> {
    vec![expr!(Payload {
        dreg: REG,
        base: raw::NFT_PAYLOAD_TRANSPORT_HEADER,
        offset: 2,
        len: 2,
    })]
}

/// `quota 1 bytes`
pub(super) fn quota() -> Vec<Expr> {
    vec![expr!(Quota { bytes: 1 })]
}

/// `meta mark != 1-9`
pub(super) fn range() -> Vec<Expr> {
    let e = expr!(Range {
        sreg: REG,
        op: raw::NFT_RANGE_NEQ,
        from: DataAttrs::of(&[0, 0, 0, 1]),
        to: DataAttrs::of(&[0, 0, 0, 9]),
    });
    vec![load(raw::NFT_META_MARK), e]
}

/// `redirect to :15001`
pub(super) fn redir() -> Vec<Expr> {
    let e = expr!(Redir {
        reg_proto_min: REG,
        flags: raw::NF_NAT_RANGE_PROTO_SPECIFIED,
    });
    vec![value(&15001u16.to_be_bytes()), e]
}

/// `reject with icmpx`
pub(super) fn reject() -> Vec<Expr> {
    vec![expr!(Reject {
        kind: raw::NFT_REJECT_ICMPX_UNREACH,
        icmp_code: raw::NFT_REJECT_ICMPX_PORT_UNREACH,
    })]
}

/// `rt ip nexthop`
pub(super) fn rt() -> Vec<Expr> {
    vec![expr!(Rt {
        dreg: REG,
        key: raw::NFT_RT_NEXTHOP4
    })]
}

/// `socket transparent`
pub(super) fn socket() -> Vec<Expr> {
    vec![expr!(Socket {
        key: raw::NFT_SOCKET_TRANSPARENT,
        dreg: REG
    })]
}

/// `synproxy mss 1460 wscale 7`
pub(super) fn synproxy() -> Vec<Expr> {
    vec![expr!(Synproxy {
        mss: 1460,
        wscale: 7,
        flags: 0
    })]
}

/// `ipsec in reqid`
pub(super) fn xfrm() -> Vec<Expr> {
    vec![expr!(Xfrm {
        dreg: REG,
        key: raw::NFT_XFRM_KEY_REQID,
        dir: 0,
        spnum: 0
    })]
}

/// `meta l4proto tcp tproxy to :15006`: for both families.
pub(super) fn tproxy() -> Vec<Expr> {
    vec![
        load(raw::NFT_META_L4PROTO),
        equal(&[raw::IPPROTO_TCP]),
        value(&15006u16.to_be_bytes()),
        expr!(Tproxy {
            family: u32::from(raw::NFPROTO_UNSPEC),
            reg_port: REG
        }),
    ]
}

/// `queue to 0`: not used by weir, but operators ask for it.
pub(super) fn queue() -> Vec<Expr> {
    vec![expr!(Queue { num: 0 })]
}

/// What iptables-nft writes for `-m comment`.
pub(super) fn xt_match() -> Vec<Expr> {
    /// `sizeof(struct xt_comment_info)`
    const INFO: [u8; 256] = [0; 256];
    let mut w = Writer::new();
    let attrs = MatchAttrs {
        name: Some("comment".to_owned()),
        revision: Some(0),
        info: Some(INFO.to_vec()),
        ..MatchAttrs::default()
    };
    attrs.encode(&mut w);
    vec![Expr::Opaque(ExprAttrs {
        name: Some("match".to_owned()),
        data: w.finish().ok(),
        ..ExprAttrs::default()
    })]
}
