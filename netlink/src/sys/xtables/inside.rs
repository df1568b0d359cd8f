//! Replaces a legacy table from inside another user namespace.
//!
//! The kernel accepts rules that match the owner of a socket only from a task in the user namespace that owns the
//! network namespace (`owner_check`, `net/netfilter/xt_owner.c`: `current_user_ns() != net->user_ns` is `EINVAL`). It
//! checks the task, not the socket, so opening or passing a descriptor does not help; and `setns(2)` lets only a
//! single-threaded process change its user namespace. So a child process makes this one call.
//!
//! Root of that user namespace may ptrace a process that enters it, and the child has a copy of our memory. So the
//! child first makes itself undumpable: tracing it then needs capabilities over the user namespace that *this
//! process* was started in (`__ptrace_may_access`, `kernel/ptrace.c`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, pipe2};

use super::{IPT_SO_SET_REPLACE, RawSocket, length};

/// Deadline of the child. Replacing a table makes the kernel wait for other processors, which takes milliseconds;
/// ten thousand times as long means that the task is blocked.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a killed child may take to exit. It cannot exit while it is blocked in the system call.
const GRACE: Duration = Duration::from_secs(1);

/// How long [`RawSocket::replace_inside`] may take.
pub const REPLACE_INSIDE: Duration = DEADLINE.saturating_add(GRACE);

/// Input of the child; prepared completely before the fork.
struct Request<'a> {
    user_ns: libc::c_int,
    socket: libc::c_int,
    /// Write end of the pipe for the answer: the errno (0 for success), then the counters.
    pipe: libc::c_int,
    level: libc::c_int,
    value: &'a [u8],
    len: libc::socklen_t,
}

/// Implements [`RawSocket::replace_inside`]; `value` already contains the pointer.
pub(super) fn replace(
    socket: &RawSocket,
    user_ns: BorrowedFd<'_>,
    value: &[u8],
    counters: &mut [u8],
) -> io::Result<()> {
    let len = length(value)?;
    let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let request = Request {
        user_ns: user_ns.as_raw_fd(),
        socket: socket.fd.as_raw_fd(),
        level: socket.level(),
        pipe: to_parent.as_raw_fd(),
        value,
        len,
    };
    let child = begin(&request, counters, call)?;
    drop(to_parent);
    answer(child, from_child, counters, DEADLINE)
}

/// Forks the child, which makes the call, writes the answer and exits.
fn begin(
    request: &Request<'_>,
    counters: &mut [u8],
    call: fn(&Request<'_>) -> libc::c_int,
) -> io::Result<Pid> {
    // SAFETY: fork(2) of a process that may have more threads: until it exits, the child may only do what is
    // async-signal-safe. `call` makes three system calls on memory and descriptors that were prepared above, followed
    // by write(2) and _exit(2), which does not return: nothing allocates, takes a lock, can panic or runs a
    // destructor. The child has a copy of our memory, so nothing that it or the kernel writes there is visible in
    // this process.
    unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let errno = call(request).to_ne_bytes();
                let is_written =
                    write_all(request.pipe, &errno) && write_all(request.pipe, counters);
                libc::_exit(i32::from(!is_written))
            }
            child => Ok(Pid::from_raw(child)),
        }
    }
}

/// In the child: makes itself undumpable, enters the user namespace, makes the call. Returns the errno, or 0.
/// Async-signal-safe.
fn call(request: &Request<'_>) -> libc::c_int {
    let (level, value) = (request.level, request.value.as_ptr().cast());
    let no: libc::c_ulong = 0;
    // SAFETY: prctl(2), setns(2) and setsockopt(2) are async-signal-safe: the C library only passes them on.
    // PR_SET_DUMPABLE takes numbers. The descriptors are copies of those that the caller of `replace_inside` lends.
    // `value` is `len` bytes, the child's copy of a `struct ipt_replace`, whose one pointer leads to the child's copy of
    // the counters, with as many as fit there: `replace_request` set both. Nothing else runs in this process.
    let is_done = unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, no, no, no, no) == 0
            && libc::setns(request.user_ns, libc::CLONE_NEWUSER) == 0
            && libc::setsockopt(
                request.socket,
                level,
                IPT_SO_SET_REPLACE,
                value,
                request.len,
            ) == 0
    };
    match is_done {
        true => 0,
        false => nix::errno::Errno::last_raw(),
    }
}

