//! `weir-vm`: runs a program on a given kernel.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use weir_vm::cli;

/// Runs programs on real distribution kernels in QEMU
#[derive(Parser)]
#[command(name = "weir-vm", version, after_help = cli::EXIT_CODES, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    cache: cli::CacheArgs,

    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    weir_vm::play_another_part_if_asked();
    cli::run(|arguments: &Arguments| arguments.command.run(&arguments.cache.open()?))
}
