//! The kernel matrix: this test binary on that kernel.
//!
//! What it is for: to run the tests of the other rooms on real distribution kernels, each case in a fresh guest,
//! without root and without KVM. What it refuses: to call anything but QEMU, to ask the network in the middle of a
//! test, and to take silence for success.
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

mod archive;
mod cache;
mod catalogue;
pub mod cli;
mod closure;
mod compress;
pub mod cpio;
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
pub mod matrix;
mod memory;
mod modules;
pub mod own;
mod payload;
mod prepare;
mod progress;
pub mod proto;
mod qemu;
mod requirements;
mod segments;
mod session;
mod state;
mod tools;
mod trouble;
mod variant;
mod vmlinux;

pub use cache::{Cache, Lock, Scratch};
pub use catalogue::{Catalogue, Entry, Variant};
pub use closure::closure;
pub use error::{Error, Result};
pub use kernel::{Kernel, Module};
pub use kernels::{Kernels, State, Status};
pub use lock::{KernelLock, Locked, Part};
pub use machine::{Machine, Options, Origin, Outcome, Spent};
pub use payload::Payload;
pub use qemu::accel::Accel;
pub use qemu::launch::become_qemu_if_asked;
pub use session::Stream;
pub use tools::TOOLS;
pub use trouble::{Trouble, trouble};
