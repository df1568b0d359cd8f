//! The command line: arguments in, text or JSON out, documented exit codes.

mod args;
mod cni;
mod commands;
mod failure;
mod output;
mod preflight;
mod restore;
mod show;
mod sidecar;
mod source;
mod trial;

pub use args::Cli;

use args::{Apply, ApplyCommand, Cni, Plan, PlanCommand, Verify, VerifyCommand};
use clap::Parser;
use commands::Command;
use failure::{Failure, code};
use std::process::ExitCode;

/// Parses the arguments, runs the command and tells how it went.
///
/// Called by the name of the plugin, it is the plugin: one file serves as both.
#[must_use]
pub fn run() -> ExitCode {
    if called_as_plugin() {
        return weir_cni::plugin_main();
    }
    weir_netlink::sys::one_heap();
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
    match command(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("weir: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn called_as_plugin() -> bool {
    let name = std::env::args_os().next();
    let name = name
        .as_deref()
        .map(std::path::Path::new)
        .and_then(std::path::Path::file_name);
    name.is_some_and(|n| n == "weir-cni" || n == "istio-cni")
}

fn command(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Plan(Plan {
            what: PlanCommand::Sidecar(a),
        }) => sidecar::plan(&a),
        Command::Apply(Apply {
            what: ApplyCommand::Sidecar(a),
        }) => sidecar::apply(&a),
        Command::Verify(Verify {
            what: VerifyCommand::Sidecar(a),
        }) => sidecar::verify(&a),
        Command::Show(a) => show::show(&a),
        Command::Clean(a) => show::clean(&a),
        Command::Restore(a) => restore::run(&a),
        Command::Cni(Cni { verb }) => cni::run(verb),
        Command::Preflight(a) => preflight::run(&a),
        Command::Demo(a) => crate::demo::run(a.json, a.keep_going).map_err(Failure::failed),
    }
}
