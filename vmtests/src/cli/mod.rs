//! The command line: arguments in, text or JSON out, documented exit codes.

mod boot;
mod clean;
mod fetch;
mod guest;
mod kernel;
mod list;
mod matrix;
mod report;
mod run;
mod update;

use crate::{Cache, Error, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit codes. Every `--help` shows them.
pub mod code {
    /// Done; every case passed.
    pub const SUCCESS: u8 = 0;
    /// The command did its work, and a case failed.
    pub const CASES: u8 = 1;
    /// The arguments do not make sense.
    pub const USAGE: u8 = 2;
    /// It could not be done: no kernel, no QEMU, no archive, a full disk.
    pub const FAILURE: u8 = 3;
}

const EXIT_CODES: &str =
    "Exit codes: 0 ok, 1 a case failed, 2 wrong arguments, 3 it could not be done";

/// Runs tests on real distribution kernels in QEMU
#[derive(Parser)]
#[command(name = "weir-vmtests", version, after_help = EXIT_CODES, arg_required_else_help = true)]
struct Cli {
    /// Where packages, kernels and saved states are kept
    /// [default: $VMTESTS_CACHE, else vmtests in Cargo's target directory]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Fetch(fetch::Args),
    Update(update::Args),
    List(list::Args),
    Boot(boot::Args),
    Run(run::Args),
    Matrix(matrix::Args),
    Report(report::Args),
    Clean(clean::Args),
}

/// Parses the arguments, runs the command and tells how it went.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are answers, not errors.
            let code = if e.use_stderr() {
                code::USAGE
            } else {
                code::SUCCESS
            };
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    match command(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("weir-vmtests: {e}");
            ExitCode::from(code::FAILURE)
        }
    }
}

fn command(cli: Cli) -> Result<u8> {
    let cache = Cache::open(cli.cache)?;
    match cli.command {
        Command::Fetch(a) => fetch::run(&cache, &a),
        Command::Update(a) => update::run(&cache, &a),
        Command::List(a) => list::run(&cache, &a),
        Command::Boot(a) => boot::run(&cache, &a),
        Command::Run(a) => run::run(&cache, &a),
        Command::Matrix(a) => matrix::run(&cache, &a),
        Command::Report(a) => report::run(&a),
        Command::Clean(a) => clean::run(&cache, &a),
    }
}

/// Where kernels come from.
#[derive(clap::Args)]
struct ArchiveArgs {
    /// The base of a Debian mirror: what stands before /dists
    /// [default: $VMTESTS_ARCHIVE, else the apt sources of this system]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,

    /// Do not check the signature of the archive's index
    #[arg(long)]
    no_signature: bool,
}

impl ArchiveArgs {
    fn lazy(&self) -> crate::kernels::LazyArchive {
        crate::kernels::LazyArchive::new(self.archive.clone(), !self.no_signature)
    }
}

/// The names in kernels.toml that the arguments stand for; all without an argument.
fn kernel_names(kernels: &crate::Kernels, arguments: &[String]) -> Result<Vec<String>> {
    if arguments.is_empty() {
        let all = kernels.catalogue().kernels.iter();
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

/// One line of output.
fn say(line: &str) -> Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}").map_err(|e| Error::io("standard output", &e))
}
