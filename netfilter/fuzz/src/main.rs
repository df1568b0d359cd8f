//! `weir-fuzz`: see [`USAGE`].
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use weir_fuzz::{TARGETS, Target, corpus, fuzz, guarded, record};

const USAGE: &str = "\
weir-fuzz --list                                     the targets
weir-fuzz TARGET [--seconds N] [--seed N] [--corpus DIR]   change inputs and try them
weir-fuzz TARGET --replay FILE                       try one input
weir-fuzz --record                                   write anew what a kernel gave (root)

DIR is the folder of the target's inputs. An input that a decoder does not survive is kept in
netfilter/fuzz/crashes. The exit status is 1 then.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match command(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("weir-fuzz: {e}");
            ExitCode::from(2)
        }
    }
}

/// Executes the command line; `false` if a decoder did not survive an input.
fn command(words: &[&str]) -> Result<bool, Box<dyn std::error::Error>> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    match words {
        ["--list"] => {
            TARGETS.iter().for_each(|t| println!("{}", t.name));
            Ok(true)
        }
        ["--record"] => {
            record(&home.join("../tests/kernel"), &home.join("corpus"))?;
            Ok(true)
        }
        [name, options @ ..] => {
            let known = TARGETS.iter().find(|t| t.name == *name);
            let target = known.ok_or_else(|| format!("there is no target {name}\n{USAGE}"))?;
            let mut time = Duration::from_secs(60);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            let mut seed = u64::from(now.subsec_nanos()) | now.as_secs() << 32;
            let mut folder = home.join("corpus").join(target.name);
            for option in options.chunks(2) {
                match option {
                    ["--seconds", n] => time = Duration::from_secs(n.parse()?),
                    ["--seed", n] => seed = n.parse()?,
                    ["--corpus", path] => folder = PathBuf::from(path),
                    ["--replay", path] => {
                        return Ok(replay(target, &std::fs::read(path)?));
                    }
                    other => return Err(format!("{other:?} is no option\n{USAGE}").into()),
                }
            }
            search(target, &folder, seed, time, &home.join("crashes"))
        }
        [] => Err(USAGE.into()),
    }
}

fn replay(target: &Target, input: &[u8]) -> bool {
    let outcome = guarded(target, input);
    match &outcome {
        Ok(()) => println!("{}: survived", target.name),
        Err(reason) => println!("{}: {reason}", target.name),
    }
    outcome.is_ok()
}

fn search(
    target: &Target,
    folder: &Path,
    seed: u64,
    time: Duration,
    crashes: &Path,
) -> Result<bool, Box<dyn std::error::Error>> {
    let name = target.name;
    let inputs: Vec<_> = corpus(folder)?
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    println!("{name}: seed {seed}, {} inputs", inputs.len());
    std::fs::create_dir_all(crashes)?;
    // The file remains if an input kills the process.
    let current = crashes.join(format!("{name}-{}.current", std::process::id()));
    let outcome = fuzz(target, &inputs, seed, time, &current)?;
    std::fs::remove_file(&current)?;
    println!("{name}: {} runs", outcome.runs);
    let Some(crash) = outcome.crash else {
        return Ok(true);
    };
    let file = crashes.join(format!("{name}-{seed}"));
    std::fs::write(&file, &crash.input)?;
    println!(
        "{name}: {}\nreplay: weir-fuzz {name} --replay {}",
        crash.reason,
        file.display()
    );
    Ok(false)
}
