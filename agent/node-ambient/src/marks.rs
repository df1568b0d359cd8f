//! Bits of marks that foreign rules compare or set.

use crate::nft::{HOST_TABLE, PROXY_TABLE};
use crate::reach::{self, Reached};
use crate::xtables::PREFIX;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::nft::compat::Compat;
use weir_netfilter::nft::expr::Expr;
use weir_netfilter::nft::{
    CtKey, Data, Match, MetaKey, NftEngine, Operand, Rule, Selector, SocketKey, Source, Statement,
    TableFamily, priority,
};
use weir_netfilter::xtables::raw::IPSET_FLAG_MAP_SKBMARK;
use weir_netfilter::xtables::{Connmark, Match as XtMatch, Target, XtEngine};
use weir_netlink::Result;

/// The object that carries the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Packet,
    Connection,
    /// `SO_MARK`, which the kernel copies to the packets of the socket.
    Socket,
}

impl Owner {
    /// Returns the prefix of "mark" in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Packet => "",
            Self::Connection => "connection ",
            Self::Socket => "socket ",
        }
    }
}

/// Bits of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bits {
    owner: Owner,
    /// Compared, or changed.
    used: u32,
    /// May change from 0 to 1.
    set: u32,
    /// May change from 1 to 0.
    cleared: u32,
}

impl Bits {
    fn compared(owner: Owner, used: u32) -> Self {
        Self {
            owner,
            used,
            set: 0,
            cleared: 0,
        }
    }

    /// `(mark & !mask) ^ value`
    fn written(owner: Owner, value: u32, mask: u32) -> Self {
        Self {
            owner,
            used: value | mask,
            set: value,
            cleared: (mask & !value) | (value & !mask),
        }
    }

    /// Bits that are copied from another mark, with unknown values.
    fn copied(owner: Owner, used: u32) -> Self {
        Self {
            owner,
            used,
            set: used,
            cleared: used,
        }
    }

    fn at(self, place: &str, reached: Option<&i32>) -> Used {
        // Before the chains of this crate a packet's mark is empty anyway, so clearing bits has no effect; connection marks are written
        // after routing.
        let is_after = self.owner == Owner::Packet && reached > Some(&priority::MANGLE);
        let (set, cleared) = (reached.map_or(0, |_| self.set), self.cleared);
        Used {
            place: place.to_owned(),
            owner: self.owner,
            bits: self.used,
            decides: set | if is_after { cleared } else { 0 },
        }
    }
}

/// Bits that one chain uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Used {
    pub(crate) place: String,
    pub(crate) owner: Owner,
    pub(crate) bits: u32,
    /// The subset that the chain may change before packets of pods are routed, and which so may decide where they go.
    pub(crate) decides: u32,
}

/// Returns the bits that foreign rules use, without duplicates. If the kernel does not support an engine, there are no rules of it.
pub(crate) fn of_others() -> Result<Vec<Used>> {
    let mut used = of_nft()?;
    used.extend(of_legacy()?);
    used.sort();
    used.dedup();
    Ok(used)
}

fn of_nft() -> Result<Vec<Used>> {
    let mut used = Vec::new();
    let tables = NftEngine::open().and_then(|mut engine| Ok((engine.tables()?, engine)));
    let (tables, mut engine) = match tables {
        Ok(found) => found,
        Err(e) if e.is_unsupported() => return Ok(used),
        Err(e) => return Err(e),
    };
    let others = tables.into_iter();
    let others = others.filter(|(_, name)| name != HOST_TABLE && name != PROXY_TABLE);
    let others: Vec<_> = others.collect();
    for table in engine.read_tables(&others)?.ruleset.tables {
        let reached = reach::of_nft(&table);
        for chain in &table.chains {
            let place = format!("nft table {} chain {}", table.name, chain.name);
            let at = reached.get(chain.name.as_str());
            let bits = of_rules(&chain.rules, table.family).into_iter();
            used.extend(bits.map(|bits| bits.at(&place, at)));
        }
    }
    Ok(used)
}

/// Includes the rules of anonymous chains (`jump { ... }`).
fn of_rules(rules: &[Rule], family: TableFamily) -> Vec<Bits> {
    let mut bits = Vec::new();
    let statements = rules.iter().flat_map(Rule::with_own);
    for statement in statements.flat_map(|r| &r.statements) {
        of_statement(statement, family, &mut bits);
    }
    bits
}

