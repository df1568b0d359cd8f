//! A kernel that is ready to boot: what the preparation hands to the machine.
use crate::Arch;
use std::path::PathBuf;

/// One kernel module, decompressed, at the place where the preparation left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name as the kernel spells it (`nf_tables`), without a suffix.
    pub name: String,
    /// The plain `.ko` file on the host.
    pub file: PathBuf,
}

/// A kernel that is ready to boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The environment's name in the matrix: `6.12`, or `6.12-nolegacy` for a variant.
    pub name: String,
    /// What it runs on.
    pub arch: Arch,
    /// `uname -r`.
    pub release: String,
    /// The Debian package's version, or a description of where a person's own kernel comes from.
    pub package: String,
    /// SHA-256 of every package (or file) it was made of, with its name.
    pub sources: Vec<(String, String)>,
    /// What QEMU boots: an ELF `vmlinux` with a PVH note, or a bzImage where there is no such note; of arm64 an `Image`.
    pub image: PathBuf,
    /// The modules to load, in an order in which each finds what it needs.
    pub modules: Vec<Module>,
    /// The text of its configuration, where one is known.
    pub config: Option<PathBuf>,
    /// What a variant adds to the command line (`ipv6.disable=1`).
    pub parameters: Vec<String>,
    /// The modules that a variant leaves out, and those that cannot be loaded without them.
    pub left_out: Vec<String>,
    /// What a reader of results should know about it.
    pub notes: Vec<String>,
}
