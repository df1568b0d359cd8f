//! Maps: many entries per call, or single entries if the kernel has no batches (before 5.6, and for LPM tries before
//! 5.13). With 10,000 entries of a hash, reading in batches takes 0.11 of the time of single entries, and writing 0.3
//! (6.18, one thread).

use super::map::Map;
use super::numbers::{BPF_MAP_LOOKUP_BATCH, BPF_MAP_UPDATE_BATCH};
use super::{call, invalid, number, too_big};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

/// Maximum number of entries per call.
const AT_ONCE: usize = 4096;
/// Pause before a retry after `ENOMEM`. The kernel allocates entries of maps without preallocation from a small cache, which it refills
/// in the background: many allocations at once may find it empty, even with free memory.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of successive retries without progress.
const PAUSES: u32 = 200;
/// `ENOTSUPP` of the kernel, which `errno.h` does not have: the map does not support batches.
const ENOTSUPP: i32 = 524;

/// The prefix of `union bpf_attr` that the commands for many entries read.
#[repr(C)]
#[derive(Default)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, batch.in_batch)",
        offset_of!(Batch, in_batch) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.out_batch)",
        offset_of!(Batch, out_batch) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.keys)",
        offset_of!(Batch, keys) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.values)",
        offset_of!(Batch, values) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.count)",
        offset_of!(Batch, count) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.map_fd)",
        offset_of!(Batch, map_fd) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.elem_flags)",
        offset_of!(Batch, elem_flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, batch.flags)",
        offset_of!(Batch, flags) as i64,
    ),
];

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The result of a batch of reads.
enum Read {
    /// There may be more entries.
    Some,
    /// There are no more entries.
    All,
    /// The buffer is too small for the entries of one bucket of the hash.
    NoRoom,
    /// The kernel does not support batches for this map.
    Unsupported,
}

impl Map {
    /// Reads all entries, at most `most`: `bpf(BPF_MAP_LOOKUP_BATCH)`, or [`Map::next_key`] and [`Map::get`] without batches.
    /// Entries that another writer adds or deletes at the same time may be missing or present.
    ///
    /// # Errors
    ///
    /// `EINVAL`: entries of this type of map cannot be read here; `E2BIG`: there are more than `most`.
    pub fn entries(&self, most: usize) -> io::Result<Vec<Entry>> {
        if !self.is_plain() || self.key_size == 0 || self.value_size == 0 {
            return Err(invalid());
        }
        let mut room = AT_ONCE.min(most.max(1));
        let mut entries = Vec::new();
        // Where the next batch starts: the number of a bucket, or a key.
        let mut place: Option<Vec<u8>> = None;
        loop {
            match self.read_batch(&mut place, room, &mut entries)? {
                Read::All | Read::Some if entries.len() > most => return Err(too_big(())),
                Read::All => return Ok(entries),
                Read::Some => {}
                // A bucket has few entries, unless another writer chose the keys to collide.
                Read::NoRoom if room < most => room = room.saturating_mul(2).min(most),
                Read::NoRoom => return Err(too_big(())),
                Read::Unsupported => return self.entries_singly(most),
            }
        }
    }

