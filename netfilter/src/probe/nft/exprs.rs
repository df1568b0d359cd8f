//! One minimal rule for each expression.

use crate::nft::expr::{
    Bitwise, Byteorder, Cmp, Connlimit, Counter, Ct, DataAttrs, Dup, Expr, ExprAttrs, Exthdr, Fib,
    Fwd, Hash, Immediate, Last, Limit, Log, Masq, Meta, Nat, Numgen, Osf, Payload, Quota, Range,
    Redir, Reject, Rt, Socket, Synproxy, Tproxy, VerdictAttrs, Xfrm,
};
use crate::nft::raw;
use weir_netlink::attr::Writer;

const REG: Option<u32> = Some(raw::NFT_REG_1);

fn load(key: u32) -> Expr {
    Expr::Meta(Meta {
        key: Some(key),
        dreg: REG,
        ..Meta::default()
    })
}

fn value(bytes: &[u8]) -> Expr {
    let data = Some(DataAttrs::of(bytes));
    Expr::Immediate(Immediate {
        dreg: REG,
        data,
        ..Immediate::default()
    })
}

/// Attributes of an expression that has no declaration.
pub(super) fn opaque(name: &str, attrs: impl FnOnce(&mut Writer)) -> Expr {
    let mut w = Writer::new();
    attrs(&mut w);
    let (name, data) = (Some(name.to_owned()), w.finish().ok());
    Expr::Opaque(ExprAttrs {
        name,
        data,
        ..ExprAttrs::default()
    })
}

/// `meta mark & 0xff`
pub(super) fn bitwise() -> Vec<Expr> {
    let (mask, xor) = (
        Some(DataAttrs::of(&[0, 0, 0, 0xff])),
        Some(DataAttrs::of(&[0; 4])),
    );
    let e = Bitwise {
        sreg: REG,
        dreg: REG,
        len: Some(4),
        mask,
        xor,
        ..Bitwise::default()
    };
    vec![load(raw::NFT_META_MARK), Expr::Bitwise(e)]
}

pub(super) fn byteorder() -> Vec<Expr> {
    let e = Byteorder {
        sreg: REG,
        dreg: REG,
        op: Some(raw::NFT_BYTEORDER_HTON),
        len: Some(4),
        size: Some(4),
        ..Byteorder::default()
    };
    vec![load(raw::NFT_META_MARK), Expr::Byteorder(e)]
}

/// `meta mark 0`
pub(super) fn cmp() -> Vec<Expr> {
    let data = Some(DataAttrs::of(&[0; 4]));
    let e = Cmp {
        sreg: REG,
        op: Some(raw::NFT_CMP_EQ),
        data,
        ..Cmp::default()
    };
    vec![load(raw::NFT_META_MARK), Expr::Cmp(e)]
}

/// `ct count over 1`
pub(super) fn connlimit() -> Vec<Expr> {
    vec![Expr::Connlimit(Connlimit {
        count: Some(1),
        ..Connlimit::default()
    })]
}

pub(super) fn counter() -> Vec<Expr> {
    vec![Expr::Counter(Counter::default())]
}

fn ct(key: u32) -> Expr {
    Expr::Ct(Ct {
        key: Some(key),
        dreg: REG,
        ..Ct::default()
    })
}

fn ct_set(key: u32) -> Expr {
    Expr::Ct(Ct {
        key: Some(key),
        sreg: REG,
        ..Ct::default()
    })
}

pub(super) fn ct_state() -> Vec<Expr> {
    vec![ct(raw::NFT_CT_STATE)]
}

/// `ct mark set meta mark`
pub(super) fn ct_mark_set() -> Vec<Expr> {
    vec![load(raw::NFT_META_MARK), ct_set(raw::NFT_CT_MARK)]
}

/// `ct zone set 1`: a number of two bytes in host order.
pub(super) fn ct_zone_set() -> Vec<Expr> {
    vec![value(&1u16.to_ne_bytes()), ct_set(raw::NFT_CT_ZONE)]
}

/// `dup to 127.0.0.1`
pub(super) fn dup() -> Vec<Expr> {
    let e = Dup {
        sreg_addr: REG,
        ..Dup::default()
    };
    vec![value(&[127, 0, 0, 1]), Expr::Dup(e)]
}

