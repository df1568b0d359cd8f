//! The commands of `weir` for people and scripts: they plan, write, compare, show and remove what is in one network namespace, run a
//! chain of CNI plugins, and ask a kernel what it can do. None of them needs an agent, or knows one.
//!
//! [`Command`] is parsed and run; [`failure`] says how it ends, [`output`] writes what it answers. `args` are arguments that several
//! commands have, `source` reads what is desired, and each other file is a command.
#![forbid(unsafe_code)]

/// In place of the macro of std, which panics when stderr cannot be written (a full disk, a closed terminal): a
/// message that nobody can read must not end a command half-way, nor change its exit code.
macro_rules! eprintln {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($message)*);
    }};
}

mod agent_settings;
mod ambient;
mod ambient_ebpf;
mod args;
mod bundle;
mod cni;
mod commands;
pub mod failure;
mod help;
mod live;
mod node_ambient;
pub mod output;
mod patient;
mod preflight;
mod restore;
mod routing;
mod show;
mod sidecar;
mod source;
mod trial;

pub use commands::{Command, one};
