//! The commands of `weir` for people and scripts: they plan, apply, verify, show and remove objects in one network namespace, prove a
//! redirection by connections (`verify --live`), run a chain of CNI plugins or the demonstration, and probe the features of a kernel. None
//! of them needs an agent; `--pod` asks a running one for its settings.
//!
//! [`Command`] is parsed and run; [`failure`] has the exit codes, [`output`] writes the result. `args` are arguments shared by
//! several commands, `source` reads the desired state, `target` opens the namespace, `report` prints the result of a change or a
//! comparison, and `help` has the texts below the arguments. A command is in the file of its name, or of its object: `sidecar`, `ambient`
//! with `ambient_ebpf`, `node_ambient`, `live`. Start with `commands`.
#![forbid(unsafe_code)]

/// Replaces the macro of std, which panics if stderr cannot be written (a full disk, a closed terminal): an
/// unwritable message must neither interrupt a command nor change its exit code.
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
mod clean;
mod cni;
mod commands;
mod demo;
pub mod failure;
mod files;
mod help;
mod live;
mod node_ambient;
pub mod output;
mod patient;
mod preflight;
mod report;
mod restore;
mod routing;
mod show;
mod sidecar;
mod source;
mod target;
mod trial;

pub use commands::{Command, one};
