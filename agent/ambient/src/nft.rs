//! Rules for nf_tables: `inet` tables for both families.
//!
//! A rule without an address matches IPv6, too, even if IPv6 is not captured: see [`Semantics`].

use crate::redirect::{DNS_PORT, DNS_ZONE, Redirect, TABLES};
use crate::ztunnel::{self, HBONE, MASK, REPLY_MARK};
use weir_netfilter::nft::{
    self, Chain, ChainType, CmpOp, CtKey, Data, Hook, L4Proto, Match, MetaKey, Operand, Rule,
    RuleBuilder, Ruleset, Selector, Source, Statement, Table, TableFamily, Verdict, priority,
};

const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const ISTIO_PREROUTING: &str = "istio-prerouting";
const ISTIO_OUTPUT: &str = "istio-output";

/// Upstream's rules for the two engines treat a few packets differently. Rules for nf_tables can follow either:
///
/// | | `Nft` | `Xtables` |
/// |---|---|---|
/// | IPv6 that is not captured | rules without an address apply to it | returns first in every base chain |
/// | a prefix of interface names | `tap*` | `tap+` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Semantics {
    /// As upstream's rules for nf_tables; used if the engine was named explicitly.
    Nft,
    /// As upstream's rules for legacy tables; used if the engine was chosen automatically.
    Xtables,
}

impl Semantics {
    /// Whether no rule applies to IPv6.
    pub(crate) fn leaves_ipv6_alone(self, redirect: &Redirect) -> bool {
        self == Self::Xtables && !redirect.captures_ipv6()
    }

    /// `iifname NAME`, or no match for `+`, the name of every interface.
    fn iifname(self, name: &str) -> RuleBuilder {
        let rule = Rule::builder();
        let operand = match (self, name.strip_suffix('+')) {
            (Self::Nft, _) => return rule.iifname(CmpOp::Eq, name),
            (Self::Xtables, Some("")) => return rule,
            (Self::Xtables, Some(prefix)) => Operand::IfnamePrefix(prefix.to_owned()),
            (Self::Xtables, None) => Operand::Value(Data::ifname(name)),
        };
        rule.push(Statement::Match(Match {
            selector: Selector::Meta(MetaKey::Iifname),
            mask: None,
            op: CmpOp::Eq,
            operand,
        }))
    }
}

pub(crate) fn ruleset(redirect: &Redirect, semantics: Semantics) -> Ruleset {
    let [nat, mangle, raw] = TABLES;
    let mut tables = vec![nat_table(nat, redirect, semantics), mangle_table(mangle)];
    if redirect.dns {
        tables.push(raw_table(raw));
    }
    if semantics.leaves_ipv6_alone(redirect) {
        let chains = tables.iter_mut().flat_map(|table| &mut table.chains);
        for chain in chains.filter(|chain| chain.base.is_some()) {
            let ipv6 = Statement::Match(Match {
                selector: Selector::Meta(MetaKey::Nfproto),
                mask: None,
                op: CmpOp::Eq,
                operand: Operand::Value(Data::u8(nft::raw::NFPROTO_IPV6)),
            });
            let rule = Rule::builder().push(ipv6).counter();
            chain.rules.insert(0, rule.verdict(Verdict::Return));
        }
    }
    Ruleset { tables }
}

/// The two base chains, each of which jumps to its own regular chain.
fn table(name: &str, bases: [Chain; 2], prerouting: Vec<Rule>, output: Vec<Rule>) -> Table {
    let [mut at_prerouting, mut at_output] = bases;
    at_prerouting.rules = vec![Rule::builder().jump(ISTIO_PREROUTING)];
    at_output.rules = vec![Rule::builder().jump(ISTIO_OUTPUT)];
    let regular = |name, rules| Chain {
        rules,
        ..Chain::regular(name)
    };
    Table {
        chains: vec![
            at_prerouting,
            at_output,
            regular(ISTIO_PREROUTING, prerouting),
            regular(ISTIO_OUTPUT, output),
        ],
        ..Table::new(TableFamily::Inet, name)
    }
}

fn tcp() -> RuleBuilder {
    Rule::builder().l4proto(L4Proto::Tcp)
}

/// `SELECTOR & 0xfff OP VALUE`
fn masked(rule: RuleBuilder, selector: Selector, op: CmpOp, value: u32) -> RuleBuilder {
    rule.push(Statement::Match(Match {
        selector,
        mask: Some(Data::ne32(MASK)),
        op,
        operand: Operand::Value(Data::ne32(value)),
    }))
}

fn mark(rule: RuleBuilder, op: CmpOp, value: u32) -> RuleBuilder {
    masked(rule, Selector::Meta(MetaKey::Mark), op, value)
}

fn not_of_ztunnel(rule: RuleBuilder) -> RuleBuilder {
    mark(rule, CmpOp::Neq, ztunnel::MARK)
}

fn to(rule: RuleBuilder, port: u16) -> Rule {
    rule.counter().redirect(port).build()
}

fn accept(rule: RuleBuilder) -> Rule {
    rule.counter().verdict(Verdict::Accept)
}

