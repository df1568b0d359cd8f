//! `weir-faults PROGRAMS [--all | --random N] [--seed N] [--only PREFIX] [--kind KIND] [--call NAME] [--case ID] [--jobs N]`: runs weir's
//! commands with faults in their system calls. Every call of a command is killed and made to fail, once or persistently, alone
//! or with a second fault, and other writers act between calls; then the resulting state is judged.
//!
//! A [`Scenario`] is a command with its initial state, [`Lab`] its environment; [`fault`] describes the faults of a call;
//! [`trace`] injects them; [`judge`] decides whether the guarantees were kept. `ci/faults` calls this program.

mod arguments;
mod calls;
#[allow(dead_code, unreachable_pub)]
mod fault;
mod foreign;
mod judge;
mod lab;
mod listing;
mod node;
mod report;
mod run;
mod scenario;
mod stand_in;
mod state;
mod trace;
mod watchdog;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use arguments::{Arguments, Random, What};
use lab::Lab;
use report::Report;
use run::{Baseline, Cases, Pool, Scratch};
use scenario::{Mode, Scenario};
use watchdog::Watchdog;

/// The main program.
pub(crate) fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = words.split_first()
        && first == trace::TRACED
    {
        eprintln!("weir-faults: {}", trace::become_traced(rest));
        return ExitCode::FAILURE;
    }
    match Arguments::parse(&words).and_then(|a| check(&a)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("weir-faults: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The reason why programs cannot be attached on this machine.
fn without_programs() -> Option<String> {
    let Some(_mounted) = weir_testing::BpfFs::mount() else {
        return Some("a bpf file system cannot be mounted".to_owned());
    };
    if let Err(e) = weir_ebpf::try_programs() {
        return Some(e.to_string());
    }
    const LO: u32 = 1;
    let links = weir_bpf::attached(LO, weir_bpf::BPF_TCX_INGRESS);
    links.err().map(|e| format!("tcx links (6.6): {e}"))
}

/// Returns whether all guarantees were kept.
fn check(arguments: &Arguments) -> Result<bool, String> {
    let scratch = Scratch::new()?;
    let lab = Lab::new(&arguments.programs, scratch.path())?;
    let numbers = AtomicUsize::new(Scenario::all().len());
    let chosen = Scenario::all().into_iter().enumerate();
    let chosen = chosen.filter(|(_, s)| arguments.concerns(&s.name()));
    let without = without_programs();
    if let Some(why) = &without {
        println!("skipped: programs of eBPF: {why}");
    }
    let chosen = chosen.filter(|(_, s)| s.mode != Mode::Ebpf || without.is_none());
    let baselines: Result<Vec<Baseline>, String> =
        chosen.map(|(n, s)| Baseline::record(&lab, s, n)).collect();
    let baselines = baselines?;
    let pool = Pool {
        lab: &lab,
        baselines: &baselines,
        jobs: arguments.jobs,
        numbers: &numbers,
    };
    if let What::Case(case) = &arguments.what {
        let mut text = String::new();
        let baseline = pool.baseline(case)?;
        let outcome = baseline.case(&lab, case, 0, &Watchdog::new(), Some(&mut text))?;
        print!("{text}");
        return Ok(report::one(&outcome));
    }
    let mut random = Random(arguments.seed);
    let mut all = Cases::default();
    for baseline in &baselines {
        all.append(baseline.cases(&mut random));
    }
    report::begin(baselines.len(), &all, arguments);
    let mut cases = arguments.choose(all, random);
    // Some of the saved cases may need features that this machine lacks.
    cases.retain(|case| pool.baseline(case).is_ok());
    let report = Mutex::new(Report::new(cases.len()));
    pool.run(&cases, &|outcome| {
        report.lock().expect("no worker panics").add(outcome)
    })?;
    Ok(report.into_inner().expect("no worker panics").finish())
}
