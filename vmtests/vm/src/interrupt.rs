//! Removes this run's scratch directories on Ctrl-C.
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

/// Makes SIGINT and SIGTERM remove the scratch directories and end the program with 128 plus the signal's number. Call it
/// before any thread is started: an earlier thread does not block the signals, so they would end the process at once
/// and leave the directories to the next run.
pub fn install() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        folders().iter().for_each(|folder| remove(folder));
        let name = crate::program::name();
        eprintln!("\n{name}: stopped by {signal}. What was complete stays in the cache");
        std::process::exit(128 + signal as i32);
    });
}

/// Removes a directory, with retries: a QEMU that has just started may create a few files in it meanwhile, and rmdir(2)
/// then fails with ENOTEMPTY.
fn remove(folder: &Path) {
    const ATTEMPTS: usize = 100;
    let gone = || std::fs::remove_dir_all(folder).is_ok() || !folder.exists();
    let _ = (0..ATTEMPTS).any(|_| gone());
}

#[cfg(test)]
mod tests {
    use super::remove;

    #[test]
    fn a_folder_in_which_somebody_makes_files_goes_all_the_same() {
        let name = format!("weir-vm-interrupt-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for _ in 0..20 {
            std::fs::create_dir(&folder).unwrap();
            let theirs = folder.clone();
            let writer = std::thread::spawn(move || {
                let make = |n: u32| std::fs::write(theirs.join(n.to_string()), "").is_ok();
                (0..50).take_while(|n| make(*n)).count()
            });
            while !folder.join("0").exists() && !writer.is_finished() {
                std::thread::yield_now();
            }
            remove(&folder);
            assert!(!folder.exists());
            writer.join().unwrap();
        }
    }
}
