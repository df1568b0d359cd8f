//! The processes that hold a lock of `flock(2)`, by `/proc/locks`.

use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Result};
use std::os::unix::fs::MetadataExt;

/// Mount points of procfs: that of the node, as a container sees it, and that of this PID namespace. The kernel lists only
/// locks of processes in the PID namespace of the mount.
const PROC: [&str; 2] = ["/host/proc", "/proc"];
/// Maximum size of `/proc/locks` that is read.
const LOCKS: u64 = 64 << 20;
/// Maximum size of `/proc/PID/status` that is read.
const STATUS: u64 = 64 << 10;
/// `CAP_NET_ADMIN` (linux/capability.h).
const CAP_NET_ADMIN: u32 = 12;

/// A process that holds the lock.
#[derive(Debug)]
pub(super) struct Holder {
    pid: u32,
    /// There is no such process any more.
    has_ended: bool,
    /// Content of `/proc/PID/status`; empty if it cannot be read.
    status: String,
}

impl Holder {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.status.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    }

    /// False for a process that is not root, or only in another user namespace, and for one whose bounding set lacks
    /// `CAP_NET_ADMIN`: it cannot change the network. False for a process that has ended: no lock of weir outlives its process, but a
    /// copy of the descriptor in a child keeps another one. True if this is unknown. The bounding set counts because a thread of the agent may
    /// hold the lock while the main thread, which procfs shows, has dropped the capability.
    pub(super) fn may_write(&self) -> bool {
        // Real, effective, saved and file system UID, in the user namespace of this process.
        let ids = self.field("Uid");
        let is_root = ids.map(|ids| ids.split_whitespace().all(|id| id == "0"));
        let bounding = self.field("CapBnd");
        let bounding = bounding.and_then(|bits| u64::from_str_radix(bits, 16).ok());
        match (self.has_ended, is_root, bounding) {
            (true, ..) => false,
            (_, Some(is_root), Some(bits)) => is_root && bits >> CAP_NET_ADMIN & 1 == 1,
            _ => true,
        }
    }
}

/// Returns the holders that are visible in this container.
pub(super) fn of(file: &File) -> Vec<Holder> {
    let all = PROC.into_iter().filter_map(|proc| below(proc, file).ok());
    all.into_iter()
        .find(|holders| !holders.is_empty())
        .unwrap_or_default()
}

/// Reads lines such as `1: FLOCK  ADVISORY  WRITE 4711 00:04:4026531840 0 EOF`.
fn below(proc: &str, file: &File) -> Result<Vec<Holder>> {
    let found = file.metadata()?;
    let (major, minor) = (major(found.dev()), minor(found.dev()));
    let object = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let pid = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, locked, ..] if *locked == object => pid.parse::<u32>().ok(),
            _ => None,
        }
    };
    let holder = |pid| {
        let status = head(&format!("{proc}/{pid}/status"), STATUS);
        // A process that ends while it is read has no more such file: ESRCH.
        let ended = |e: &std::io::Error| {
            e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::ESRCH as i32)
        };
        Holder {
            pid,
            has_ended: status.as_ref().is_err_and(ended),
            status: status.unwrap_or_default(),
        }
    };
    let mut holders = Vec::new();
    // Line by line: other users may hold any number of locks.
    for line in BufReader::new(File::open(format!("{proc}/locks"))?.take(LOCKS)).lines() {
        holders.extend(pid(&line?).map(holder));
    }
    Ok(holders)
}

fn head(path: &str, most: u64) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns who holds the lock, and the remedy.
pub(super) fn text(holders: &[Holder]) -> String {
    let named = |holder: &Holder| {
        let name = holder.field("Name").unwrap_or_default();
        format!("process {} ({})", holder.pid, name.escape_debug())
    };
    match holders {
        [] => "another process holds the lock, which is not seen from here; lslocks on the node names it: if it is not of weir, end it"
            .to_owned(),
        all => {
            let all: Vec<String> = all.iter().map(named).collect();
            let all = all.join(" and ");
            format!("the lock is held by {all}; if that is not of weir, end it")
        }
    }
}
