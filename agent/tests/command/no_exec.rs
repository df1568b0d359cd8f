//! Weir executes nothing: no iptables, no nft, no ip, no nsenter.
//!
//! Three looks, because each has a blind spot. The sources say what we wrote, and not what a
//! dependency does. The program file says what is linked, and not whether it is called. The
//! trace says what one run did, and nothing about another.
//!
//! One file may execute: the runner of CNI plugins, which `weir cni` is made of. One may make a process, which executes
//! nothing: see `source`.
// matrix: newest

mod elf;
mod source;
mod tokens;
mod trace;

use std::path::{Path, PathBuf};

/// The top of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `weir-cni` of the same build as the `weir` that is tested.
///
/// `None`, with the reason printed, where only this package was built.
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
