//! This program on that kernel: real distribution kernels in QEMU, without root and without KVM.
//!
//! What it is for: to run a program in a fresh guest and to get its output, its verdict and the kernel's complaints back.
//! What it refuses: to call anything but QEMU (for a fetch also apt-get, which knows the mirror, and gpgv), to use the
//! network unless it is asked to fetch, and to take silence for success.
//!
//! - [`Kernels`] prepares kernels from packages or from a person's own files, and gives a [`Kernel`].
//! - [`Payload`] is what a guest has on its file system: programs with the libraries that they need, and data.
//! - [`Machine`] is a running guest. The first of its kind is booted and saved; all others are copies that map the
//!   memory of the saved one, which takes 0.1 s and is why each case can have its own.
//! - [`proto`] is what host and guest say to each other; [`guest`] is the other end, `/init`. Both are this program,
//!   so nothing has to be built for the guest.
//! - [`trouble()`] reads a kernel's log.
//!
//! Everything is kept in one [`Cache`]. Start reading at [`Machine::start`].
#![forbid(unsafe_code)]

mod arch;
mod archive;
mod cache;
mod catalogue;
pub mod cli;
mod closure;
mod compress;
mod cpio;
mod deb;
mod digest;
mod elf;
mod error;
pub mod guest;
mod initramfs;
mod interrupt;
mod kernel;
mod kernels;
mod lock;
mod machine;
mod memory;
mod modules;
pub mod own;
mod payload;
mod prepare;
pub mod process;
pub mod program;
pub mod proto;
mod qemu;
mod requirements;
mod session;
mod state;
mod tools;
mod trouble;
mod variant;
mod vmlinux;

pub use arch::Arch;
pub use cache::{Cache, Scratch, replace, variable};
pub use catalogue::{Catalogue, Entry, Special, Variant};
pub use closure::closure;
pub use error::{At, Error, Result};
pub use interrupt::install as clean_up_when_interrupted;
pub use kernel::{Kernel, Module};
pub use kernels::{Kernels, State, Status};
pub use lock::{KernelLock, Locked, Part};
pub use machine::{Machine, Options, Origin, Outcome};
pub use payload::Payload;
pub use process::Stream;
pub use program::note;
pub use qemu::accel::Accel;
pub use qemu::program::find as find_qemu;
pub use tools::TOOLS;
pub use trouble::{Trouble, trouble};

/// When this process is the first one of a guest, or is to become QEMU, does that and does not return; else does nothing.
///
/// To be called first in `main` of every program that [`Options::program`] may name.
pub fn play_another_part_if_asked() {
    if guest::is_init() {
        guest::main();
    }
    process::become_another_if_asked(qemu::child::LAUNCH, || Ok(()));
}
