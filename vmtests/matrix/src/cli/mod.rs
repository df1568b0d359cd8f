//! The command line: the commands of [`weir_vm::cli`] and those of the matrix.

mod matrix;
mod report;

use clap::{Parser, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use weir_vm::cli::{CacheArgs, EXIT_CODES};
use weir_vm::program::{self, Program};
use weir_vm::{Cache, Payload, Result, note, variable};

const PROGRAM: Program = Program {
    name: "weir-vmtests",
    variables: "WEIR_",
    payload: crate::ship::users,
    boot: binaries,
};

const BOOT: &str = "\
Examples:
  weir-vmtests boot --kernel 6.12
  weir-vmtests boot --kernel 5.10 -- weir preflight
  weir-vmtests boot --kernel newest --with /usr/sbin/nft
  echo 'weir demo' | weir-vmtests boot --kernel 7.2

The guest has weir and weir-cni (of $WEIR_BIN_DIR, else the ones that ci/build made), and no shell.
At the prompt a line is a program and its arguments; quotes keep words together.";

/// Runs tests on real distribution kernels in QEMU
#[derive(Parser)]
#[command(name = "weir-vmtests", version, after_help = EXIT_CODES, arg_required_else_help = true)]
#[command(mut_subcommand("boot", |boot| boot.after_help(BOOT)))]
struct Arguments {
    #[command(flatten)]
    cache: CacheArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Machines(weir_vm::cli::Command),
    Matrix(matrix::Args),
    Report(report::Args),
}

/// Parses the arguments, runs the command and reports its result.
#[must_use]
pub fn run() -> ExitCode {
    program::set(PROGRAM);
    weir_vm::cli::run(|arguments: &Arguments| match &arguments.command {
        Command::Machines(command) => command.run(&arguments.cache.open()?),
        Command::Matrix(a) => matrix::run(&arguments.cache.open()?, a),
        Command::Report(a) => report::run(a),
    })
}

/// Adds the two binaries of weir under `/bin`, if they have been built.
fn binaries(cache: &Cache, payload: &mut Payload) -> Result<()> {
    let built = cache.root().parent();
    let built = built.map(|target| target.join("x86_64-unknown-linux-gnu/release"));
    let folder = variable("WEIR_BIN_DIR").or(built).unwrap_or_default();
    for name in ["weir", "weir-cni"] {
        let file = folder.join(name);
        if file.is_file() {
            payload.program_at(&file, &Path::new("/bin").join(name))?;
        } else {
            let folder = folder.display();
            note(&format!(
                "{name} is not in {folder}: run ci/build, or set WEIR_BIN_DIR"
            ));
        }
    }
    Ok(())
}
