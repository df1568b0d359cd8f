//! Programs: loading, and test runs on a packet.

use super::numbers::{BPF_PROG_LOAD, BPF_PROG_TEST_RUN};
use super::{Link, call, call_for_fd, invalid, number, object_name, too_big};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Size of the buffer for the verifier's log. The log of the largest program here has 200 KiB.
const LOG_BYTES: usize = 1 << 20;
/// Maximum size of the packet of a test run. The kernel accepts at most a page without fragments.
const PACKET_BYTES: usize = 4096;

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

/// The prefix that `BPF_PROG_TEST_RUN` reads, and writes the result to.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, insns)",
        offset_of!(ProgLoad, insns) as i64,
    ),
    (
        "offsetof(union bpf_attr, license)",
        offset_of!(ProgLoad, license) as i64,
    ),
    (
        "offsetof(union bpf_attr, log_level)",
        offset_of!(ProgLoad, log_level) as i64,
    ),
    (
        "offsetof(union bpf_attr, log_buf)",
        offset_of!(ProgLoad, log_buf) as i64,
    ),
    (
        "offsetof(union bpf_attr, prog_flags)",
        offset_of!(ProgLoad, prog_flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, prog_name)",
        offset_of!(ProgLoad, prog_name) as i64,
    ),
    (
        "offsetof(union bpf_attr, expected_attach_type)",
        offset_of!(ProgLoad, expected_attach_type) as i64,
    ),
    (
        "offsetof(union bpf_attr, test.retval)",
        offset_of!(TestRun, retval) as i64,
    ),
    (
        "offsetof(union bpf_attr, test.data_size_out)",
        offset_of!(TestRun, data_size_out) as i64,
    ),
    (
        "offsetof(union bpf_attr, test.data_out)",
        offset_of!(TestRun, data_out) as i64,
    ),
    (
        "offsetof(union bpf_attr, test.duration)",
        offset_of!(TestRun, duration) as i64,
    ),
];

/// Parameters of a program to load. The kernel copies all of them.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// `BPF_PROG_TYPE_*`
    pub kind: u32,
    /// `expected_attach_type`: 0 for types without one.
    pub attach_type: u32,
    /// At most 15 letters, digits, `_` and `.`; `bpftool prog` shows it.
    pub name: &'a str,
    /// Helpers that are reserved for GPL programs need a GPL-compatible license.
    pub license: &'a CStr,
    /// Each is a `struct bpf_insn`. They contain the descriptors of maps as numbers: keep these open during the call.
    pub instructions: &'a [[u8; 8]],
}

