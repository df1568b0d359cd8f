//! One packet: a message and at most one descriptor.

use crate::Namespace;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, recvmsg, sendmsg};
use socket2::Socket;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Maximum size of a request in bytes: ztunnel reads no more.
pub(crate) const REQUEST: usize = 1023;
/// Maximum size of an answer in bytes; it may contain a backtrace.
const ANSWER: usize = 256 << 10;

/// Sends a packet within the time limit.
pub(crate) fn send(
    socket: &Socket,
    bytes: &[u8],
    netns: Option<&dyn Namespace>,
    limit: Duration,
) -> io::Result<()> {
    let until = Instant::now() + limit;
    let raw = netns.map(|netns| [netns.as_fd().as_raw_fd()]);
    let rights = raw.as_ref().map(|raw| ControlMessage::ScmRights(raw));
    let control: Vec<ControlMessage<'_>> = rights.into_iter().collect();
    loop {
        if !ready(socket.as_fd(), PollFlags::POLLOUT, until)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let data = [IoSlice::new(bytes)];
        match sendmsg::<()>(socket.as_raw_fd(), &data, &control, flags, None) {
            // A packet is sent completely or not at all.
            Ok(_) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// The receive buffer.
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; ANSWER])
    }

    /// Receives a packet within the time limit; empty if the peer has closed. Descriptors are refused.
    pub(crate) fn receive(&mut self, socket: &Socket, limit: Duration) -> io::Result<&[u8]> {
        let until = Instant::now() + limit;
        let (length, flags) = loop {
            if !ready(socket.as_fd(), PollFlags::POLLIN, until)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut data = [IoSliceMut::new(&mut self.0)];
            let flags = MsgFlags::MSG_DONTWAIT;
            match recvmsg::<()>(socket.as_raw_fd(), &mut data, None, flags) {
                Ok(received) => break (received.bytes, received.flags),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        };
        // The control buffer has no room for descriptors: the kernel has closed them.
        if flags.contains(MsgFlags::MSG_CTRUNC) {
            let text = "a packet has a descriptor, which none from ztunnel has";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if flags.contains(MsgFlags::MSG_TRUNC) {
            let text = format!("a packet has more than {ANSWER} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(self.0.get(..length).unwrap_or_default())
    }
}

/// Waits until the events occur; false at the deadline.
fn ready(fd: BorrowedFd<'_>, events: PollFlags, until: Instant) -> io::Result<bool> {
    loop {
        let mut fds = [PollFd::new(fd, events)];
        match poll(&mut fds, timeout(until)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns the remaining time for `poll(2)`, rounded up.
pub(crate) fn timeout(until: Instant) -> PollTimeout {
    let left = until.saturating_duration_since(Instant::now());
    let millis = left.as_micros().div_ceil(1000);
    let millis = i32::try_from(millis).unwrap_or(i32::MAX);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}
