//! The reasons why a table is replaced: it cannot be changed in place, or that would be too expensive.

use super::Snapshot;
use super::plan::set_frame;
use super::stray::Stray;
use crate::nft::display::{base_chain_text, table_flags};
use crate::nft::model::{BaseChain, Chain, Object, Policy, Set, Table};

/// Maximum number of rules that the kernel may walk over to delete the surplus rules by handle.
const WALKED: usize = 1 << 20;

/// All reasons why the table `old`, which is `observed.ruleset.tables[i]`, is replaced instead of changed; empty if it can
/// be changed.
pub(super) fn to_replace(new: &Table, old: &Table, observed: &Snapshot, i: usize) -> Vec<String> {
    if observed.overfull.contains(&(old.family, old.name.clone())) {
        return vec!["it holds far more than is desired and was not read to its end".to_owned()];
    }
    let mut reasons = Vec::new();
    if new.flags != old.flags {
        let (found, desired) = (flags(old.flags), flags(new.flags));
        reasons.push(format!("its flags are {found}, not {desired}"));
    }
    if new.comment != old.comment {
        reasons.push(comment("its", old.comment.as_ref()));
    }
    if let Some(found) = old.version.filter(|_| new.version != old.version) {
        reasons.push(match new.version {
            Some(desired) => format!("its rules are of version {found}, not {desired}"),
            None => format!("its rules are of version {found}, and are to have none"),
        });
    }
    for c in &new.chains {
        reasons.extend(old.chain(&c.name).and_then(|o| of_chain(c, o, old)));
    }
    for o in &new.objects {
        let found = old.objects.iter().find(|found| found.is_for(o));
        reasons.extend(found.and_then(|found| of_object(o, found)));
    }
    for s in &new.sets {
        let found = old.sets.iter().find(|o| o.name == s.name);
        reasons.extend(found.and_then(|o| of_set(s, o)));
    }
    reasons.extend(observed.strays(i).iter().map(Stray::to_string));
    let walked = old.chains.iter().map(|c| dear(new, c));
    if walked.fold(0, usize::saturating_add) > WALKED {
        reasons.push("it has too many foreign rules to delete them one by one".to_owned());
    }
    reasons
}

/// Number of rules that the kernel walks over to delete the surplus rules. It searches each rule by its handle from the
/// start of its chain (`nft_rule_lookup`), while it holds the lock of all rulesets of the namespace: it takes half a
/// minute to delete 40,000 rules that another writer appended to a chain one by one, and almost no time to delete them
/// with their table. Deleting the table loses the counters of the rules that would be kept.
fn dear(new: &Table, old: &Chain) -> usize {
    let desired = new.chain(&old.name).map_or(0, |d| d.rules.len());
    let many = old.rules.len();
    many.saturating_sub(desired).saturating_mul(many)
}

fn flags(flags: u32) -> String {
    match table_flags(flags) {
        _ if flags == 0 => "none".to_owned(),
        unknown if unknown.is_empty() => format!("{flags:#x}"),
        names => names,
    }
}

fn comment(whose: &str, found: Option<&String>) -> String {
    match found {
        Some(text) => format!("{whose} comment is {text:?}"),
        None => format!("{whose} comment is missing"),
    }
}

fn of_chain(new: &Chain, old: &Chain, table: &Table) -> Option<String> {
    let name = &new.name;
    if new.comment != old.comment {
        return Some(comment(&format!("chain {name}: its"), old.comment.as_ref()));
    }
    if frame(new) == frame(old) {
        return None;
    }
    let text = |c: &Chain| match &c.base {
        Some(base) if c.offload => {
            format!("flags offload; {}", base_chain_text(base, table.family))
        }
        Some(base) => base_chain_text(base, table.family),
        None => "no base chain".to_owned(),
    };
    Some(format!(
        "chain {name} is \"{}\", not \"{}\"",
        text(old),
        text(new)
    ))
}

/// The properties of a chain that cannot change in place: its hook without the policy, and `offload`.
fn frame(c: &Chain) -> (Option<BaseChain>, bool) {
    let base = c.base.clone().map(|b| BaseChain {
        policy: Policy::Accept,
        ..b
    });
    (base, c.offload)
}

fn of_object(new: &Object, old: &Object) -> Option<String> {
    let differs = new.settled() != old.settled();
    let (kind, name) = (new.kind.word(), &new.name);
    differs.then(|| format!("{kind} {name} has other properties"))
}

fn of_set(new: &Set, old: &Set) -> Option<String> {
    let frame = |s: &Set| Set {
        unread: s.settled_unread(),
        ..set_frame(s)
    };
    let differs = frame(new) != frame(old);
    differs.then(|| format!("set {} has other types, flags or options", new.name))
}
