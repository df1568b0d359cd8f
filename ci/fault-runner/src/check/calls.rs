//! System calls by name, and the faults that each of them can have.
//!
//! Every call is killed before and after its execution, and fails with each errno. This file lists the exceptions with
//! their reasons: results that the kernel never returns, so that programs need not handle them.

use nix::errno::Errno;

use crate::check::fault::Fault;

/// Names of the calls that the programs make; other calls are printed as numbers.
macro_rules! names {
    ($($name:ident),* $(,)?) => {
        const NAMES: &[(i64, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

names! {
    SYS_accept4, SYS_access, SYS_arch_prctl, SYS_bind, SYS_bpf, SYS_brk, SYS_clock_gettime, SYS_clock_nanosleep, SYS_clone,
    SYS_clone3, SYS_close, SYS_connect, SYS_dup, SYS_dup2, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_wait, SYS_eventfd2, SYS_execve, SYS_exit, SYS_exit_group, SYS_faccessat2, SYS_fcntl, SYS_flock,
    SYS_fstat, SYS_fstatfs, SYS_ftruncate, SYS_futex, SYS_getcwd, SYS_getdents64, SYS_getpeername, SYS_getpid,
    SYS_getrandom, SYS_getsockname, SYS_getsockopt, SYS_gettid, SYS_ioctl, SYS_lseek, SYS_lstat, SYS_madvise,
    SYS_mkdir, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_nanosleep, SYS_newfstatat, SYS_open, SYS_openat,
    SYS_pipe2, SYS_poll, SYS_ppoll, SYS_prctl, SYS_pread64, SYS_prlimit64, SYS_read, SYS_readlink,
    SYS_readlinkat, SYS_readv, SYS_recvfrom, SYS_recvmsg, SYS_rename, SYS_rseq, SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sched_getaffinity, SYS_sched_yield, SYS_sendmsg, SYS_sendto,
    SYS_set_robust_list, SYS_set_tid_address, SYS_setns, SYS_setsockopt, SYS_sigaltstack, SYS_socket,
    SYS_socketpair, SYS_stat, SYS_statfs, SYS_statx, SYS_tgkill, SYS_uname, SYS_unlink, SYS_unshare, SYS_wait4,
    SYS_write, SYS_writev,
}

/// The name of a call in strace's output.
pub(crate) fn name(number: u64) -> String {
    let found = NAMES.iter().find(|(n, _)| n.unsigned_abs() == number);
    match found {
        Some((_, name)) => name.trim_start_matches("SYS_").to_owned(),
        None => format!("call-{number}"),
    }
}

/// The number of the call with this name.
pub(crate) fn number(name: &str) -> Option<u64> {
    if let Some(number) = name.strip_prefix("call-") {
        return number.parse().ok();
    }
    let found = NAMES
        .iter()
        .find(|(_, n)| n.trim_start_matches("SYS_") == name);
    found.map(|(number, _)| number.unsigned_abs())
}

/// A call with its first arguments, which may determine its possible results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) arguments: [u64; 4],
}

impl Call {
    pub(crate) fn is(self, number: i64) -> bool {
        self.number == number.unsigned_abs()
    }

    /// Whether it writes to stdout or stderr: if that fails, the program cannot report anything there.
    pub(crate) fn answers(self) -> bool {
        let [first, ..] = self.arguments;
        (self.is(libc::SYS_write) || self.is(libc::SYS_writev)) && matches!(first, 1 | 2)
    }

    /// Whether its failure means that memory is exhausted. The process then ends at any point; where glibc or std need the
    /// memory themselves, as for the stack of a thread, the message is theirs.
    pub(crate) fn is_memory(self) -> bool {
        [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_mremap]
            .iter()
            .any(|n| self.is(*n))
    }

    /// Whether it takes effect even if it returns an error: `close(2)`, NOTES, "Dealing with error returns".
    pub(crate) fn is_done_anyway(self) -> bool {
        self.is(libc::SYS_close)
    }

    /// Whether the fault is possible for this call.
    pub(crate) fn can(self, fault: Fault) -> bool {
        match fault {
            Fault::KillBefore => true,
            Fault::Other(_) => self.asks(),
            Fault::KillAfter => !self.does_not_return(),
            Fault::LoseAnswer => LOSES.iter().any(|n| self.is(*n)),
            Fault::Fail(errno) => {
                !self.does_not_return()
                    && self
                        .errnos()
                        .is_none_or(|possible| possible.contains(&errno))
            }
        }
    }

    /// Whether it sends a request about a namespace to the kernel or receives the answer. Another writer can act before it.
    pub(crate) fn asks(self) -> bool {
        ASKS.iter().any(|n| self.is(*n))
    }

    /// Whether it can fail persistently, because a resource may be exhausted or access may be denied.
    pub(crate) fn can_last(self) -> bool {
        self.asks() || OPENS.iter().any(|n| self.is(*n))
    }

    /// Whether it can fail persistently in this way. A descriptor that `poll` reports as ready does not always return `EAGAIN`.
    pub(crate) fn can_last_as(self, fault: Fault) -> bool {
        let is_read = self.is(libc::SYS_read) || self.is(libc::SYS_write);
        let is_busy = fault == Fault::Fail(Errno::EAGAIN);
        self.can_last() && fault.lasts() && !(is_read && is_busy)
    }

    fn does_not_return(self) -> bool {
        [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_rt_sigreturn]
            .iter()
            .any(|n| self.is(*n))
    }

    /// The possible errnos; `None`: all. Each row states the reason.
    fn errnos(self) -> Option<&'static [Errno]> {
        if self.is(libc::SYS_futex) {
            return Some(futex(self.arguments));
        }
        let row = LIMITED.iter().find(|(n, ..)| self.is(*n));
        row.map(|(_, errnos, _)| *errnos)
    }
}

/// Calls that receive answers, or that send requests: the answer or the request can be lost.
const LOSES: [i64; 13] = [
    libc::SYS_connect,
    libc::SYS_getsockopt,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_bind,
    libc::SYS_write,
    libc::SYS_writev,
];

const ASKS: &[i64] = &[
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_bpf,
];

const OPENS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_openat,
    libc::SYS_setns,
    libc::SYS_connect,
    libc::SYS_read,
    libc::SYS_write,
];

/// The errnos of `futex(2)`: a wait can be interrupted, come too late and, if it has a timeout, time out; waking cannot
/// fail. glibc ends the process on any other errno (`futex_fatal_error`).
fn futex([_, operation, _, timeout]: [u64; 4]) -> &'static [Errno] {
    const FUTEX_CMD_MASK: u64 = 0x7f;
    const FUTEX_WAIT: u64 = 0;
    const FUTEX_WAIT_BITSET: u64 = 9;
    match operation & FUTEX_CMD_MASK {
        FUTEX_WAIT | FUTEX_WAIT_BITSET if timeout != 0 => {
            &[Errno::EINTR, Errno::EAGAIN, Errno::ETIMEDOUT]
        }
        FUTEX_WAIT | FUTEX_WAIT_BITSET => &[Errno::EINTR, Errno::EAGAIN],
        _ => &[],
    }
}

