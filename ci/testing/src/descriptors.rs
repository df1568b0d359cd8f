//! File descriptors of one thread.

use nix::sched::{CloneFlags, unshare};
use nix::unistd::dup;
use std::fs::File;

/// Leaves room for only this many further descriptors, for the remaining lifetime of the calling thread, which gets its own table of
/// descriptors: later system calls that need one fail with `EMFILE`. Descriptors of other threads are not affected.
pub fn leave(free: usize) {
    unshare(CloneFlags::CLONE_FILES).expect("no right is needed");
    let null = File::open("/dev/null").expect("a device");
    let mut taken: Vec<_> = std::iter::from_fn(|| dup(&null).ok()).collect();
    taken.truncate(taken.len() - free);
    // They are closed with the thread.
    std::mem::forget((null, taken));
}
