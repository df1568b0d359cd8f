//! Pins: names in a bpf file system that keep objects alive.

use super::numbers::{BPF_OBJ_GET, BPF_OBJ_PIN};
use super::{Link, Map, Program, c_path, call, call_for_fd, invalid, number};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// The prefix of `union bpf_attr` that `BPF_OBJ_PIN` and `BPF_OBJ_GET` read.
#[repr(C)]
#[derive(Default)]
struct Object {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, bpf_fd)",
        offset_of!(Object, bpf_fd) as i64,
    ),
    (
        "offsetof(union bpf_attr, file_flags)",
        offset_of!(Object, file_flags) as i64,
    ),
];

/// A pinned object.
#[derive(Debug)]
pub enum Pinned {
    /// A program.
    Program(Program),
    /// A map.
    Map(Map),
    /// A link.
    Link(Link),
}

/// `bpf(BPF_OBJ_PIN)`: pins a program, a map or a link. Deleting the file unpins it.
///
/// # Errors
///
/// `EEXIST`; `ENOENT`: the directory does not exist; `EPERM`: the directory is not in a bpf file system, or `CAP_BPF` is missing.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attr = Object {
        pathname: path.as_ptr() as u64,
        bpf_fd: number(object)?,
        file_flags: 0,
    };
    // SAFETY: `pathname` points at a string with its NUL that lives until the call returns, and the kernel only reads it;
    // the object is open during the call. The command does not return a descriptor.
    unsafe { call(BPF_OBJ_PIN, &mut attr) }.map(drop)
}

/// `bpf(BPF_OBJ_GET)`: opens the pinned object.
///
/// # Errors
///
/// `ENOENT`: there is no pin; `EACCES`: the file is not a pin, or may not be opened; `EINVAL`: an object of another kind than those
/// of [`Pinned`]. Without an errno: the kind of the object cannot be read.
pub fn open_pin(path: &Path) -> io::Result<Pinned> {
    let path = c_path(path)?;
    let mut attr = Object {
        pathname: path.as_ptr() as u64,
        ..Object::default()
    };
    // SAFETY: `pathname` points at a string with its NUL that lives until the call returns, and the kernel only reads it.
    // `BPF_OBJ_GET` returns a new descriptor.
    let fd = unsafe { call_for_fd(BPF_OBJ_GET, &mut attr) }?;
    // There is no other interface for the kind: `bpf_get_inode_type()` is internal to the kernel.
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    // Without its errno: ENOENT here does not mean that there is no pin.
    let kind = std::fs::read_link(&link).map_err(|e| {
        io::Error::other(format!(
            "the kind of the object: reading {link} failed: {e}"
        ))
    })?;
    match kind.to_str() {
        Some("anon_inode:bpf-prog") => Ok(Pinned::Program(Program(fd))),
        Some("anon_inode:bpf-map") => Map::of(fd).map(Pinned::Map),
        Some("anon_inode:bpf_link" | "anon_inode:bpf-link") => Ok(Pinned::Link(Link(fd))),
        _ => Err(invalid()),
    }
}
