//! `weir-faults`, which `ci/faults` calls. The code is in [`check`].
#![forbid(unsafe_code)]
// A check that cannot be made ends the program; nothing depends on it.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

#[cfg(target_arch = "x86_64")]
mod check;

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    check::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("skip: system calls are followed on x86_64 only");
}
