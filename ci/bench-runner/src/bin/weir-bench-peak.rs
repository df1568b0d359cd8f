//! `weir-bench-peak PROGRAM ARGUMENTS...`: runs a program and prints `WALL CPU SYSTEM PEAK`, in microseconds and KiB.
//!
//! CPU is user and system time, SYSTEM the part of it in the kernel.
//! PEAK is the largest resident memory of the program or of one of its children
//! (`ru_maxrss`, getrusage(2)). The bench itself cannot measure it, because execve(2) keeps the
//! peak of the memory that it replaces, so a program inherits the peak of its parent. This
//! program is small: only peaks below 1 to 2 MiB are hidden.
//! The program's output goes to /dev/null.
#![forbid(unsafe_code)]
// A failed measurement ends the program; nothing depends on it.
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