/// Writes all bytes to the pipe; false if the parent has closed it. Async-signal-safe.
fn write_all(pipe: libc::c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: write(2) reads at most `bytes.len()` bytes of `bytes`; libc's is async-signal-safe, nix and std do
        // not promise it.
        let written = unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written).ok().and_then(|n| bytes.get(n..)) {
            Some(rest) if written > 0 => bytes = rest,
            _ if nix::errno::Errno::last_raw() == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// Reads the child's answer until `deadline`; then kills the child. Reaps it unless it is blocked in the system call: this
/// function does not wait for that, and the process table entry of the child then remains until this process ends.
fn answer(
    child: Pid,
    from_child: OwnedFd,
    counters: &mut [u8],
    deadline: Duration,
) -> io::Result<()> {
    let mut pipe = File::from(from_child);
    let mut errno = [0; 4];
    let (mut old, mut filled) = (vec![0; counters.len()], [0; 2]);
    let mut read = |deadline: Duration| {
        let until = Instant::now() + deadline;
        let [head, rest] = &mut filled;
        read_until(&mut pipe, &mut errno, head, until)?;
        read_until(&mut pipe, &mut old, rest, until)
    };
    let mut outcome = read(deadline);
    if outcome.as_ref().is_err_and(|e| !has_ended(e)) {
        // It may have exited and be a zombie: its pid is not reused until it is reaped.
        let _ = kill(child, Signal::SIGKILL);
        outcome = read(GRACE);
    }
    let is_gone = outcome.as_ref().map_or_else(has_ended, |()| true);
    let flags = (!is_gone).then_some(WaitPidFlag::WNOHANG);
    while waitpid(child, flags) == Err(nix::errno::Errno::EINTR) {}
    match (i32::from_ne_bytes(errno), outcome) {
        (0, Ok(())) => counters.copy_from_slice(&old),
        (0, Err(e)) => return Err(e),
        (errno, _) => return Err(io::Error::from_raw_os_error(errno)),
    }
    Ok(())
}

/// Whether the other end of the pipe was closed.
fn has_ended(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::UnexpectedEof
}

/// Fills `into` from `filled` on. The errors are `TimedOut` and `UnexpectedEof`.
fn read_until(
    pipe: &mut File,
    into: &mut [u8],
    filled: &mut usize,
    until: Instant,
) -> io::Result<()> {
    let late = || {
        let text = "the process that replaces it has not answered in time and may still do it";
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    while let Some(rest) = into.get_mut(*filled..).filter(|rest| !rest.is_empty()) {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut waiting = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, timeout) {
            Ok(n) if n > 0 => {}
            Err(nix::errno::Errno::EINTR) => continue,
            _ => return Err(late()),
        }
        match pipe.read(rest) {
            Ok(0) => {
                let text = "the process that replaces it was killed";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            Ok(n) => *filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(late()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: usize = 32;
    /// The content of the parent's counters until they are written.
    const UNTOUCHED: [u8; COUNTERS] = [0xa5; COUNTERS];

    /// The request of a child that answers through this pipe and does not make the call.
    fn answered_through(to_parent: &OwnedFd) -> Request<'static> {
        Request {
            user_ns: -1,
            socket: -1,
            pipe: to_parent.as_raw_fd(),
            level: libc::IPPROTO_IP,
            value: &[],
            len: 0,
        }
    }

    /// The outcome with a child that runs `call` instead of replacing a table, and the counters afterwards.
    fn outcome(
        call: fn(&Request<'_>) -> libc::c_int,
        deadline: Duration,
    ) -> (io::Result<()>, [u8; COUNTERS], Pid) {
        let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let request = answered_through(&to_parent);
        let mut of_child = [7; COUNTERS];
        let child = begin(&request, &mut of_child, call).unwrap();
        drop(to_parent);
        let mut counters = UNTOUCHED;
        let outcome = answer(child, from_child, &mut counters, deadline);
        (outcome, counters, child)
    }

    fn die() -> libc::c_int {
        // SAFETY: kill(2), getpid(2) and pause(2) take no memory and are async-signal-safe.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
            libc::pause()
        }
    }

    fn is_reaped(child: Pid) -> bool {
        waitpid(child, Some(WaitPidFlag::WNOHANG)) == Err(nix::errno::Errno::ECHILD)
    }

    #[test]
    fn a_child_that_answers() {
        let (outcome_of, counters, child) = outcome(|_| 0, DEADLINE);
        outcome_of.unwrap();
        assert_eq!(counters, [7; COUNTERS]);
        assert!(is_reaped(child));
        let (refused, counters, child) = outcome(|_| libc::EPERM, DEADLINE);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(counters, UNTOUCHED);
        assert!(is_reaped(child));
    }

    #[test]
    fn a_child_that_is_killed_before_its_answer_or_in_the_middle_of_it() {
        let calls: [fn(&Request<'_>) -> libc::c_int; 4] = [
            |_| die(),
            |r| {
                write_all(r.pipe, &[0, 0]);
                die()
            },
            |r| {
                write_all(r.pipe, &[0; 4]);
                die()
            },
            |r| {
                write_all(r.pipe, &[0; 4 + COUNTERS / 2]);
                die()
            },
        ];
        for (n, call) in calls.into_iter().enumerate() {
            let (killed, counters, child) = outcome(call, DEADLINE);
            let e = killed.unwrap_err();
            assert_eq!(
                (e.kind(), e.raw_os_error()),
                (io::ErrorKind::UnexpectedEof, None),
                "{n}"
            );
            assert_eq!(counters, UNTOUCHED, "{n}");
            assert!(is_reaped(child), "{n}");
        }
    }

    #[test]
    fn a_silent_child_is_killed_at_its_deadline() {
        let begun = Instant::now();
        // SAFETY: as in `die`.
        let (late, counters, child) =
            outcome(|_| unsafe { libc::pause() }, Duration::from_millis(50));
        // The signal ended the child, so reading the table determines whether the call took effect.
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(begun.elapsed() < DEADLINE / 2);
        assert_eq!(counters, UNTOUCHED);
        assert!(is_reaped(child));
    }

    #[test]
    fn an_answer_that_stops_half_way_is_late_too() {
        let (late, counters, child) = outcome(
            |r| {
                write_all(r.pipe, &[0; 4 + COUNTERS / 2]);
                // SAFETY: as in `die`.
                unsafe { libc::pause() }
            },
            Duration::from_millis(50),
        );
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(counters, UNTOUCHED);
        assert!(is_reaped(child));
    }

    #[test]
    fn a_child_that_does_not_end_may_still_do_it() {
        // For the parent, an open write end is the same as a child that is blocked in its system call.
        let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let request = answered_through(&to_parent);
        let child = begin(&request, &mut [], |_| die()).unwrap();
        let late = answer(child, from_child, &mut [], Duration::from_millis(50));
        let e = late.unwrap_err();
        assert_eq!(
            (e.kind(), e.raw_os_error()),
            (io::ErrorKind::TimedOut, None)
        );
        let _ = waitpid(child, None);
        drop(to_parent);
    }
}