    fn read_batch(
        &self,
        place: &mut Option<Vec<u8>>,
        room: usize,
        entries: &mut Vec<Entry>,
    ) -> io::Result<Read> {
        let mut keys = vec![0; self.key_size.checked_mul(room).ok_or(invalid())?];
        let mut values = vec![0; self.value_size.checked_mul(room).ok_or(invalid())?];
        let mut next = vec![0; self.key_size.max(size_of::<u32>())];
        let mut attr = Batch {
            in_batch: place.as_ref().map_or(0, |place| place.as_ptr() as u64),
            out_batch: next.as_mut_ptr() as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: u32::try_from(room).map_err(too_big)?,
            map_fd: number(self.fd.as_fd())?,
            ..Batch::default()
        };
        // SAFETY: `keys` and `values` have space for `count` keys and values of the map, whose type is one of those whose values are
        // copied unchanged; a place is a number of 4 bytes or a key, and `next` and `in_batch`, unless it is null, have space
        // for either. All are owned by this function or borrowed.
        let answer = unsafe { call(BPF_MAP_LOOKUP_BATCH, &mut attr) };
        let read = match answer {
            Ok(_) => Read::Some,
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT) => Read::All,
                Some(libc::ENOSPC) => return Ok(Read::NoRoom),
                Some(libc::EINVAL | ENOTSUPP) if place.is_none() => return Ok(Read::Unsupported),
                // Keys were deleted repeatedly during the call.
                Some(libc::EINTR) => return Ok(Read::Unsupported),
                _ => return Err(e),
            },
        };
        let count = usize::try_from(attr.count).map_err(too_big)?.min(room);
        let keys = keys.chunks_exact(self.key_size);
        let values = values.chunks_exact(self.value_size);
        let pairs = keys.zip(values).take(count);
        entries.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        *place = Some(next);
        Ok(read)
    }

    pub(super) fn entries_singly(&self, most: usize) -> io::Result<Vec<Entry>> {
        let (mut entries, mut last) = (Vec::new(), None::<Vec<u8>>);
        for _ in 0..=most {
            let Some(next) = self.next_key(last.as_deref())? else {
                return Ok(entries);
            };
            if let Some(value) = self.get(&next)? {
                entries.push((next.clone(), value));
            }
            last = Some(next);
        }
        Err(too_big(()))
    }

    /// Adds entries or replaces them: `bpf(BPF_MAP_UPDATE_BATCH)`, or [`Map::set`] without batches.
    ///
    /// # Errors
    ///
    /// The number of written entries, and the error of the next one as in [`Map::set`].
    pub fn set_all(&self, entries: &[Entry]) -> Result<(), (usize, io::Error)> {
        write_all(entries, |some| self.write_batch(some), PAUSE)
    }

    fn write_batch(&self, entries: &[Entry]) -> Result<(), (usize, io::Error)> {
        let is_right =
            |(key, value): &Entry| key.len() == self.key_size && value.len() == self.value_size;
        if !self.is_plain() || !entries.iter().all(is_right) {
            return Err((0, invalid()));
        }
        let keys: Vec<u8> = entries.iter().flat_map(|(key, _)| key).copied().collect();
        let values = entries.iter().flat_map(|(_, value)| value);
        let values: Vec<u8> = values.copied().collect();
        let none = |e| (0, e);
        let mut attr = Batch {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: u32::try_from(entries.len()).map_err(|e| none(too_big(e)))?,
            map_fd: number(self.fd.as_fd()).map_err(none)?,
            ..Batch::default()
        };
        // SAFETY: `keys` and `values` hold `count` keys and values of the map, are owned by this function, and the kernel only reads
        // them; the type of the map is one of those whose values are copied unchanged.
        let answer = unsafe { call(BPF_MAP_UPDATE_BATCH, &mut attr) };
        match answer {
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | ENOTSUPP)) => {
                let singly = |(done, (key, value)): (usize, &Entry)| {
                    self.set(key, value).map_err(|e| (done, e))
                };
                entries.iter().enumerate().try_for_each(singly)
            }
            Err(e) => {
                // If the count is unchanged, the call failed before the first entry.
                let done = usize::try_from(attr.count).unwrap_or(0);
                Err((if done < entries.len() { done } else { 0 }, e))
            }
        }
    }
}

/// Writes in parts. The error of a part has the number of its entries that were written.
fn write_all(
    entries: &[Entry],
    mut write: impl FnMut(&[Entry]) -> Result<(), (usize, io::Error)>,
    pause: Duration,
) -> Result<(), (usize, io::Error)> {
    let (mut done, mut pauses) = (0, PAUSES);
    while let Some(rest) = entries.get(done..).filter(|rest| !rest.is_empty()) {
        let some = rest.get(..AT_ONCE).unwrap_or(rest);
        match write(some) {
            Ok(()) => done += some.len(),
            Err((here, e)) if e.raw_os_error() == Some(libc::ENOMEM) && pauses > 0 => {
                // The cache has a few dozen entries: many entries may need many pauses.
                pauses = if here > 0 { PAUSES } else { pauses - 1 };
                done += here;
                std::thread::sleep(pause);
            }
            Err((here, e)) => return Err((done + here, e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `count` entries to a map whose preallocated stock of `stock` entries is refilled in each pause. Returns how many were written.
    fn written(count: usize, stock: usize) -> Result<usize, (usize, i32)> {
        let entries = vec![(vec![0], vec![0]); count];
        let mut all = 0;
        let write = |some: &[Entry]| {
            let here = some.len().min(stock);
            all += here;
            match here == some.len() {
                true => Ok(()),
                false => Err((here, io::Error::from_raw_os_error(libc::ENOMEM))),
            }
        };
        let done = write_all(&entries, write, Duration::ZERO);
        let done = done.map_err(|(done, e)| (done, e.raw_os_error().unwrap_or(0)));
        done.map(|()| all)
    }

    #[test]
    fn as_many_pauses_are_made_as_entries_need() {
        assert_eq!(written(20_000, 32), Ok(20_000));
        assert_eq!(written(1000, 1), Ok(1000));
        assert_eq!(written(0, 0), Ok(0));
        // Memory that does not come back is an error.
        assert_eq!(written(5, 0), Err((0, libc::ENOMEM)));
    }
}
