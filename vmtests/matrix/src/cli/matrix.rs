//! `weir-vmtests matrix`: runs every case on every kernel.
use crate::model::{Run, Verdict};
use crate::{Artifacts, Matrix, Plan, case, report};
use std::io::IsTerminal;
use std::path::PathBuf;
use weir_vm::cli::{code, say};
use weir_vm::{Cache, Error, Kernels, Result};

const EXAMPLES: &str = "\
Examples:
  weir-vmtests matrix                                      everything: this machine, all kernels, all variants
  weir-vmtests matrix --kernels 6.12 --variants none       one kernel, and this machine
  weir-vmtests matrix --no-host --filter traffic           cases whose ENVIRONMENT::CASE has `traffic` in it
  weir-vmtests matrix --report target/vmtests/report       text, JSON, JUnit and one HTML page
  weir-vmtests matrix --report target/vmtests/report --resume    the same, after it was stopped

  cargo test --no-run --message-format=json >tests.json    test programs that are built already
  weir-vmtests matrix --artifacts tests.json

Cases that ask no kernel are no part of it: cargo test runs them. Those of the commands run on
this machine and on the oldest of the kernels that are asked for, those of the node agent on the newest.

Variables: WEIR_GOLDEN (golden cases) and WEIR_BIN_DIR (release binaries of ci/build) name directories that
guests get, too, and the binaries are then those that tests start; cases that need one say so when it is not
named. VMTESTS_REQUIRE=5.10,newest makes it a failure when one of these cannot run. VMTESTS_SLOW=10 makes
deadlines ten times longer.";

/// The profile of `cargo test`, so that nothing is built twice.
const PROFILE: &str = "test";

/// Runs every test of weir on every kernel, each in a fresh machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The kernels [default: all of `weir-vmtests list`]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<String>,

    /// The variants, each on the kernels for which `list` shows it: names, `all` or `none`
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "all"
    )]
    variants: Vec<String>,

    /// Number of guests at a time [default: the number of processors]; one case on this machine runs in addition
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Run only cases whose ENVIRONMENT::CASE contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// The directory for the report
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,

    /// Continue the stopped run in the directory of --report, if it has the same programs; failed cases run
    /// again
    #[arg(long, requires = "report")]
    resume: bool,

    /// The output of `cargo test --no-run --message-format=json` [default: Cargo builds the programs]
    #[arg(long, value_name = "FILE")]
    artifacts: Option<PathBuf>,

    /// Run cases on this machine's own kernel, too (the default)
    #[arg(long, overrides_with = "no_host")]
    host: bool,

    /// Run cases only on kernels in QEMU
    #[arg(long)]
    no_host: bool,

    /// List what would run, and run nothing
    #[arg(long)]
    list: bool,
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    // Must precede the start of any thread, see clean_up_when_interrupted.
    weir_vm::clean_up_when_interrupted();
    let plan = plan(&Kernels::open(cache, None)?, args)?;
    let artifacts = match &args.artifacts {
        Some(file) => Artifacts::load(file)?,
        None => Artifacts::build(case::top(), PROFILE)?,
    };
    let matrix = Matrix::new(cache, artifacts, plan)?;
    let pairs = matrix.pairs();
    if pairs.is_empty() {
        let filter = format!("--filter {}", args.filter.as_deref().unwrap_or_default());
        let reason = "no case of these environments has that in its name";
        return Err(Error::new(filter, reason, "--list shows them"));
    }
    if args.list {
        for (place, case) in pairs {
            if let (Some(place), Some(case)) = (matrix.places.get(place), matrix.cases.get(case)) {
                say(&format!("{}::{}", place.name(), case.name))?;
            }
        }
        return Ok(code::SUCCESS);
    }
    let run = matrix.run()?;
    say(report::text(&run, std::io::stdout().is_terminal()).trim_end())?;
    if let Some(dir) = &args.report {
        let files = report::write(&run, dir)?;
        matrix.end()?;
        for file in files {
            say(&file.display().to_string())?;
        }
    }
    Ok(status(&run))
}

/// The exit code: 1 if a case failed; 3 if none failed but a requested environment was not available.
fn status(run: &Run) -> u8 {
    let failed = |v: &Verdict| matches!(v, Verdict::Failed { .. });
    if run.results.iter().any(|r| failed(&r.verdict)) {
        return code::CASES;
    }
    match run.environments.iter().any(|e| e.unavailable.is_some()) {
        true => code::FAILURE,
        false => code::SUCCESS,
    }
}

fn plan(kernels: &Kernels, args: &Args) -> Result<Plan> {
    let catalogue = kernels.catalogue();
    let every = |names: &[String]| names.iter().any(|n| n == "all");
    let mut chosen = args.kernels.clone();
    let is_whole = chosen.is_empty() || every(&chosen);
    if is_whole {
        let all = catalogue.kernels.iter().filter(|k| k.is_of_host());
        let (all, own) = (all.map(|k| &k.name), kernels.own().iter().map(|o| &o.name));
        chosen = all.chain(own).cloned().collect();
    }
    let known: Vec<String> = catalogue.variants.iter().map(|v| v.name.clone()).collect();
    let variants = match &*args.variants {
        names if every(names) => known.clone(),
        [none] if none == "none" => Vec::new(),
        names => names.to_vec(),
    };
    if let Some(unknown) = variants.iter().find(|v| !known.contains(v)) {
        let remedy = format!("Variants: {}; or all, or none", known.join(", "));
        let input = format!("--variants {unknown}");
        return Err(Error::new(input, "there is none of that name", remedy));
    }
    let mut selection = Vec::new();
    if !is_whole {
        selection.push(format!("--kernels {}", args.kernels.join(",")));
    }
    if !every(&args.variants) {
        selection.push(format!("--variants {}", args.variants.join(",")));
    }
    selection.extend(args.filter.iter().map(|f| format!("--filter {f}")));
    if args.no_host {
        selection.push("--no-host".to_owned());
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(Plan {
        kernels: chosen,
        variants,
        is_on_host: args.host || !args.no_host,
        filter: args.filter.clone(),
        jobs: args.jobs.unwrap_or(processors),
        selection: selection.join(" "),
        progress: args.report.as_ref().map(|dir| dir.join("progress.jsonl")),
        resume: args.resume,
        program: None,
    })
}
