//! `weir-vm packages`: packages of a Debian suite, extracted and not installed.
use super::{code, say};
use crate::kernels::opened;
use crate::{At, Cache, Result, clean_up_when_interrupted};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  weir-vm packages --suite trixie --into target/nft/trixie nftables
  weir-vm packages --suite bookworm --into source --source kubernetes

All that the packages depend on comes too, the C library and its loader included. They are of the
architecture amd64. What they need to run from there is up to the caller.";

/// Extracts packages of a Debian suite with all that they depend on
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The suite, such as bookworm or sid
    #[arg(long)]
    suite: String,

    /// The directory for the files; created if it is missing
    #[arg(long, value_name = "DIR")]
    into: PathBuf,

    /// Extract the source of one package as its author published it, instead of packages
    #[arg(long)]
    source: bool,

    #[command(flatten)]
    archive: super::ArchiveArgs,

    /// The names of the packages
    #[arg(required = true, value_name = "PACKAGE")]
    names: Vec<String>,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    clean_up_when_interrupted();
    let archive = args.archive.lazy();
    let archive = opened(&archive)?;
    std::fs::create_dir_all(&args.into).at(&args.into)?;
    if args.source {
        for name in &args.names {
            say(&archive.extract_source(cache, &args.suite, name, &args.into)?)?;
        }
        return Ok(code::SUCCESS);
    }
    for package in archive.extract(cache, &args.suite, &args.names, &args.into)? {
        say(&package)?;
    }
    Ok(code::SUCCESS)
}
