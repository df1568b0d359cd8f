//! `weir-vm clean`: frees disk space.
use super::{code, say};
use crate::kernels::Kernels;
use crate::{At, Cache, Result};
use std::fs;
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  weir-vm clean --old       builds that are not used any more: kernels and packages
  weir-vm clean --states    saved states; the next run boots each kernel once and saves it again
  weir-vm clean             all of the cache

Exit codes: 0 ok, 2 wrong arguments, 3 something could not be removed";

/// Removes what the cache holds
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Remove only the saved states of booted machines
    #[arg(long, conflicts_with = "old")]
    states: bool,

    /// Remove only packages and kernels that neither kernels.lock nor a fallback uses
    #[arg(long)]
    old: bool,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    // The locks keep a kernel that another run is making from being removed.
    let kernels = Kernels::open(cache, None);
    let _guards = kernels.as_ref().map(|kernels| guards(cache, kernels));
    let mut freed = 0;
    if args.old {
        let (keys, packages) = kernels?.in_use();
        freed += remove_others(&cache.kernels(), &keys)?;
        freed += remove_others(&cache.debs(), &packages)?;
    } else if args.states {
        freed += remove(&cache.states())?;
    } else {
        // Only known names are removed: the directory may hold other files.
        for name in ["state", "kernel", "debs", "tmp", "used.lock", "lock"] {
            freed += remove(&cache.root().join(name))?;
        }
        // Fails, and so keeps the directory, if it holds other files.
        let _ = fs::remove_dir(cache.root());
    }
    let (mib, root) = (freed >> 20, cache.root().display());
    say(&format!("{mib} MiB removed from {root}"))?;
    Ok(code::SUCCESS)
}

fn guards(cache: &Cache, kernels: &Kernels) -> Vec<fs::File> {
    if !cache.root().is_dir() {
        return Vec::new();
    }
    let lock = |k: &crate::Entry| cache.lock(&format!("kernel-{}", k.name)).ok();
    let kernels = &kernels.catalogue().kernels;
    kernels.iter().filter_map(lock).collect()
}

fn remove_others(folder: &Path, keep: &[String]) -> Result<u64> {
    let mut freed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !keep.iter().any(|k| entry.file_name() == k.as_str()) {
            freed += remove(&entry.path())?;
        }
    }
    Ok(freed)
}

/// Removes a file or directory and returns its size; 0 if it does not exist.
fn remove(path: &Path) -> Result<u64> {
    let size = size(path);
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    removed.if_there(path)?;
    Ok(size)
}

fn size(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|e| size(&e.path())).sum()
}