/// `exthdr hbh exists`
pub(super) fn exthdr() -> Vec<Expr> {
    vec![Expr::Exthdr(Exthdr {
        dreg: REG,
        kind: Some(0),
        offset: Some(0),
        len: Some(1),
        flags: Some(raw::NFT_EXTHDR_F_PRESENT),
        op: Some(raw::NFT_EXTHDR_OP_IPV6),
        ..Exthdr::default()
    })]
}

/// `fib daddr type`
pub(super) fn fib() -> Vec<Expr> {
    /// `NFTA_FIB_F_DADDR`
    const DADDR: u32 = 2;
    let result = Some(raw::NFT_FIB_RESULT_ADDRTYPE);
    vec![Expr::Fib(Fib {
        flags: Some(DADDR),
        result,
        dreg: REG,
        ..Fib::default()
    })]
}

/// `fwd to lo`: the number of the interface, in host order.
pub(super) fn fwd() -> Vec<Expr> {
    let e = Fwd {
        sreg_dev: REG,
        ..Fwd::default()
    };
    vec![value(&1u32.to_ne_bytes()), Expr::Fwd(e)]
}

/// `symhash mod 2`
pub(super) fn hash() -> Vec<Expr> {
    vec![Expr::Hash(Hash {
        dreg: REG,
        modulus: Some(2),
        kind: Some(raw::NFT_HASH_SYM),
        ..Hash::default()
    })]
}

/// `accept`
pub(super) fn immediate() -> Vec<Expr> {
    let verdict = VerdictAttrs {
        code: Some(raw::NF_ACCEPT),
        ..VerdictAttrs::default()
    };
    let data = DataAttrs {
        verdict: Some(verdict),
        ..DataAttrs::default()
    };
    let dreg = Some(raw::NFT_REG_VERDICT);
    vec![Expr::Immediate(Immediate {
        dreg,
        data: Some(data),
        ..Immediate::default()
    })]
}

pub(super) fn last() -> Vec<Expr> {
    vec![Expr::Last(Last::default())]
}

/// `limit rate 5/second`
pub(super) fn limit() -> Vec<Expr> {
    let (rate, unit, burst) = (Some(5), Some(1), Some(5));
    vec![Expr::Limit(Limit {
        rate,
        unit,
        burst,
        ..Limit::default()
    })]
}

pub(super) fn log() -> Vec<Expr> {
    vec![Expr::Log(Log {
        prefix: Some("weir".to_owned()),
        ..Log::default()
    })]
}

pub(super) fn masq() -> Vec<Expr> {
    vec![Expr::Masq(Masq::default())]
}

pub(super) fn meta() -> Vec<Expr> {
    vec![load(raw::NFT_META_OIFNAME)]
}

pub(super) fn skuid() -> Vec<Expr> {
    vec![load(raw::NFT_META_SKUID)]
}

/// `meta mark set 1`
pub(super) fn mark_set() -> Vec<Expr> {
    let e = Meta {
        key: Some(raw::NFT_META_MARK),
        sreg: REG,
        ..Meta::default()
    };
    vec![value(&[1, 0, 0, 0]), Expr::Meta(e)]
}

/// `dnat ip to 127.0.0.1`
pub(super) fn nat() -> Vec<Expr> {
    let e = Nat {
        kind: Some(raw::NFT_NAT_DNAT),
        family: Some(u32::from(raw::NFPROTO_IPV4)),
        reg_addr_min: REG,
        ..Nat::default()
    };
    vec![value(&[127, 0, 0, 1]), Expr::Nat(e)]
}

pub(super) fn notrack() -> Vec<Expr> {
    vec![Expr::Notrack]
}

/// `numgen inc mod 2`
pub(super) fn numgen() -> Vec<Expr> {
    vec![Expr::Numgen(Numgen {
        dreg: REG,
        modulus: Some(2),
        kind: Some(raw::NFT_NG_INCREMENTAL),
        ..Numgen::default()
    })]
}

/// `osf name`
pub(super) fn osf() -> Vec<Expr> {
    vec![Expr::Osf(Osf {
        dreg: REG,
        ttl: Some(0),
        ..Osf::default()
    })]
}

/// `@th,16,16`
pub(super) fn payload() -> Vec<Expr> {
    let base = Some(raw::NFT_PAYLOAD_TRANSPORT_HEADER);
    let (offset, len) = (Some(2), Some(2));
    vec![Expr::Payload(Payload {
        dreg: REG,
        base,
        offset,
        len,
        ..Payload::default()
    })]
}

