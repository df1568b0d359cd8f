//! `weir-cni`: the CNI plugin as a program. It reads its environment and stdin,
//! and writes one JSON object to stdout; see [`weir_cni::protocol`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_cni::plugin::main()
}
