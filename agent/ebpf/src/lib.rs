//! Redirection of pods of ambient mode by eBPF, for kernels with or without netfilter.
//!
//! ```text
//! Redirect (what is desired) -> Hooks, sysctls, routing  --plan(observed)--> Changes -> apply -> read back
//! ```
//! Programs are assembled in Rust ([`asm`]), as the C compiler and its object files would be one more thing that a build
//! needs and that a reviewer has to trust: these programs are short, need nothing of the kernel's own structs (only
//! `struct __sk_buff` and `struct bpf_sock`, which are its stable interface), and an instruction is a line of source to
//! which an error of the verifier points. No helper is reserved for the GPL.
//!
//! - [`inpod`]: the programs in a pod's namespace.
//! - [`node`]: the programs in the namespaces of the node and of its proxy, and what plans, applies and removes them there.
//! - [`Pod`]: plans, applies, compares and removes them there.
//! - [`Bpffs`]: the folder of pins. Links and maps are pinned, so that nothing on the wire depends on a process of weir:
//!   an upgrade replaces the program of a pinned link in one step.
//! - [`events`]: what the programs report of packets.
//! - [`try_programs`]: whether the kernel accepts them.
//! - [`show`]: what is attached in a namespace, of weir and of other writers, in words.
//!
//! The names of loaded programs hold a digest of their instructions: what is in force is compared without loading anything.
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
use weir_netlink::Error;

/// Before 5.11 programs and maps count against RLIMIT_MEMLOCK, of which there usually are 64 KiB. When those are used up
/// the kernel says `EPERM`, as if a right were missing. Only this process gets the room.
pub fn allow_locked_memory() {
    let _ = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY);
}

/// An error of bpf(2), with what the rights are called here.
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
    pub(crate) const ENOSYS: i32 = Errno::ENOSYS as i32;
    pub(crate) const ENOTDIR: i32 = Errno::ENOTDIR as i32;
    pub(crate) const EINVAL: i32 = Errno::EINVAL as i32;
    pub(crate) const EACCES: i32 = Errno::EACCES as i32;
    pub(crate) const EOPNOTSUPP: i32 = Errno::EOPNOTSUPP as i32;
    pub(crate) const ENODEV: i32 = Errno::ENODEV as i32;
    pub(crate) const ERANGE: i32 = Errno::ERANGE as i32;
}
