//! Ring buffers: records of programs, in the order in which they were written.
//!
//! The kernel writes, and one process reads: the position of the reader is a number in memory that both share, and the kernel may
//! overwrite records before that position.

use super::numbers::{
    BPF_MAP_TYPE_RINGBUF, BPF_RINGBUF_BUSY_BIT, BPF_RINGBUF_DISCARD_BIT, BPF_RINGBUF_HDR_SZ,
};
use super::{Map, invalid, too_big};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Alignment of records.
const WORD: usize = size_of::<u64>();

/// Pages of a map that are mapped into this process, until this value is dropped.
#[derive(Debug)]
struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is mapped for the whole process, and is read and written by atomic operations only.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(
        map: BorrowedFd<'_>,
        length: usize,
        protection: libc::c_int,
        offset: usize,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(too_big)?;
        // SAFETY: without MAP_FIXED and without an address, mmap(2) replaces no existing mapping. The map is
        // open during the call, and the mapping keeps it alive from then on.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(invalid)?;
        Ok(Self { at, length })
    }

    /// Returns the address of an object of `size` bytes, which is aligned to its size.
    fn place(&self, offset: usize, size: usize) -> io::Result<NonNull<u8>> {
        let end = offset.checked_add(size).ok_or_else(invalid)?;
        match end <= self.length && offset.is_multiple_of(size) {
            // SAFETY: the object is within the mapping, as was checked, which is no longer than `isize::MAX`.
            true => Ok(unsafe { self.at.add(offset) }),
            false => Err(invalid()),
        }
    }

    fn position(&self) -> io::Result<&AtomicUsize> {
        let place = self.place(0, size_of::<AtomicUsize>())?;
        // SAFETY: the place is mapped as long as `self`, aligned, and all writers use atomic operations: the kernel uses
        // `smp_store_release()`.
        Ok(unsafe { place.cast().as_ref() })
    }

    /// Reads the length of a record, with its two flag bits. The record is complete once the length is read.
    fn length_at(&self, offset: usize) -> io::Result<u32> {
        let place = self.place(offset, size_of::<AtomicU32>())?;
        // SAFETY: as in `position`.
        let length: &AtomicU32 = unsafe { place.cast().as_ref() };
        Ok(length.load(Ordering::Acquire))
    }

    fn word_at(&self, offset: usize) -> io::Result<[u8; WORD]> {
        let place = self.place(offset, WORD)?;
        // SAFETY: as in `position`. The kernel writes a record before its length, and does not write there again until the reader's
        // position is after it; if another process moves the position, the bytes are those of another record.
        let word: &AtomicU64 = unsafe { place.cast().as_ref() };
        Ok(word.load(Ordering::Relaxed).to_ne_bytes())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

/// The reading end of a map of the type `BPF_MAP_TYPE_RINGBUF`. Since 5.8
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// The first page, with the position of the reader.
    consumer: Mapping,
    /// One page with the position of the writer, followed by the records, mapped twice so that none is split at the end.
    producer: Mapping,
    page: usize,
    /// Size of the records' area in bytes.
    size: usize,
}

impl Ring {
    /// Maps the pages of a ring buffer.
    ///
    /// # Errors
    ///
    /// `EINVAL`: another type of map; `EPERM`: it may not be written.
    ///
    /// # References
    ///
    /// `kernel/bpf/ringbuf.c`, Documentation/bpf/ringbuf.rst.
    pub fn of(map: Map) -> io::Result<Self> {
        let info = map.info()?;
        let size = usize::try_from(info.max_entries).map_err(too_big)?;
        if info.kind != BPF_MAP_TYPE_RINGBUF || !size.is_power_of_two() {
            return Err(invalid());
        }
        // SAFETY: sysconf(3) has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| invalid())?;
        let both = size
            .checked_mul(2)
            .and_then(|twice| twice.checked_add(page))
            .ok_or_else(invalid)?;
        let write = libc::PROT_READ | libc::PROT_WRITE;
        Ok(Self {
            consumer: Mapping::new(map.as_fd(), page, write, 0)?,
            producer: Mapping::new(map.as_fd(), both, libc::PROT_READ, page)?,
            map,
            page,
            size,
        })
    }

    /// Returns the map.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// `poll(2)`: waits until there is a record. Returns false after a timeout or a signal.
    ///
    /// # Errors
    ///
    /// `ENOMEM`
    pub fn wait(&self, time: Duration) -> io::Result<bool> {
        let mut polled = libc::pollfd {
            fd: self.map.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one `pollfd` is borrowed mutably, and the map is open during the call.
        match unsafe { libc::poll(&raw mut polled, 1, milliseconds) } {
            ..0 => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
                e => Err(e),
            },
            ready => Ok(ready > 0),
        }
    }

    /// Passes the available records to `take`, at most `most`, and frees their space. Returns their number.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the data is not a record, because another process reads at the same time; everything is skipped.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        for taken in 0..most {
            let written = self.producer.position()?.load(Ordering::Acquire);
            let read = self.consumer.position()?.load(Ordering::Relaxed);
            if read == written {
                return Ok(taken);
            }
            let next = match self.record(read, written) {
                Ok(Some((record, next))) => {
                    record.iter().for_each(|record| take(record));
                    next
                }
                // The record is being written.
                Ok(None) => return Ok(taken),
                Err(e) => {
                    self.consumer.position()?.store(written, Ordering::Release);
                    return Err(e);
                }
            };
            self.consumer.position()?.store(next, Ordering::Release);
        }
        Ok(most)
    }

    /// Returns the record at a position, unless it was discarded, and the position after it. `None`: it is being written.
    fn record(&self, read: usize, written: usize) -> io::Result<Option<(Option<Vec<u8>>, usize)>> {
        let header = usize::try_from(BPF_RINGBUF_HDR_SZ).map_err(too_big)?;
        let start = self.page + (read & (self.size - 1));
        let stated = self.producer.length_at(start)?;
        if stated & BPF_RINGBUF_BUSY_BIT != 0 {
            return Ok(None);
        }
        let length = usize::try_from(stated & !BPF_RINGBUF_DISCARD_BIT).map_err(too_big)?;
        let whole = length
            .checked_add(header)
            .and_then(|n| n.checked_next_multiple_of(WORD))
            .filter(|whole| *whole <= written.wrapping_sub(read) && *whole <= self.size)
            .ok_or_else(invalid)?;
        let next = read.wrapping_add(whole);
        if stated & BPF_RINGBUF_DISCARD_BIT != 0 {
            return Ok(Some((None, next)));
        }
        let mut record = Vec::with_capacity(whole);
        for at in (header..whole).step_by(WORD) {
            record.extend_from_slice(&self.producer.word_at(start + at)?);
        }
        record.truncate(length);
        Ok(Some((Some(record), next)))
    }
}
