//! A guest that is ready: booted, or going on from the state in which an equal one was saved.
mod maker;
mod options;
mod start;

pub use options::Options;
pub use start::Origin;

use crate::cache::Scratch;
use crate::process::Stream;
use crate::proto::{Exit, Hello, Run};
use crate::qemu::accel::Accel;
use crate::session::Lost;
use crate::trouble::{Trouble, trouble};
use crate::{Error, Result};
use maker::Booted;
use std::path::Path;
use std::time::Duration;

/// A file, a module, the log: for all of these a guest under emulation needs milliseconds.
const SHORT: Duration = Duration::from_secs(30);
/// How much of the console an error shows.
const CONSOLE_LINES: usize = 60;
const CONSOLE: &str = "console.log";
const STDERR: &str = "qemu.log";

/// A running guest. Dropping it ends it.
#[derive(Debug)]
pub struct Machine {
    guest: Booted,
    kernel: String,
    /// Whether it was booted or restored.
    pub origin: Origin,
    /// Who executes its instructions.
    pub accel: Accel,
    grace: Duration,
    slow: u32,
}

/// How a program did in a guest, and what the kernel thought of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict, with what the kernel logged meanwhile.
    pub exit: Exit,
    /// The first sign of trouble in that log or on the console: a failure, whatever the verdict says.
    pub trouble: Option<Trouble>,
}

impl Machine {
    /// What the guest says of itself: its kernel's release, and what went wrong while it booted.
    pub fn hello(&self) -> &Hello {
        &self.guest.hello
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.guest.qemu.pid()
    }

    /// Runs a program to its end, its output handed on as it comes.
    /// An error is no verdict: the program did not start, the guest died or hangs. It holds the end of the console.
    pub fn run(&mut self, run: &Run, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Outcome> {
        let deadline = Duration::from_millis(run.deadline_ms) + self.grace * self.slow;
        match self.guest.session.run(run, deadline, output) {
            Ok(exit) => {
                let trouble = trouble(&exit.kernel_log).or_else(|| trouble(&self.console()));
                Ok(Outcome { exit, trouble })
            }
            Err(lost) => {
                let program = run.argv.first().cloned().unwrap_or_default();
                Err(self.lost(&program.display().to_string(), &lost))
            }
        }
    }

    /// Reads a file of the guest.
    pub fn get(&mut self, path: &Path) -> Result<Vec<u8>> {
        let got = self.guest.session.get(path, SHORT * self.slow);
        got.map_err(|lost| self.lost(&path.display().to_string(), &lost))
    }

    /// What the kernel has logged; since the state was saved, where it goes on from one.
    pub fn dmesg(&mut self) -> Result<String> {
        let got = self.guest.session.dmesg(SHORT * self.slow);
        got.map_err(|lost| self.lost("dmesg", &lost))
    }

    /// The serial console so far: what the kernel prints when it dies, and little else.
    pub fn console(&self) -> String {
        console(&self.guest.scratch)
    }

    /// An error that shows what is known of the guest's end.
    fn lost(&self, what: &str, lost: &Lost) -> Error {
        let input = format!("{what} on kernel {}", self.kernel);
        if let Lost::Refused(why) = lost {
            return Error::new(input, why, "See the reason");
        }
        let e = Error::new(input, lost, "See what the kernel was doing:");
        explain(e, &self.guest.scratch)
    }
}

/// Adds what the console and QEMU said.
fn explain(mut e: Error, scratch: &Scratch) -> Error {
    // Nothing of QEMU's goes to the terminal, where it would be mixed with the output of tests.
    let said = std::fs::read_to_string(scratch.path().join(STDERR)).unwrap_or_default();
    if !said.trim().is_empty() {
        e.reason += &format!(". QEMU says: {}", said.trim());
    }
    let console = console(scratch);
    if let Some(found) = trouble(&console) {
        e.reason += &format!(". Kernel {}: {}", found.kind, found.line);
    }
    e.remedy += &attachment("console", &console);
    e
}

fn console(scratch: &Scratch) -> String {
    let bytes = std::fs::read(scratch.path().join(CONSOLE)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of a log, to be put below an error.
fn attachment(name: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("\n--- {name}: nothing\n");
    }
    let from = lines.len().saturating_sub(CONSOLE_LINES);
    let shown = lines.get(from..).unwrap_or_default().join("\n");
    let cut = match from {
        0 => String::new(),
        _ => format!(", the last {CONSOLE_LINES} lines"),
    };
    format!("\n--- {name}{cut}:\n{shown}\n---\n")
}
