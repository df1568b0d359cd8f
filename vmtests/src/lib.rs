//! The kernel matrix: this test binary on that kernel.
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
mod modules;
pub mod own;
mod payload;
mod prepare;
mod progress;
pub mod proto;
mod qemu;
mod requirements;
mod session;
mod state;
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
pub use trouble::{Trouble, trouble};