fn of_legacy() -> Result<Vec<Used>> {
    let mut used = Vec::new();
    if !has_legacy_tables()? {
        return Ok(used);
    }
    for table in XtEngine::open()?.ruleset()?.tables {
        let reached: Reached<'_> = reach::of_legacy(&table);
        for chain in table.chains.iter().filter(|c| !c.name.starts_with(PREFIX)) {
            let place = format!("legacy table {} chain {}", table.name, chain.name);
            let at = reached.get(chain.name.as_str());
            for rule in &chain.rules {
                let bits = rule.matches.iter().filter_map(of_match);
                let bits = bits.chain(rule.target.as_ref().and_then(of_target));
                used.extend(bits.map(|bits| bits.at(&place, at)));
            }
        }
    }
    Ok(used)
}

fn of_match(found: &XtMatch) -> Option<Bits> {
    match found {
        XtMatch::Mark(mark) => Some(Bits::compared(Owner::Packet, mark.mask)),
        XtMatch::Connmark(mark) => Some(Bits::compared(Owner::Connection, mark.mask)),
        // Sets the packet's mark to that of a socket of the node itself.
        XtMatch::Extension(socket) if socket.has("--restore-skmark") => {
            Some(Bits::compared(Owner::Packet, u32::MAX))
        }
        // A revision that is not decoded.
        other if other.name() == "mark" => Some(Bits::compared(Owner::Packet, u32::MAX)),
        other if other.name() == "connmark" => Some(Bits::compared(Owner::Connection, u32::MAX)),
        _ => None,
    }
}

/// Returns the bits that a target sets. Bits copied from another mark count only as bits of the destination.
fn of_target(target: &Target) -> Option<Bits> {
    let copied = |owner, to: u32, from: u32| Bits {
        set: from,
        ..Bits::copied(owner, to | from)
    };
    match target {
        Target::Mark(set) => Some(Bits::written(Owner::Packet, set.value, set.mask)),
        Target::Tproxy(to) => Some(Bits::written(Owner::Packet, to.mark, to.mask)),
        Target::Connmark(change) => Some(match change {
            Connmark::Set(set) => Bits::written(Owner::Connection, set.value, set.mask),
            Connmark::Save { nfmask, ctmask } => copied(Owner::Connection, *ctmask, *nfmask),
            Connmark::Restore { nfmask, ctmask } => copied(Owner::Packet, *nfmask, *ctmask),
            // A shift counts as a change of every bit.
            Connmark::Shifted(of, _) => match **of {
                Connmark::Restore { .. } => Bits::copied(Owner::Packet, u32::MAX),
                _ => Bits::copied(Owner::Connection, u32::MAX),
            },
        }),
        Target::Set(set) if set.map.is_some() && set.map_flags & IPSET_FLAG_MAP_SKBMARK != 0 => {
            Some(Bits::copied(Owner::Packet, u32::MAX))
        }
        // A form that is not decoded.
        other => match other.extension()? {
            "MARK" => Some(Bits::copied(Owner::Packet, u32::MAX)),
            "CONNMARK" => Some(Bits::copied(Owner::Connection, u32::MAX)),
            _ => None,
        },
    }
}

fn number(data: &Data) -> u32 {
    data.to_ne32().unwrap_or(u32::MAX)
}

fn owner(selector: &Selector) -> Option<Owner> {
    match selector {
        Selector::Meta(MetaKey::Mark) => Some(Owner::Packet),
        Selector::Ct(CtKey::Mark, _) => Some(Owner::Connection),
        Selector::Socket(SocketKey::Mark, _) => Some(Owner::Socket),
        _ => None,
    }
}

fn of_statement(statement: &Statement, family: TableFamily, bits: &mut Vec<Bits>) {
    match statement {
        Statement::Match(Match {
            selector,
            mask,
            operand,
            ..
        }) => bits.extend(owner(selector).map(|owner| {
            let compared = match (mask, operand) {
                (Some(mask), _) | (None, Operand::AnyBit(mask)) => number(mask),
                _ => u32::MAX,
            };
            Bits::compared(owner, compared)
        })),
        Statement::Vmap(selector, _) => {
            bits.extend(owner(selector).map(|o| Bits::compared(o, u32::MAX)));
        }
        Statement::MetaSet(key, source) => {
            let set = (*key == MetaKey::Mark).then_some(Owner::Packet);
            of_source(set, source, bits);
        }
        Statement::CtSet(key, _, source) => {
            let set = (*key == CtKey::Mark).then_some(Owner::Connection);
            of_source(set, source, bits);
        }
        Statement::Opaque(exprs) => of_expressions(exprs, family, bits),
        _ => {}
    }
}

