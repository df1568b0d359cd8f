//! The features, one line each, with their trials.

use super::trial::NAME;
use super::{At, Trial};
use crate::features::families::FAMILIES;
use crate::features::{Feature, LEGACY};
use crate::nft::compat::MatchAttrs;
use crate::nft::expr::{DataAttrs, Expr, ExprAttrs, FEATURES, expr};
use crate::nft::raw::*;
use crate::nft::{
    Data, DataType, Element, ElementKey, Extra, Hook, Set, SetData, TableFamily, Verdict, linearize,
};
use crate::probe::{Row, row};
use std::time::Duration;
use weir_netlink::attr::{AttrSet as _, Writer};

const fn at(family: TableFamily, kind: &'static str, hook: Hook, priority: i32) -> At {
    At {
        family,
        kind,
        hook,
        priority,
    }
}

const PRE: At = at(TableFamily::Inet, "filter", Hook::Prerouting, -150);
const RAW: At = at(TableFamily::Inet, "filter", Hook::Prerouting, -300);
const IN: At = at(TableFamily::Inet, "filter", Hook::Input, 0);
pub(super) const OUT: At = at(TableFamily::Inet, "filter", Hook::Output, 0);
const NAT: At = at(TableFamily::Inet, "nat", Hook::Output, -100);
const SNAT: At = at(TableFamily::Inet, "nat", Hook::Postrouting, 100);
const ROUTE: At = at(TableFamily::Inet, "route", Hook::Output, -150);
const IP_NAT: At = at(TableFamily::Ip, "nat", Hook::Output, -100);
const IP_ROUTE: At = at(TableFamily::Ip, "route", Hook::Output, -150);
const IP6_NAT: At = at(TableFamily::Ip6, "nat", Hook::Output, -100);
const IP6_ROUTE: At = at(TableFamily::Ip6, "route", Hook::Output, -150);
const BRIDGE: At = at(TableFamily::Bridge, "filter", Hook::Prerouting, 0);
/// `NF_NETDEV_INGRESS` is 0, as `NF_INET_PRE_ROUTING`.
const NETDEV: At = at(TableFamily::Netdev, "filter", Hook::Prerouting, 0);
const IP_PRE: At = at(TableFamily::Ip, "filter", Hook::Prerouting, -150);
const IP_IN: At = at(TableFamily::Ip, "filter", Hook::Input, 0);

const REG: u32 = NFT_REG_1;

fn load(key: u32) -> Expr {
    expr!(Meta { key, dreg: REG })
}

fn value(bytes: &[u8]) -> Expr {
    linearize::immediate(REG, bytes)
}

fn equal(bytes: &[u8]) -> Expr {
    expr!(Cmp {
        sreg: REG,
        op: NFT_CMP_EQ,
        data: DataAttrs::of(bytes)
    })
}

