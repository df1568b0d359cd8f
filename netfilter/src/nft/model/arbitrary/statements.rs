//! The statements of a rule.

use super::rules::{Step, port_selector, range};
use super::sets::{MARK_OF, VERDICTS};
use super::{Kind, Place, option, text};
use crate::nft::model::{
    CtKey, Data, Hook, L4Proto, Limit, Log, Masquerade, MetaKey, Nat, NatKind, Redirect, Reject,
    Selector, Set, Source, Statement, TableFamily, Tproxy, Verdict,
};
use crate::nft::raw;
use proptest::prelude::*;
use std::net::IpAddr;
use std::ops::RangeInclusive;

pub(super) fn statement(place: Place, sets: &[Set]) -> BoxedStrategy<Statement> {
    let mut any_of: Vec<BoxedStrategy<Statement>> = vec![
        Just(Statement::Counter(Default::default())).boxed(),
        log(),
        limit(),
        set_mark(),
    ];
    if sets.iter().any(|s| s.name == MARK_OF) {
        let source = Source::Map(port_selector(), MARK_OF.to_owned());
        any_of.push(Just(Statement::MetaSet(MetaKey::Mark, source)).boxed());
    }
    if let Place::Base(_, Hook::Prerouting | Hook::Output) = place {
        any_of.push(
            any::<u16>()
                .prop_map(|z| Statement::CtSet(CtKey::Zone, None, Source::Value(Data::ne16(z))))
                .boxed(),
        );
    }
    proptest::strategy::Union::new(any_of).boxed()
}

fn set_mark() -> BoxedStrategy<Statement> {
    let bits = (any::<u32>(), any::<u32>()).prop_map(|(mask, xor)| Source::Bitwise {
        selector: Selector::Meta(MetaKey::Mark),
        // With all mask bits set and no bit inverted, there would be no operation.
        mask: Data::ne32(mask & 0x7fff_ffff),
        xor: Data::ne32(xor),
    });
    let source = prop_oneof![
        any::<u32>().prop_map(|n| Source::Value(Data::ne32(n))),
        Just(Source::Selector(Selector::Ct(CtKey::Mark, None))),
        bits,
    ];
    let of_ct = prop_oneof![
        any::<u32>().prop_map(|n| Source::Value(Data::ne32(n))),
        Just(Source::Selector(Selector::Meta(MetaKey::Mark))),
    ];
    prop_oneof![
        source.prop_map(|s| Statement::MetaSet(MetaKey::Mark, s)),
        of_ct.prop_map(|s| Statement::CtSet(CtKey::Mark, None, s)),
    ]
    .boxed()
}

fn log() -> BoxedStrategy<Statement> {
    let prefix = || option(text("[a-zA-Z0-9 :_-]{1,30}"));
    let to_kernel = (
        prefix(),
        option((0..8u32).boxed()),
        proptest::sample::select(vec![0u32, 8, 47]),
    )
        .prop_map(|(prefix, level, flags)| Log {
            prefix,
            level,
            flags: (flags != 0).then_some(flags),
            ..Log::default()
        });
    let to_group =
        (prefix(), any::<u16>(), 0..1000u32, 1..1000u16).prop_map(|(prefix, g, s, q)| Log {
            prefix,
            group: Some(g),
            snaplen: Some(s),
            qthreshold: Some(q),
            ..Log::default()
        });
    // The kernel does not list the default level.
    let plain = |l: Log| Log {
        level: l.level.filter(|n| *n != 4),
        ..l
    };
    prop_oneof![to_kernel.prop_map(plain), to_group]
        .prop_map(Statement::Log)
        .boxed()
}

fn limit() -> BoxedStrategy<Statement> {
    let per = proptest::sample::select(vec![1u64, 60, 3600, 86_400, 604_800]);
    (1..10_000u64, per, 1..1000u32, any::<bool>(), any::<bool>())
        .prop_map(|(rate, per, burst, bytes, over)| {
            Statement::Limit(Limit {
                rate: Some(rate),
                unit: Some(per),
                burst: Some(burst),
                kind: Some(match bytes {
                    true => raw::NFT_LIMIT_PKT_BYTES,
                    false => raw::NFT_LIMIT_PKTS,
                }),
                flags: Some(if over { raw::NFT_LIMIT_F_INV } else { 0 }),
                ..Limit::default()
            })
        })
        .boxed()
}

