//! `weir demo` by itself: without the node agent it is compiled in half of the time.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The demonstration runs its own program as the CNI plugin, under this name.
    let name = std::env::args_os().next().unwrap_or_default();
    if std::path::Path::new(&name).file_name() == Some("weir-cni".as_ref()) {
        return weir_cni::plugin::main();
    }
    match weir_demo::run(false, false, false) {
        Ok((text, is_good)) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) if is_good => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        },
        Err(e) => {
            eprintln!("demo: {e}");
            ExitCode::FAILURE
        }
    }
}
