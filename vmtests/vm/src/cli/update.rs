//! `weir-vm update`: rewrites kernels.lock.
use super::{code, kernel_names, say};
use crate::kernels::Kernels;
use crate::{Cache, Result, interrupt, lock, replace};
use std::fs;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  weir-vm update                the newest build of every kernel
  weir-vm update newest         of this one; the others stay
  weir-vm update && weir-vm fetch --locked

The index of the archive is checked with gpgv and the keys of debian-archive-keyring. Where one of them is
missing, it says that it could not.

Exit codes: 0 done, 2 wrong arguments, 3 the archive could not be asked or lacks a kernel";

/// Looks for newer builds of the kernels and rewrites kernels.lock
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Names of kernels in the output of `list` [default: all]
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,

    #[command(flatten)]
    archive: super::ArchiveArgs,

    /// Use this file instead of kernels.lock
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    interrupt::install();
    let path = args.lock.clone().unwrap_or_else(lock::committed);
    let _guard = cache.lock("update")?;
    // With --lock, the file need not exist yet.
    let existing = path.is_file().then_some(path.as_path());
    let mut kernels = Kernels::open(cache, existing)?;
    let names = kernel_names(&kernels, &args.kernels, |_| true)?;
    for (name, before, after) in kernels.update(&args.archive.lazy(), &names)? {
        let version = |l: Option<&crate::Locked>| l.map_or("-".to_owned(), |l| l.version.clone());
        let (before, newest) = (version(before.as_ref()), version(after.as_ref()));
        let text = match after {
            None => format!("{before:<24} stays: the archive does not have it any more"),
            Some(_) if before == newest => format!("{before:<24} is the newest"),
            Some(_) => format!("{before:<24} -> {newest}"),
        };
        say(&format!("{name:<8} {text}"))?;
    }
    let text = kernels.lock().text()?;
    if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
        replace(&path, &text)?;
    }
    Ok(code::SUCCESS)
}
