//! A guest that is ready: booted, or going on from the state in which an equal one was saved.
mod maker;
mod options;
mod start;

pub use options::Options;
pub use start::Origin;

use crate::cache::Scratch;
use crate::proto::{Exit, Hello, Run};
use crate::qemu::accel::Accel;
use crate::qemu::child::{Qemu, complaint};
use crate::session::{Lost, Session, Stream};
use crate::trouble::{Trouble, trouble};
use crate::{Error, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// A file, a module, the log: for all of these a guest under emulation needs milliseconds.
const SHORT: Duration = Duration::from_secs(30);
/// How much of the console an error shows.
const CONSOLE_LINES: usize = 60;
const CONSOLE: &str = "console.log";
const STDERR: &str = "qemu.log";

/// A running guest. Dropping it ends it.
#[derive(Debug)]
pub struct Machine {
    qemu: Qemu,
    session: Session,
    scratch: Scratch,
    kernel: String,
    hello: Hello,
    origin: Origin,
    started: Instant,
    ready: Duration,
    accel: Accel,
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

/// What a guest cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// User and system time of QEMU.
    pub cpu: Duration,
    /// From its start to its end.
    pub wall: Duration,
    /// From its start until it answered.
    pub ready: Duration,
}

impl Machine {
    /// What the guest says of itself: its kernel's release, and what went wrong while it booted.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether it was booted or restored.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Who executes its instructions.
    #[must_use]
    pub fn accel(&self) -> Accel {
        self.accel
    }

    /// QEMU's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.qemu.pid()
    }

    /// Runs a program to its end, its output handed on as it comes.
    ///
    /// # Errors
    /// There is no verdict: the program did not start, the guest died or hangs. The error holds the end of the
    /// console.
    pub fn run(&mut self, run: &Run, output: &mut dyn FnMut(Stream, &[u8])) -> Result<Outcome> {
        let deadline = Duration::from_millis(run.deadline_ms) + self.grace * self.slow;
        match self.session.run(run, deadline, output) {
            Ok(exit) => {
                let trouble = trouble(&exit.kernel_log).or_else(|| trouble(&self.console()));
                Ok(Outcome { exit, trouble })
            }
            Err(lost) => {
                let what = run
                    .argv
                    .first()
                    .map(|a| a.display().to_string())
                    .unwrap_or_default();
                Err(self.lost(&what, &lost))
            }
        }
    }

    /// Writes a file of the guest.
    ///
    /// # Errors
    /// What the guest says of the path.
    pub fn put(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let done = self.session.put(path, mode, bytes, SHORT * self.slow);
        done.map_err(|lost| self.lost(&path.display().to_string(), &lost))
    }

    /// Reads a file of the guest.
    ///
    /// # Errors
    /// What the guest says of the path.
    pub fn get(&mut self, path: &Path) -> Result<Vec<u8>> {
        let got = self.session.get(path, SHORT * self.slow);
        got.map_err(|lost| self.lost(&path.display().to_string(), &lost))
    }

    /// Loads modules that are files of the guest.
    ///
    /// # Errors
    /// What the kernel says of each.
    pub fn load(&mut self, modules: &[&Path]) -> Result<()> {
        let done = self.session.load(modules, SHORT * self.slow);
        done.map_err(|lost| self.lost("modules", &lost))
    }

    /// What the kernel has logged; since the state was saved, where it goes on from one.
    ///
    /// # Errors
    /// The guest does not answer.
    pub fn dmesg(&mut self) -> Result<String> {
        let got = self.session.dmesg(SHORT * self.slow);
        got.map_err(|lost| self.lost("dmesg", &lost))
    }

    /// The serial console so far: what the kernel prints when it dies, and little else.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = std::fs::read(self.scratch.path().join(CONSOLE)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends it, and tells what it cost.
    #[must_use]
    pub fn finish(mut self) -> Spent {
        let cpu = self.qemu.cpu();
        self.qemu.kill();
        Spent {
            cpu,
            wall: self.started.elapsed(),
            ready: self.ready,
        }
    }

    /// An error that shows what is known of the guest's end.
    fn lost(&self, what: &str, lost: &Lost) -> Error {
        let input = format!("{what} on kernel {}", self.kernel);
        if let Lost::Refused(why) = lost {
            return Error::new(input, why, "See the reason");
        }
        let mut reason = lost.to_string();
        let console = self.console();
        if let Some(trouble) = trouble(&console) {
            reason = format!("{reason}. Kernel {}: {}", trouble.kind, trouble.line);
        }
        let mut remedy = "See what the kernel was doing:".to_owned();
        remedy += &attachment("console", &console);
        remedy += &attachment("QEMU", &complaint(&self.scratch.path().join(STDERR)));
        Error::new(input, reason, remedy)
    }
}

/// The end of a log, to be put below an error.
fn attachment(name: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("\n--- {name}: nothing\n");
    }
    let from = lines.len().saturating_sub(CONSOLE_LINES);
    let shown = lines.get(from..).unwrap_or_default().join("\n");
    let cut = if from > 0 {
        format!(", the last {CONSOLE_LINES} lines")
    } else {
        String::new()
    };
    format!("\n--- {name}{cut}:\n{shown}\n---\n")
}
