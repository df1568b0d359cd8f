//! Runs a program on a given kernel: real distribution kernels in QEMU, without root and without KVM.
//!
//! The crate runs a program in a fresh guest and returns its output, its exit status and the kernel's warnings. It starts
//! no program but QEMU (when fetching also apt-get, to find the mirror, and gpgv), uses the network only when it is asked
//! to fetch, and never takes a missing answer for success.
//!
//! - [`Kernels`] prepares kernels from packages or from a user's own files, and returns a [`Kernel`].
//! - [`Payload`] is the content of a guest's file system: programs with their libraries, and data.
//! - [`Machine`] is a running guest. The first machine with a given content is booted and saved; all others are copies
//!   that map the saved memory, which takes a fifth of a second. This makes a machine per test case affordable.
//! - [`proto`] is the protocol between host and guest; [`guest`] is the guest's end, `/init`. Both are in this program, so
//!   nothing has to be built for the guest.
//! - [`first_kernel_error`] finds errors in a kernel's log.
//!
//! ```no_run
//! // Not run: it needs QEMU and a downloaded kernel.
//! use weir_vm::{Cache, Kernels, Machine, Options, Payload, proto::Run};
//!
//! # fn main() -> weir_vm::Result<()> {
//! weir_vm::play_another_part_if_asked();
//! let cache = Cache::open(None)?;
//! let kernel = Kernels::open(&cache, None)?.get("6.12")?;
//! let mut payload = Payload::new();
//! payload.program("/usr/bin/uname")?;
//! let mut machine = Machine::start(&cache, &kernel, &payload, &Options::new()?)?;
//! let run = Run {
//!     argv: vec!["/usr/bin/uname".into(), "-r".into()],
//!     cwd: "/".into(),
//!     env: Vec::new(),
//!     deadline_ms: 10_000,
//! };
//! let outcome = machine.run(&run, &mut |_, output| print!("{}", String::from_utf8_lossy(output)))?;
//! assert_eq!(outcome.kernel_error, None);
//! # Ok(())
//! # }
//! ```
//!
//! A kernel's log can be examined without a guest:
//!
//! ```
//! let error = weir_vm::first_kernel_error("[    1.0] Oops: 0002 [#1] PREEMPT SMP NOPTI");
//! assert_eq!(error.map(|e| e.kind), Some("oops"));
//! ```
//!
//! All files are kept in one [`Cache`]. Start reading at [`Machine::start`].
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
mod kernel_error;
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
mod variant;
mod vmlinux;

pub use arch::Arch;
pub use cache::{Cache, Scratch, replace, variable};
pub use catalogue::{Catalogue, Entry, Special, Variant};
pub use closure::closure;
pub use error::{At, Error, Result};
pub use interrupt::install as clean_up_when_interrupted;
pub use kernel::{Kernel, Module};
pub use kernel_error::{KernelError, first_kernel_error};
pub use kernels::{Kernels, State, Status};
pub use lock::{KernelLock, Locked, Part};
pub use machine::{Machine, Options, Origin, Outcome};
pub use payload::Payload;
pub use process::Stream;
pub use program::note;
pub use qemu::accel::Accel;
pub use qemu::program::find as find_qemu;
pub use tools::TOOLS;

/// Acts as a guest's `/init` or as QEMU's launcher if this process was started as such, and then does not return;
/// otherwise does nothing.
///
/// Call it first in `main` of every program that [`Options::program`] may name.
pub fn play_another_part_if_asked() {
    if guest::is_init() {
        guest::main();
    }
    process::become_another_if_asked(qemu::child::LAUNCH, || Ok(()));
}
