//! The loop in which every engine brings the kernel to a desired state.
//!
//! ```text
//! observe -> plan -> commit -> read back, compare
//!    ^                 |            |
//!    |   another writer was first   another writer changed it since
//!    '--------------------------------------------------------------'   for at most `CONTENTION`
//! ```
//! An engine says what its steps are ([`Converge`]); what follows from their outcome is decided here alone: when to begin
//! again, what becomes of a commit whose answer was lost, and what an error says of the change ([`Error::in_force`]).

use std::fmt;
use std::time::{Duration, Instant};
use weir_netlink::contention::Attempts;
use weir_netlink::{Error, InForce, Result};

/// How often a desired state is committed again that was acknowledged and then read back differently, where the engine
/// cannot tell another writer from a kernel that lists something else than it was given.
const ROUNDS: u32 = 8;

/// How many lost answers are looked into before the last one is reported.
const LOST: u32 = 3;

/// A desired state of one engine.
pub(crate) trait Converge {
    /// What the kernel holds.
    type Observed;
    /// What turns it into the desired state.
    type Plan;
    /// One operation of a plan.
    type Op: PartialEq;

    /// What it is called in errors: "the ruleset".
    const OBJECT: &'static str;

    /// Reads what the kernel holds.
    fn observe(&mut self) -> Result<Self::Observed>;

    /// What is missing.
    fn plan(&mut self, observed: &Self::Observed) -> Result<Self::Plan>;

    /// The operations of a plan; none when the kernel holds what is desired.
    fn ops(plan: &mut Self::Plan) -> &mut Vec<Self::Op>;

    /// Sends a plan. `late` says how many plans in a row were refused because another writer was first.
    ///
    /// An error whose [`Error::in_force`] is not known is looked into.
    fn commit(&mut self, plan: &mut Self::Plan, late: u32) -> Result<Committed>;

    /// Compares what the kernel holds with what was committed; `before` is what the plan was made for.
    fn read_back(
        &mut self,
        plan: &Self::Plan,
        before: &Self::Observed,
    ) -> Result<ReadBack<Self::Observed>>;

    /// Whether nothing was committed between the two.
    fn is_same(&mut self, before: &Self::Observed, now: &Self::Observed) -> bool;

    /// Opens a fresh socket, on which no late answer is taken for a new one.
    fn reopen(&mut self) -> Result<()>;

    /// Whether the plan brings about a state, so that planning again after a lost answer does no harm.
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The kernel acknowledged it.
    Yes,
    /// Another writer was first: the plan was made for another state, and nothing was changed.
    Late,
}

/// What was read back.
pub(crate) enum ReadBack<O> {
    /// What was committed.
    InSync(O),
    /// Another writer changed it since.
    Overwritten,
    /// Something else than was acknowledged; the text says how far away. `is_certain`: no other writer did it.
    Differs { detail: String, is_certain: bool },
}

impl<O> ReadBack<O> {
    /// So many operations away from what was acknowledged; `what` is what the kernel lists.
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

/// The kernel holds what is desired.
#[derive(Debug)]
pub(crate) struct Converged<O, P> {
    /// What was changed, in this order; empty when nothing differed.
    pub(crate) ops: Vec<P>,
    /// What was read last.
    pub(crate) observed: O,
    /// How long reading back took; `None` when nothing was written.
    pub(crate) read_back: Option<Duration>,
}

/// What is known in the midst of it.
struct Progress<P> {
    ops: Vec<P>,
    in_force: InForce,
    read_back: Option<Duration>,
    /// The first answer since the last acknowledged commit that was lost.
    lost: Option<Error>,
}

/// Makes the kernel hold the desired state. While another writer interferes it begins again, for at most `limit`.
///
/// # Errors
/// As the steps; another writer kept interfering ([`ErrorKind::Exhausted`](weir_netlink::ErrorKind)). The error says
/// what is known of the change, of this and of all rounds before.
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
        // What came after it tells less: it names what could not be put back.
        Err(e) => match progress.lost {
            Some(lost) => Err(lost),
            None => Err(of_all_rounds(e, progress.in_force)),
        },
    }
}

/// A later round that changed nothing does not undo what an earlier one did.
fn of_all_rounds(error: Error, in_force: InForce) -> Error {
    match error.in_force() {
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
        // Of what was sent and not acknowledged, that which is not missing now.
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
            Err(e) if e.in_force() == InForce::Unknown => {
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
                // All of it, or some: the next plan tells. The silence was long, and counts for no attempt.
                progress.in_force = InForce::Unknown;
                progress.read_back = Some(begun.elapsed());
                progress.lost.get_or_insert(e);
                sent.append(C::ops(&mut plan));
                before = now;
                continue;
            }
            Err(e) => return Err(e),
        }
        if !attempts.again() {
            let what = format!(
                "another writer keeps changing it; {} attempts in {:?}",
                attempts.made(),
                attempts.limit()
            );
            return Err(Error::exhausted("apply", C::OBJECT, what));
        }
        before = desired.observe().or_else(|_| look_again(desired))?;
    }
}

/// One more time after a lost answer: what was committed is there.
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