/// The expression that iptables-nft writes for `-m comment`.
fn xt_match() -> Vec<Expr> {
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

/// A set of marks with the element 1, or a map that assigns a value to it.
fn marks(data: SetData, extra: Extra) -> Set {
    Set {
        data,
        elements: vec![Element::value(Data::ne32(1)).with(extra)],
        ..Set::new(NAME, DataType::MARK, 4)
    }
}

fn addresses(element: Element) -> Set {
    Set {
        elements: vec![element],
        ..Set::new(NAME, DataType::IPV4_ADDR, 4)
    }
}

/// A set of `ipv4_addr . mark`
fn pairs(interval: bool, element: Element) -> Set {
    let key_type = DataType(DataType::IPV4_ADDR.0 << 6 | DataType::MARK.0);
    Set {
        interval,
        elements: vec![element],
        ..Set::new(NAME, key_type, 8)
    }
}

/// The address `10.0.0.N`, and the mark 1
fn pair(n: u8) -> Data {
    let mark = 1_u32.to_ne_bytes();
    Data::from(&[[10, 0, 0, n], mark].concat()[..])
}

/// The row of a feature. A test checks that each is in its table.
const fn of(table: &'static [Feature], feature: &'static str, probe: Trial) -> Row<Trial> {
    match Feature::find(table, feature) {
        Some(f) => row(feature, probe, f.needs, f.since, f.instead),
        None => row(feature, probe, "", "", LEGACY),
    }
}

/// The row of an expression.
const fn expression(feature: &'static str, probe: Trial) -> Row<Trial> {
    of(FEATURES, feature, probe)
}

/// An expression that is tried by a rule.
const fn rule(feature: &'static str, at: At, exprs: fn() -> Vec<Expr>) -> Row<Trial> {
    expression(feature, Trial::Rule(at, exprs))
}

/// Every feature: name, trial, modules, first kernel, the substitute if it is missing. The comments show the rule in nft's
/// syntax.
#[rustfmt::skip]
pub const ROWS: &[Row<Trial>] = &[
    of(FAMILIES, "family inet", Trial::Table(TableFamily::Inet)),
    of(FAMILIES, "family ip", Trial::Table(TableFamily::Ip)),
    of(FAMILIES, "family ip6", Trial::Table(TableFamily::Ip6)),
    of(FAMILIES, "family bridge", Trial::Table(TableFamily::Bridge)),
    of(FAMILIES, "family netdev", Trial::Table(TableFamily::Netdev)),
    of(FAMILIES, "chain inet filter", Trial::Chain(IN)),
    of(FAMILIES, "chain inet nat", Trial::Chain(NAT)),
    of(FAMILIES, "chain inet route", Trial::Chain(ROUTE)),
    of(FAMILIES, "chain ip nat", Trial::Chain(IP_NAT)),
    of(FAMILIES, "chain ip route", Trial::Chain(IP_ROUTE)),
    of(FAMILIES, "chain ip6 nat", Trial::Chain(IP6_NAT)),
    of(FAMILIES, "chain ip6 route", Trial::Chain(IP6_ROUTE)),
    of(FAMILIES, "chain bridge filter", Trial::Chain(BRIDGE)),
    of(FAMILIES, "chain netdev filter", Trial::Chain(NETDEV)),
    // `meta mark & 0xff`
    rule("expression bitwise", OUT, || {
        let (mask, xor) = (DataAttrs::of(&[0, 0, 0, 0xff]), DataAttrs::of(&[0; 4]));
        vec![load(NFT_META_MARK), expr!(Bitwise { sreg: REG, dreg: REG, len: 4, mask, xor })]
    }),
    rule("expression byteorder", OUT, || {
        vec![load(NFT_META_MARK), expr!(Byteorder { sreg: REG, dreg: REG, op: NFT_BYTEORDER_HTON, len: 4, size: 4 })]
    }),
    // `meta mark 0`
    rule("expression cmp", OUT, || vec![load(NFT_META_MARK), equal(&[0; 4])]),
    // `ct count over 1`
    rule("expression connlimit", PRE, || vec![expr!(Connlimit { count: 1 })]),
    rule("expression counter", OUT, || vec![expr!(Counter {})]),
    rule("expression ct", PRE, || vec![expr!(Ct { key: NFT_CT_STATE, dreg: REG })]),
    // `dup to 127.0.0.1`
    rule("expression dup", IP_PRE, || vec![value(&[127, 0, 0, 1]), expr!(Dup { sreg_addr: REG })]),
    // `add @weir { meta mark }`
    expression("expression dynset", Trial::SetRule(
        || Set { dynamic: true, timeouts: true, size: Some(16), ..Set::new(NAME, DataType::MARK, 4) },
        || vec![load(NFT_META_MARK), expr!(Dynset { set: NAME.to_owned(), op: NFT_DYNSET_OP_ADD, sreg_key: REG })],
    )),
    // `exthdr hbh exists`
    rule("expression exthdr", OUT, || {
        let (flags, op) = (NFT_EXTHDR_F_PRESENT, NFT_EXTHDR_OP_IPV6);
        vec![expr!(Exthdr { dreg: REG, kind: 0, offset: 0, len: 1, flags, op })]
    }),
    // `fib daddr type`
    rule("expression fib", PRE, || {
        vec![expr!(Fib { flags: NFTA_FIB_F_DADDR, result: NFT_FIB_RESULT_ADDRTYPE, dreg: REG })]
    }),
    // `fwd to lo`: the interface index, in host byte order
    rule("expression fwd", NETDEV, || vec![value(&1u32.to_ne_bytes()), expr!(Fwd { sreg_dev: REG })]),
    // `symhash mod 2`
    rule("expression hash", OUT, || vec![expr!(Hash { dreg: REG, modulus: 2, kind: NFT_HASH_SYM })]),
    // `accept`
    rule("expression immediate", OUT, || vec![linearize::immediate_verdict(&Verdict::Accept)]),
    rule("expression last", OUT, || vec![expr!(Last {})]),
    // `limit rate 5/second`
    rule("expression limit", OUT, || vec![expr!(Limit { rate: 5, unit: 1, burst: 5 })]),
    rule("expression log", OUT, || vec![expr!(Log { prefix: "weir".to_owned() })]),
    // `meta mark @weir`
    expression("expression lookup", Trial::SetRule(
        || marks(SetData::None, Extra::default()),
        || vec![load(NFT_META_MARK), expr!(Lookup { sreg: REG, set: NAME.to_owned() })],
    )),
    rule("expression masq", SNAT, || vec![expr!(Masq {})]),
    rule("expression match", IP_IN, xt_match),
    rule("expression meta", OUT, || vec![load(NFT_META_OIFNAME)]),
    // `dnat ip to 127.0.0.1`
    rule("expression nat", NAT, || {
        let family = u32::from(NFPROTO_IPV4);
        vec![value(&[127, 0, 0, 1]), expr!(Nat { kind: NFT_NAT_DNAT, family, reg_addr_min: REG })]
    }),
    rule("expression notrack", RAW, || vec![Expr::Notrack]),
    // `numgen inc mod 2`
    rule("expression numgen", OUT, || vec![expr!(Numgen { dreg: REG, modulus: 2, kind: NFT_NG_INCREMENTAL })]),
    // `osf name`
    rule("expression osf", PRE, || vec![expr!(Osf { dreg: REG, ttl: 0 })]),
    // `@th,16,16`
    rule("expression payload", OUT, || {
        vec![expr!(Payload { dreg: REG, base: NFT_PAYLOAD_TRANSPORT_HEADER, offset: 2, len: 2 })]
    }),
    // `queue to 0`: not used by weir, but operators ask for it
    rule("expression queue", OUT, || vec![expr!(Queue { num: 0 })]),
    // `quota 1 bytes`
    rule("expression quota", OUT, || vec![expr!(Quota { bytes: 1 })]),
    // `meta mark != 1-9`
    rule("expression range", OUT, || {
        let (from, to) = (DataAttrs::of(&[0, 0, 0, 1]), DataAttrs::of(&[0, 0, 0, 9]));
        vec![load(NFT_META_MARK), expr!(Range { sreg: REG, op: NFT_RANGE_NEQ, from, to })]
    }),
    // `redirect to :15001`
    rule("expression redir", NAT, || {
        let flags = NF_NAT_RANGE_PROTO_SPECIFIED;
        vec![value(&15001u16.to_be_bytes()), expr!(Redir { reg_proto_min: REG, flags })]
    }),
    // `reject with icmpx`
    rule("expression reject", IN, || {
        vec![expr!(Reject { kind: NFT_REJECT_ICMPX_UNREACH, icmp_code: NFT_REJECT_ICMPX_PORT_UNREACH })]
    }),
    // `rt ip nexthop`
    rule("expression rt", OUT, || vec![expr!(Rt { dreg: REG, key: NFT_RT_NEXTHOP4 })]),
    // `socket transparent`
    rule("expression socket", PRE, || vec![expr!(Socket { key: NFT_SOCKET_TRANSPARENT, dreg: REG })]),
    // `synproxy mss 1460 wscale 7`
    rule("expression synproxy", IN, || vec![expr!(Synproxy { mss: 1460, wscale: 7, flags: 0 })]),
    // `meta l4proto tcp tproxy to :15006`: for both families
    rule("expression tproxy", PRE, || {
        let (protocol, port) = (equal(&[IPPROTO_TCP]), value(&15006u16.to_be_bytes()));
        let tproxy = expr!(Tproxy { family: u32::from(NFPROTO_UNSPEC), reg_port: REG });
        vec![load(NFT_META_L4PROTO), protocol, port, tproxy]
    }),
    // `ipsec in reqid`
    rule("expression xfrm", PRE, || vec![expr!(Xfrm { dreg: REG, key: NFT_XFRM_KEY_REQID, dir: 0, spnum: 0 })]),
    row("meta skuid", Trial::Rule(OUT, || vec![load(NFT_META_SKUID)]), "", "3.13", LEGACY),
    // `meta mark set 1`
    row("meta mark set", Trial::Rule(OUT, || {
        vec![value(&[1, 0, 0, 0]), expr!(Meta { key: NFT_META_MARK, sreg: REG })]
    }), "", "3.14", LEGACY),
    // `ct mark set meta mark`
    row("ct mark set", Trial::Rule(PRE, || {
        vec![load(NFT_META_MARK), expr!(Ct { key: NFT_CT_MARK, sreg: REG })]
    }), "nft_ct nf_conntrack conntrack_mark", "3.18", "none: a mark of a whole connection needs it"),
    // `ct zone set 1`: a value of two bytes in host byte order
    row("ct zone set", Trial::Rule(RAW, || {
        vec![value(&1u16.to_ne_bytes()), expr!(Ct { key: NFT_CT_ZONE, sreg: REG })]
    }), "nft_ct nf_conntrack conntrack_zones", "4.11", "none: DNS capture needs it"),
    row("set plain", Trial::Set(|| marks(SetData::None, Extra::default())), "", "3.13", LEGACY),
    row("set interval", Trial::Set(|| {
        // 10.0.0.0/8
        let net = ElementKey::range(Data::be32(0x0a00_0000), Data::be32(0x0aff_ffff));
        Set { interval: true, ..addresses(Element::new(net)) }
    }), "", "3.13", "one rule for each range"),
    row("set timeout", Trial::Set(|| {
        let timeout = |seconds| Some(Duration::from_secs(seconds));
        let extra = Extra { timeout: timeout(30), ..Extra::default() };
        let one = Element::value(Data::be32(0x0a00_0001)).with(extra);
        Set { timeouts: true, timeout: timeout(60), ..addresses(one) }
    }), "", "4.1", "the writer deletes the elements"),
    row("set concatenation", Trial::Set(|| pairs(false, Element::value(pair(1)))), "", "4.1", "one rule for each pair"),
    row("set interval concatenation", Trial::Set(|| {
        pairs(true, Element::new(ElementKey::range(pair(1), pair(9))))
    }), "", "5.6", "one rule for each pair"),
    row("map verdict", Trial::Set(|| {
        marks(SetData::Verdict, Extra { verdict: Some(Verdict::Accept), ..Extra::default() })
    }), "", "3.13", "one rule for each element"),
    row("map value", Trial::Set(|| {
        marks(SetData::Value(DataType::MARK, 4), Extra { value: Some(Data::ne32(2)), ..Extra::default() })
    }), "", "3.13", "one rule for each element"),
    row("comment table", Trial::TableComment, "", "5.10", "the engine is recorded in a chain's name"),
    row("comment chain", Trial::ChainComment, "", "5.10", "chains have no comments"),
    row("generation guard", Trial::Generation, "", "4.12", "another writer's change in between is detected by reading back"),
];
