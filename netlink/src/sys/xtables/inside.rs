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
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, pipe2};

use super::{IPT_SO_SET_REPLACE, RawSocket, length};

/// How long the child may take. The kernel waits for other processors while it exchanges a table, which takes
/// milliseconds; ten thousand times as long means that something holds the task up.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a child that was killed for that may take to end. It does not while the kernel holds it in the call.
const GRACE: Duration = Duration::from_secs(1);

/// How long [`RawSocket::replace_inside`] may take.
pub const REPLACE_INSIDE: Duration = DEADLINE.saturating_add(GRACE);

/// What the child gets; all of it is made before it is.
struct Request<'a> {
    user_ns: libc::c_int,
    socket: libc::c_int,
    /// Where it answers: the errno, 0 for none, then the counters.
    pipe: libc::c_int,
    level: libc::c_int,
    value: &'a [u8],
    len: libc::socklen_t,
}

/// [`RawSocket::replace_inside`]; `value` has its pointer.
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

/// Makes the child, which makes this call, answers and ends.
fn begin(
    request: &Request<'_>,
    counters: &mut [u8],
    call: fn(&Request<'_>) -> libc::c_int,
) -> io::Result<Pid> {
    // SAFETY: fork(2) of a process that may have more threads: until it ends, the child may only do what is
    // async-signal-safe. `call` does three system calls on memory and descriptors that were prepared above; then come
    // write(2) and _exit(2), which does not return: nothing allocates, takes a lock, can panic or runs a destructor. The
    // child has a copy of our memory, so nothing that it or the kernel writes there is seen here.
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

/// In the child: makes itself undumpable, enters the user namespace, makes the call. The errno, or 0. Async-signal-safe.
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

/// What the child answers within `deadline`; a late one is killed. It is taken out of the table of processes unless the
/// kernel holds it in its call, which is not waited for: then its entry stays until this process ends.
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
        // It may have ended, and then waits for us: its number is its own until then.
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

/// The other end of its pipe is closed.
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
    /// What the parent's counters hold when nobody wrote them.
    const UNTOUCHED: [u8; COUNTERS] = [0xa5; COUNTERS];

    /// The outcome with a child that does this in place of the call, and the counters then.
    fn outcome(
        call: fn(&Request<'_>) -> libc::c_int,
        deadline: Duration,
    ) -> (io::Result<()>, [u8; COUNTERS], Pid) {
        let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let request = Request {
            user_ns: -1,
            socket: -1,
            pipe: to_parent.as_raw_fd(),
            level: libc::IPPROTO_IP,
            value: &[],
            len: 0,
        };
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
        // It ended by the signal, so that the table tells what became of the call.
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
        // A pipe whose other end stays open is all that is seen of a child that the kernel holds in its call.
        let (from_child, to_parent) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let request = Request {
            user_ns: -1,
            socket: -1,
            pipe: to_parent.as_raw_fd(),
            level: libc::IPPROTO_IP,
            value: &[],
            len: 0,
        };
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
