//! Tests of the loop with a fake kernel, whose state is a number.

use super::*;
use std::collections::VecDeque;
use weir_netlink::ErrorKind;

/// The result of one commit.
#[derive(Clone, Copy, Debug)]
enum Event {
    Acknowledged,
    Late,
    /// Not sent, but the error does not reveal it.
    LostBefore,
    /// In force, but the answer is lost.
    LostAfter,
    /// In force, but the answer is lost, and another writer changes the state immediately.
    LostAndChanged,
    /// Acknowledged, but another writer changes the state immediately.
    Changed,
    /// Acknowledged, but the kernel lists another state.
    Lied,
    Refused,
}
use Event::*;

/// A kernel whose state is a number; 7 is desired.
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
            LostBefore | LostAfter | LostAndChanged => Err(failed.with_in_force(InForce::Unknown)),
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

/// No event here takes this long: only the number of rounds, or of lost answers, ends a run.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(40);

fn run(fake: Fake) -> (Result<Vec<u32>>, u32) {
    run_for(LONG, fake)
}

fn run_for(limit: Duration, mut fake: Fake) -> (Result<Vec<u32>>, u32) {
    let done = converge(&mut fake, limit).map(|done| done.ops);
    (done, fake.commits)
}

fn in_force(fake: Fake) -> InForce {
    run(fake).0.expect_err("it failed").in_force
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
    // The state changed, but is not the desired one.
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

/// An error reports the changes of earlier rounds, even if the last round does not know whether it changed something.
#[test]
fn an_error_speaks_for_all_rounds() {
    assert_eq!(in_force(fake(&[Refused])), InForce::No);
    assert_eq!(in_force(fake(&[Changed, Refused])), InForce::Yes);
    assert_eq!(in_force(fake(&[Changed, LostBefore])), InForce::Yes);
    assert_eq!(in_force(fake(&[LostAndChanged, Refused])), InForce::Unknown);
    let (error, commits) = run(fake(&[Lied; 20]));
    let error = error.expect_err("not for ever");
    assert!(error.to_string().contains("1 operations away"), "{error}");
    assert_eq!((error.in_force, commits), (InForce::Yes, ROUNDS));
    let late = vec![Late; 100_000];
    let error = run_for(SHORT, fake(&late)).0.expect_err("not for ever");
    assert!(matches!(error.kind, ErrorKind::Exhausted(_)), "{error}");
    assert_eq!(error.in_force, InForce::No);
}
