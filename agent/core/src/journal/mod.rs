//! Everything that happens in the agent, told once.
//!
//! A room records an [`Event`]: plain data, with a level, a name, fields and a sentence. The [`Journal`] hands it to every
//! [`Sink`]: the log, the metrics, the status page, Kubernetes events, a ring of the
//! last ones. A room calls none of these itself.
//!
//! ```text
//! journal.record(pod::Event::Repaired(..)) -> Event -> each Sink
//! ```
#![expect(
    missing_docs,
    reason = "each event is described; its fields are named as the sentence of its `about` uses them"
)]

mod about;
pub mod ambient;
pub mod api;
pub mod install;
pub mod pod;
pub mod process;
mod recent;
mod ring;
pub mod serve;
pub mod watch;

pub use about::{About, Notice, Subject};
pub use pod::PodRef;
pub use recent::Recent;
pub use ring::Ring;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Characters of a reason that are kept. There may be one for each pod.
const REASON: usize = 500;

/// What happened, by subject.
#[derive(Debug)]
pub enum Event {
    /// Verification and repair of pods.
    Pod(pod::Event),
    /// The watches of pods and namespaces.
    Watch(watch::Event),
    /// Events for the API server.
    Api(api::Event),
    /// The plugin on the node.
    Install(install::Event),
    /// Ambient mode.
    Ambient(ambient::Event),
    /// The process itself.
    Process(process::Event),
    /// The servers.
    Serve(serve::Event),
}

/// The sentence for people.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about().text)
    }
}

macro_rules! subjects {
    ($($variant:ident($room:ident)),*) => {
        impl Event {
            /// What is said of it.
            pub fn about(&self) -> About {
                match self {
                    $(Self::$variant(event) => event.about(),)*
                }
            }
        }

        $(
        impl From<$room::Event> for Event {
            fn from(event: $room::Event) -> Self {
                Self::$variant(event)
            }
        }
        )*
    };
}

subjects!(
    Pod(pod),
    Watch(watch),
    Api(api),
    Install(install),
    Ambient(ambient),
    Process(process),
    Serve(serve)
);

/// What takes events. It must not block.
pub trait Sink: Send + Sync {
    /// Takes one, in the thread in which it happened.
    fn record(&self, at: SystemTime, event: &Event);
}

/// Where events are recorded; clones are the same place.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Arc<dyn Sink>>>>);

impl Journal {
    /// From now on this sink takes events too, after those before it.
    pub fn add(&self, sink: impl Sink + 'static) {
        self.sinks().push(Arc::new(sink));
    }

    /// It happened now.
    pub fn record(&self, event: impl Into<Event>) {
        // A sink may record what becomes of an event, so the lock is not held.
        let sinks = self.sinks().clone();
        let (at, event) = (SystemTime::now(), event.into());
        sinks.iter().for_each(|sink| sink.record(at, &event));
    }

    /// A thread gave up its capabilities, or could not.
    pub fn rights(&self, given_up: Result<(), String>) {
        if let Err(why) = given_up {
            self.record(process::Event::Rights { why });
        }
    }

    fn sinks(&self) -> MutexGuard<'_, Vec<Arc<dyn Sink>>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reason that is not too long.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(REASON) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Keeps the sentences.
    #[derive(Clone, Default)]
    struct Sentences(Arc<Mutex<Vec<String>>>, Option<Journal>);

    impl Sink for Sentences {
        fn record(&self, _: SystemTime, event: &Event) {
            self.0.lock().unwrap().push(event.to_string());
            if let (Some(journal), Event::Pod(pod::Event::Off { .. })) = (&self.1, event) {
                let interval = Duration::from_secs(1);
                journal.record(pod::Event::RoundsBegin { interval });
            }
        }
    }

    #[test]
    fn every_sink_takes_every_event_and_may_record_another() {
        let journal = Journal::default();
        let plain = Sentences::default();
        let answering = Sentences(Arc::default(), Some(journal.clone()));
        journal.add(plain.clone());
        journal.add(answering.clone());
        journal.record(pod::Event::Off {
            why: "x".into(),
            level: None,
        });
        for sink in [plain, answering] {
            let said = sink.0.lock().unwrap().clone();
            assert_eq!(said.len(), 2, "{said:?}");
            assert_eq!(said[0], "no pod is repaired: x");
        }
    }
}