type Limited = (i64, &'static [Errno], &'static str);

/// Calls that can fail with these errnos only.
const LIMITED: &[Limited] = &[
    (
        libc::SYS_brk,
        &[],
        "returns the present break, never an errno",
    ),
    (
        libc::SYS_arch_prctl,
        &[],
        "EINVAL and EFAULT only; before main",
    ),
    (libc::SYS_set_tid_address, &[], "always succeeds"),
    (libc::SYS_set_robust_list, &[], "EINVAL only"),
    (libc::SYS_gettid, &[], "always succeeds"),
    (libc::SYS_getpid, &[], "always succeeds"),
    (libc::SYS_sched_yield, &[], "always succeeds"),
    (libc::SYS_rt_sigaction, &[], "EFAULT and EINVAL only"),
    (libc::SYS_rt_sigprocmask, &[], "EFAULT and EINVAL only"),
    (
        libc::SYS_close,
        &[Errno::EINTR],
        "nothing is written back; std ends the process where closedir(3) fails with another",
    ),
    (
        libc::SYS_sigaltstack,
        &[Errno::ENOMEM, Errno::EPERM],
        "and EFAULT, EINVAL",
    ),
    (libc::SYS_munmap, &[Errno::ENOMEM], "and EINVAL"),
    (libc::SYS_mprotect, &[Errno::ENOMEM], "and EACCES, EINVAL"),
    (
        libc::SYS_clone,
        THREAD,
        "a thread: the kernel begins an interrupted one again by itself",
    ),
    (libc::SYS_clone3, THREAD, "as clone"),
    (
        libc::SYS_rseq,
        &[],
        "EINVAL, EFAULT, EBUSY, EPERM of a wrong signature only; glibc ends the process otherwise",
    ),
    (
        libc::SYS_getrandom,
        &[],
        "up to 256 bytes from the initialized pool always succeed (random(7))",
    ),
    (
        libc::SYS_poll,
        &[Errno::EINTR, Errno::ENOMEM],
        "and EFAULT, EINVAL; std ends the process otherwise, before main",
    ),
    (libc::SYS_ppoll, &[Errno::EINTR, Errno::ENOMEM], "as poll"),
    (
        libc::SYS_epoll_wait,
        &[Errno::EINTR],
        "and EBADF, EFAULT, EINVAL",
    ),
    (libc::SYS_epoll_pwait, &[Errno::EINTR], "as epoll_wait"),
];

const THREAD: &[Errno] = &[Errno::EAGAIN, Errno::ENOMEM, Errno::EPERM];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::fault::ERRNOS;

    fn call(number: i64) -> Call {
        Call {
            number: number.unsigned_abs(),
            arguments: [0; 4],
        }
    }

    #[test]
    fn names_lead_back_to_numbers() {
        for (n, _) in NAMES {
            let n = n.unsigned_abs();
            assert_eq!(number(&name(n)), Some(n));
        }
        assert_eq!(number(&name(9999)), Some(9999));
        assert_eq!(number("nonsense"), None);
    }

    #[test]
    fn only_what_cannot_happen_is_left_out() {
        let recv = call(libc::SYS_recvfrom);
        assert!(Fault::all().all(|fault| recv.can(fault)));
        let exit = call(libc::SYS_exit_group);
        assert!(Fault::all().all(|fault| exit.can(fault) == (fault == Fault::KillBefore)));
        let wait = call(libc::SYS_futex);
        assert!(wait.can(Fault::Fail(Errno::EINTR)) && !wait.can(Fault::Fail(Errno::ETIMEDOUT)));
        for (number, possible, _) in LIMITED {
            let can = |e: &Errno| call(*number).can(Fault::Fail(*e));
            assert!(ERRNOS.iter().all(|e| can(e) == possible.contains(e)));
        }
    }
}
