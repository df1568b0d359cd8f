//! eBPF: program types, helpers, maps, and where a program can be attached.
//!
//! Trials are independent: each loads two or three instructions and drops them. Whether `--engine ebpf` works is decided by
//! its own programs, loaded as for a pod or for a node. Only attaching needs a namespace; nothing is attached to a cgroup,
//! because cgroups belong to the machine.

use nix::errno::Errno;
use std::io;
use std::os::fd::AsFd;
use weir_bpf::{Map, Program};
use weir_netfilter::probe::{Answer, Finding, Row, RunningKernel, answer, row};
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_netlink::{Error, Netns, Result};

/// The name of the area in findings.
pub const AREA: &str = "ebpf";

/// Errors that mean "not supported". 524 is `ENOTSUPP`, which is internal to the kernel.
const ABSENT: &[i32] = &[
    Errno::EINVAL as i32,
    Errno::E2BIG as i32,
    Errno::EOPNOTSUPP as i32,
    Errno::ENOENT as i32,
    Errno::ENOSYS as i32,
    524,
];

/// `BPF_PROG_TYPE_SCHED_CLS`
const SCHED_CLS: u32 = 3;
/// `BPF_PROG_TYPE_SK_LOOKUP` and `BPF_SK_LOOKUP`
const SK_LOOKUP: (u32, u32) = (30, 36);
/// `BPF_TCX_INGRESS`
const TCX_INGRESS: u32 = 46;

/// How a feature is tried.
#[derive(Clone, Copy, Debug)]
pub enum Trial {
    /// Load a program that returns 1, of this type and for this attach type.
    Program(u32, u32),
    /// Load a `SCHED_CLS` program that calls this helper without arguments: the verifier rejects the arguments (`EACCES`) if
    /// it knows the helper, otherwise the helper (`EINVAL`).
    Helper(u32),
    /// Create a map: type, bytes of key and value, entries, flags.
    Map(u32, u32, u32, u32, u32),
    /// Add a direct-action filter to `lo`'s clsact.
    Filter,
    /// Create a tcx link on `lo`.
    Tcx,
    /// Create an `sk_lookup` link on the network namespace.
    SkLookup,
    /// Load every program that `weir apply ambient --engine ebpf` attaches, with its maps.
    PodPrograms,
    /// Load every program that `weir apply node-ambient --engine ebpf` attaches, with its maps.
    NodePrograms,
}

const NF: &str = "netfilter rules";

/// Every feature. Numbers are those of `linux/bpf.h`.
#[rustfmt::skip]
pub const ROWS: &[Row<Trial>] = &[
    row("program sched_cls", Trial::Program(SCHED_CLS, 0), "bpf_syscall", "4.1", NF),
    row("program sk_lookup", Trial::Program(SK_LOOKUP.0, SK_LOOKUP.1), "bpf_syscall bpf_inet", "5.9", NF),
    row("program sock_ops", Trial::Program(13, 3), "bpf_syscall bpf_cgroup", "4.13", NF),
    row("program cgroup connect4", Trial::Program(18, 10), "bpf_syscall bpf_cgroup", "4.17", NF),
    row("program cgroup connect6", Trial::Program(18, 11), "bpf_syscall bpf_cgroup", "4.17", NF),
    row("program cgroup sendmsg4", Trial::Program(18, 14), "bpf_syscall bpf_cgroup", "4.18", NF),
    row("program cgroup recvmsg4", Trial::Program(18, 19), "bpf_syscall bpf_cgroup", "5.2", NF),
    row("program cgroup getpeername4", Trial::Program(18, 29), "bpf_syscall bpf_cgroup", "5.8", "applications see the proxy as peer"),
    row("program cgroup getsockopt", Trial::Program(25, 21), "bpf_syscall bpf_cgroup", "5.3", NF),
    row("program netfilter", Trial::Program(32, 45), "bpf_syscall bpf_netfilter", "6.4", NF),
    row("helper redirect", Trial::Helper(23), "bpf_syscall", "4.4", NF),
    row("helper redirect_peer", Trial::Helper(155), "bpf_syscall", "5.10", "redirect"),
    row("helper skc_lookup_tcp", Trial::Helper(99), "bpf_syscall bpf_inet", "5.2", NF),
    row("helper sk_assign", Trial::Helper(124), "bpf_syscall bpf_inet", "5.7", "TPROXY by netfilter"),
    row("map hash", Trial::Map(1, 4, 4, 1, 0), "bpf_syscall", "3.19", NF),
    row("map lpm_trie", Trial::Map(11, 8, 4, 1, 1), "bpf_syscall", "4.11", "address ranges are refused"),
    row("map sockmap", Trial::Map(15, 4, 4, 1, 0), "bpf_syscall", "4.14", NF),
    row("map ringbuf", Trial::Map(27, 0, 0, 4096, 0), "bpf_syscall", "5.8", "counters without events"),
    row("programs inside of pods", Trial::PodPrograms, "bpf_syscall bpf_inet", "6.6", NF),
    row("programs at the node", Trial::NodePrograms, "bpf_syscall bpf_inet", "5.10", NF),
    row("attach cls_bpf", Trial::Filter, "sch_ingress cls_bpf", "4.5", "tcx"),
    row("attach tcx", Trial::Tcx, "tcx", "6.6", "cls_bpf at the node, netfilter rules in pods"),
    row("attach sk_lookup", Trial::SkLookup, "bpf_syscall bpf_inet", "5.9", NF),
];

