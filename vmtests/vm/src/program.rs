//! The program that uses this library: its name in messages, its additions to guests, its progress display.
use crate::{Cache, Payload, Result};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::io::Write;
use std::sync::OnceLock;

/// A program with the commands of [`crate::cli`].
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its name in messages and examples.
    pub name: &'static str,
    /// The prefix of the variables that `run` passes to the guest, with the files that they name; empty: none.
    pub variables: &'static str,
    /// Creates the payload of every guest of `run` and `boot`.
    pub payload: fn() -> Result<Payload>,
    /// Adds to the payload of a guest of `boot`.
    pub boot: fn(&Cache, &mut Payload) -> Result<()>,
}

/// The default: this package's own program.
const OWN: Program = Program {
    name: "weir-vm",
    variables: "VM_",
    payload: || Ok(Payload::new()),
    boot: |_, _| Ok(()),
};

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Sets the program, once. The default is `weir-vm`.
pub fn set(program: Program) {
    let _ = PROGRAM.set(program);
}

pub(crate) fn program() -> &'static Program {
    PROGRAM.get().unwrap_or(&OWN)
}

/// Replaces `weir-vm` in the commands of a message by the name of the program.
pub(crate) fn renamed(text: &str) -> String {
    text.replace("`weir-vm ", &format!("`{} ", name()))
}

/// The name of the program in messages.
pub(crate) fn name() -> &'static str {
    program().name
}

/// Prints a message to standard error. Commands in it are written as those of `weir-vm`.
pub fn note(text: &str) {
    // One write(2): other processes may write to the same stream.
    let line = format!("{}: {}\n", name(), renamed(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A progress bar: a changing line on a terminal, nothing elsewhere. It shows how much of `total` bytes (0: unknown) is
/// done and disappears when dropped.
pub(crate) fn bar(what: String, total: u64) -> ProgressBar {
    let form = match total {
        0 => "{msg}: {bytes}",
        _ => "{msg}: {bytes} of {total_bytes}",
    };
    let style = ProgressStyle::with_template(form);
    ProgressBar::new(total)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        .with_message(what)
        .with_finish(ProgressFinish::AndClear)
}
