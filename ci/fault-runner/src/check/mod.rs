//! `weir-faults PROGRAMS [--all | --random N] [--seed N] [--only PREFIX] [--kind KIND] [--case ID] [--jobs N]`: every system call of
//! what weir does to a namespace is killed and fails, once or from then on, alone or with a second one, and other
//! writers come between; what is left is judged.
//!
//! [`Scenario`] is a command and what it starts from, [`Lab`] where it runs; [`fault`] is what happens to a call;
//! [`trace`] makes it happen; [`judge`] says whether the promises held. `ci/faults` calls this.

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

/// The program.
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

/// Why programs cannot be attached here.
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

/// Whether all promises held.
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
    // Of those that failed once some are of what this machine cannot do.
    cases.retain(|case| pool.baseline(case).is_ok());
    let report = Mutex::new(Report::new(cases.len()));
    pool.run(&cases, &|outcome| {
        report.lock().expect("no worker panics").add(outcome)
    })?;
    Ok(report.into_inner().expect("no worker panics").finish())
}
