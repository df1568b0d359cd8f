//! Such rules in tables of nf_tables, including those of `iptables-nft`.

use super::super::Host;
use super::{CONNTRACK, Does, Packets, Rules, TCP, legacy, taken};
use weir_netfilter::nft::compat::Compat;
use weir_netfilter::nft::expr::Expr;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, Element, Hook, Match, MetaKey, NatKind, NftEngine, Operand,
    PayloadBase, Rule, Selector, Statement, Table, TableFamily, Verdict, priority, raw,
    text_without_counters,
};
use weir_netlink::Result;

/// `NFT_TABLE_F_DORMANT`: the kernel calls none of its chains.
const DORMANT: u32 = 1;
/// `ETH_P_IP` and `ETH_P_IPV6`
const ETHERTYPES: [u16; 2] = [0x0800, 0x86dd];

/// Checks base chains that are called before ours, or before conntrack. Of chains with the same priority the kernel calls the
/// one registered last first, and it does not report the order of registration.
pub(super) fn find(engine: &mut NftEngine, host: &Host) -> Result<Vec<String>> {
    let of = |family| {
        let families: &[bool] = match family {
            TableFamily::Inet => &[false, true],
            TableFamily::Ip => &[false],
            TableFamily::Ip6 => &[true],
            _ => &[],
        };
        let mut families = families.to_vec();
        families.retain(|is_v6| host.families().contains(is_v6));
        families
    };
    let chains = engine.chains()?.into_iter();
    let tables = chains.filter(|((family, _), chain)| !of(*family).is_empty() && is_before(chain));
    let mut tables: Vec<_> = tables.map(|(table, _)| table).collect();
    tables.dedup();
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for table in &engine.read_tables(&tables)?.ruleset.tables {
        if table.flags & DORMANT != 0 {
            continue;
        }
        for chain in table.chains.iter().filter(|chain| is_before(chain)) {
            let families = of(table.family).into_iter();
            let packets = families.flat_map(|is_v6| Packets::of_probes(host, is_v6));
            let of = Of {
                table,
                is_nat: is_nat(chain),
            };
            let found = taken(&of, (&chain.name, &chain.rules), packets.collect());
            lines.extend(found.map(|(chain, rule)| {
                let (family, text) = (table.family, text_without_counters(rule, table.family));
                format!("table {family} {} chain {chain}: {text}", table.name)
            }));
        }
    }
    Ok(lines)
}

fn is_nat(chain: &Chain) -> bool {
    let mut base = chain.base.iter();
    base.any(|base| base.chain_type == ChainType::Nat)
}

fn is_before(chain: &Chain) -> bool {
    let mut base = chain.base.iter();
    base.any(|base| match (&base.chain_type, base.hook) {
        (ChainType::Nat, Hook::Postrouting) => base.priority < priority::SRCNAT,
        (ChainType::Filter | ChainType::Route, Hook::Output) => base.priority < CONNTRACK,
        _ => false,
    })
}

struct Of<'t> {
    table: &'t Table,
    /// The chains are of type nat; others do not translate.
    is_nat: bool,
}

impl<'t> Rules<'t> for Of<'t> {
    type Rule = Rule;

    /// `accept` passes the packet on to the next base chain.
    fn keeps(&self) -> bool {
        false
    }

    fn chain(&self, name: &str) -> Option<(&'t str, &'t [Rule])> {
        let chain = self.table.chain(name)?;
        Some((&chain.name, &chain.rules))
    }

    fn does(&self, rule: &'t Rule) -> Does<'t> {
        let does = rule.statements.iter().find_map(|of| self.effect(of));
        does.unwrap_or(Does::Nothing)
    }

    fn holds(&self, rule: &'t Rule, packets: Packets) -> Option<bool> {
        let mut holds = Some(true);
        for statement in &rule.statements {
            let meets = match statement {
                Statement::Match(condition) => self.meets(packets, condition),
                statement if self.effect(statement).is_some() => break,
                Statement::Counter(_) | Statement::MetaSet(..) | Statement::CtSet(..) => continue,
                Statement::Log(_) => continue,
                _ => None,
            };
            match meets {
                Some(false) => return Some(false),
                None => holds = None,
                Some(true) => {}
            }
        }
        holds
    }
}

