//! A legacy table replaced from inside of another user namespace.
//!
//! The kernel takes rules that match the owner of a socket only from a task whose user namespace is the one that the
//! network namespace belongs to (`owner_check`, `net/netfilter/xt_owner.c`: `current_user_ns() != net->user_ns` is
//! `EINVAL`). It asks the task, not the socket, so no descriptor that is opened or passed there helps; and
//! `setns(2)` lets only a process of one thread change its user namespace. So the one call is made by a child.
//!
//! Root of that user namespace may trace what enters it, and the child has a copy of our memory. So the child first makes
//! itself undumpable: looking into it then takes rights over the user namespace that *we* were started in
//! (`__ptrace_may_access`, `kernel/ptrace.c`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

use super::{IPT_SO_SET_REPLACE, length, replace_request, xt_level};

/// How long the child may take. The kernel waits for other processors while it exchanges a table, which takes
/// milliseconds; ten thousand times as long means that something holds the task up.
const DEADLINE: Duration = Duration::from_secs(10);

/// [`xt_replace`](super::xt_replace) from inside of a user namespace. `fd` may be of any user namespace.
///
/// # Errors
///
/// As [`xt_replace`](super::xt_replace); what `setns(2)` answers: `EPERM` without `CAP_SYS_ADMIN` there; what `fork(2)`
/// answers: `EAGAIN` when the limit of processes is reached. `TimedOut` when the child does not answer within ten
/// seconds, and `UnexpectedEof` when it was killed: whether the table was replaced is not known then.
///
/// # References
///
/// `setns(2)`, `user_namespaces(7)`, `signal-safety(7)`.
pub fn xt_replace_inside(
    user_ns: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    is_v6: bool,
    value: &mut [u8],
    counters: &mut [u8],
) -> io::Result<()> {
    replace_request(value, counters)?;
    let len = length(value)?;
    let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    // SAFETY: fork(2) of a process that may have more threads: until it ends, the child may only do what is
    // async-signal-safe. `call_and_exit` does five system calls on memory and descriptors that were prepared above, and
    // never returns: it allocates nothing, takes no lock, cannot panic and runs no destructor. It has a copy of our
    // memory, so nothing that it or the kernel writes there is seen here.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => call_and_exit(
            [user_ns.as_raw_fd(), fd.as_raw_fd(), to_parent.as_raw_fd()],
            is_v6,
            (value, len),
            counters,
        ),
        child => {
            drop(to_parent);
            let answer = answer(from_child, counters);
            let is_late = |e: &io::Error| e.kind() == io::ErrorKind::TimedOut;
            end(child, answer.as_ref().is_err_and(is_late));
            answer
        }
    }
}

/// What the child does: it makes itself undumpable, enters the user namespace, makes the call, and writes the errno and
/// the counters to the pipe.
fn call_and_exit(
    [user_ns, fd, pipe]: [libc::c_int; 3],
    is_v6: bool,
    (value, len): (&[u8], libc::socklen_t),
    counters: &mut [u8],
) -> ! {
    // SAFETY: prctl(2), setns(2), setsockopt(2), write(2) and _exit(2) are async-signal-safe: the C library only
    // passes them on. PR_SET_DUMPABLE takes numbers. The descriptors are copies of those that the caller of
    // `xt_replace_inside` lends. `value` is `len` bytes, the child's copy of a `struct ipt_replace`, whose one pointer
    // leads to the child's copy of `counters`, with as many as fit there: `replace_request` set both. Nothing else
    // runs in this process.
    unsafe {
        let level = xt_level(is_v6);
        let no: libc::c_ulong = 0;
        let is_done = libc::prctl(libc::PR_SET_DUMPABLE, no, no, no, no) == 0
            && libc::setns(user_ns, libc::CLONE_NEWUSER) == 0
            && libc::setsockopt(fd, level, IPT_SO_SET_REPLACE, value.as_ptr().cast(), len) == 0;
        let errno = match is_done {
            true => 0,
            false => nix::errno::Errno::last_raw(),
        };
        let is_written = write_all(pipe, &errno.to_ne_bytes()) && write_all(pipe, counters);
        libc::_exit(i32::from(!is_written));
    }
}

/// Async-signal-safe. False when the parent reads no more.
fn write_all(pipe: libc::c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: write(2) reads at most `bytes.len()` bytes of `bytes`; libc's is async-signal-safe, nix's and
        // std's do not promise it.
        let written = unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written).ok().and_then(|n| bytes.get(n..)) {
            Some(rest) if written > 0 => bytes = rest,
            _ if nix::errno::Errno::last_raw() == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// Reads what the child wrote.
fn answer(from_child: OwnedFd, counters: &mut [u8]) -> io::Result<()> {
    let mut pipe = File::from(from_child);
    let until = Instant::now() + DEADLINE;
    let mut errno = [0; 4];
    read_until(&mut pipe, &mut errno, until)?;
    match i32::from_ne_bytes(errno) {
        0 => read_until(&mut pipe, counters, until),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn read_until(pipe: &mut File, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut waiting = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(e) => return Err(e.into()),
        }
        match pipe.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Takes the child out of the table of processes. One that did not answer is killed; while the kernel holds it in its
/// call it does not end, which is not waited for: its entry then stays until this process ends.
fn end(child: libc::pid_t, is_late: bool) {
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, waitpid};
    let child = nix::unistd::Pid::from_raw(child);
    let mut flags = None;
    if is_late {
        // It may have ended, and then waits for us: its number is its own until then.
        let _ = kill(child, Signal::SIGKILL);
        flags = Some(WaitPidFlag::WNOHANG);
    }
    while waitpid(child, flags) == Err(nix::errno::Errno::EINTR) {}
}
