//! Redirection of pods of ambient mode by eBPF, for kernels with or without netfilter.
//!
//! ```text
//! Redirect (what is desired) -> Hooks, sysctls, routing  --plan(observed)--> Changes -> apply -> read back
//! ```
//! Programs are assembled in Rust ([`asm`]), because a C compiler and its object files would be one more build dependency
//! that a reviewer has to trust. The programs are short, use no internal structs of the kernel (only
//! `struct __sk_buff` and `struct bpf_sock`, which are its stable interface), and each instruction is a line of source to
//! which an error of the verifier points. No helper is reserved for GPL programs.
//!
//! - [`inpod`]: the programs in a pod's namespace.
//! - [`node`]: the programs in the namespaces of the node and of its proxy, with the code that plans, applies and removes them.
//! - [`Pod`]: plans, applies, compares and removes the programs in a pod's namespace.
//! - [`Bpffs`]: the directory of pins. Links and maps are pinned, so that no traffic depends on a process of weir:
//!   an upgrade replaces the program of a pinned link atomically.
//! - [`events`]: the events that programs report about packets.
//! - [`try_programs`]: tests whether the kernel accepts the programs.
//! - [`show`]: describes the programs attached in a namespace, of weir and of other writers.
//!
//! Start with [`Pod`].
//!
//! The names of loaded programs contain a digest of their instructions, so that a program of another version is recognized without
//! loading. A program with the right name is weir's only if the kernel computes the same tag for it as for weir's code, which is
//! loaded once per process to learn it, and if it uses the pinned maps.
//!
//! ```
//! use weir_ambient::{Config, PodOverrides, Redirect};
//! use weir_ebpf::{describe, try_programs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redirect = Redirect::new(Config::default(), &PodOverrides::default())?;
//! for line in describe(&redirect)? {
//!     println!("{line}");
//! }
//! // Loads the programs, and closes them again.
//! if let Err(e) = try_programs() {
//!     println!("this kernel, or the rights of this process, do not permit them: {e}");
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod asm;
mod change;
mod clsact;
mod cookie;
pub mod events;
mod hook;
pub mod inpod;
mod load;
mod maps;
pub mod node;
mod pins;
mod plan;
mod pod;
pub mod show;
mod switches;
#[cfg(test)]
mod tests;
mod trial;
mod words;

pub use change::Change;
pub use hook::Links;
pub use pins::{BPFFS, Bpffs, Lock};
pub use plan::describe;
pub use pod::{Pod, if_pinned};
pub use trial::{try_node_programs, try_programs};

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use std::io;
use std::path::Path;
use weir_netlink::{Error, Netns, Result};

/// Raises RLIMIT_MEMLOCK of this process. Before 5.11 programs and maps count against it; it is usually 64 KiB, and when it is used
/// up the kernel returns `EPERM`, as if a capability were missing.
pub fn allow_locked_memory() {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// Opens a network namespace. `None`: there is none at the path, because its process has ended.
///
/// # Errors
/// It cannot be opened, or the path leads to something else: whether the namespace still exists is unknown.
pub fn netns_if_there(path: &Path) -> Result<Option<Netns>> {
    match Netns::open(path) {
        Err(e) if e.errno() == Some(libc_errno::ENOENT) => Ok(None),
        opened => opened.map(Some),
    }
}

/// Returns an error of bpf(2), with the names of the required capabilities.
fn failed(operation: &str, object: &str, error: &io::Error) -> Error {
    let error = Error::io(operation, object, error);
    match error.errno() {
        Some(libc_errno::EPERM) => Error {
            kind: weir_netlink::ErrorKind::Translated {
                errno: libc_errno::EPERM,
                name: "EPERM",
                reason: "bpf(2) is not permitted; it needs CAP_BPF and CAP_NET_ADMIN in the first user namespace \
                         (CAP_SYS_ADMIN before 5.8), and no seccomp filter or lockdown against it"
                    .to_owned(),
            },
            ..error
        },
        Some(libc_errno::ENOSYS) => Error::unsupported(
            operation,
            object,
            "this kernel has no bpf(2): it needs CONFIG_BPF_SYSCALL; use netfilter (--engine auto)",
        ),
        _ => error,
    }
}

/// Numbers of errno(3).
mod libc_errno {
    use nix::errno::Errno;
    pub(crate) const EPERM: i32 = Errno::EPERM as i32;
    pub(crate) const ENOENT: i32 = Errno::ENOENT as i32;
    pub(crate) const ENOSYS: i32 = Errno::ENOSYS as i32;
    pub(crate) const ENOTDIR: i32 = Errno::ENOTDIR as i32;
    pub(crate) const EINVAL: i32 = Errno::EINVAL as i32;
    pub(crate) const EACCES: i32 = Errno::EACCES as i32;
    pub(crate) const EOPNOTSUPP: i32 = Errno::EOPNOTSUPP as i32;
    pub(crate) const ENODEV: i32 = Errno::ENODEV as i32;
    pub(crate) const ERANGE: i32 = Errno::ERANGE as i32;
}
