//! The loop by which every engine brings the kernel to a desired state.
//!
//! ```text
//! observe -> plan -> commit -> read back, compare
//!    ^                 |            |
//!    |   another writer was first   another writer changed it since
//!    '--------------------------------------------------------------'   for at most `CONTENTION`
//! ```
//! An engine defines its steps ([`Converge`]); this module alone decides what follows from their outcome: when to
//! retry, how to determine whether a commit with a lost answer is in force, and what an error reports about that
//! ([`Error::in_force`]).

use std::fmt;
use std::time::{Duration, Instant};
use weir_netlink::contention::Attempts;
use weir_netlink::{Error, InForce, Result};

/// How often a desired state is committed that the kernel acknowledges and then lists differently, where the engine
/// cannot distinguish another writer from a kernel that lists something else than it was given.
const ROUNDS: u32 = 8;

/// Maximum number of lost answers: the last one is reported instead of resolved by reading.
const LOST: u32 = 3;

/// The desired state of one engine, and the steps towards it.
pub(crate) trait Converge {
    /// The actual state.
    type Observed;
    /// The changes that lead from the actual to the desired state.
    type Plan;
    /// One operation of a plan.
    type Op: PartialEq;

    /// Its name in errors: "the ruleset".
    const OBJECT: &'static str;

    /// Reads the actual state.
    fn observe(&mut self) -> Result<Self::Observed>;

    /// Plans the missing operations.
    fn plan(&mut self, observed: &Self::Observed) -> Result<Self::Plan>;

    /// The operations of a plan; none when the actual state is in sync.
    fn ops(plan: &mut Self::Plan) -> &mut Vec<Self::Op>;

    /// Sends a plan. `late` counts the consecutive plans that were refused because another writer committed first.
    ///
    /// If [`Error::in_force`] of the error is unknown, the loop reads the state to determine it.
    fn commit(&mut self, plan: &mut Self::Plan, late: u32) -> Result<Committed>;

    /// Compares the actual state with what was committed; `before` is the state that the plan was made for.
    fn read_back(
        &mut self,
        plan: &Self::Plan,
        before: &Self::Observed,
    ) -> Result<ReadBack<Self::Observed>>;

    /// Whether nothing was committed between the two readings.
    fn is_same(&mut self, before: &Self::Observed, now: &Self::Observed) -> bool;

    /// Opens a new socket, on which no late answer can be mistaken for the answer to a new request.
    fn reopen(&mut self) -> Result<()>;

    /// Whether the plan describes a target state, so that it may be planned again after a lost answer.
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The kernel acknowledged it.
    Yes,
    /// Another writer committed first: the plan was made for another state, and nothing was changed.
    Late,
}

/// The outcome of reading back.
pub(crate) enum ReadBack<O> {
    /// The actual state is what was committed.
    InSync(O),
    /// Another writer has changed it since.
    Overwritten,
    /// The actual state is not what was acknowledged; `detail` counts the differences. `is_certain`: no other writer
    /// caused them.
    Differs { detail: String, is_certain: bool },
}

impl<O> ReadBack<O> {
    /// [`ReadBack::Differs`] for the operations that are missing; `what` names what the kernel lists.
    pub(crate) fn differs<P: fmt::Display>(what: &str, missing: &[P], is_certain: bool) -> Self {
        let first = missing.first().map(P::to_string).unwrap_or_default();
        let first = first.lines().next().unwrap_or_default();
        let or_else = match is_certain {
            true => "",
            false => ", or another writer changes them",
        };
        let detail = format!(
            "the kernel acknowledged the {what} but lists others{or_else}: {} operations away, first: {first}",
            missing.len()
        );
        Self::Differs { detail, is_certain }
    }
}

/// The actual state is in sync.
#[derive(Debug)]
pub(crate) struct Converged<O, P> {
    /// The changes that were made, in this order; empty if the state was already in sync.
    pub(crate) ops: Vec<P>,
    /// The state that was read last.
    pub(crate) observed: O,
    /// Duration of reading back; `None` when nothing was written.
    pub(crate) read_back: Option<Duration>,
}

/// The state of a running loop.
struct Progress<P> {
    ops: Vec<P>,
    in_force: InForce,
    read_back: Option<Duration>,
    /// The first lost answer since the last acknowledged commit.
    lost: Option<Error>,
}

