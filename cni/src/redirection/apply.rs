//! Applies a redirection completely, or not at all.
//!
//! ```text
//! addresses, routes, policy rules   no effect on traffic without rules that mark packets
//! rules                             one transaction of the engine, read back
//! routing                           read back
//! removal of what is replaced       rules of the other engine and of iptables-nft, then their routing
//! ```
//! Nothing of an older redirection is removed until the new one is verified. After a failure everything added is
//! removed, on new sockets; routing only when rules that need it are known not to be in force. New rules are kept
//! when they replaced older ones, or when rules of the other engine may be gone: the error states what exists.

use super::engines::Found;
use super::failure::Failure;
use super::named::Named;
use super::routing::{self, Held};
use super::scheme::Scheme;
use super::write::Writer;
use super::{AppliedRedirection, Change, engines};
use crate::compile::{Compiled, RoutingItem};
use weir_netlink::route::Routing;
use weir_netlink::{Error, InForce, Result};

/// Maximum number of times that routing is added again because another writer removed it before it was read back.
const ROUNDS: usize = 8;

/// Applies to the namespace of this thread. `found` are the rules and `before` is the routing that it holds now.
pub(super) fn apply(
    desired: &Compiled,
    found: Found,
    routing: &Routing,
    before: &Held,
) -> Result<AppliedRedirection, Failure> {
    let items = &desired.routing;
    let scheme = desired.scheme();
    let mut writer = Writer::open(desired, found)?;
    let undo = Undo {
        scheme,
        before,
        items,
    };
    let missing = before.missing(items);
    let mut changes = routing::add(routing, &missing, scheme).map_err(|e| undo.routing(e))?;
    let mut written = writer.write().map_err(|e| undo.all(&writer, e))?;
    changes.append(&mut written.changes);
    if !changes.is_empty() {
        // Retries once on a new socket, in case an answer was lost.
        let again = |_| Routing::open().and_then(|fresh| settle(&fresh, items, scheme));
        let settled = settle(routing, items, scheme).or_else(again);
        let failed = |e: Error| undo.all(&writer, e.with_in_force(InForce::Yes));
        changes.extend(settled.map_err(failed)?);
    }
    let (gone, mut failures) = writer.take_over();
    changes.extend(gone);
    let is_beside = !failures.is_empty();
    if is_beside && writer.is_first() {
        let reason = failures.swap_remove(0);
        return Err(undo.all(&writer, reason.with_in_force(InForce::Yes)));
    }
    let stale = before.stale(items);
    if !stale.is_empty() {
        let (gone, failed) = match failures.is_empty() {
            true => routing::remove(routing, stale),
            false => (Vec::new(), routing::kept(&stale)),
        };
        changes.extend(gone);
        failures.extend(failed);
    }
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(AppliedRedirection { changes, ..written }),
        Some(first) => {
            let failure = Failure::of_apply(first, InForce::Yes, failures.collect());
            Err(match is_beside {
                true => failure.beside(writer.beside()),
                false => failure,
            })
        }
    }
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
    scheme: &'static Scheme,
    before: &'a Held,
    items: &'a [RoutingItem],
}

impl Undo<'_> {
    /// Undoes the routing; no rule has been sent yet.
    fn routing(&self, reason: Error) -> Failure {
        Failure::of_apply(reason, InForce::No, self.take_routing_back())
    }

    fn all(&self, writer: &Writer<'_>, reason: Error) -> Failure {
        let (in_force, mut rest) = writer.take_back(reason.in_force);
        if in_force == InForce::No {
            rest.extend(self.take_routing_back());
        }
        let failure = Failure::of_apply(reason, in_force, rest);
        match in_force == InForce::Yes && writer.succeeds() {
            true => failure.beside(writer.beside()),
            false => failure,
        }
    }

    /// Removes the items that were not there before, including one whose answer was lost. Returns the errors of
    /// removing and of reading.
    fn take_routing_back(&self) -> Vec<Error> {
        let once = || {
            let read = Routing::open().and_then(|fresh| {
                let added = Held::read(self.scheme, &fresh, self.items)?.since(self.before);
                Ok((fresh, added))
            });
            match read {
                Ok((fresh, added)) => routing::remove(&fresh, added),
                Err(e) => (Vec::new(), vec![e]),
            }
        };
        engines::twice(once(), once).1
    }
}

/// Removes everything owned from the namespace of this thread; continues after a failure.
pub(super) fn clean(named: Named<'_>) -> Result<Vec<Change>, Failure> {
    let clean = || engines::clean(named);
    let (mut changes, mut failures) = engines::twice(clean(), clean);
    let routing =
        Routing::open().and_then(|r| Held::read(named.0, &r, &[]).map(|held| (r, held.ours())));
    match routing {
        Err(e) => failures.push(e),
        Ok((routing, ours)) => {
            let may_go = failures.is_empty() || is_clean(named);
            let (gone, failed) = match may_go {
                true => routing::remove(&routing, ours),
                false => (Vec::new(), routing::kept(&ours)),
            };
            changes.extend(gone);
            failures.extend(failed);
        }
    }
    match Failure::of_removal(failures) {
        None => Ok(changes),
        Some(failure) => Err(failure),
    }
}

/// True if no owned rule is left despite a failure.
fn is_clean(named: Named<'_>) -> bool {
    engines::plan_clean(named).is_ok_and(|left| left.is_empty())
}