/// The error of a failed load.
#[derive(Debug)]
pub struct LoadError {
    /// `EINVAL`: the kernel does not know the type, or a helper that is called; `EACCES`: the verifier refuses; `EPERM`
    /// without `CAP_BPF` (and `CAP_NET_ADMIN` for networking types); `ENOSYS`: built without `CONFIG_BPF_SYSCALL`.
    pub error: io::Error,
    /// The log of the verifier; empty if the verifier did not run.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let mut lines = self.log.lines().filter(|l| !l.starts_with("processed "));
        match lines.next_back() {
            Some(last) => write!(f, ": the verifier says \"{last}\""),
            None => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded program. It exists as long as this descriptor, an attachment, or a pin.
#[derive(Debug)]
pub struct Program(pub(super) OwnedFd);

impl Program {
    /// `bpf(BPF_PROG_LOAD)` without a name. `program_type` is `BPF_PROG_TYPE_*`; `attach_type` is `BPF_*` of
    /// `enum bpf_attach_type`, 0 for types without one. Each instruction is a `struct bpf_insn` of 8 bytes.
    ///
    /// # Errors
    ///
    /// [`LoadError::error`]
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
        let spec = ProgramSpec {
            kind: program_type,
            attach_type,
            name: "",
            license,
            instructions,
        };
        Self::load_once(&spec, &mut [])
    }

    /// `bpf(BPF_PROG_LOAD)`. After a failure it is repeated once, to get the verifier's log.
    ///
    /// # Errors
    ///
    /// [`LoadError`]; `EINVAL` also for a name that the kernel does not accept.
    pub fn load_with_log(spec: &ProgramSpec<'_>) -> Result<Self, LoadError> {
        let first = match Self::load_once(spec, &mut []) {
            Ok(program) => return Ok(program),
            Err(error) => error,
        };
        let mut log = vec![0; LOG_BYTES];
        match Self::load_once(spec, &mut log) {
            Ok(program) => Ok(program),
            Err(error) => {
                let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
                log.truncate(end);
                // If the log does not fit into the buffer, the kernel returns `ENOSPC` instead of the first error.
                let is_cut = error.raw_os_error() == Some(libc::ENOSPC);
                Err(LoadError {
                    error: if is_cut { first } else { error },
                    log: String::from_utf8_lossy(&log).into_owned(),
                })
            }
        }
    }

    fn load_once(spec: &ProgramSpec<'_>, log: &mut [u8]) -> io::Result<Self> {
        let wants_log = !log.is_empty();
        let mut attr = ProgLoad {
            prog_type: spec.kind,
            insn_cnt: u32::try_from(spec.instructions.len()).map_err(too_big)?,
            insns: spec.instructions.as_ptr() as u64,
            license: spec.license.as_ptr() as u64,
            prog_name: object_name(spec.name)?,
            expected_attach_type: spec.attach_type,
            log_level: u32::from(wants_log),
            log_size: u32::try_from(log.len()).map_err(too_big)?,
            log_buf: if wants_log {
                log.as_mut_ptr() as u64
            } else {
                0
            },
            ..ProgLoad::default()
        };
        // SAFETY: `insns` points at `insn_cnt` instructions of 8 bytes and `license` at a string with its NUL; both are
        // borrowed until this function returns, and the kernel only reads them. `log_buf` is borrowed mutably and is
        // `log_size` bytes long; without a log both are zero and the kernel does not write. `BPF_PROG_LOAD` returns a
        // new descriptor.
        unsafe { call_for_fd(BPF_PROG_LOAD, &mut attr) }.map(Self)
    }

    /// `bpf(BPF_PROG_TEST_RUN)`: runs the program once on a packet, which arrives at `lo`. Returns the return value of the
    /// program, and the packet after the run.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the packet is shorter than an Ethernet header, or longer than 4096 bytes; `EOPNOTSUPP`: not supported for this type.
    pub fn test_run(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        if packet.len() > PACKET_BYTES {
            return Err(invalid());
        }
        let mut after = vec![0; PACKET_BYTES];
        let mut attr = TestRun {
            prog_fd: number(self.0.as_fd())?,
            data_size_in: u32::try_from(packet.len()).map_err(too_big)?,
            data_size_out: u32::try_from(after.len()).map_err(too_big)?,
            data_in: packet.as_ptr() as u64,
            data_out: after.as_mut_ptr() as u64,
            repeat: 1,
            ..TestRun::default()
        };
        // SAFETY: `data_in` is borrowed and `data_size_in` bytes long, and the kernel only reads it; `data_out` is owned by
        // this function and `data_size_out` bytes long. The program is open during the call. The command does not return a descriptor.
        unsafe { call(BPF_PROG_TEST_RUN, &mut attr) }?;
        after.truncate(usize::try_from(attr.data_size_out).map_err(too_big)?);
        Ok((attr.retval, after))
    }

    /// `bpf(BPF_LINK_CREATE)` to a network interface of the calling thread's namespace: `BPF_TCX_INGRESS` and similar attach types.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type; `ENODEV`: no such interface; `EPERM`.
    pub fn attach_to_interface(&self, index: u32, attach_type: u32) -> io::Result<Link> {
        Link::create(self, index, attach_type, super::Anchor::Any)
    }

    /// `bpf(BPF_LINK_CREATE)` to a network namespace: `BPF_SK_LOOKUP`, `BPF_FLOW_DISSECTOR`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the attach type, or `netns` is not a network namespace; `EPERM`.
    pub fn attach_to_netns(&self, netns: BorrowedFd<'_>, attach_type: u32) -> io::Result<Link> {
        Link::create(self, number(netns)?, attach_type, super::Anchor::Any)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
