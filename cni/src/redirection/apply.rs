//! Applies a redirection completely, or not at all.
//!
//! ```text
//! addresses, routes, policy rules   no effect on traffic without rules that mark packets
//! rules                             one transaction of the engine, read back
//! routing                           read back
//! removal of what is replaced       rules of the other engine and of iptables-nft, then their routing
//! second check                      if anything was removed
//! ```
//! Another process may write at the same time: this process may remove the other's objects, and the other may remove
//! ours. So a process that removed something checks its own objects afterwards and writes them again if they are gone:
//! the redirection of the last writer stays, complete.
//!
//! Nothing of an older redirection is removed until the new one is verified. After a failure all additions are
//! removed, on new sockets; routing only if the rules that need it are known not to be in force. New rules are kept
//! if they replaced older ones, or if rules of the other engine may be gone: the error states what exists.

use super::engines::{Found, Removed};
use super::failure::Failure;
use super::named::Named;
use super::routing::{self, Held};
use super::scheme::Scheme;
use super::write::Writer;
use super::{AppliedRedirection, Change, Difference, engines};
use crate::compile::{Compiled, RoutingItem};
use std::cell::Cell;
use std::time::Duration;
use weir_netlink::contention::within;
use weir_netlink::route::Routing;
use weir_netlink::{Error, InForce, Result};

/// Maximum duration of the rollback after a failure.
const UNDO: Duration = Duration::from_secs(10);
/// Maximum number of attempts to write or remove an object that another writer keeps changing.
const ROUNDS: usize = 8;

/// Applies to the namespace of this thread. `found` and `before` are its present rules and routing.
pub(super) fn apply(
    desired: &Compiled,
    found: Found,
    routing: &Routing,
    before: &Held,
) -> Result<AppliedRedirection, Failure> {
    let items = &desired.routing;
    let scheme = desired.scheme();
    let mut writer = Writer::open(desired, found)?;
    let missing = before.missing(items);
    let undo = Undo {
        before,
        missing: &missing,
    };
    let added = routing::add(routing, &missing, scheme);
    let mut changes = added.map_err(|e| undo.routing(&writer, e))?;
    let mut written = writer.write().map_err(|e| undo.all(&writer, e))?;
    let replaces = (written.changes.iter()).any(|c| c.difference() == Difference::Unexpected);
    changes.append(&mut written.changes);
    let mut stale = before.stale(items);
    let mut is_replaced = false;
    if !changes.is_empty() {
        // Retries once on a new socket, in case an answer was lost.
        let again = |_| Routing::open().and_then(|fresh| settle(&fresh, items, scheme));
        let settled = settle(routing, items, scheme).or_else(again);
        let failed = |e: Error| undo.all(&writer, e.with_in_force(InForce::Yes));
        let settled = settled.map_err(failed)?;
        // The writer that removed the routing may have removed the rules, too.
        is_replaced = !settled.is_empty();
        changes.extend(settled);
        if replaces {
            // Another process may have written the replaced rules, and routing for them, since `before` was read.
            let held = Held::read(scheme, routing, items).map_err(failed)?;
            stale = held.stale(items);
        }
    }
    for round in 0..ROUNDS {
        let (mut removed, mut failures) = writer.take_over();
        let is_beside = !failures.is_empty();
        if is_beside && round == 0 && writer.is_first() {
            let reason = failures.swap_remove(0);
            return Err(undo.all(&writer, reason.with_in_force(InForce::Yes)));
        }
        // Rules that have replaced ours since may need routing that ours do not.
        is_replaced |= !stale.is_empty() && !is_beside && !writer.stands();
        if is_beside {
            failures.extend(routing::kept(&stale));
        } else if !is_replaced {
            let (gone, failed) = routing::remove(routing, stale);
            removed.extend(gone);
            failures.extend(failed);
        }
        let is_done = removed.is_empty() && !is_replaced;
        changes.extend(removed);
        if let Some(failure) = of_round(&writer, failures, is_done, is_beside) {
            return Err(failure);
        }
        if is_done {
            return Ok(AppliedRedirection { changes, ..written });
        }
        let again = stand(&mut writer, routing, items).and_then(|(again, generation)| {
            let held = Held::read(scheme, routing, items)?;
            Ok((again, generation, held.stale(items)))
        });
        let (again, generation, left) = again.map_err(|e| lost(&writer, e))?;
        (stale, is_replaced) = (left, !again.is_empty());
        changes.extend(again);
        written.generation = generation.or(written.generation);
        if stale.is_empty() && !is_replaced {
            return Ok(AppliedRedirection { changes, ..written });
        }
    }
    let why = "another program removes it each time, as `weir apply` with the other engine does; let one of them write";
    let reason = Error::exhausted("apply", "the redirection", why);
    Err(lost(&writer, reason))
}

