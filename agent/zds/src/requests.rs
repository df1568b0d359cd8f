//! The requests of one connection: for each pod the last one, which is queued, in flight or answered.
//!
//! A ztunnel may need longer than the caller waits. The request then stays, the same one is not sent again, and the next caller
//! gets the answer.

use crate::message::Request;
use crate::server::AddError;
use crate::{Namespace, Uid};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of queued requests; a node has fewer pods.
pub(crate) const QUEUE: usize = 1000;

/// Device and inode of a network namespace.
pub(crate) type Place = (u64, u64);

/// The result of a request.
#[derive(Clone)]
pub(crate) enum Sent {
    Taken,
    Refused(String),
    Failed(Fail),
}

/// The reason why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fail {
    TimedOut,
    Closed,
}

/// A queued request.
pub(crate) struct Unsent {
    pub(crate) request: Request,
    pub(crate) netns: Option<Arc<dyn Namespace>>,
}

/// Identifies a request: another one about the same pod may follow.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) uid: Uid,
    number: u64,
}

#[derive(Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    asked: BTreeMap<Uid, Asked>,
    /// The queue: pods of `asked` whose request was not sent yet.
    line: VecDeque<Uid>,
    last: u64,
    closed: bool,
}

struct Asked {
    number: u64,
    /// The desired network namespace of the pod; `None`: the pod is removed.
    place: Option<Place>,
    /// The request, until it is sent.
    unsent: Option<Unsent>,
    /// Number of callers that wait for the answer.
    waiting: usize,
    /// The answer, until all waiting callers have it; that of a removal, until all connections have answered.
    answer: Option<Sent>,
}

impl Asked {
    fn has_unclaimed_answer(&self) -> bool {
        self.answer.is_some() && self.waiting == 0
    }
}

impl Requests {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length of the queue.
    pub(crate) fn pending(&self) -> usize {
        self.state().line.len()
    }

    /// Queues a request, unless the same one is queued, in flight or answered. Another request about the pod that was not sent yet is
    /// dropped. [`Requests::wait`] must follow. Returns true if the request was queued now.
    pub(crate) fn put(
        &self,
        uid: &Uid,
        place: Option<Place>,
        unsent: Unsent,
    ) -> Result<(Ticket, bool), AddError> {
        let mut state = self.state();
        if state.closed {
            return Err(AddError::Closed);
        }
        let uid = Uid::clone(uid);
        let same = state.asked.get_mut(&uid);
        if let Some(same) = same.filter(|asked| asked.place == place) {
            same.waiting += 1;
            let number = same.number;
            return Ok((Ticket { uid, number }, false));
        }
        if state.asked.len() >= 2 * QUEUE {
            state.asked.retain(|_, asked| !asked.has_unclaimed_answer());
        }
        state.line.retain(|other| *other != uid);
        if state.line.len() >= QUEUE {
            let why = format!("{QUEUE} requests wait for ztunnel already");
            return Err(AddError::Unsendable(why));
        }
        let number = state.next();
        let asked = Asked {
            number,
            place,
            unsent: Some(unsent),
            waiting: 1,
            answer: None,
        };
        state.asked.insert(Uid::clone(&uid), asked);
        state.line.push_back(Uid::clone(&uid));
        drop(state);
        // Callers that wait for the previous request are woken.
        self.answered.notify_all();
        Ok((Ticket { uid, number }, true))
    }

