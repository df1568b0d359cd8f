//! `weir-vmtests`: runs test programs on given kernels.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_vm::play_another_part_if_asked();
    weir_vmtests::host::enter_namespaces_if_asked();
    weir_vmtests::cli::run()
}
