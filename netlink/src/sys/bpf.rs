//! `bpf(2)`: load a program, create a map, create a link.
//!
//! The three attribute structs are prefixes of `union bpf_attr` (`linux/bpf.h`): the kernel accepts any prefix and
//! reads the missing rest as zero.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `BPF_MAP_CREATE` (`linux/bpf.h`)
const BPF_MAP_CREATE: libc::c_int = 0;
/// `BPF_PROG_LOAD`
const BPF_PROG_LOAD: libc::c_int = 5;
/// `BPF_LINK_CREATE`. Since 5.7
const BPF_LINK_CREATE: libc::c_int = 28;

/// The prefix of `union bpf_attr` that `BPF_PROG_LOAD` reads.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The prefix that `BPF_MAP_CREATE` reads.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The prefix that `BPF_LINK_CREATE` reads, with the fields common to all link types.
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

/// A loaded program. It lives as long as this descriptor, unless it is attached or pinned.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// `bpf(BPF_PROG_LOAD)`. `program_type` is `BPF_PROG_TYPE_*`; `attach_type` is `BPF_*` of `enum bpf_attach_type`, 0
    /// for types without one. Each instruction is a `struct bpf_insn` of 8 bytes. The kernel copies all of it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the type, or a helper that is called; `EACCES`: the verifier refuses; `EPERM`
    /// without `CAP_BPF` (and `CAP_NET_ADMIN` for networking types); `ENOSYS`: built without `CONFIG_BPF_SYSCALL`.
    ///
    /// # References
    ///
    /// `bpf(2)`, `bpf_prog_load` in `kernel/bpf/syscall.c`.
    pub fn load(
        program_type: u32,
        attach_type: u32,
        instructions: &[[u8; 8]],
        license: &CStr,
    ) -> io::Result<Self> {
        let too_long = |_| io::Error::from_raw_os_error(libc::E2BIG);
        let mut attr = ProgLoad {
            prog_type: program_type,
            insn_cnt: u32::try_from(instructions.len()).map_err(too_long)?,
            insns: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            expected_attach_type: attach_type,
            ..ProgLoad::default()
        };
        // SAFETY: `insns` points at `insn_cnt` instructions of 8 bytes and `license` at a string with its NUL; both are
        // borrowed until this function returns, and the kernel only reads them. `log_buf` is null with `log_size` 0, so
        // nothing is written through it. A `BPF_PROG_LOAD` answers with a new descriptor.
        unsafe { bpf(BPF_PROG_LOAD, &mut attr) }.map(Self)
    }

    /// `bpf(BPF_LINK_CREATE)` to a network interface of the calling thread's namespace: `BPF_TCX_INGRESS` and its like.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type; `ENODEV`: no such interface; `EPERM`.
    pub fn attach_to_interface(&self, index: u32, attach_type: u32) -> io::Result<Link> {
        self.attach(index, attach_type)
    }

    /// `bpf(BPF_LINK_CREATE)` to a network namespace: `BPF_SK_LOOKUP`, `BPF_FLOW_DISSECTOR`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type, or `netns` is no network namespace; `EPERM`.
    pub fn attach_to_netns(&self, netns: BorrowedFd<'_>, attach_type: u32) -> io::Result<Link> {
        self.attach(number(netns)?, attach_type)
    }

    fn attach(&self, target: u32, attach_type: u32) -> io::Result<Link> {
        let mut attr = LinkCreate {
            prog_fd: number(self.0.as_fd())?,
            target,
            attach_type,
            ..LinkCreate::default()
        };
        // SAFETY: the struct holds no pointer and the program is open during the call. A wrong `target` is an error of
        // the kernel. A `BPF_LINK_CREATE` answers with a new descriptor.
        unsafe { bpf(BPF_LINK_CREATE, &mut attr) }.map(Link)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A program that is attached, until this descriptor is closed, unless the link is pinned.
#[derive(Debug)]
pub struct Link(#[expect(dead_code, reason = "closing it detaches")] OwnedFd);

/// A map. It lives as long as this descriptor, unless it is pinned or a program uses it.
#[derive(Debug)]
pub struct Map(#[expect(dead_code, reason = "closing it is all so far")] OwnedFd);

impl Map {
    /// `bpf(BPF_MAP_CREATE)`. `map_type` is `BPF_MAP_TYPE_*`, sizes are bytes, `map_flags` is `BPF_F_*`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the type; `EPERM` without `CAP_BPF`.
    pub fn create(
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    ) -> io::Result<Self> {
        let mut attr = MapCreate {
            map_type,
            key_size,
            value_size,
            max_entries,
            map_flags,
        };
        // SAFETY: the struct holds no pointer. A `BPF_MAP_CREATE` answers with a new descriptor.
        unsafe { bpf(BPF_MAP_CREATE, &mut attr) }.map(Self)
    }
}

fn number(fd: BorrowedFd<'_>) -> io::Result<u32> {
    u32::try_from(fd.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
}

/// `syscall(SYS_bpf, command, &attr, sizeof(attr))`
///
/// # Safety
///
/// Every pointer in `attr` is valid for what `command` does with it, and `command` returns a descriptor.
unsafe fn bpf<A>(command: libc::c_int, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: libc has no function for bpf(2). `attr` is live and `size_of::<A>()` bytes long; the caller guarantees
    // its pointers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: it is not negative, and the command returns a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_linux_bpf_h() {
        // offsetof(union bpf_attr, X) on LP64.
        assert_eq!(offset_of!(ProgLoad, license), 16);
        assert_eq!(offset_of!(ProgLoad, log_buf), 32);
        assert_eq!(offset_of!(ProgLoad, prog_name), 48);
        assert_eq!(offset_of!(ProgLoad, expected_attach_type), 68);
        assert_eq!(size_of::<ProgLoad>(), 72);
        assert_eq!(size_of::<MapCreate>(), 20);
        assert_eq!(offset_of!(LinkCreate, expected_revision), 24);
        assert_eq!(size_of::<LinkCreate>(), 32);
    }
}
