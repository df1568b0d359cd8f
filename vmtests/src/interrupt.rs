//! Ctrl-C: what this run was making goes away, at once.
use nix::sys::signal::{SigSet, Signal};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn watch(folder: &Path) {
    folders().push(folder.to_owned());
}

pub(crate) fn forget(folder: &Path) {
    folders().retain(|f| f != folder);
}

/// From now on SIGINT and SIGTERM remove the scratch folders and end the program with 128 and the signal's
/// number. Call it before any thread is started: a thread made earlier would still die of the signal itself,
/// which leaves the folders to the next run.
pub(crate) fn install() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        for folder in folders().iter() {
            let _ = std::fs::remove_dir_all(folder);
        }
        eprintln!("\nweir-vmtests: stopped by {signal}. What was complete stays in the cache");
        std::process::exit(128 + signal as i32);
    });
}