    /// Waits for the result until `until`. The request continues afterwards.
    pub(crate) fn wait(&self, ticket: &Ticket, until: Instant) -> Result<(), AddError> {
        let mut state = self.state();
        loop {
            let asked = state.asked.get_mut(&ticket.uid);
            let Some(asked) = asked.filter(|asked| asked.number == ticket.number) else {
                let why = "something else was asked for this pod meanwhile";
                return Err(AddError::Unsendable(why.to_owned()));
            };
            let now = Instant::now();
            if asked.answer.is_some() || until <= now {
                asked.waiting = asked.waiting.saturating_sub(1);
            }
            if let Some(answer) = asked.answer.clone() {
                // All connections must answer a removal, and a repeated call asks all of them.
                if asked.waiting == 0 && asked.place.is_some() {
                    state.asked.remove(&ticket.uid);
                }
                return match answer {
                    Sent::Taken => Ok(()),
                    Sent::Refused(why) => Err(AddError::Refused(why)),
                    Sent::Failed(Fail::TimedOut) => Err(AddError::TimedOut),
                    Sent::Failed(Fail::Closed) => Err(AddError::Closed),
                };
            }
            if until <= now {
                return Err(AddError::Waits);
            }
            let woken = self.answered.wait_timeout(state, until - now);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets the answer: all connections have answered.
    pub(crate) fn heard(&self, ticket: &Ticket) {
        let mut state = self.state();
        let asked = state.asked.get(&ticket.uid);
        if asked.is_some_and(|a| a.number == ticket.number && a.has_unclaimed_answer()) {
            state.asked.remove(&ticket.uid);
        }
    }

    /// Takes the next request from the queue.
    pub(crate) fn next(&self) -> Option<(Ticket, Unsent)> {
        let mut state = self.state();
        loop {
            let uid = state.line.pop_front()?;
            let asked = state.asked.get_mut(&uid);
            let sent = asked.and_then(|asked| Some((asked.number, asked.unsent.take()?)));
            if let Some((number, unsent)) = sent {
                return Some((Ticket { uid, number }, unsent));
            }
        }
    }

    /// Records the result. Returns true if no caller waits for it and the request is still the last one.
    pub(crate) fn answer(&self, ticket: &Ticket, sent: Sent) -> bool {
        let mut state = self.state();
        let asked = state.asked.get_mut(&ticket.uid);
        let Some(asked) = asked.filter(|asked| asked.number == ticket.number) else {
            return false;
        };
        asked.answer = Some(sent);
        let is_late = asked.has_unclaimed_answer();
        drop(state);
        self.answered.notify_all();
        is_late
    }

    /// Records that the snapshot included the pod: the same request need not be sent. Any other request is newer. Returns as
    /// [`Requests::answer`].
    pub(crate) fn was_taken(&self, uid: &Uid, place: Place) -> bool {
        let mut state = self.state();
        let number = state.next();
        let asked = state.asked.entry(Uid::clone(uid)).or_insert(Asked {
            number,
            place: Some(place),
            unsent: None,
            waiting: 0,
            answer: Some(Sent::Taken),
        });
        if asked.place != Some(place) || asked.unsent.take().is_none() {
            return false;
        }
        asked.answer = Some(Sent::Taken);
        let is_late = asked.has_unclaimed_answer();
        state.line.retain(|other| other != uid);
        drop(state);
        self.answered.notify_all();
        is_late
    }

    /// Refuses further requests; those without an answer get none.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.line.clear();
        for asked in state.asked.values_mut() {
            asked.unsent = None;
            asked.answer.get_or_insert(Sent::Failed(Fail::Closed));
        }
        drop(state);
        self.answered.notify_all();
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Request, SnapshotSent};

    fn put(requests: &Requests, uid: &str, place: Option<Place>) -> Result<Ticket, AddError> {
        let unsent = Unsent {
            request: Request::SnapshotSent(SnapshotSent {}),
            netns: None,
        };
        let put = requests.put(&uid.into(), place, unsent);
        put.map(|(ticket, _)| ticket)
    }

    /// Asks, and does not wait.
    fn ask(requests: &Requests, uid: &str, place: Option<Place>) -> Result<(), AddError> {
        requests.wait(&put(requests, uid, place)?, Instant::now())
    }

    fn sent_next(requests: &Requests) -> Option<Ticket> {
        requests.next().map(|(ticket, _)| ticket)
    }

    const HERE: Option<Place> = Some((4, 1));
    const THERE: Option<Place> = Some((4, 2));

    #[test]
    fn an_answer_is_for_who_asks_for_the_same_next_and_for_nobody_else() {
        let requests = Requests::default();
        for answer in ["taken", "refused"] {
            assert_eq!(ask(&requests, "a", HERE), Err(AddError::Waits));
            assert_eq!(ask(&requests, "a", HERE), Err(AddError::Waits));
            let ticket = sent_next(&requests).unwrap();
            assert_eq!(ask(&requests, "a", HERE), Err(AddError::Waits));
            assert_eq!(requests.pending(), 0, "it is sent once");
            let (sent, expected) = match answer {
                "taken" => (Sent::Taken, Ok(())),
                _ => (
                    Sent::Refused("no".into()),
                    Err(AddError::Refused("no".into())),
                ),
            };
            assert!(requests.answer(&ticket, sent), "nobody waits");
            assert_eq!(ask(&requests, "a", HERE), expected);
            // The next one is sent.
            assert_eq!(ask(&requests, "a", HERE), Err(AddError::Waits));
            assert!(requests.answer(&sent_next(&requests).unwrap(), Sent::Taken));
            assert_eq!(ask(&requests, "a", THERE), Err(AddError::Waits));
            assert!(requests.answer(&sent_next(&requests).unwrap(), Sent::Taken));
            assert_eq!(ask(&requests, "a", THERE), Ok(()));
        }
    }

    #[test]
    fn what_is_asked_last_counts() {
        let requests = Requests::default();
        let first = put(&requests, "a", HERE).unwrap();
        let moved = put(&requests, "a", THERE).unwrap();
        assert_eq!(requests.pending(), 1);
        let now = Instant::now();
        assert!(matches!(
            requests.wait(&first, now),
            Err(AddError::Unsendable(_))
        ));
        let on_its_way = sent_next(&requests).unwrap();
        let gone = put(&requests, "a", None).unwrap();
        assert_eq!(requests.pending(), 1, "it follows the one on its way");
        assert!(!requests.answer(&on_its_way, Sent::Taken));
        assert!(matches!(
            requests.wait(&moved, now),
            Err(AddError::Unsendable(_))
        ));
        assert!(!requests.answer(&sent_next(&requests).unwrap(), Sent::Taken));
        assert_eq!(requests.wait(&gone, now), Ok(()));
    }

    #[test]
    fn what_was_among_all_pods_is_not_sent_again_unless_it_moved() {
        let requests = Requests::default();
        assert_eq!(ask(&requests, "moves", THERE), Err(AddError::Waits));
        assert_eq!(ask(&requests, "in line", HERE), Err(AddError::Waits));
        for (uid, is_late) in [("stays", false), ("moves", false), ("in line", true)] {
            assert_eq!(requests.was_taken(&uid.into(), (4, 1)), is_late, "{uid}");
        }
        assert_eq!(requests.pending(), 1);
        for uid in ["stays", "in line"] {
            assert_eq!(ask(&requests, uid, HERE), Ok(()), "{uid}");
        }
        assert_eq!(ask(&requests, "moves", THERE), Err(AddError::Waits));
        assert_eq!(requests.pending(), 1);
    }

    #[test]
    fn a_full_line_and_a_closed_connection_take_nothing() {
        let requests = Requests::default();
        for n in 0..QUEUE {
            assert_eq!(
                ask(&requests, &format!("pod-{n}"), HERE),
                Err(AddError::Waits)
            );
        }
        let full = ask(&requests, "more", HERE);
        assert!(matches!(full, Err(AddError::Unsendable(_))));
        // About a pod in line there is room for another one.
        assert_eq!(ask(&requests, "pod-7", None), Err(AddError::Waits));
        let waits = put(&requests, "pod-8", HERE).unwrap();
        requests.close();
        assert_eq!(requests.wait(&waits, Instant::now()), Err(AddError::Closed));
        assert_eq!(requests.pending(), 0);
        assert_eq!(ask(&requests, "pod-9", HERE), Err(AddError::Closed));
    }
}
