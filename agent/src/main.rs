//! `weir`: see `weir --help`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_agent::cli::run()
}
