//! A running guest, either booted or restored from a saved state with the same content.
mod maker;
mod options;
mod start;

pub use options::Options;
pub use start::Origin;

use crate::cache::Scratch;
use crate::kernel_error::{KernelError, first_kernel_error};
use crate::process::Stream;
use crate::proto::{Exit, Hello, Run};
use crate::qemu::accel::Accel;
use crate::session::Lost;
use crate::{Error, Result};
use maker::Booted;
use std::path::Path;
use std::time::Duration;

/// The deadline for reading a file or the log; an emulated guest needs milliseconds.
const SHORT: Duration = Duration::from_secs(30);
/// How many lines of the console an error shows.
const CONSOLE_LINES: usize = 60;
const CONSOLE: &str = "console.log";
const STDERR: &str = "qemu.log";

/// A running guest. Dropping it ends it.
#[derive(Debug)]
pub struct Machine {
    guest: Booted,
    kernel: String,
    /// How the machine was created.
    pub origin: Origin,
    /// The accelerator in use.
    pub accel: Accel,
    grace: Duration,
    slow: u32,
}

/// The result of a program in a guest, with the errors of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How the program ended, and what the kernel logged meanwhile.
    pub exit: Exit,
    /// The first error in that log or on the console; it is a failure, whatever the exit status.
    pub kernel_error: Option<KernelError>,
}

impl Machine {
    /// The guest's greeting: its kernel release, and the problems while it booted.
    pub fn hello(&self) -> &Hello {
        &self.guest.hello
    }

    /// The process id of QEMU.
    pub fn pid(&self) -> u32 {
        self.guest.qemu.pid()
    }

    /// Runs a program to its end and passes its output on as it arrives.
    /// An error is not a result of the program: it did not start, or the guest died or hangs. The error includes the end of
    /// the console.
    pub fn run(&mut self, run: &Run, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Outcome> {
        let deadline = Duration::from_millis(run.deadline_ms) + self.grace * self.slow;
        match self.guest.session.run(run, deadline, output) {
            Ok(exit) => {
                let kernel_error = first_kernel_error(&exit.kernel_log)
                    .or_else(|| first_kernel_error(&self.console()));
                Ok(Outcome { exit, kernel_error })
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

    /// Returns the kernel's log; of a restored machine, the log since its state was saved.
    pub fn dmesg(&mut self) -> Result<String> {
        let got = self.guest.session.dmesg(SHORT * self.slow);
        got.map_err(|lost| self.lost("dmesg", &lost))
    }

    /// The serial console so far: mainly what the kernel prints when it dies.
    pub fn console(&self) -> String {
        console(&self.guest.scratch)
    }

    /// Makes an error with the console and QEMU's messages.
    fn lost(&self, what: &str, lost: &Lost) -> Error {
        let input = format!("{what} on kernel {}", self.kernel);
        if let Lost::Refused(why) = lost {
            return Error::new(input, why, "See the reason");
        }
        let e = Error::new(input, lost, "See what the kernel was doing:");
        explain(e, &self.guest.scratch)
    }
}

/// Adds the console and QEMU's messages to an error.
fn explain(mut e: Error, scratch: &Scratch) -> Error {
    // QEMU's messages go to a file: on the terminal they would be mixed with the output of tests.
    let said = std::fs::read_to_string(scratch.path().join(STDERR)).unwrap_or_default();
    if !said.trim().is_empty() {
        e.reason += &format!(". QEMU says: {}", said.trim());
    }
    let console = console(scratch);
    if let Some(found) = first_kernel_error(&console) {
        e.reason += &format!(". Kernel {}: {}", found.kind, found.line);
    }
    e.remedy += &attachment("console", &console);
    e
}

fn console(scratch: &Scratch) -> String {
    let bytes = std::fs::read(scratch.path().join(CONSOLE)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Formats the end of a log for display below an error.
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