/// Tries every row. `netns` is the throwaway namespace, which the calling thread is in; without one nothing is attached.
#[must_use]
pub fn features(kernel: &RunningKernel, netns: Result<&Netns, &str>) -> Vec<Finding> {
    weir_ebpf::allow_locked_memory();
    let one = |row: &Row<Trial>| {
        answer(AREA, "", row, kernel, |trial| {
            let attaches = matches!(trial, Trial::Filter | Trial::Tcx | Trial::SkLookup);
            match (attaches, netns) {
                (true, Err(why)) => Answer::Unknown(why.to_owned()),
                (_, netns) => match try_one(trial, netns.ok()) {
                    Err(e) if e.is_unsupported() => Answer::Lack(e.to_string()),
                    tried => Answer::of(tried.map(|()| String::new()), ABSENT),
                },
            }
        })
    };
    ROWS.iter().map(one).collect()
}

/// `exit`
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// `call HELPER`; the number is in host byte order.
fn call(helper: u32) -> [u8; 8] {
    let [a, b, c, d] = helper.to_ne_bytes();
    [0x85, 0, 0, 0, a, b, c, d]
}

/// `r0 = 1`; the number is in host byte order.
fn return_1() -> [u8; 8] {
    let [a, b, c, d] = 1u32.to_ne_bytes();
    [0xb7, 0, 0, 0, a, b, c, d]
}

fn load(kind: u32, attach: u32, instructions: &[[u8; 8]]) -> io::Result<Program> {
    Program::load(kind, attach, instructions, c"Apache-2.0")
}

fn simplest(kind: u32, attach: u32) -> Result<Program> {
    load(kind, attach, &[return_1(), EXIT]).map_err(|e| denied("load", "a program", &e))
}

/// Replaces a permission error by one that names the required rights.
fn denied(operation: &str, object: &str, error: &io::Error) -> Error {
    let error = Error::io(operation, object, error);
    match error.is_permission() {
        true => Error::refused(
            operation,
            object,
            "bpf(2) is not permitted; it needs CAP_BPF and CAP_NET_ADMIN in the first user \
             namespace (CAP_SYS_ADMIN before 5.8), no seccomp filter against it, and before 5.11 room \
             in RLIMIT_MEMLOCK",
        ),
        false => error,
    }
}

fn try_one(trial: &Trial, netns: Option<&Netns>) -> Result<()> {
    match *trial {
        Trial::Program(kind, attach) => simplest(kind, attach).map(drop),
        Trial::Helper(helper) => {
            // If this fails, the result below would depend on rights, not on the helper.
            simplest(SCHED_CLS, 0)?;
            match load(SCHED_CLS, 0, &[call(helper), return_1(), EXIT]) {
                Ok(_) => Ok(()),
                Err(e) if e.raw_os_error() == Some(Errno::EACCES as i32) => Ok(()),
                Err(e) => Err(Error::io("call", "the helper", &e)),
            }
        }
        Trial::Map(kind, key, value, entries, flags) => {
            // The size of a ring buffer is a multiple of the page size.
            let entries = if entries >= 4096 {
                page_size()
            } else {
                entries
            };
            Map::create(kind, key, value, entries, flags)
                .map(drop)
                .map_err(|e| denied("create", "a map", &e))
        }
        Trial::PodPrograms => weir_ebpf::try_programs(),
        Trial::NodePrograms => weir_ebpf::try_node_programs(),
        Trial::Filter => {
            let program = simplest(SCHED_CLS, 0)?;
            let routing = Routing::open()?;
            let lo = routing.link("lo")?.index;
            routing.add_qdisc(&Qdisc::clsact(lo))?;
            let kind = FilterKind::bpf(program.as_fd(), "weir");
            let filter = Filter::new(lo, TcHandle::INGRESS, 1, kind);
            routing.add_filter(&filter).map(drop)
        }
        Trial::Tcx => {
            let program = simplest(SCHED_CLS, 0)?;
            let lo = Routing::open()?.link("lo")?.index;
            program
                .attach_to_interface(lo, TCX_INGRESS)
                .map(drop)
                .map_err(|e| denied("attach", "a program with tcx", &e))
        }
        Trial::SkLookup => {
            let program = simplest(SK_LOOKUP.0, SK_LOOKUP.1)?;
            let gone = || {
                Error::refused(
                    "attach",
                    "a program",
                    "there is no throwaway namespace to probe it in",
                )
            };
            let netns = netns.ok_or_else(gone)?.as_fd();
            program
                .attach_to_netns(netns, SK_LOOKUP.1)
                .map(drop)
                .map_err(|e| denied("attach", "an sk_lookup program", &e))
        }
    }
}

fn page_size() -> u32 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let size = size.ok().flatten().and_then(|n| u32::try_from(n).ok());
    size.unwrap_or(4096)
}