impl<'t> Of<'t> {
    /// What the statement does with a packet; `None`: the next one counts.
    fn effect(&self, statement: &'t Statement) -> Option<Does<'t>> {
        let untracks = |expr: &Expr| match Compat::read(expr, self.table.family) {
            Some(Compat::Target(target)) => legacy::untracks(&target),
            _ => false,
        };
        Some(match statement {
            Statement::Masquerade(_) => Does::Takes,
            // A packet in a chain of type nat is tracked already.
            Statement::Notrack if !self.is_nat => Does::Takes,
            Statement::Nat(nat) if nat.kind == NatKind::Snat => Does::Takes,
            Statement::Opaque(exprs) if !self.is_nat && exprs.iter().any(untracks) => Does::Takes,
            Statement::Verdict(Verdict::Drop) if self.is_nat => Does::Takes,
            Statement::Verdict(Verdict::Return) => Does::Return,
            Statement::Verdict(Verdict::Jump(to)) => Does::Jump(to),
            Statement::Verdict(Verdict::Goto(to)) => Does::Goto(to),
            Statement::Verdict(Verdict::Continue) => Does::Nothing,
            Statement::Verdict(_) | Statement::Vmap(..) => Does::Leaves,
            _ => return None,
        })
    }

    /// Whether the packets meet a condition; `None`: unknown.
    fn meets(&self, packets: Packets, condition: &Match) -> Option<bool> {
        let not = match (condition.op, &condition.mask) {
            (CmpOp::Eq, None) => false,
            (CmpOp::Neq, None) => true,
            _ => return None,
        };
        let value = packets.value(&condition.selector)?;
        let is_in = |elements: &[Element]| {
            let mut keys = elements
                .iter()
                .map(|element| (element.key.first(), element.key.last()));
            // The catch-all element has no key.
            keys.any(|(first, last)| last.as_bytes().is_empty() || (first..=last).contains(&&value))
        };
        let is_met = match &condition.operand {
            Operand::Value(is) => *is == value,
            Operand::Prefix(of, bits) => has_prefix(&value, of, *bits),
            Operand::Range(first, last) => (first..=last).contains(&&value),
            Operand::Anonymous(elements) => is_in(elements),
            Operand::Named { set, .. } => {
                let mut sets = self.table.sets.iter();
                is_in(&sets.find(|of| of.name == *set)?.elements)
            }
            _ => return None,
        };
        Some(is_met != not)
    }
}

impl Packets {
    /// The value that a selector reads; `None`: unknown.
    fn value(self, selector: &Selector) -> Option<Data> {
        let [v4, v6] = ETHERTYPES;
        let (nfproto, ethertype, destination) = match self.is_v6 {
            false => (raw::NFPROTO_IPV4, v4, (16, 4)),
            true => (raw::NFPROTO_IPV6, v6, (24, 16)),
        };
        match selector {
            Selector::Meta(MetaKey::L4proto) => Some(Data::u8(TCP)),
            Selector::Meta(MetaKey::Nfproto) => Some(Data::u8(nfproto)),
            Selector::Meta(MetaKey::Protocol) => Some(Data::be16(ethertype)),
            Selector::Payload {
                base: PayloadBase::Network,
                offset,
                len,
            } => match (*offset, *len) {
                // `ip protocol`
                (9, 1) if !self.is_v6 => Some(Data::u8(TCP)),
                place if place == destination => self.to.map(Data::addr),
                _ => None,
            },
            _ => None,
        }
    }
}

fn has_prefix(value: &Data, prefix: &Data, bits: u8) -> bool {
    let pairs = value.as_bytes().iter().zip(prefix.as_bytes());
    let equal = pairs.map(|(a, b)| (a ^ b).leading_zeros());
    let mut left = u32::from(bits);
    for equal in equal {
        if equal < left.min(8) {
            return false;
        }
        left = left.saturating_sub(8);
    }
    left == 0
}