/// The last statement of a rule in this chain.
pub(super) fn last(
    place: Place,
    proto: L4Proto,
    v6: bool,
    targets: &[String],
    sets: &[Set],
) -> BoxedStrategy<Step> {
    let mut any_of: Vec<BoxedStrategy<Statement>> = vec![
        Just(Statement::Verdict(Verdict::Accept)).boxed(),
        Just(Statement::Verdict(Verdict::Drop)).boxed(),
        Just(Statement::Verdict(Verdict::Return)).boxed(),
        Just(Statement::Verdict(Verdict::Continue)).boxed(),
    ];
    for t in targets {
        any_of.push(Just(Statement::Verdict(Verdict::Jump(t.clone()))).boxed());
        any_of.push(Just(Statement::Verdict(Verdict::Goto(t.clone()))).boxed());
    }
    if sets.iter().any(|s| s.name == VERDICTS) {
        any_of.push(Just(Statement::Vmap(port_selector(), VERDICTS.to_owned())).boxed());
    }
    match place {
        Place::Base(Kind::Nat, Hook::Prerouting | Hook::Output) => {
            any_of.push(redirect());
            any_of.push(nat(NatKind::Dnat, v6));
        }
        Place::Base(Kind::Nat, Hook::Postrouting | Hook::Input) => {
            any_of.push(nat(NatKind::Snat, v6));
            if place == Place::Base(Kind::Nat, Hook::Postrouting) {
                any_of.push(masquerade());
            }
        }
        Place::Base(Kind::Filter, Hook::Prerouting) => {
            any_of.push(tproxy());
            any_of.push(Just(Statement::Notrack).boxed());
        }
        Place::Base(Kind::Filter, Hook::Output) => any_of.push(Just(Statement::Notrack).boxed()),
        Place::Base(Kind::Filter, Hook::Input | Hook::Forward) => any_of.push(reject(proto)),
        _ => {}
    }
    proptest::strategy::Union::new(any_of)
        .prop_map(Step::Any)
        .boxed()
}

fn ports() -> BoxedStrategy<RangeInclusive<u16>> {
    range(any::<u16>().boxed())
}

/// `random`, `fully-random`, `persistent` in any combination.
fn nat_flags() -> BoxedStrategy<u32> {
    (0..8u32).prop_map(|n| n << 2).boxed()
}

fn redirect() -> BoxedStrategy<Statement> {
    (option(ports()), nat_flags())
        .prop_map(|(ports, flags)| Statement::Redirect(Redirect { ports, flags }))
        .boxed()
}

fn masquerade() -> BoxedStrategy<Statement> {
    (option(ports()), nat_flags())
        .prop_map(|(ports, flags)| Statement::Masquerade(Masquerade { ports, flags }))
        .boxed()
}

fn address(v6: bool) -> BoxedStrategy<IpAddr> {
    if v6 {
        any::<[u8; 16]>().prop_map(IpAddr::from).boxed()
    } else {
        any::<[u8; 4]>().prop_map(IpAddr::from).boxed()
    }
}

fn nat(kind: NatKind, v6: bool) -> BoxedStrategy<Statement> {
    (range(address(v6)), option(ports()), nat_flags())
        .prop_map(move |(addrs, ports, flags)| {
            let family = if v6 {
                TableFamily::Ip6
            } else {
                TableFamily::Ip
            };
            let addrs = Some((*addrs.start(), *addrs.end()));
            Statement::Nat(Nat {
                kind,
                family,
                addrs,
                ports,
                flags,
            })
        })
        .boxed()
}

fn tproxy() -> BoxedStrategy<Statement> {
    (
        any::<bool>(),
        any::<bool>(),
        option(any::<u16>().boxed()),
        1..=65_535u16,
    )
        .prop_flat_map(|(any_family, v6, other, port)| {
            address(v6).prop_map(move |a| {
                let family = if v6 {
                    TableFamily::Ip6
                } else {
                    TableFamily::Ip
                };
                Statement::Tproxy(match (any_family, other) {
                    (true, _) => Tproxy {
                        family: TableFamily::Unspec,
                        addr: None,
                        port: Some(port),
                    },
                    (false, None) => Tproxy {
                        family,
                        addr: None,
                        port: Some(port),
                    },
                    (false, Some(_)) => Tproxy {
                        family,
                        addr: Some(a),
                        port: Some(port),
                    },
                })
            })
        })
        .boxed()
}

fn reject(proto: L4Proto) -> BoxedStrategy<Statement> {
    let of = |kind, icmp_code| Reject {
        kind: Some(kind),
        icmp_code: Some(icmp_code),
        ..Reject::default()
    };
    let other = if proto == L4Proto::Tcp {
        of(raw::NFT_REJECT_TCP_RST, 0)
    } else {
        of(raw::NFT_REJECT_ICMPX_UNREACH, 0)
    };
    let icmpx = (0..4u8).prop_map(move |code| of(raw::NFT_REJECT_ICMPX_UNREACH, code));
    prop_oneof![icmpx, Just(other)]
        .prop_map(Statement::Reject)
        .boxed()
}
