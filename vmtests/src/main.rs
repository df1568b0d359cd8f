//! `weir-vmtests`: this test binary on that kernel.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if weir_vmtests::guest::is_init() {
        weir_vmtests::guest::main();
    }
    weir_vmtests::become_qemu_if_asked();
    weir_vmtests::matrix::host::enter_namespaces_if_asked();
    weir_vmtests::cli::run()
}
