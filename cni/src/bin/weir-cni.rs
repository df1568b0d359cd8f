//! `weir-cni`: the CNI plugin as a program. It reads its environment and stdin,
//! and writes one JSON object to stdout; see [`weir_cni::protocol`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use weir_cni::log::Logger;
use weir_cni::plugin::{Kernel, Limits, Plugin};
use weir_cni::protocol::{About, Edge, install_panic_hook, run};

const ABOUT: About = About {
    name: "weir-cni",
    version: env!("CARGO_PKG_VERSION"),
};

fn main() -> ExitCode {
    install_panic_hook();
    let lookup = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
    let log = Logger::new(Box::new(std::io::stderr()));
    let mut plugin = Plugin {
        backend: &Kernel,
        log: &log,
        lookup: &lookup,
        limits: Limits::default(),
    };
    let edge = Edge {
        lookup: &lookup,
        stdin: &mut std::io::stdin().lock(),
        // Not locked: a panic of another thread must get at it.
        stdout: &mut std::io::stdout(),
        stderr: &mut std::io::stderr(),
    };
    let status = run(edge, ABOUT, &mut plugin);
    log.flush();
    ExitCode::from(status)
}
