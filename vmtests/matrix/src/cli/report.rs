//! `weir-vmtests report`: makes the report of a run again, and updates or checks the tables of docs/kernels.md.
use crate::report::{self, readme};
use std::io::IsTerminal;
use std::path::PathBuf;
use weir_vm::Result;
use weir_vm::cli::{code, say};

const EXAMPLES: &str = "\
Examples:
  weir-vmtests report target/vmtests/report
  weir-vmtests report target/vmtests/report --readme docs/kernels.md
  weir-vmtests report target/vmtests/report --readme docs/kernels.md --check

Exit codes: 0 ok, 2 wrong arguments, 3 no report, or the file of --readme has other features";

/// Makes matrix.txt, junit.xml and index.html again from the matrix.json of a run
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The directory that `matrix --report` wrote
    dir: PathBuf,

    /// Write the tables of the kernels between the markers in this file
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,

    /// Write nothing; compare the features in the file of --readme with the run, without counts and package versions
    #[arg(long, requires = "readme")]
    check: bool,
}

pub(super) fn run(args: &Args) -> Result<u8> {
    let run = report::read(&args.dir)?;
    let Some(file) = &args.readme else {
        report::write(&run, &args.dir)?;
        // https://no-color.org
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let colour = !plain && std::io::stdout().is_terminal();
        say(report::text(&run, colour).trim_end())?;
        return Ok(code::SUCCESS);
    };
    let what = if args.check {
        readme::check(&run, file)?;
        format!("features as in the run of {}", run.started)
    } else if readme::update(&run, file)? {
        format!("written from the run of {}", run.started)
    } else {
        "unchanged".to_owned()
    };
    say(&format!("{}: {what}", file.display()))?;
    Ok(code::SUCCESS)
}
