//! The program that this library is in: what messages call it, and what it adds to its guests.
use crate::{Cache, Payload, Result};
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