/// `istio-prerouting`:
/// 1. TCP from interfaces of virtual machines is outbound traffic; no later rule applies to it.
/// 2. If inbound traffic is captured: probes are accepted; other TCP without ztunnel's mark is redirected to it, except
///    HBONE and packets to loopback.
///
/// `istio-output`:
/// 1. Answers to probes are accepted.
/// 2. If DNS is captured: queries without ztunnel's mark are redirected to it: UDP over interfaces other than `lo`, TCP to
///    addresses other than loopback.
/// 3. Replies to ztunnel, and packets of the pod to itself, are accepted.
/// 4. Other TCP without ztunnel's mark is redirected to it, except packets to loopback.
fn nat_table(name: &str, redirect: &Redirect, semantics: Semantics) -> Table {
    let families = redirect.families();
    let (mut inbound, mut outbound) = (Vec::new(), Vec::new());
    for interface in &redirect.interfaces {
        let from = || semantics.iifname(interface.as_str()).l4proto(L4Proto::Tcp);
        inbound.push(to(from(), ztunnel::OUTBOUND));
        inbound.push(from().counter().verdict(Verdict::Return));
    }
    if !redirect.ingress {
        let probe = |f: &_| accept(tcp().saddr(CmpOp::Eq, probe_of(f)));
        inbound.extend(families.iter().map(probe));
        for family in &families {
            let other = Rule::builder().daddr(CmpOp::Neq, family.loopback);
            let other = other.dport(L4Proto::Tcp, CmpOp::Neq, HBONE..=HBONE);
            inbound.push(to(not_of_ztunnel(other), ztunnel::INBOUND));
        }
    }
    let answer = |f: &_| accept(tcp().daddr(CmpOp::Eq, probe_of(f)));
    outbound.extend(families.iter().map(answer));
    if redirect.dns {
        let over_net = not_of_ztunnel(Rule::builder().oifname(CmpOp::Neq, "lo"));
        let query = over_net.dport(L4Proto::Udp, CmpOp::Eq, DNS_PORT..=DNS_PORT);
        outbound.push(to(query, ztunnel::DNS));
        for family in &families {
            let query = Rule::builder().daddr(CmpOp::Neq, family.loopback);
            let query = query.dport(L4Proto::Tcp, CmpOp::Eq, DNS_PORT..=DNS_PORT);
            outbound.push(to(not_of_ztunnel(query), ztunnel::DNS));
        }
    }
    outbound.push(accept(mark(tcp(), CmpOp::Eq, REPLY_MARK)));
    for family in &families {
        let to_itself = Rule::builder().oifname(CmpOp::Eq, "lo");
        outbound.push(accept(to_itself.daddr(CmpOp::Neq, family.loopback)));
    }
    for family in &families {
        let other = tcp().daddr(CmpOp::Neq, family.loopback);
        outbound.push(to(not_of_ztunnel(other), ztunnel::OUTBOUND));
    }
    let base = |name, hook| Chain::base(name, ChainType::Nat, hook, priority::DSTNAT);
    let bases = [
        base(PREROUTING, Hook::Prerouting),
        base(OUTPUT, Hook::Output),
    ];
    table(name, bases, inbound, outbound)
}

fn probe_of(family: &crate::redirect::Family) -> ipnet::IpNet {
    family.probe
}

/// Connections from ztunnel to the application get a connmark, which is restored to the mark of their replies.
fn mangle_table(name: &str) -> Table {
    let remember = Source::Bitwise {
        selector: Selector::Ct(CtKey::Mark, None),
        mask: Data::ne32(!MASK),
        xor: Data::ne32(REPLY_MARK),
    };
    let of_ztunnel = mark(Rule::builder(), CmpOp::Eq, ztunnel::MARK).counter();
    let save = of_ztunnel.push(Statement::CtSet(CtKey::Mark, None, remember));
    let reply = masked(
        Rule::builder(),
        Selector::Ct(CtKey::Mark, None),
        CmpOp::Eq,
        REPLY_MARK,
    );
    let base = |name, kind, hook| Chain::base(name, kind, hook, priority::MANGLE);
    let bases = [
        base(PREROUTING, ChainType::Filter, Hook::Prerouting),
        // Type `route`: a packet whose mark changes here must be routed again.
        base(OUTPUT, ChainType::Route, Hook::Output),
    ];
    let restore = reply.counter().set_mark_from_ct();
    table(name, bases, vec![save.build()], vec![restore.build()])
}

/// Queries of ztunnel and their answers are in a separate conntrack zone: those of the application may have the same
/// addresses and ports.
fn raw_table(name: &str) -> Table {
    let udp = || Rule::builder();
    let query = udp().dport(L4Proto::Udp, CmpOp::Eq, DNS_PORT..=DNS_PORT);
    let query = mark(query, CmpOp::Eq, ztunnel::MARK).counter();
    let answer = udp().sport(L4Proto::Udp, CmpOp::Eq, DNS_PORT..=DNS_PORT);
    let answer = not_of_ztunnel(answer).counter();
    let base = |name, hook| Chain::base(name, ChainType::Filter, hook, priority::RAW);
    let bases = [
        base(PREROUTING, Hook::Prerouting),
        base(OUTPUT, Hook::Output),
    ];
    let zone = |rule: RuleBuilder| vec![rule.set_ct_zone(DNS_ZONE).build()];
    table(name, bases, zone(answer), zone(query))
}