/// `quota 1 bytes`
pub(super) fn quota() -> Vec<Expr> {
    vec![Expr::Quota(Quota {
        bytes: Some(1),
        ..Quota::default()
    })]
}

/// `meta mark != 1-9`
pub(super) fn range() -> Vec<Expr> {
    let e = Range {
        sreg: REG,
        op: Some(raw::NFT_RANGE_NEQ),
        from: Some(DataAttrs::of(&[0, 0, 0, 1])),
        to: Some(DataAttrs::of(&[0, 0, 0, 9])),
        ..Range::default()
    };
    vec![load(raw::NFT_META_MARK), Expr::Range(e)]
}

/// `redirect to :15001`
pub(super) fn redir() -> Vec<Expr> {
    let flags = Some(raw::NF_NAT_RANGE_PROTO_SPECIFIED);
    let e = Redir {
        reg_proto_min: REG,
        flags,
        ..Redir::default()
    };
    vec![value(&15001u16.to_be_bytes()), Expr::Redir(e)]
}

/// `reject with icmpx`
pub(super) fn reject() -> Vec<Expr> {
    let kind = Some(raw::NFT_REJECT_ICMPX_UNREACH);
    let icmp_code = Some(raw::NFT_REJECT_ICMPX_PORT_UNREACH);
    vec![Expr::Reject(Reject {
        kind,
        icmp_code,
        ..Reject::default()
    })]
}

/// `rt ip nexthop`
pub(super) fn rt() -> Vec<Expr> {
    vec![Expr::Rt(Rt {
        dreg: REG,
        key: Some(raw::NFT_RT_NEXTHOP4),
        ..Rt::default()
    })]
}

/// `socket transparent`
pub(super) fn socket() -> Vec<Expr> {
    let key = Some(raw::NFT_SOCKET_TRANSPARENT);
    vec![Expr::Socket(Socket {
        key,
        dreg: REG,
        ..Socket::default()
    })]
}

/// `synproxy mss 1460 wscale 7`
pub(super) fn synproxy() -> Vec<Expr> {
    vec![Expr::Synproxy(Synproxy {
        mss: Some(1460),
        wscale: Some(7),
        flags: Some(0),
        ..Synproxy::default()
    })]
}

/// `ipsec in reqid`
pub(super) fn xfrm() -> Vec<Expr> {
    vec![Expr::Xfrm(Xfrm {
        dreg: REG,
        key: Some(raw::NFT_XFRM_KEY_REQID),
        dir: Some(0),
        spnum: Some(0),
        ..Xfrm::default()
    })]
}

/// `meta l4proto tcp tproxy to :15006`: for both families.
pub(super) fn tproxy() -> Vec<Expr> {
    let tcp = Cmp {
        sreg: REG,
        op: Some(raw::NFT_CMP_EQ),
        data: Some(DataAttrs::of(&[raw::IPPROTO_TCP])),
        ..Cmp::default()
    };
    let family = Some(u32::from(raw::NFPROTO_UNSPEC));
    let e = Tproxy {
        family,
        reg_port: REG,
        ..Tproxy::default()
    };
    vec![
        load(raw::NFT_META_L4PROTO),
        Expr::Cmp(tcp),
        value(&15006u16.to_be_bytes()),
        Expr::Tproxy(e),
    ]
}

/// `queue to 0`: not used by weir, but operators ask for it.
pub(super) fn queue() -> Vec<Expr> {
    /// `NFTA_QUEUE_NUM`
    const NUM: u16 = 1;
    vec![opaque("queue", |w| w.attr(NUM, false, |w| w.put(&[0, 0])))]
}

/// What iptables-nft writes for `-m comment`.
pub(super) fn xt_match() -> Vec<Expr> {
    /// `NFTA_MATCH_NAME`, `NFTA_MATCH_REV`, `NFTA_MATCH_INFO` (`nf_tables_compat.h`)
    const ATTRS: [u16; 3] = [1, 2, 3];
    /// `sizeof(struct xt_comment_info)`
    const INFO: [u8; 256] = [0; 256];
    let [name, rev, info] = ATTRS;
    vec![opaque("match", |w| {
        w.attr(name, false, |w| w.put(b"comment\0"));
        w.attr(rev, false, |w| w.put(&[0; 4]));
        w.attr(info, false, |w| w.put(&INFO));
    })]
}
