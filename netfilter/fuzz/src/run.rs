//! The fuzzing loop.

use crate::{Random, Target, mutate};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// The longest time for one input; usual inputs are decoded in microseconds.
const SLOW: Duration = Duration::from_secs(2);

/// An input that a decoder did not survive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The input.
    pub input: Vec<u8>,
    /// The panic message, or the time that it took.
    pub reason: String,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The number of inputs that were tried.
    pub runs: u64,
    /// The first input that the decoder did not survive.
    pub crash: Option<Crash>,
}

/// Runs a target with one input.
///
/// # Errors
/// The target panicked (the error has the message), or took longer than two seconds.
pub fn guarded(target: &Target, input: &[u8]) -> Result<(), String> {
    let start = Instant::now();
    match catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", words.unwrap_or("without words")))
        }
        Ok(()) if start.elapsed() > SLOW => Err(format!("took {:?}", start.elapsed())),
        Ok(()) => Ok(()),
    }
}

/// Runs the target with mutated inputs of the corpus until the time is over or the target does not survive one.
///
/// Each input is written to the file `current` before it is tried, because a stack overflow or exhausted memory ends the process.
///
/// # Errors
/// `current` cannot be written.
pub fn fuzz(
    target: &Target,
    corpus: &[Vec<u8>],
    seed: u64,
    time: Duration,
    current: &Path,
) -> io::Result<Outcome> {
    let mut random = Random::new(seed);
    let (start, mut runs) = (Instant::now(), 0);
    while start.elapsed() < time {
        let mut input = random.of(corpus).cloned().unwrap_or_default();
        mutate(&mut random, &mut input, corpus);
        fs::write(current, &input)?;
        runs += 1;
        if let Err(reason) = guarded(target, &input) {
            let crash = Some(Crash { input, reason });
            return Ok(Outcome { runs, crash });
        }
    }
    Ok(Outcome { runs, crash: None })
}
