//! Writes events of the journal to the log: `tracing` events with fields, and the subscriber that formats them as
//! lines.

use super::{Log, Scope};
use crate::journal::{About, Event, Sink};
use std::fmt::{Debug, Write};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Level as Tracing, Metadata, Subscriber, dispatcher};
use weir_cni::log::{Level, timestamp};

/// The journal sink that writes to the log.
pub struct Lines(Dispatch);

impl Lines {
    /// Creates the sink for that log.
    pub fn new(log: &Log) -> Self {
        Self(Dispatch::new(Writer(log.clone())))
    }
}

/// Emits a `tracing` event at each level. The keys of its fields are those of the journal's events.
macro_rules! event {
    ($level:ident, $about:ident: $($key:ident)*) => {{
        let of = |key: &str| {
            let found = $about.fields.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| value.as_str())
        };
        let keys = [$(stringify!($key)),*];
        debug_assert!($about.fields.iter().all(|(key, _)| keys.contains(key)), "{:?}", $about.fields);
        macro_rules! at {
            ($of:ident) => {
                tracing::event!(
                    target: "cni-agent", Tracing::$of,
                    event = $about.name, $($key = of(stringify!($key)),)* "{}", $about.text
                )
            };
        }
        match $level {
            Level::Debug => at!(DEBUG),
            Level::Info => at!(INFO),
            Level::Warn => at!(WARN),
            _ => at!(ERROR),
        }
    }};
}

impl Sink for Lines {
    fn record(&self, _: SystemTime, event: &Event) {
        let about: About = event.about();
        if let Some(level) = about.level {
            dispatcher::with_default(&self.0, || {
                event!(level, about: pod uid action answer cause connections differences from kind known milliseconds passes reason removed status step to verdict);
            });
        }
    }
}

/// Writes each event as a line. Spans are not used.
struct Writer(Log);

fn level(of: &Tracing) -> Level {
    match *of {
        Tracing::ERROR => Level::Error,
        Tracing::WARN => Level::Warn,
        Tracing::INFO => Level::Info,
        Tracing::DEBUG | Tracing::TRACE => Level::Debug,
    }
}

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == Scope::Agent.name()
            && self.0.hears(Scope::Agent, level(metadata.level()))
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let (level, time) = (level(event.metadata().level()), SystemTime::now());
        let Said { message, fields } = said;
        let line = self
            .0
            .line(Scope::Agent, level, &timestamp(time), &message, &fields);
        self.0.write(&line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Message and fields of an event, in the event's order.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(String, String)>,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields
            .push((field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            // Writing to a String does not fail.
            "message" => _ = write!(self.message, "{value:?}"),
            name => self.fields.push((name.to_owned(), format!("{value:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::journal::pod::{Cause, Event as OfPod, Healed, PodRef, Repair};
    use crate::log::Levels;

    fn repaired() -> Event {
        let pod = PodRef {
            namespace: "a".into(),
            name: "b".into(),
            uid: "u".into(),
            version: "1".into(),
        };
        let healed = Healed {
            pod,
            repair: Repair {
                first: "x\ny".into(),
                differences: 2,
                cause: Cause::Missing,
                summary: "written".into(),
            },
            by: None,
            failed: false,
            is_new: true,
            notify: false,
        };
        OfPod::Repaired(healed).into()
    }

    #[test]
    fn a_line_has_the_sentence_and_the_fields() {
        let log = Log::open(&[], false, Levels::default(), Journal::default()).unwrap();
        Lines::new(&log).record(SystemTime::now(), &repaired());
        let line = log.recent();
        let (_, line) = line.split_once('\t').unwrap();
        assert_eq!(
            line,
            "warn\tcni-agent\tpod a/b was not redirected as it asks: x\\ny (2 differences in all); written\t\
             event=pod_repaired\tpod=a/b\tuid=u\tcause=missing\tdifferences=2\n"
        );
    }

    #[test]
    fn what_is_below_the_level_is_not_said() {
        let (levels, _) = Levels::parse("cni-agent:error").unwrap();
        let log = Log::open(&[], true, levels, Journal::default()).unwrap();
        Lines::new(&log).record(SystemTime::now(), &repaired());
        assert_eq!(log.recent(), "");
    }
}