/// Brings the kernel to the desired state. While another writer interferes, retries for at most `limit`.
///
/// # Errors
/// As the steps; another writer kept interfering ([`ErrorKind::Exhausted`](weir_netlink::ErrorKind)).
/// [`Error::in_force`] covers this and all earlier rounds.
pub(crate) fn converge<C: Converge>(
    desired: &mut C,
    limit: Duration,
) -> Result<Converged<C::Observed, C::Op>> {
    let mut progress = Progress {
        ops: Vec::new(),
        in_force: InForce::No,
        read_back: None,
        lost: None,
    };
    match rounds(desired, limit, &mut progress) {
        Ok(observed) => Ok(Converged {
            ops: progress.ops,
            observed,
            read_back: progress.read_back,
        }),
        // A later error is less informative: it describes only what could not be repeated.
        Err(e) => match progress.lost {
            Some(lost) => Err(lost),
            None => Err(of_all_rounds(e, progress.in_force)),
        },
    }
}

/// Adds the effect of earlier rounds to the error of the last one: a round that changed nothing does not undo them.
fn of_all_rounds(error: Error, in_force: InForce) -> Error {
    match error.in_force {
        InForce::No => error.with_in_force(in_force),
        _ => error,
    }
}

fn rounds<C: Converge>(
    desired: &mut C,
    limit: Duration,
    progress: &mut Progress<C::Op>,
) -> Result<C::Observed> {
    let mut attempts = Attempts::begin(limit);
    let (mut late, mut lost, mut differed) = (0, 0, 0);
    let mut sent: Vec<C::Op> = Vec::new();
    let mut before = desired.observe()?;
    loop {
        let mut plan = desired.plan(&before)?;
        // Operations that were sent without an acknowledgement and are not missing now are in force.
        let missing = C::ops(&mut plan);
        let done = sent.drain(..).filter(|op| !missing.contains(op));
        progress.ops.extend(done);
        if C::ops(&mut plan).is_empty() {
            return Ok(before);
        }
        match desired.commit(&mut plan, late) {
            Ok(Committed::Late) => late += 1,
            Ok(Committed::Yes) => {
                late = 0;
                progress.in_force = InForce::Yes;
                progress.lost = None;
                let begun = Instant::now();
                let found = read_back(desired, &plan, &before)?;
                progress.ops.append(C::ops(&mut plan));
                progress.read_back = Some(begun.elapsed());
                match found {
                    ReadBack::InSync(now) => return Ok(now),
                    ReadBack::Overwritten => {}
                    ReadBack::Differs { detail, is_certain } => {
                        differed += 1;
                        if is_certain || differed == ROUNDS {
                            return Err(Error::malformed("verify", C::OBJECT, detail));
                        }
                    }
                }
            }
            Err(e) if e.in_force == InForce::Unknown => {
                lost += 1;
                let begun = Instant::now();
                let Ok(now) = look_again(desired) else {
                    return Err(e);
                };
                if desired.is_same(&before, &now) {
                    return Err(e.with_in_force(progress.in_force));
                }
                if !desired.is_idempotent() || lost == LOST {
                    return Err(e);
                }
                // All or a part of the plan is in force: the next plan shows which. The wait for the answer was long, so
                // this round does not count as an attempt.
                progress.in_force = InForce::Unknown;
                progress.read_back = Some(begun.elapsed());
                progress.lost.get_or_insert(e);
                sent.append(C::ops(&mut plan));
                before = now;
                continue;
            }
            Err(e) => return Err(e),
        }
        attempts.try_again("apply", C::OBJECT)?;
        before = desired.observe().or_else(|_| look_again(desired))?;
    }
}

/// Reads back; after a lost answer once more on a new socket, because the commit is already in force.
fn read_back<C: Converge>(
    desired: &mut C,
    plan: &C::Plan,
    before: &C::Observed,
) -> Result<ReadBack<C::Observed>> {
    let lost = match desired.read_back(plan, before) {
        Err(e) if !matches!(e.kind, weir_netlink::ErrorKind::Exhausted(_)) => e,
        found => return found,
    };
    match desired.reopen() {
        Ok(()) => desired.read_back(plan, before),
        Err(_) => Err(lost),
    }
}

/// Reads the actual state on a new socket.
fn look_again<C: Converge>(desired: &mut C) -> Result<C::Observed> {
    desired.reopen()?;
    desired.observe()
}

#[cfg(test)]
mod tests;
