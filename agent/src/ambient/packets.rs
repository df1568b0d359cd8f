//! Packet events of eBPF programs: counted and recorded in the journal.
//!
//! The first event per pod and reason is recorded at once. Those within the next minute are counted, and their number is recorded
//! with the next event.

use super::settings::AmbientSettings;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::journal::Journal;
use weir_core::journal::ambient::{Event, Packet};
use weir_core::pods::{PodView, Pods};
use weir_core::thread::task::Tasks;
use weir_ebpf::Bpffs;
use weir_ebpf::events::{self, Reader, Verdict};

/// Period in which further events of the same pod and reason are only counted.
const QUIET: Duration = Duration::from_secs(60);
/// Maximum number of tracked pairs of pod and reason; events of further pairs are only counted.
const MOST: usize = 1024;
/// Interval between reads of the ring, which has room for some hundreds of events.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval between checks whether programs are attached and how many events were lost.
const LOOK: Duration = Duration::from_secs(5);

/// Starts to read events, until the process ends.
///
/// # Errors
/// The thread or its runtime cannot be started.
pub(super) fn start(
    settings: &Arc<AmbientSettings>,
    bpffs: PathBuf,
    pods: &Pods,
    journal: &Journal,
    tasks: &Tasks,
) -> Result<(), String> {
    let Some(verdicts) = settings.packets else {
        return Ok(());
    };
    let mut told = Told::new(pods.clone(), journal.clone());
    let work = async move {
        loop {
            let failure = told.follow(&bpffs, verdicts).await.err();
            told.reported(failure);
            tokio::time::sleep(LOOK).await;
        }
    };
    tasks.start("host", || {}, work).map_err(|e| e.to_string())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The rate limiter of events.
struct Told {
    pods: Pods,
    journal: Journal,
    /// Keyed by the reason and the pod's UID; by address or network namespace if the pod is unknown.
    said: BTreeMap<(String, events::Reason), Said>,
    /// Number of lost events at the last check.
    lost: u64,
    /// Why no events are read.
    failure: Option<String>,
}

struct Said {
    at: Instant,
    /// Number of events since then.
    more: u64,
}

impl Told {
    fn new(pods: Pods, journal: Journal) -> Self {
        Self {
            pods,
            journal,
            said: BTreeMap::new(),
            lost: 0,
            failure: None,
        }
    }

    /// Reads events until the ring is replaced. Returns at once if there is no ring, as long as nothing is attached.
    async fn follow(&mut self, root: &std::path::Path, verdicts: &[Verdict]) -> Result<(), String> {
        let bpffs = Bpffs::at(root).map_err(text)?;
        if !bpffs.has_events().map_err(text)? {
            return Err("this kernel has no ring buffers (5.8)".to_owned());
        }
        let Some(mut reader) = Reader::open(&bpffs, verdicts).map_err(text)? else {
            return Ok(());
        };
        self.reported(None);
        self.lost = reader.lost().map_err(text)?;
        let mut looked = Instant::now();
        loop {
            // The ring is memory-mapped: a check needs no system call.
            tokio::time::sleep(PAUSE).await;
            let events = reader.read().map_err(text)?;
            let now = Instant::now();
            self.take(&events, now);
            if now.saturating_duration_since(looked) < LOOK {
                continue;
            }
            looked = now;
            if !reader.is_current() {
                return Ok(());
            }
            let lost = reader.lost().map_err(text)?;
            let more = lost.saturating_sub(self.lost);
            if more > 0 {
                self.lost = lost;
                self.journal.record(Event::PacketsNotReported { more });
            }
        }
    }

    /// Records a failure, or its end, when it changes.
    fn reported(&mut self, failure: Option<String>) {
        if self.failure != failure {
            self.failure.clone_from(&failure);
            self.journal.record(Event::PacketReports { failure });
        }
    }

    fn take(&mut self, events: &[events::Event], now: Instant) {
        if events.is_empty() {
            return;
        }
        let all = self.pods.all();
        let mut by_address: BTreeMap<IpAddr, &Arc<PodView>> = BTreeMap::new();
        for view in all.iter().filter(|view| !view.ended()) {
            by_address.extend(view.addresses().into_iter().map(|address| (address, view)));
        }
        for event in events {
            let own = event.own().map(|end| end.address);
            let pod = own.and_then(|address| by_address.get(&address));
            let pod = pod.map(|view| view.reference());
            let key = match (&pod, own) {
                (Some(pod), _) => pod.uid.to_string(),
                (None, Some(address)) => address.to_string(),
                (None, None) => event.netns.to_string(),
            };
            let more = self.say((key, event.reason), now);
            self.journal.record(Event::Packet(Packet {
                pod,
                netns: event.netns,
                dropped: event.reason.verdict() == Verdict::Dropped,
                verdict: event.reason.verdict().name(),
                reason: event.reason.name(),
                what: event.to_string(),
                more,
            }));
        }
    }

    /// Returns the number of events suppressed since the last one, if this event is due.
    fn say(&mut self, key: (String, events::Reason), now: Instant) -> Option<u64> {
        if let Some(said) = self.said.get_mut(&key) {
            if now.saturating_duration_since(said.at) < QUIET {
                said.more = said.more.saturating_add(1);
                return None;
            }
            said.at = now;
            return Some(std::mem::take(&mut said.more));
        }
        if self.said.len() >= MOST {
            let is_recent = |said: &Said| now.saturating_duration_since(said.at) < QUIET;
            self.said.retain(|_, said| is_recent(said));
        }
        if self.said.len() >= MOST {
            return None;
        }
        self.said.insert(key, Said { at: now, more: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pod and reason is recorded once a minute, with the number of events in between; the memory use is bounded.
    #[test]
    fn repetitions_are_counted_and_told_later() {
        let (pods, _writer) = Pods::new();
        let mut told = Told::new(pods, Journal::default());
        let mut reasons = events::Reason::all();
        let (first, other) = (reasons.next().unwrap(), reasons.next().unwrap());
        let begun = Instant::now();
        let mut say = |key: &str, reason, seconds| {
            let now = begun + Duration::from_secs(seconds);
            told.say((key.to_owned(), reason), now)
        };
        assert_eq!(say("a", first, 0), Some(0));
        assert_eq!(say("a", first, 1), None);
        assert_eq!(say("a", first, 59), None);
        assert_eq!(say("a", other, 59), Some(0));
        assert_eq!(say("b", first, 59), Some(0));
        assert_eq!(say("a", first, 60), Some(2));
        assert_eq!(say("a", first, 61), None);
        for number in 0..2 * MOST {
            say(&number.to_string(), first, 61);
        }
        assert_eq!(say("one more", first, 61), None);
        assert_eq!(say("one more", first, 500), Some(0));
        assert!(told.said.len() <= MOST);
    }
}