/// Returns the failure of a round in which something could not be removed.
fn of_round(
    writer: &Writer<'_>,
    failures: Vec<Error>,
    is_done: bool,
    is_beside: bool,
) -> Option<Failure> {
    let mut failures = failures.into_iter();
    let first = failures.next()?;
    let known = match is_done {
        true => Some(InForce::Yes),
        false => writer.now(),
    };
    let in_force = known.unwrap_or(InForce::Unknown);
    let failure = Failure::of_apply(first, in_force, failures.collect());
    Some(match is_beside && in_force == InForce::Yes {
        true => failure.beside(writer.beside()),
        false => failure,
    })
}

/// Writes the redirection again if any of it is gone. Rules that another writer added to our chains are not a reason.
fn stand(
    writer: &mut Writer<'_>,
    routing: &Routing,
    items: &[RoutingItem],
) -> Result<(Vec<Change>, Option<u32>)> {
    let scheme = writer.desired.scheme();
    let mut changes = settle(routing, items, scheme)?;
    if writer.stands() {
        return Ok((changes, None));
    }
    let written = writer.write()?;
    changes.extend(written.changes);
    changes.extend(settle(routing, items, scheme)?);
    Ok((changes, written.generation))
}

/// The failure after the replaced objects were removed: nothing can be undone.
fn lost(writer: &Writer<'_>, reason: Error) -> Failure {
    let in_force = writer.now().unwrap_or(InForce::Unknown);
    Failure::of_apply(reason, in_force, Vec::new())
}

/// Reads the routing back, and adds again items that another writer has removed.
fn settle(
    routing: &Routing,
    items: &[RoutingItem],
    scheme: &'static Scheme,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for _ in 0..ROUNDS {
        let missing = Held::read_of(scheme, routing, items)?.missing(items);
        if missing.is_empty() {
            return Ok(changes);
        }
        changes.extend(routing::add(routing, &missing, scheme)?);
    }
    let why = "another writer removes it each time; find out who writes routes in this namespace";
    Err(Error::exhausted("verify", "the routing", why))
}

/// Restores the state before the change.
struct Undo<'a> {
    before: &'a Held,
    /// The changes that were to be made.
    missing: &'a [Change],
}

impl Undo<'_> {
    /// Undoes the routing; no rule was sent yet.
    fn routing(&self, writer: &Writer<'_>, reason: Error) -> Failure {
        let rest = within(UNDO, || self.take_routing_back(writer));
        Failure::of_apply(reason, InForce::No, rest)
    }

    fn all(&self, writer: &Writer<'_>, reason: Error) -> Failure {
        within(UNDO, || self.all_in_time(writer, reason))
    }

    fn all_in_time(&self, writer: &Writer<'_>, reason: Error) -> Failure {
        let (in_force, mut rest) = writer.take_back(reason.in_force);
        if in_force == InForce::No {
            rest.extend(self.take_routing_back(writer));
        }
        let failure = Failure::of_apply(reason, in_force, rest);
        match in_force == InForce::Yes && writer.succeeds() {
            true => failure.beside(writer.beside()),
            false => failure,
        }
    }

    /// Removes the items that were to be added and did not exist before, including an item whose acknowledgement was lost.
    /// They stay if another process has written rules that need them. Returns the errors of reading and removing.
    fn take_routing_back(&self, writer: &Writer<'_>) -> Vec<Error> {
        let (scheme, items) = (writer.desired.scheme(), &writer.desired.routing);
        let (is_read, is_kept) = (Cell::new(false), Cell::new(false));
        let read = || -> Result<_> {
            let fresh = Routing::open()?;
            let mut added = Held::read(scheme, &fresh, items)?.since(self.before);
            added.retain(|found| routing::is_of(found, self.missing));
            if !added.is_empty() && writer.is_written_by_another()? {
                // The rules may be older than this call, so they do not show whether there is another writer.
                is_kept.set(!writer.is_first());
                added.clear();
            }
            Ok((fresh, added))
        };
        let once = || {
            let read = read();
            is_read.set(read.is_ok());
            let (fresh, added) = match read {
                Ok(read) => read,
                Err(e) => return (Vec::new(), vec![e]),
            };
            let (removed, mut failures) = routing::remove(&fresh, added);
            if removed.is_empty() {
                return (removed, failures);
            }
            // Another process may have read the items before they were removed, and rely on them.
            let is_needed = writer.is_written_by_another();
            if !matches!(is_needed, Ok(false)) {
                failures.extend(routing::add(&fresh, self.missing, scheme).err());
            }
            is_read.set(is_needed.is_ok());
            failures.extend(is_needed.err());
            (removed, failures)
        };
        let mut failures = engines::twice(once(), once).1;
        if !is_read.get() || is_kept.get() {
            failures.extend(routing::in_doubt(self.missing));
        }
        failures
    }
}

