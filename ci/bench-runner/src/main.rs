//! `weir-bench BINARIES OUTPUT [--quick] [--apply|--pods|--ambient|--dataplane|--soak|--node]`: compares weir with the
//! shell-out that it replaces. `weir-bench --write DOCUMENT OUTPUT` writes the results into the tables of the document.
//!
//! The goals are ratios: both sides alternate within one run on one machine. Absolute times
//! depend more on the machine. `ci/bench` builds the programs and calls this one.
#![forbid(unsafe_code)]
// A failed measurement ends the program; nothing depends on it.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod agent;
mod ambient;
mod apply;
mod capture;
mod dataplane;
mod figures;
#[allow(dead_code, unreachable_pub)]
mod node;
mod peak;
mod pods;
mod reading;
mod report;
mod run;
mod running;
mod sets;
mod setup;
mod soak;
mod stats;
mod tables;
mod throughput;

use std::path::Path;
use std::process::ExitCode;

/// The amount of samples.
struct Size {
    is_quick: bool,
    samples: usize,
    pods: usize,
    rounds: usize,
    /// The numbers of ipset addresses, nf_tables elements and rules, and the samples of each.
    addresses: u32,
    elements: u32,
    rules: usize,
    large: usize,
}

/// The selected benchmarks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    All,
    Apply,
    Pods,
    Ambient,
    Dataplane,
    Soak,
    Node,
}

const FULL: Size = Size {
    is_quick: false,
    samples: 150,
    pods: 200,
    rounds: 5,
    addresses: 65_536,
    elements: 100_000,
    rules: 10_000,
    large: 15,
};
const QUICK: Size = Size {
    is_quick: true,
    samples: 10,
    pods: 32,
    rounds: 1,
    addresses: 4_096,
    elements: 5_000,
    rules: 1_000,
    large: 3,
};

/// The pods that are added and deleted.
const SOAK: usize = 2_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--write", document, report] = arguments[..] {
        return end(figures::write(Path::new(document), Path::new(report)).map(|()| 0));
    }
    let (quick, arguments): (Vec<&str>, Vec<&str>) =
        arguments.into_iter().partition(|a| *a == "--quick");
    let (binaries, output, part) = match arguments[..] {
        [binaries, output] => (binaries, output, ""),
        [binaries, output, part] => (binaries, output, part),
        _ => ("", "", "none"),
    };
    let parts = match part {
        "" => Parts::All,
        "--apply" => Parts::Apply,
        "--pods" => Parts::Pods,
        "--ambient" => Parts::Ambient,
        "--dataplane" => Parts::Dataplane,
        "--soak" => Parts::Soak,
        "--node" => Parts::Node,
        _ => {
            eprintln!(
                "usage: weir-bench BINARIES OUTPUT [--quick] [--apply|--pods|--ambient|--dataplane|--soak|--node]\n\
                 or: weir-bench --write DOCUMENT OUTPUT"
            );
            return ExitCode::from(2);
        }
    };
    let size = if quick.is_empty() { &FULL } else { &QUICK };
    end(measure(Path::new(binaries), Path::new(output), size, parts))
}

fn end(measured: Result<usize, String>) -> ExitCode {
    match measured {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("{missed} goals missed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("weir-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of missed goals.
fn measure(binaries: &Path, output: &Path, size: &Size, parts: Parts) -> Result<usize, String> {
    run::allow_many_descriptors()?;
    let scratch = run::Scratch::new()?;
    let setup = setup::Setup::new(binaries, &scratch)?;
    let mut report = report::Report::default();
    match parts {
        Parts::Pods => {
            pods::run(&setup, &scratch, size.samples, &mut report)?;
            running::run(&setup, &scratch, &mut report)?;
        }
        Parts::Ambient => ambient::run(&setup, &scratch, &mut report)?,
        Parts::Dataplane => dataplane::run(size.rounds * 3, &mut report)?,
        Parts::Soak => soak::run(&setup, &scratch, SOAK, &mut report)?,
        Parts::Node => node::run(&setup, &scratch, size.samples, &mut report)?,
        Parts::All | Parts::Apply => {}
    }
    if !matches!(parts, Parts::All | Parts::Apply) {
        return report.write(output, size.is_quick);
    }
    apply::run(&setup, &scratch, size.samples, &mut report)?;
    if parts == Parts::Apply {
        return report.write(output, size.is_quick);
    }
    tables::run(&setup, &scratch, size.samples, &mut report)?;
    sets::ipset(&setup, &scratch, size.addresses, size.large, &mut report)?;
    sets::nft(&setup, &scratch, size.elements, size.large, &mut report)?;
    reading::run(&setup, &scratch, size.rules, size.large, &mut report)?;
    pods::run(&setup, &scratch, size.samples, &mut report)?;
    running::run(&setup, &scratch, &mut report)?;
    ambient::run(&setup, &scratch, &mut report)?;
    throughput::run(&setup, &scratch, size.pods, size.rounds, &mut report)?;
    report.write(output, size.is_quick)
}
