//! Rules for the legacy tables, once per family, in the order in which Istio's agent writes them.

use crate::redirect::{DNS_PORT, DNS_ZONE, Family, Redirect};
use crate::ztunnel::{self, HBONE, MASK, REPLY_MARK};
use weir_netfilter::xtables::{
    Chain, Connmark, Ct, Mark, Match, Nat, Not, PortRange, Protocol, Rule, RuleBuilder, Ruleset,
    Table, Target, Tcp, Xmark, XtFamily,
};

const PREROUTING: &str = "PREROUTING";
const OUTPUT: &str = "OUTPUT";
const ISTIO_PRERT: &str = "ISTIO_PRERT";
const ISTIO_OUTPUT: &str = "ISTIO_OUTPUT";

const IS: Not = Not(false);
const IS_NOT: Not = Not(true);

pub(crate) fn ruleset(redirect: &Redirect) -> Ruleset {
    let mut tables = Vec::new();
    for family in redirect.families() {
        tables.push(mangle(&family));
        tables.push(nat(redirect, &family));
        if redirect.dns {
            tables.push(raw(&family));
        }
    }
    Ruleset { tables }
}

/// A table whose two built-in chains each jump to their own user-defined chain.
fn table(family: &Family, name: &str, prerouting: Vec<Rule>, output: Vec<Rule>) -> Table {
    let builtin = |name: &str, to: &str| Chain {
        rules: vec![Rule::builder().jump(to)],
        ..Chain::builtin(name)
    };
    let user = |name: &str, rules| Chain {
        rules,
        ..Chain::user(name)
    };
    let of = match family.is_v6 {
        true => XtFamily::Ip6,
        false => XtFamily::Ip,
    };
    Table {
        chains: vec![
            builtin(PREROUTING, ISTIO_PRERT),
            builtin(OUTPUT, ISTIO_OUTPUT),
            user(ISTIO_OUTPUT, output),
            user(ISTIO_PRERT, prerouting),
        ],
        ..Table::new(of, name)
    }
}

fn mark(not: Not, value: u32) -> Mark {
    Mark {
        not,
        value,
        mask: MASK,
    }
}

fn not_of_ztunnel(rule: RuleBuilder) -> RuleBuilder {
    rule.matching(Match::Mark(mark(IS_NOT, ztunnel::MARK)))
}

fn redirect_to(port: u16) -> Target {
    Target::Redirect(Nat::to_ports(port..=port))
}

fn tcp() -> RuleBuilder {
    Rule::builder().protocol(Protocol::TCP)
}

/// Connections from ztunnel to the application get a connmark, which is restored to the mark of their replies.
fn mangle(family: &Family) -> Table {
    let of_ztunnel = Rule::builder().matching(Match::Mark(mark(IS, ztunnel::MARK)));
    let save = of_ztunnel.target(Target::Connmark(Connmark::Set(Xmark {
        value: REPLY_MARK,
        mask: MASK,
    })));
    let reply = Rule::builder().matching(Match::Connmark(mark(IS, REPLY_MARK)));
    let restore = reply.target(Target::Connmark(Connmark::Restore {
        nfmask: u32::MAX,
        ctmask: u32::MAX,
    }));
    table(family, "mangle", vec![save], vec![restore])
}

/// The rules of the nf_tables `nat` table, for one family.
fn nat(redirect: &Redirect, family: &Family) -> Table {
    let (mut inbound, mut outbound) = (Vec::new(), Vec::new());
    for interface in &redirect.interfaces {
        let from = || tcp().in_interface(interface.as_str());
        inbound.push(from().target(redirect_to(ztunnel::OUTBOUND)));
        inbound.push(from().target(Target::Return));
    }
    let all_tcp = || Match::Tcp(Tcp::default());
    if !redirect.ingress {
        let probe = tcp().source(family.probe).matching(all_tcp());
        inbound.push(probe.target(Target::Accept));
        let other = Rule::builder().not_destination(family.loopback);
        let other = other.not_tcp_dport(PortRange::from(HBONE));
        inbound.push(not_of_ztunnel(other).target(redirect_to(ztunnel::INBOUND)));
    }
    let answer = tcp().destination(family.probe).matching(all_tcp());
    outbound.push(answer.target(Target::Accept));
    if redirect.dns {
        let over_net = Rule::builder().not_out_interface("lo");
        let query = not_of_ztunnel(over_net).udp_dport(DNS_PORT.into());
        outbound.push(query.target(redirect_to(ztunnel::DNS)));
        let query = Rule::builder().not_destination(family.loopback);
        let query = not_of_ztunnel(query.tcp_dport(DNS_PORT.into()));
        outbound.push(query.target(redirect_to(ztunnel::DNS)));
    }
    let reply = tcp().matching(Match::Mark(mark(IS, REPLY_MARK)));
    outbound.push(reply.target(Target::Accept));
    let to_itself = Rule::builder().not_destination(family.loopback);
    outbound.push(to_itself.out_interface("lo").target(Target::Accept));
    let other = tcp().not_destination(family.loopback);
    outbound.push(not_of_ztunnel(other).target(redirect_to(ztunnel::OUTBOUND)));
    table(family, "nat", inbound, outbound)
}

/// Queries of ztunnel and their answers are in a separate conntrack zone.
fn raw(family: &Family) -> Table {
    let query = Rule::builder().matching(Match::Mark(mark(IS, ztunnel::MARK)));
    let query = query.udp_dport(DNS_PORT.into());
    let answer = not_of_ztunnel(Rule::builder()).udp_sport(DNS_PORT.into());
    let zone = |rule: RuleBuilder| vec![rule.target(Target::Ct(Ct::in_zone(DNS_ZONE)))];
    table(family, "raw", zone(answer), zone(query))
}