/// Removes everything owned from the namespace of this thread; continues after a failure. Also removes what another
/// process applies at the same time: its routing may be gone already.
pub(super) fn clean(named: Named<'_>) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    let mut rounds = 1..ROUNDS;
    loop {
        let (gone, mut failures) = engines::clean(named);
        changes.extend(gone);
        match clean_routing(named, failures.is_empty()) {
            Ok(((gone, failed), is_done)) => {
                changes.extend(gone);
                failures.extend(failed);
                if failures.is_empty() && !is_done {
                    if rounds.next().is_some() {
                        continue;
                    }
                    let why = "another program applies it each time; let one of them write";
                    failures.push(Error::exhausted("remove", "the redirection", why));
                }
            }
            Err(e) => {
                let reason = "some may be left; clean again";
                failures.extend([e, Error::refused("find", "the routing to remove", reason)]);
            }
        }
        return match Failure::of_removal(failures) {
            None => Ok(changes),
            Some(failure) => Err(failure),
        };
    }
}

/// Removes owned routing if no existing rules may need it. The second value is true if there were no rules afterwards
/// either. Rules that exist although they were `removed` are those of another process and must be removed first.
fn clean_routing(named: Named<'_>, removed: bool) -> Result<(Removed, bool)> {
    let routing = Routing::open()?;
    let ours = Held::read(named.0, &routing, &[])?.ours();
    let is_clean = || engines::plan_clean(named).map(|left| left.is_empty());
    if ours.is_empty() {
        return Ok((Removed::default(), true));
    }
    match is_clean() {
        Ok(true) => {
            let mut gone = routing::remove(&routing, ours);
            match is_clean() {
                Ok(is_done) => Ok((gone, is_done)),
                Err(e) => {
                    // The result of the removal is known nevertheless.
                    gone.1.push(e);
                    Ok((gone, true))
                }
            }
        }
        Ok(false) if removed => Ok((Removed::default(), false)),
        Err(e) if removed => Err(e),
        _ => Ok(((Vec::new(), routing::kept(&ours)), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Engine, compile};
    use crate::config::{Inbound, Intent, texts};
    use crate::redirection::{SIDECAR, Sandbox, Visit};
    use weir_netfilter::xtables;
    use weir_netlink::route::LOOPBACK_IFINDEX;

    /// Returns the routing left after a process failed to add its own; another process runs `meanwhile` after the first
    /// has read the namespace.
    fn left(visit: &Visit<'_>, desired: &Compiled, meanwhile: impl FnOnce()) -> Vec<Change> {
        let scheme = desired.scheme();
        let before = Held::read(scheme, &visit.routing, &desired.routing).unwrap();
        let writer = Writer::open(desired, visit.found().unwrap()).unwrap();
        let missing = before.missing(&desired.routing);
        meanwhile();
        let (first, rest) = missing.split_first().unwrap();
        assert!(!rest.is_empty());
        routing::add(&visit.routing, std::slice::from_ref(first), scheme).unwrap();
        let undo = Undo {
            before: &before,
            missing: &missing,
        };
        let lost = Error::exhausted("add", "the next one", "a test");
        let _ = undo.routing(&writer, lost);
        let held = Held::read(scheme, &visit.routing, &desired.routing).unwrap();
        let mut left = held.ours();
        left.retain(|item| !matches!(item, RoutingItem::Address(_)));
        left.into_iter().map(Change::Add).collect()
    }

    fn tproxy() -> Compiled {
        let intent = Intent {
            mode: texts::tproxy(),
            inbound: Inbound::All,
            ..Intent::default()
        };
        compile(&intent, Engine::Nft)
    }

    #[test]
    fn what_another_process_has_applied_meanwhile_is_not_taken_back() {
        let netns = weir_testing::namespace_or_skip!();
        let desired = tproxy();
        let sandbox = Sandbox::of(netns).unwrap();
        let (alone, beside) = sandbox
            .visit(|visit| {
                visit.routing.set_up(LOOPBACK_IFINDEX).unwrap();
                let alone = left(visit, &desired, || {});
                let another = || drop(sandbox.apply(&desired).unwrap());
                (alone, left(visit, &desired, another))
            })
            .unwrap();
        assert_eq!(alone, []);
        assert_eq!(beside.len(), 2, "{beside:?}");
        assert_eq!(sandbox.verify(&desired).unwrap(), []);
    }

    /// Another program has deleted the chains of an older redirection: the rule that is left is not that of another process.
    #[test]
    fn beside_a_tagged_rule_everything_is_taken_back() {
        let netns = weir_testing::namespace_or_skip!();
        let sandbox = Sandbox::of(netns).unwrap();
        let left = sandbox.visit(|visit| {
            if !crate::redirection::engines::legacy_can_be_used() {
                return None;
            }
            visit.routing.set_up(LOOPBACK_IFINDEX).unwrap();
            let excluded = xtables::Rule::builder().in_interface("net1");
            let mut chain = xtables::Chain::builtin("PREROUTING");
            chain.rules = vec![excluded.target(xtables::Target::Return)];
            let mut table = xtables::Table::new(xtables::XtFamily::Ip, "nat");
            table.chains.push(chain);
            let rules = xtables::Ruleset {
                tables: vec![table],
            };
            let mut engine = xtables::XtEngine::open().unwrap();
            engine.apply(&rules, &SIDECAR.ownership()).unwrap();
            let found = visit.found().unwrap();
            assert!(!found.legacy_holds && found.legacy_remains);
            Some(left(visit, &tproxy(), || {}))
        });
        match left.unwrap() {
            None => println!("skipped: no legacy tables"),
            Some(left) => assert_eq!(left, []),
        }
    }

    /// Its rules are replaced, and its routing was in the way of no rule any more, but stayed.
    #[test]
    fn what_another_process_has_applied_meanwhile_is_replaced_with_its_routing() {
        let netns = weir_testing::namespace_or_skip!();
        let (other, sandbox) = (tproxy(), Sandbox::of(netns).unwrap());
        for engine in [Engine::Nft, Engine::Xtables] {
            if engine == Engine::Xtables && !crate::redirection::has_legacy_tables().unwrap() {
                println!("skipped: this kernel has no legacy tables");
                continue;
            }
            let intent = Intent {
                enable_ipv6: true,
                ..Intent::default()
            };
            let desired = compile(&intent, engine);
            let applied = sandbox.visit(|visit| {
                visit.routing.set_up(LOOPBACK_IFINDEX).unwrap();
                let found = visit.found().unwrap();
                let before = Held::read(desired.scheme(), &visit.routing, &desired.routing);
                sandbox.apply(&other).unwrap();
                apply(&desired, found, &visit.routing, &before.unwrap()).map(drop)
            });
            applied.unwrap().unwrap();
            assert_eq!(sandbox.verify(&desired).unwrap(), [], "{engine}");
            sandbox.clean(None).unwrap();
        }
    }

    /// The other process has replaced older rules, and this one can read and remove the routing, but not read the rules.
    #[test]
    fn what_another_process_may_have_applied_meanwhile_is_not_taken_back() {
        let netns = weir_testing::namespace_or_skip!();
        let desired = tproxy();
        let sandbox = Sandbox::of(netns).unwrap();
        let kept = sandbox.visit(|visit| {
            visit.routing.set_up(LOOPBACK_IFINDEX).unwrap();
            let older = compile(&Intent::default(), Engine::Nft);
            sandbox.apply(&older).unwrap();
            left(visit, &desired, || {
                sandbox.apply(&desired).unwrap();
                // For a socket of rtnetlink.
                weir_testing::descriptors::leave(1);
            })
        });
        assert_eq!(kept.unwrap().len(), 2);
        assert_eq!(sandbox.verify(&desired).unwrap(), []);
    }
}
