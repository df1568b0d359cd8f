//! Links: attachments of programs, which last until the link is gone.

use super::info::LinkInfo;
use super::numbers::{
    BPF_F_AFTER, BPF_F_BEFORE, BPF_F_REPLACE, BPF_LINK_CREATE, BPF_LINK_DETACH, BPF_LINK_UPDATE,
};
use super::{Program, call, call_for_fd, number};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The prefix of `union bpf_attr` that `BPF_LINK_CREATE` reads, with the fields of tcx and netkit links.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    pad: u32,
    expected_revision: u64,
}

/// The prefix that `BPF_LINK_UPDATE` reads; `BPF_LINK_DETACH` reads its first field.
#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, link_create.attach_type)",
        offset_of!(LinkCreate, attach_type) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_create.flags)",
        offset_of!(LinkCreate, flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_create.tcx.relative_fd)",
        offset_of!(LinkCreate, relative) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_create.tcx.expected_revision)",
        offset_of!(LinkCreate, expected_revision) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_update.new_prog_fd)",
        offset_of!(LinkUpdate, new_prog_fd) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_update.flags)",
        offset_of!(LinkUpdate, flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, link_update.old_prog_fd)",
        offset_of!(LinkUpdate, old_prog_fd) as i64,
    ),
];

/// The position of a link among those of the same hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// After existing ones; the only choice for attach types without an order.
    Any,
    /// Before all others.
    First,
    /// After all others.
    Last,
}

/// An attachment of a program. It ends when this descriptor is closed, unless the link is pinned.
#[derive(Debug)]
pub struct Link(pub(super) OwnedFd);

impl Link {
    /// `bpf(BPF_LINK_CREATE)`. `target` is the index of an interface of the calling thread's namespace, or the number of
    /// an open descriptor, depending on the attach type.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type; `ENODEV`: no such interface; `EPERM`.
    pub(super) fn create(
        program: &Program,
        target: u32,
        attach_type: u32,
        anchor: Anchor,
    ) -> io::Result<Self> {
        let mut attr = LinkCreate {
            prog_fd: number(program.as_fd())?,
            target,
            attach_type,
            flags: match anchor {
                Anchor::Any => 0,
                Anchor::First => BPF_F_BEFORE,
                Anchor::Last => BPF_F_AFTER,
            },
            ..LinkCreate::default()
        };
        // SAFETY: the struct holds no pointer and the program is open during the call. The kernel rejects a wrong `target`.
        // `BPF_LINK_CREATE` returns a new descriptor.
        unsafe { call_for_fd(BPF_LINK_CREATE, &mut attr) }.map(Self)
    }

    /// Creates a tcx link to an interface of the calling thread's namespace: `BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`. Since 6.6
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type; `ENODEV`: no such interface; `EPERM`.
    pub fn to_interface(
        program: &Program,
        index: u32,
        attach_type: u32,
        anchor: Anchor,
    ) -> io::Result<Self> {
        Self::create(program, index, attach_type, anchor)
    }

    /// `bpf(BPF_LINK_UPDATE)`: replaces the program atomically; if `old` is given, only that one.
    ///
    /// # Errors
    ///
    /// `EPERM`: the link holds another program than `old`; `ENOLINK`: its interface is gone.
    pub fn replace(&self, new: &Program, old: Option<&Program>) -> io::Result<()> {
        let mut attr = LinkUpdate {
            link_fd: number(self.as_fd())?,
            new_prog_fd: number(new.as_fd())?,
            flags: if old.is_some() { BPF_F_REPLACE } else { 0 },
            old_prog_fd: old.map_or(Ok(0), |old| number(old.as_fd()))?,
        };
        // SAFETY: the struct holds no pointer, and all descriptors are open during the call. The command does not return a descriptor.
        unsafe { call(BPF_LINK_UPDATE, &mut attr) }.map(drop)
    }

    /// `bpf(BPF_LINK_DETACH)`: detaches the program, although descriptors or pins of the link remain. Since 5.9
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: not supported for this kind of link.
    pub fn detach(&self) -> io::Result<()> {
        let mut attr = LinkUpdate {
            link_fd: number(self.as_fd())?,
            ..LinkUpdate::default()
        };
        // SAFETY: the struct holds no pointer, and the link is open during the call. The command does not return a descriptor.
        unsafe { call(BPF_LINK_DETACH, &mut attr) }.map(drop)
    }

    /// Returns the kernel's information about the link.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub fn info(&self) -> io::Result<LinkInfo> {
        LinkInfo::of(self.as_fd())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
