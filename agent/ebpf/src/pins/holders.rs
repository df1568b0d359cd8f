//! The processes that hold a lock of `flock(2)`, by `/proc/locks`.

use nix::sys::stat::{major, minor};
use std::fs::File;
use std::io::{Read, Result};
use std::os::unix::fs::MetadataExt;

/// Mount points of procfs: that of the node, as a container sees it, and that of this PID namespace. The kernel lists only
/// locks of processes in the PID namespace of the mount.
const PROC: [&str; 2] = ["/host/proc", "/proc"];
/// Maximum size of `/proc/locks` that is read.
const LOCKS: u64 = 1 << 20;
/// Maximum size of `/proc/PID/status` that is read.
const STATUS: u64 = 64 << 10;
/// `CAP_NET_ADMIN` (linux/capability.h).
const CAP_NET_ADMIN: u32 = 12;

/// A process that holds the lock.
#[derive(Debug)]
pub(super) struct Holder {
    pid: u32,
    /// Content of `/proc/PID/status`; empty if the process has ended.
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
    /// `CAP_NET_ADMIN`: it cannot change the network. True if this is unknown. The bounding set counts because a thread of the agent may
    /// hold the lock while the main thread, which procfs shows, has dropped the capability.
    pub(super) fn may_write(&self) -> bool {
        // Real, effective, saved and file system UID, in the user namespace of this process.
        let uid = self
            .field("Uid")
            .and_then(|ids| ids.split_whitespace().nth(1));
        let bounding = self.field("CapBnd");
        let bounding = bounding.and_then(|bits| u64::from_str_radix(bits, 16).ok());
        match (uid, bounding) {
            (Some(uid), Some(bits)) => uid == "0" && bits >> CAP_NET_ADMIN & 1 == 1,
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
    let locks = head(&format!("{proc}/locks"), LOCKS)?;
    let holder = |pid| Holder {
        pid,
        status: head(&format!("{proc}/{pid}/status"), STATUS).unwrap_or_default(),
    };
    Ok(locks.lines().filter_map(pid).map(holder).collect())
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
