//! The program that this library is in: what messages call it, what it adds to its guests, and how it shows what takes longer.
use crate::{Cache, Payload, Result};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::io::Write;
use std::sync::OnceLock;

/// A program with the commands of [`crate::cli`].
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// What messages and examples call it.
    pub name: &'static str,
    /// `run` passes variables that begin so, and the files that they name, to the guest; empty: none.
    pub variables: &'static str,
    /// What every guest of `run` and `boot` gets.
    pub payload: fn() -> Result<Payload>,
    /// What a guest of `boot` gets, too.
    pub boot: fn(&Cache, &mut Payload) -> Result<()>,
}

/// This package's own.
const OWN: Program = Program {
    name: "weir-vm",
    variables: "VM_",
    payload: || Ok(Payload::new()),
    boot: |_, _| Ok(()),
};

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Sets it, once. Without that it is `weir-vm`.
pub fn set(program: Program) {
    let _ = PROGRAM.set(program);
}

pub(crate) fn program() -> &'static Program {
    PROGRAM.get().unwrap_or(&OWN)
}

/// A message in which commands are those of `weir-vm`, with the name of the program.
pub(crate) fn renamed(text: &str) -> String {
    text.replace("`weir-vm ", &format!("`{} ", name()))
}

/// What messages call it.
pub(crate) fn name() -> &'static str {
    program().name
}

/// A line that has to be read, also in a log. Commands in it are those of `weir-vm`.
pub fn note(text: &str) {
    // In one piece: other processes may write to the same place.
    let line = format!("{}: {}\n", name(), renamed(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// What takes more than a moment says so, with one line that changes on a terminal, nothing elsewhere: shows how much of `total` bytes (0: not known) is done; goes when it is dropped.
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
