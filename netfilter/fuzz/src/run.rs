//! The loop.

use crate::{Random, Target, mutate};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

/// An input of this size is decoded in microseconds.
const SLOW: Duration = Duration::from_secs(2);

/// An input that a decoder did not survive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub reason: String,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How many inputs were given.
    pub runs: u64,
    /// The first that the decoder did not survive.
    pub crash: Option<Crash>,
}

/// Gives one input to a target.
///
/// # Errors
/// It panicked, with its words, or took longer than two seconds.
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

/// Changes inputs of the corpus and gives them to the target until the time is over or one was too much for it.
///
/// The input is in the file `current` while it is tried: a stack that overflows or memory that is used up ends
/// the process, and nothing could be written then.
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
