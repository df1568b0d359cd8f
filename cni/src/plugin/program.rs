//! The plugin as a program: environment, stdin and stdout of the process.

use super::{KernelBackend, Limits, Plugin};
use crate::log::Logger;
use crate::protocol::{About, Edge, install_panic_hook, run};
use std::process::ExitCode;

/// The main function of the binary `weir-cni`, and of `weir` when it is called by that name.
#[must_use]
pub fn main() -> ExitCode {
    weir_netlink::tuning::one_heap();
    weir_netlink::tuning::limits_are_errors();
    install_panic_hook();
    let lookup = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let log = Logger::new(Box::new(std::io::stderr()));
    let mut plugin = Plugin {
        backend: &KernelBackend,
        log: &log,
        lookup: &lookup,
        limits: Limits::default(),
    };
    let edge = Edge {
        lookup: &lookup,
        stdin: &mut std::io::stdin().lock(),
        // Do not lock stdout: the panic hook of another thread must be able to write.
        stdout: &mut std::io::stdout(),
        stderr: &mut std::io::stderr(),
    };
    let about = About {
        name: crate::called_as(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let status = run(edge, about, &mut plugin);
    log.flush();
    ExitCode::from(status)
}
