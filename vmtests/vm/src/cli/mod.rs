//! The command line: parses arguments, prints text or JSON, returns documented exit codes.

mod boot;
mod clean;
mod fetch;
mod guest;
mod list;
mod packages;
mod run;
mod update;

use crate::archive::{Archive, Bases};
use crate::kernels::LazyArchive;
use crate::{At, Cache, Result, program};
pub use guest::PATH;

use clap::{CommandFactory, FromArgMatches, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit codes. Every `--help` lists them.
pub mod code {
    /// Success; every case passed.
    pub const SUCCESS: u8 = 0;
    /// The command completed, and a case failed.
    pub const CASES: u8 = 1;
    /// The arguments are invalid.
    pub const USAGE: u8 = 2;
    /// The command could not be completed: no kernel, no QEMU, no archive, a full disk.
    pub const FAILURE: u8 = 3;
}

/// The text about exit codes at the end of every `--help`.
pub const EXIT_CODES: &str =
    "Exit codes: 0 ok, 1 a case failed, 2 wrong arguments, 3 it could not be done";

/// The commands about kernels and guests.
#[derive(Subcommand)]
#[allow(missing_docs, reason = "these comments are the help of the commands")]
pub enum Command {
    Fetch(fetch::Args),
    Update(update::Args),
    List(list::Args),
    Packages(packages::Args),
    Boot(boot::Args),
    Run(run::Args),
    Clean(clean::Args),
}

impl Command {
    /// Runs the command and returns its exit code.
    pub fn run(&self, cache: &Cache) -> Result<u8> {
        match self {
            Self::Fetch(a) => fetch::run(cache, a),
            Self::Update(a) => update::run(cache, a),
            Self::List(a) => list::run(cache, a),
            Self::Packages(a) => packages::run(cache, a),
            Self::Boot(a) => boot::run(cache, a),
            Self::Run(a) => run::run(cache, a),
            Self::Clean(a) => clean::run(cache, a),
        }
    }
}

/// The option that names the cache directory.
#[derive(clap::Args)]
pub struct CacheArgs {
    /// The directory for packages, kernels and saved states
    /// [default: $VMTESTS_CACHE, else vmtests in Cargo's target directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl CacheArgs {
    /// Opens the cache.
    pub fn open(&self) -> Result<Cache> {
        Cache::open(self.cache.clone())
    }
}

/// Parses the arguments as a `P`, runs the command and reports its result. Examples in the help show the name of the
/// running program.
#[must_use]
pub fn run<P: CommandFactory + FromArgMatches>(run: impl FnOnce(&P) -> Result<u8>) -> ExitCode {
    // get_matches exits by itself: with 0 after help and version, with the code for wrong arguments otherwise.
    let matches = renamed(P::command()).get_matches();
    let arguments = P::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let code = run(&arguments).unwrap_or_else(|e| {
        crate::note(&e.to_string());
        code::FAILURE
    });
    ExitCode::from(code)
}

/// Puts the name and the variables of the running program into the examples and options of the commands in this crate.
fn renamed(command: clap::Command) -> clap::Command {
    let rename = |text: String| {
        let text = text.replace("weir-vm ", &format!("{} ", program::name()));
        text.replace("VM_*", &format!("{}*", program::program().variables))
    };
    command.mut_subcommands(|command| {
        let examples = command.get_after_help().map(ToString::to_string);
        let command = command.mut_args(|arg| match arg.get_help().map(ToString::to_string) {
            Some(help) => arg.help(rename(help)),
            None => arg,
        });
        match examples {
            Some(text) => command.after_help(rename(text)),
            None => command,
        }
    })
}

/// The options that select the Debian archive.
#[derive(clap::Args)]
struct ArchiveArgs {
    /// The base URL of a Debian mirror: the part before /dists
    /// [default: $VMTESTS_ARCHIVE, else the apt sources of this system]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,

    /// Do not check the signature of the archive's index
    #[arg(long)]
    no_signature: bool,
}

impl ArchiveArgs {
    fn lazy(&self) -> LazyArchive {
        let (url, verify) = (self.archive.clone(), !self.no_signature);
        LazyArchive::new(Box::new(move || {
            Archive::new(Bases::find(url.as_deref())?, verify)
        }))
    }
}

/// Expands the arguments to names in kernels.toml; without arguments, to those that `by_default` accepts.
fn kernel_names(
    kernels: &crate::Kernels,
    arguments: &[String],
    by_default: fn(&crate::Entry) -> bool,
) -> Result<Vec<String>> {
    if arguments.is_empty() {
        let all = kernels.catalogue().kernels.iter().filter(|k| by_default(k));
        return Ok(all.map(|k| k.name.clone()).collect());
    }
    let mut names = Vec::new();
    for argument in arguments.iter().flat_map(|a| a.split(',')) {
        let name = kernels.find(argument)?.0.name.clone();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Writes a line to standard output.
pub fn say(line: &str) -> Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}").at("standard output")
}