/// `set`: the mark that gets the value, if it is one.
fn of_source(set: Option<Owner>, source: &Source, bits: &mut Vec<Bits>) {
    bits.extend(set.map(|set| match source {
        Source::Value(value) => Bits::written(set, number(value), u32::MAX),
        Source::Bitwise {
            selector,
            mask,
            xor,
        } => {
            let (mask, xor) = (number(mask), number(xor));
            match owner(selector) == Some(set) {
                true => Bits::written(set, xor, !mask),
                // Copied from another mark
                false => Bits {
                    set: mask | xor,
                    ..Bits::copied(set, u32::MAX)
                },
            }
        }
        _ => Bits::copied(set, u32::MAX),
    }));
    if let Source::Map(selector, _) = source {
        bits.extend(owner(selector).map(|owner| Bits::compared(owner, u32::MAX)));
    }
}

/// A mark in a register.
struct Loaded {
    owner: Owner,
    register: Option<u32>,
}

/// Reads expressions that are not decoded as statements: rules of `iptables-nft`, maps and sets with a concatenated key or a mask.
fn of_expressions(exprs: &[Expr], family: TableFamily, bits: &mut Vec<Bits>) {
    let mut loaded = Vec::new();
    let mut stored = Vec::new();
    for expr in exprs {
        bits.extend(match Compat::read(expr, family) {
            Some(Compat::Match(found)) => of_match(&found),
            Some(Compat::Target(target)) => of_target(&target),
            _ => None,
        });
        let (owner, load, store) = match expr {
            Expr::Meta(m) if m.key.map(MetaKey::from) == Some(MetaKey::Mark) => {
                (Owner::Packet, m.dreg, m.sreg)
            }
            Expr::Ct(c) if c.key.map(CtKey::from) == Some(CtKey::Mark) => {
                (Owner::Connection, c.dreg, c.sreg)
            }
            Expr::Socket(s) if s.key.map(SocketKey::from) == Some(SocketKey::Mark) => {
                (Owner::Socket, s.dreg, None)
            }
            _ => continue,
        };
        let of = |register: Option<u32>| register.is_some().then_some(Loaded { owner, register });
        loaded.extend(of(load));
        stored.extend(of(store));
    }
    // To change some bits of a mark, a rule loads, masks and stores it.
    for Loaded { owner, .. } in &stored {
        bits.push(Bits::copied(*owner, u32::MAX));
    }
    let is_stored = |owner: Owner| stored.iter().any(|s| s.owner == owner);
    for Loaded { owner, register } in loaded.iter().filter(|l| !is_stored(l.owner)) {
        bits.push(Bits::compared(*owner, mask_of(exprs, *register)));
    }
}

/// Returns the mask that is applied to a register before use.
fn mask_of(exprs: &[Expr], register: Option<u32>) -> u32 {
    let mask = exprs.iter().find_map(|expr| match expr {
        Expr::Bitwise(b) if b.sreg == register => Some(b.mask.as_ref()?.value.as_deref()?),
        _ => None,
    });
    mask.map_or(u32::MAX, |mask| number(&Data::from(mask)))
}

#[cfg(test)]
mod tests {
    use super::{Bits, Owner, of_rules};
    use weir_netfilter::nft::{CmpOp, Rule, TableFamily};

    #[test]
    fn rules_of_own_chains_count_at_any_depth() {
        let leading = |rules: Vec<Rule>| Rule {
            chain: Some(rules),
            ..Rule::builder().mark(CmpOp::Eq, 1).jump("")
        };
        let innermost = Rule::builder().set_mark(0x10).build();
        let rules = [leading(vec![leading(vec![innermost])])];
        let found = of_rules(&rules, TableFamily::Inet);
        let compared = Bits::compared(Owner::Packet, u32::MAX);
        let set = Bits::written(Owner::Packet, 0x10, u32::MAX);
        assert_eq!(found, [compared, compared, set]);
        let without = [compared, compared];
        let rules = [leading(vec![leading(Vec::new())])];
        assert_eq!(of_rules(&rules, TableFamily::Inet), without);
    }
}
