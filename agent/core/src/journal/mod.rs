//! The journal: every event of the agent, recorded once.
//!
//! A module records an [`Event`]: plain data with a level, a name, fields and a sentence. The [`Journal`] passes it to every
//! [`Sink`]: the log, the metrics, the status page, Kubernetes events, and a ring of the
//! last events. No module calls a sink directly.
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

/// Maximum length of a reason in characters. There may be one reason per pod.
const REASON: usize = 500;

/// An event, by subject.
#[derive(Debug)]
pub enum Event {
    /// Verification and repair of pods.
    Pod(pod::Event),
    /// The watches of pods and namespaces.
    Watch(watch::Event),
    /// Events for the API server.
    Api(api::Event),
    /// The installation of the plugin on the node.
    Install(install::Event),
    /// Ambient mode.
    Ambient(ambient::Event),
    /// The process itself.
    Process(process::Event),
    /// The servers.
    Serve(serve::Event),
}

/// The sentence for the log.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about().text)
    }
}

macro_rules! subjects {
    ($($variant:ident($room:ident)),*) => {
        impl Event {
            /// Returns level, name, fields and sentence.
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

/// A consumer of events. It must not block.
pub trait Sink: Send + Sync {
    /// Handles an event on the thread that recorded it.
    fn record(&self, at: SystemTime, event: &Event);
}

/// Records events. Clones share the same sinks.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Arc<dyn Sink>>>>);

impl Journal {
    /// Adds a sink, called after the existing ones.
    pub fn add(&self, sink: impl Sink + 'static) {
        self.sinks().push(Arc::new(sink));
    }

    /// Records an event with the current time.
    pub fn record(&self, event: impl Into<Event>) {
        // Sinks are called without the lock: a sink may record an event itself.
        let sinks = self.sinks().clone();
        let (at, event) = (SystemTime::now(), event.into());
        sinks.iter().for_each(|sink| sink.record(at, &event));
    }

    /// Records that a thread dropped its capabilities, or could not.
    pub fn rights(&self, given_up: Result<(), String>) {
        if let Err(why) = given_up {
            self.record(process::Event::Rights { why });
        }
    }

    fn sinks(&self) -> MutexGuard<'_, Vec<Arc<dyn Sink>>> {
        // No holder of the lock panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Truncates a reason to the maximum length.
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
