//! The last events, one line of JSON each: the answer of `agent.sock` to `/events`.

use super::{Event, Recent, Sink};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use weir_cni::log::timestamp;

/// The sink. Clones share the same ring. Events without a log line are not kept (the metrics count them): there
/// is one per comparison of a pod, and they would displace all others.
#[derive(Clone, Default)]
pub struct Ring(Arc<Mutex<Recent>>);

impl Sink for Ring {
    fn record(&self, at: SystemTime, event: &Event) {
        let about = event.about();
        let Some(level) = about.level else {
            return;
        };
        let fields: serde_json::Map<_, _> = about
            .fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        let line = json!({
            "time": timestamp(at),
            "level": level.as_str(),
            "event": about.name,
            "fields": fields,
            "text": about.text,
        });
        self.recent().push(&format!("{line}\n"));
    }
}

impl Ring {
    /// Returns one object per line, oldest first, preceded by `{"dropped":N}` if earlier ones were dropped.
    pub fn text(&self) -> String {
        self.recent().text(|n| json!({ "dropped": n }).to_string())
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        // No holder of the lock panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, api, pod, process};
    use serde_json::Value;

    fn lines(ring: &Ring) -> Vec<Value> {
        let text = ring.text();
        let parsed = text.lines().map(serde_json::from_str);
        parsed.collect::<Result<_, _>>().expect("JSON")
    }

    #[test]
    fn events_of_the_log_are_kept_as_objects() {
        let (journal, ring) = (Journal::default(), Ring::default());
        journal.add(ring.clone());
        let why = "two\nlines".to_owned();
        journal.record(pod::Event::Off { why, level: None });
        journal.record(api::Event::Dropped { reason: "X" });
        assert_eq!(lines(&ring), [] as [Value; 0]);
        let why = "two\n\"lines\"".to_owned();
        journal.record(process::Event::Rights { why });
        let kept = lines(&ring);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(
            (&kept[0]["level"], &kept[0]["event"], &kept[0]["text"]),
            (&"warn".into(), &"rights".into(), &"two\n\"lines\"".into())
        );
    }

    #[test]
    fn a_full_ring_tells_how_many_events_are_gone() {
        let ring = Ring::default();
        for _ in 0..10_000 {
            let why = "x".repeat(100);
            let event = process::Event::Rights { why }.into();
            ring.record(SystemTime::now(), &event);
        }
        let kept = lines(&ring);
        let dropped = kept[0]["dropped"].as_u64().expect("a number");
        assert_eq!(dropped + kept.len() as u64 - 1, 10_000);
        assert!(kept.len() > 100, "{}", kept.len());
    }
}
