//! The reader of the ring.

use super::maps::{KEY_0, RING_MAP, WATCH_MAP};
use super::{Event, REASONS, Verdict};
use crate::failed;
use crate::inpod::layout::WATCH_LOST;
use crate::maps;
use crate::pins::{Bpffs, Flock, LAYOUT};
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::Duration;
use weir_bpf::{Map, Pinned, Ring, open_pin};
use weir_netlink::{Error, Result};

/// Maximum number of events per call of [`Reader::read`].
const AT_ONCE: usize = 1024;

/// Reads the events of a node. There is one reader at a time.
#[derive(Debug)]
pub struct Reader {
    ring: Ring,
    id: u32,
    watch: Map,
    pin: PathBuf,
    _lock: Flock,
}

impl Reader {
    /// Opens the ring and makes programs report packets with one of these verdicts. `None`: no program is attached yet, or the kernel
    /// has no ring buffers.
    ///
    /// # Errors
    /// Another process reads the events; or the pins cannot be opened.
    pub fn open(bpffs: &Bpffs, verdicts: &[Verdict]) -> Result<Option<Self>> {
        let weir = bpffs.weir();
        let layout = weir.join(LAYOUT);
        let object = layout.display().to_string();
        let open = |name: &str| maps::open(&weir.join(name));
        let (Some(ring), Some(watch)) = (open(RING_MAP.name)?, open(WATCH_MAP.name)?) else {
            return Ok(None);
        };
        let folder = File::open(&layout).map_err(|e| failed("open", &object, &e))?;
        let lock = Flock::of(folder);
        let lock = lock.map_err(|(_, e)| match e {
            TryLockError::WouldBlock => {
                Error::refused("read", "events of packets", "another process reads them")
            }
            TryLockError::Error(e) => failed("lock", &object, &e),
        })?;
        let ring = Ring::of(ring).map_err(|e| failed("map", "the ring weir_events", &e))?;
        let info = ring.map().info();
        let reader = Self {
            id: info.map_err(|e| failed("read", "map weir_events", &e))?.id,
            ring,
            watch,
            pin: weir.join(RING_MAP.name),
            _lock: lock,
        };
        let rows = REASONS.iter().filter(|row| verdicts.contains(&row.1));
        let mask = rows.fold(0, |mask, row| mask | 1_u64 << row.0);
        reader.set(mask)?;
        Ok(Some(reader))
    }

    fn value(&self) -> Result<Vec<u8>> {
        let value = self.watch.get(&KEY_0);
        let value = value.map_err(|e| failed("read", "map weir_watch", &e))?;
        Ok(value.unwrap_or_default())
    }

    /// Writes the mask. Events lost at the same time may be missing in the count of lost events, which is overwritten.
    fn set(&self, mask: u64) -> Result<()> {
        let mut value = self.value()?;
        if let Some(place) = value.first_chunk_mut() {
            *place = mask.to_ne_bytes();
        }
        let written = self.watch.set(&KEY_0, &value);
        written.map_err(|e| failed("write", "map weir_watch", &e))
    }

    /// Waits for an event. Returns false after a timeout.
    ///
    /// # Errors
    /// poll(2) fails.
    pub fn wait(&self, time: Duration) -> Result<bool> {
        let ready = self.ring.wait(time);
        ready.map_err(|e| failed("wait for", "events of packets", &e))
    }

    /// Reads the available events, about a thousand at most.
    ///
    /// # Errors
    /// The ring has invalid records, which were skipped.
    pub fn read(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let take = |record: &[u8]| events.extend(Event::of(record));
        let taken = self.ring.read(AT_ONCE, take);
        taken.map_err(|e| failed("read", "events of packets", &e))?;
        Ok(events)
    }

    /// Returns the number of events lost since the ring was created: one namespace exceeded its rate, or the ring was full.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn lost(&self) -> Result<u64> {
        let value = self.value()?;
        let lost = value.get(usize::try_from(WATCH_LOST).unwrap_or(0)..);
        let lost = lost.and_then(|bytes| bytes.first_chunk());
        Ok(lost.map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }

    /// True if programs still write to this ring: it was neither removed nor replaced by another one.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match open_pin(&self.pin) {
            Ok(Pinned::Map(map)) => map.info().is_ok_and(|info| info.id == self.id),
            _ => false,
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Without a reader the ring is soon full, and every further event is wasted work in the programs.
        let _ = self.set(0);
    }
}
