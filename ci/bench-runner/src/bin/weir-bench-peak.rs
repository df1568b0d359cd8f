//! `weir-bench-peak PROGRAM ARGUMENTS...`: runs it and prints `WALL CPU SYSTEM PEAK`, in microseconds and KiB.
//!
//! CPU is user and system time, SYSTEM the part of it in the kernel.
//! The peak is the largest resident memory of the program or of one of its children
//! (`ru_maxrss`, getrusage(2)). It is measured from here and not from the bench, because a
//! program begins with the peak of its parent: the kernel notes that of the memory
//! which exec replaces. This one is small, so that peaks below 1 to 2 MiB alone are hidden.
//! What the program prints goes to /dev/null.
#![forbid(unsafe_code)]
// A measurement that cannot be made ends; nobody depends on this program.
#![allow(clippy::expect_used, clippy::print_stdout)]

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().expect("PROGRAM");
    let start = Instant::now();
    let status = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    let wall = start.elapsed();
    if !status.success() {
        eprintln!("{}: {status}", program.display());
        return ExitCode::FAILURE;
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage does not fail");
    let micros = |t: nix::sys::time::TimeVal| t.tv_sec() * 1_000_000 + t.tv_usec();
    println!(
        "{} {} {} {}",
        wall.as_micros(),
        micros(usage.user_time()) + micros(usage.system_time()),
        micros(usage.system_time()),
        usage.max_rss()
    );
    ExitCode::SUCCESS
}
