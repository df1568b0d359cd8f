//! The kernel matrix as tests: `ENVIRONMENT::CASE`, on this machine's kernel and on the oldest and the newest kernel in the
//! cache.
//!
//! A plain `cargo test` runs one case of each kind. Variables:
//!
//! - `VMTESTS_CASES=all`: all cases of these environments; `guests`: only those in virtual machines, for use after the
//!   tests of this machine.
//! - `VMTESTS_REQUIRE=5.10,newest`: a case that cannot run there fails instead of being ignored.
//! - `VMTESTS_ARTIFACTS=FILE`: the output of `cargo test --no-run --message-format=json`. Without it Cargo is started, which
//!   builds nothing after `cargo test`.
#![allow(clippy::print_stdout)]

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use weir_vm::{Cache, Error, Kernels, State};
use weir_vmtests::model::Verdict;
use weir_vmtests::skip::Skip;
use weir_vmtests::{Artifacts, Matrix, Plan, case};

const CASES: &str = "VMTESTS_CASES";
const ARTIFACTS: &str = "VMTESTS_ARTIFACTS";
const REQUIRE: &str = "VMTESTS_REQUIRE";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(e) => {
            eprintln!("the kernel matrix: {e}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Error> {
    // The tests need it for the lifetime of the process.
    let cache: &'static Cache = Box::leak(Box::new(Cache::open(None)?));
    let artifacts = match std::env::var_os(ARTIFACTS) {
        Some(file) => Artifacts::load(&PathBuf::from(file))?,
        None => Artifacts::build(case::top(), "test")?,
    };
    let plan = Plan {
        kernels: oldest_and_newest(&Kernels::open(cache, None)?),
        is_on_host: true,
        program: Some(env!("CARGO_BIN_EXE_weir-vmtests").into()),
        ..Plan::default()
    };
    let matrix = Arc::new(Matrix::new(cache, artifacts, plan)?);
    let chosen = std::env::var(CASES).unwrap_or_default();
    let mut trials = Vec::new();
    for (place, case) in matrix.pairs() {
        let (Some(at), Some(what)) = (matrix.places.get(place), matrix.cases.get(case)) else {
            continue;
        };
        let is_wanted = match chosen.as_str() {
            "all" => true,
            "guests" => !at.is_host(),
            // Cargo runs the same tests on this machine anyway.
            _ => what.marks.is_smoke && !at.is_host(),
        };
        if !is_wanted {
            continue;
        }
        let name = format!("{}::{}", at.name(), what.name);
        let reason = matrix.why_ignored(place, case);
        let shared = Arc::clone(&matrix);
        let trial = Trial::test(name, move || run(&shared, place, case));
        trials.push(match reason {
            Some(reason) => trial.with_ignored_flag(true).with_kind(short(&reason)),
            None => trial,
        });
    }
    Ok(trials)
}

fn run(matrix: &Matrix<'_>, place: usize, case: usize) -> Result<(), Failed> {
    match matrix.run_one(place, case).map(|r| r.verdict) {
        Some(Verdict::Passed) => Ok(()),
        Some(Verdict::Skipped(Skip {
            probe,
            since,
            reason,
        })) => {
            println!("skipped: {probe} (since {since}): {reason}");
            Ok(())
        }
        Some(Verdict::Ignored { reason }) => Err(reason.into()),
        Some(Verdict::Failed { text }) => Err(text.into()),
        None => Err("no such case".into()),
    }
}

/// The oldest and the newest kernel among those in the cache and those that are required. With an empty cache: the newest,
/// which is then listed with the reason.
fn oldest_and_newest(kernels: &Kernels) -> Vec<String> {
    let status = kernels.status();
    let plain = status.iter().filter(|s| s.entry.flavour == "cloud");
    let ready: Vec<String> = plain
        .filter(|s| s.state == State::Ready)
        .map(|s| s.entry.name.clone())
        .collect();
    let mut names: Vec<String> = ready
        .first()
        .into_iter()
        .chain(ready.last())
        .cloned()
        .collect();
    let required = std::env::var(REQUIRE).unwrap_or_default();
    names.extend(
        required
            .split(',')
            .filter(|n| !n.is_empty())
            .map(str::to_owned),
    );
    if names.is_empty() {
        names.push("newest".to_owned());
    }
    let mut seen = Vec::new();
    names.retain(|n| {
        !seen.contains(n) && {
            seen.push(n.clone());
            true
        }
    });
    names
}

/// The first line of the reason, in the format of the test harness.
fn short(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    format!("ignored: {line}")
}
