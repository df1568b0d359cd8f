//! `weir-vm fetch`: downloads kernels into the cache.
use super::{code, kernel_names};
use crate::kernels::{How, Kernels, LazyArchive};
use crate::program::note;
use crate::{Cache, Entry, Result, interrupt};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  weir-vm fetch                        every kernel of kernels.toml that is of this architecture
  weir-vm fetch 6.1 newest             these two
  weir-vm fetch --locked               exactly the builds of kernels.lock, or fail
  weir-vm fetch --archive http://mirror.example/debian

It uses the network, as do update and packages and no other command. What is in the cache is not fetched again.

Exit codes: 0 all are there, 2 wrong arguments, 3 one could not be had";

/// Downloads kernels, checks them and makes them ready to boot
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Names of kernels in the output of `list` [default: all of this architecture]
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,

    /// Use only the builds of kernels.lock, even if the archive no longer has them
    #[arg(long)]
    locked: bool,

    #[command(flatten)]
    archive: super::ArchiveArgs,

    /// Use this file instead of kernels.lock
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    interrupt::install();
    let mut kernels = Kernels::open(cache, args.lock.as_deref())?;
    let names = kernel_names(&kernels, &args.kernels, Entry::is_of_host)?;
    let archive: LazyArchive = args.archive.lazy();
    let mut failed = false;
    for name in names {
        match kernels.fetch(&archive, &name, args.locked) {
            Ok(Some((build, how))) => {
                let how = match how {
                    How::Cached => "there already",
                    How::Prepared => "made ready from the packages in the cache",
                    How::Downloaded => "fetched",
                };
                super::say(&format!("{name:<8} {:<24} {how}", build.version))?;
            }
            Ok(None) => note(&format!(
                "{name}: skipped, the archive does not have it any more (required = false in kernels.toml)"
            )),
            // A failure does not stop the download of the other kernels.
            Err(e) => {
                note(&e.to_string());
                failed = true;
            }
        }
    }
    Ok(if failed { code::FAILURE } else { code::SUCCESS })
}
