//! `bpf(2)`: programs, maps, ring buffers, links, pins, and information about loaded objects.
//!
//! Lifetimes: a [`Program`] exists as long as a descriptor, a pin or an attachment refers to it; a [`Map`] as
//! long as a descriptor, a pin or a loaded program does; a [`Link`], and with it the attachment, as long as a
//! descriptor or a pin does. When the interface of a link is deleted, the link remains and has no effect.
//!
//! [`ProgramSpec`] describes a program, and [`MapSpec`] a map; [`Anchor`] is a place among the programs of an interface.
//! Start with [`Program`].
//!
//! ```
//! use weir_bpf::{BPF_PROG_TYPE_SCHED_CLS, Program, ProgramSpec};
//!
//! # fn main() -> std::io::Result<()> {
//! // r0 = 2, which is TC_ACT_SHOT; exit
//! let instructions = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
//! let program = match Program::load_with_log(&ProgramSpec {
//!     kind: BPF_PROG_TYPE_SCHED_CLS,
//!     attach_type: 0,
//!     name: "drop_all",
//!     license: c"Apache-2.0",
//!     instructions: &instructions,
//! }) {
//!     Err(e) if e.error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()), // without CAP_BPF
//!     loaded => loaded.map_err(|e| e.error)?,
//! };
//! let (verdict, _) = program.test_run(&[0; 64])?;
//! assert_eq!(verdict, 2);
//! # Ok(())
//! # }
//! ```
//!
//! Every struct in this crate is a prefix of `union bpf_attr` (`linux/bpf.h`), or of the struct that the kernel fills:
//! it accepts any prefix and reads the missing rest as zero. `netlink/tests/kernel/headers.rs` compares all of them with the
//! headers.
//!
//! # Safety
//!
//! No dependency offers bpf(2) as safe functions. For every `unsafe` block in this crate, these hold:
//!
//! - a descriptor is passed borrowed, so it is open during the call and nothing here closes it;
//! - memory that the kernel reads or writes is owned by the calling function, is at least as large as stated to the kernel,
//!   and is read only after the call reported how much of it is filled;
//! - no pointer outlives the call that it is passed to.
//!
//! The pages of a [`Ring`] are shared with the kernel for longer than a call; its blocks state their own reasons.
#![allow(unsafe_code)]

mod batch;
mod info;
mod link;
mod map;
mod numbers;
mod pin;
mod program;
mod query;
mod ring;
#[cfg(test)]
mod tests;

pub use batch::Entry;
pub use info::{LinkInfo, LinkTarget, MapInfo, ProgramInfo};
pub use link::{Anchor, Link};
pub use map::{Map, MapSpec};
pub use numbers::{constants, *};
pub use pin::{Pinned, open_pin, pin};
pub use program::{LoadError, Program, ProgramSpec};
pub use query::{Attached, attached, links};
pub use ring::Ring;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

fn too_big<E>(_: E) -> io::Error {
    io::Error::from_raw_os_error(libc::E2BIG)
}

fn number(fd: BorrowedFd<'_>) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| invalid())
}

/// `bpf_obj_name_cpy()` of the kernel accepts letters, digits, `_` and `.`, at most 15.
fn object_name(name: &str) -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let is_accepted = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
    match bytes.get_mut(..name.len()) {
        Some(start) if name.len() < 16 && name.bytes().all(is_accepted) => {
            start.copy_from_slice(name.as_bytes());
            Ok(bytes)
        }
        _ => Err(invalid()),
    }
}

fn name_of(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// `syscall(SYS_bpf, command, &attr, sizeof(attr))`
///
/// # Safety
///
/// Every pointer in `attr` is valid for what `command` does with it.
unsafe fn call<A>(command: libc::c_int, attr: &mut A) -> io::Result<libc::c_long> {
    // SAFETY: libc has no function for bpf(2). `attr` is live and `size_of::<A>()` bytes long; the caller guarantees
    // its pointers.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    match answer {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(answer),
    }
}

/// Like [`call`], for commands that return a descriptor.
///
/// # Safety
///
/// The same as for [`call`], and `command` returns a new descriptor.
unsafe fn call_for_fd<A>(command: libc::c_int, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let fd = unsafe { call(command, attr) }?;
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the number is not negative, and the command returns a new descriptor that has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
