//! A kernel that is ready to boot: the interface between preparation and machine.
use crate::Arch;
use std::path::PathBuf;

/// One kernel module, decompressed, in the preparation's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its name in the kernel's spelling (`nf_tables`), without a suffix.
    pub name: String,
    /// The plain `.ko` file on the host.
    pub file: PathBuf,
}

/// A kernel that is ready to boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The environment's name in the matrix: `6.12`, or `6.12-no-xtables` for a variant.
    pub name: String,
    /// The architecture that it runs on.
    pub arch: Arch,
    /// `uname -r`.
    pub release: String,
    /// The version of the Debian package, or for a user's own kernel the path of its files.
    pub package: String,
    /// The name and SHA-256 of every package or file that it was made from.
    pub sources: Vec<(String, String)>,
    /// The file for QEMU's `-kernel`: an ELF `vmlinux` with a PVH note, a bzImage without such a note, an `Image` for arm64.
    pub image: PathBuf,
    /// The modules to load, each after its dependencies.
    pub modules: Vec<Module>,
    /// The file with its configuration, if known.
    pub config: Option<PathBuf>,
    /// The kernel parameters that a variant adds (`ipv6.disable=1`).
    pub parameters: Vec<String>,
    /// The modules that a variant omits, and those that depend on them.
    pub left_out: Vec<String>,
    /// Remarks for readers of the results.
    pub notes: Vec<String>,
}