/// What the kernel holds, on a fresh socket.
fn look_again<C: Converge>(desired: &mut C) -> Result<C::Observed> {
    desired.reopen()?;
    desired.observe()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use weir_netlink::ErrorKind;

    /// What happens to one commit.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Acknowledged,
        Late,
        /// Not sent, and the answer does not say so.
        LostBefore,
        /// In force, and the answer is lost.
        LostAfter,
        /// The same, and another writer changes it at once.
        LostAndChanged,
        /// Acknowledged, and another writer changes it at once.
        Changed,
        /// Acknowledged, and the kernel lists something else.
        Lied,
        Refused,
    }
    use Event::*;

    /// A kernel that holds a number, which is to be 7.
    struct Fake {
        held: u32,
        events: VecDeque<Event>,
        commits: u32,
        has_sockets: bool,
        is_idempotent: bool,
    }

    impl Converge for Fake {
        type Observed = u32;
        type Plan = Vec<u32>;
        type Op = u32;
        const OBJECT: &'static str = "the number";

        fn observe(&mut self) -> Result<u32> {
            Ok(self.held)
        }
        fn plan(&mut self, observed: &u32) -> Result<Vec<u32>> {
            Ok(if *observed == 7 { vec![] } else { vec![7] })
        }
        fn ops(plan: &mut Vec<u32>) -> &mut Vec<u32> {
            plan
        }
        fn commit(&mut self, _: &mut Vec<u32>, _: u32) -> Result<Committed> {
            self.commits += 1;
            let event = self.events.pop_front().unwrap_or(Acknowledged);
            match event {
                Acknowledged | LostAfter => self.held = 7,
                Changed | LostAndChanged | Lied => self.held += 100,
                Late | LostBefore | Refused => {}
            }
            let failed = Error::kernel("change", "the number", libc::EIO);
            match event {
                Late => Ok(Committed::Late),
                Refused => Err(failed),
                LostBefore | LostAfter | LostAndChanged => {
                    Err(failed.with_in_force(InForce::Unknown))
                }
                Acknowledged | Changed | Lied => Ok(Committed::Yes),
            }
        }
        fn read_back(&mut self, plan: &Vec<u32>, _: &u32) -> Result<ReadBack<u32>> {
            Ok(match self.held {
                7 => ReadBack::InSync(7),
                _ => ReadBack::differs("numbers", plan, false),
            })
        }
        fn is_same(&mut self, before: &u32, now: &u32) -> bool {
            before == now
        }
        fn reopen(&mut self) -> Result<()> {
            match self.has_sockets {
                true => Ok(()),
                false => Err(Error::kernel("open", "a socket", libc::EMFILE)),
            }
        }
        fn is_idempotent(&self) -> bool {
            self.is_idempotent
        }
    }

    fn fake(events: &[Event]) -> Fake {
        Fake {
            held: 1,
            events: events.iter().copied().collect(),
            commits: 0,
            has_sockets: true,
            is_idempotent: true,
        }
    }

    const SHORT: Duration = Duration::from_millis(40);

    fn run(mut fake: Fake) -> (Result<Vec<u32>>, u32) {
        let done = converge(&mut fake, SHORT).map(|done| done.ops);
        (done, fake.commits)
    }

    fn in_force(fake: Fake) -> InForce {
        run(fake).0.expect_err("it failed").in_force()
    }

    #[test]
    fn what_is_in_sync_is_not_written() {
        let there = Fake {
            held: 7,
            ..fake(&[])
        };
        assert!(matches!(run(there), (Ok(ops), 0) if ops.is_empty()));
        assert!(matches!(run(fake(&[])), (Ok(ops), 1) if ops == [7]));
    }

    #[test]
    fn another_writer_is_outlasted() {
        for events in [[Late, Late], [Changed, Late], [Lied, Changed]] {
            let (done, commits) = run(fake(&events));
            assert!(!done.expect("in the end").is_empty(), "{events:?}");
            assert_eq!(commits, 3, "{events:?}");
        }
    }

    #[test]
    fn a_lost_answer_is_looked_into() {
        assert!(matches!(run(fake(&[LostAfter])), (Ok(ops), 1) if ops == [7]));
        assert_eq!(in_force(fake(&[LostBefore])), InForce::No);
        // Something else than before, and not what is desired.
        assert!(matches!(run(fake(&[LostAndChanged])), (Ok(_), 2)));
        let script = || Fake {
            is_idempotent: false,
            ..fake(&[LostAndChanged])
        };
        assert_eq!(in_force(script()), InForce::Unknown);
        assert_eq!(run(script()).1, 1, "a script is not run twice");
        let blind = Fake {
            has_sockets: false,
            ..fake(&[LostAfter])
        };
        assert_eq!(in_force(blind), InForce::Unknown);
        let always = [LostAndChanged; 20];
        assert_eq!(run(fake(&always)).1, LOST);
    }

    /// What a later round does not find out, an earlier one may have done.
    #[test]
    fn an_error_speaks_for_all_rounds() {
        assert_eq!(in_force(fake(&[Refused])), InForce::No);
        assert_eq!(in_force(fake(&[Changed, Refused])), InForce::Yes);
        assert_eq!(in_force(fake(&[Changed, LostBefore])), InForce::Yes);
        assert_eq!(in_force(fake(&[LostAndChanged, Refused])), InForce::Unknown);
        let (error, commits) = run(fake(&[Lied; 20]));
        let error = error.expect_err("not for ever");
        assert!(error.to_string().contains("1 operations away"), "{error}");
        assert_eq!((error.in_force(), commits), (InForce::Yes, ROUNDS));
        let late = vec![Late; 100_000];
        let error = run(fake(&late)).0.expect_err("not for ever");
        assert!(matches!(error.kind, ErrorKind::Exhausted(_)), "{error}");
        assert_eq!(error.in_force(), InForce::No);
    }
}
