//! Weir executes nothing: no iptables, no nft, no ip, no nsenter.
//!
//! Three checks complement each other. The sources show what we wrote, but not what a dependency does. The program file shows what is
//! linked, but not whether it is called. A trace shows what a single run did.
//!
//! Two files are exceptions. The runner of CNI plugins, which `weir cni` consists of, may execute programs. Another one may fork a process
//! that executes nothing: see `source`.
// matrix: newest

mod elf;
mod source;
mod tokens;
mod trace;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `weir-cni` of the same build as the tested `weir`.
///
/// Prints the reason and returns `None` if only this package was built.
fn plugin() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_weir")).with_file_name("weir-cni");
    if path.exists() {
        return Some(path);
    }
    assert!(
        std::env::var_os("WEIR_REQUIRE_TOOLS").is_none(),
        "{} is missing: build it with `cargo build -p weir-cni`",
        path.display()
    );
    println!(
        "skipped: no {}: `cargo build -p weir-cni` makes it",
        path.display()
    );
    None
}
