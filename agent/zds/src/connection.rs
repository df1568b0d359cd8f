//! One connection of ztunnel: hello, snapshot, then requests, one at a time.

use crate::listener::CONNECTIONS;
use crate::message::{
    KeepWorkload, Request, Response, SnapshotSent, WorkloadRequest, WorkloadResponse, ZdsHello,
};
use crate::packet::{self, Buffer, REQUEST};
use crate::requests::{Fail, QUEUE, Requests, Sent};
use crate::server::{Shared, add, place};
use crate::{Namespace, Peer, Workload};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use prost::Message;
use socket2::Socket;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of characters kept from an error text of ztunnel.
const WORDS: usize = 500;
/// Interval at which a waiting connection checks whether the pods are known.
const LOOK: Duration = Duration::from_millis(50);

/// The shared part of a connection.
pub(crate) struct Connection {
    /// Number of the connection, from 1.
    pub(crate) id: u64,
    /// The list of all pods was taken for its snapshot: requests made from now on are sent after the snapshot.
    pub(crate) listed: AtomicBool,
    /// The snapshot is complete.
    pub(crate) ready: AtomicBool,
    /// Process ID of the peer.
    pid: i32,
    since: SystemTime,
    /// `ZdsHello.version`; 0 before the hello message.
    version: AtomicI32,
    /// Number of acknowledged requests.
    acked: AtomicU64,
    /// A newer connection has replaced it, or the agent stops.
    closed: AtomicBool,
    socket: Socket,
    wake: PipeWriter,
    pub(crate) requests: Requests,
}

impl Connection {
    /// Creates the connection, and the pipe that becomes readable when there is work.
    pub(crate) fn new(id: u64, pid: i32, socket: Socket) -> io::Result<(Self, PipeReader)> {
        let (reader, wake) = io::pipe()?;
        let connection = Self {
            id,
            listed: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            pid,
            since: SystemTime::now(),
            version: AtomicI32::new(0),
            acked: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            socket,
            wake,
            requests: Requests::default(),
        };
        Ok((connection, reader))
    }

    /// Wakes the thread of the connection.
    pub(crate) fn wake(&self) {
        let _ = (&self.wake).write(&[1]);
    }

    /// Returns the public state of the connection.
    pub(crate) fn peer(&self) -> Peer {
        let version = self.version.load(Ordering::Relaxed);
        Peer {
            id: self.id,
            pid: self.pid,
            since: self.since,
            version: Some(version).filter(|version| *version != 0),
            ready: self.ready.load(Ordering::Acquire),
            acked: self.acked.load(Ordering::Relaxed),
            pending: self.requests.pending(),
        }
    }

    /// Closes it. Its thread stops waiting for the peer.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // The peer may have disconnected already.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.wake();
    }
}

/// Serves the connection until it ends and returns the reason.
pub(crate) fn serve(shared: &Shared, connection: &Connection, mut woken: PipeReader) -> String {
    let mut line = Line {
        shared,
        connection,
        socket: &connection.socket,
        buffer: Buffer::new(),
    };
    let ended = line
        .hello()
        .and_then(|()| line.snapshot(connection))
        .and_then(|()| line.updates(connection, &mut woken));
    let is_closed = connection.closed.load(Ordering::Acquire);
    match ended {
        _ if is_closed && shared.stops() => "the agent ends".to_owned(),
        _ if is_closed => {
            format!("it was the oldest of {CONNECTIONS}, and a newer one has replaced it")
        }
        Ok(()) => "the agent ends".to_owned(),
        Err(End { why, .. }) => why,
    }
}

/// The reason why a connection ends.
struct End {
    why: String,
    /// The error for the caller whose request was in flight.
    fail: Fail,
}

impl End {
    /// The connection is closed, or has to be.
    fn closed(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            fail: Fail::Closed,
        }
    }

    /// ztunnel did not read or answer in time.
    fn late(why: String) -> Self {
        Self {
            why,
            fail: Fail::TimedOut,
        }
    }
}

/// A refused request; the connection continues.
struct Refusal {
    why: String,
    /// ztunnel has received the request.
    read: bool,
}

impl Refusal {
    fn unsent(why: String) -> Self {
        Self { why, read: false }
    }
}

struct Line<'a> {
    shared: &'a Shared,
    connection: &'a Connection,
    socket: &'a Socket,
    buffer: Buffer,
}

impl Line<'_> {
    fn hello(&mut self) -> Result<(), End> {
        let packet = self.receive("its hello")?;
        let hello = ZdsHello::decode(packet)
            .map_err(|e| End::closed(format!("its hello cannot be read: {e}")))?;
        let version = &self.connection.version;
        version.store(hello.version, Ordering::Relaxed);
        Ok(())
    }

    fn receive(&mut self, what: &str) -> Result<&[u8], End> {
        let limit = self.shared.options.limit;
        match self.buffer.receive(self.socket, limit) {
            Ok([]) => Err(End::closed("ztunnel has closed it")),
            Ok(packet) => Ok(packet),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(End::late(format!(
                "ztunnel has not sent {what} within {limit:?}"
            ))),
            Err(e) => Err(End::closed(format!("{what} cannot be received: {e}"))),
        }
    }

    /// Sends a request and reads the answer. The error of a refused request is ztunnel's text.
    fn exchange(
        &mut self,
        request: Request,
        netns: Option<&dyn Namespace>,
    ) -> Result<Result<(), Refusal>, End> {
        let request = WorkloadRequest {
            payload: Some(request),
        };
        let bytes = request.encode_to_vec();
        if bytes.len() > REQUEST {
            let length = bytes.len();
            return Ok(Err(Refusal::unsent(format!(
                "its names take {length} bytes, and ztunnel reads no more than {REQUEST}"
            ))));
        }
        // A packet that is already queued would be taken for the answer.
        self.look(Duration::ZERO)?;
        let sent = packet::send(self.socket, &bytes, netns, self.shared.options.limit);
        if let Err(e) = sent {
            // Nothing was sent, and the next pod may succeed: the kernel refuses this descriptor, or too many descriptors are
            // in flight.
            let of_netns = [Errno::EBADF as i32, Errno::ETOOMANYREFS as i32];
            if e.raw_os_error()
                .is_some_and(|number| of_netns.contains(&number))
            {
                let why = format!("its network namespace cannot be sent: {e}");
                return Ok(Err(Refusal::unsent(why)));
            }
            let why = format!("a request cannot be sent: {e}");
            return Err(match e.kind() {
                io::ErrorKind::TimedOut => End::late(why),
                _ => End::closed(why),
            });
        }
        let packet = self.receive("the answer to a request")?;
        let response = WorkloadResponse::decode(packet)
            .map_err(|e| End::closed(format!("an answer cannot be read: {e}")))?;
        match response.payload {
            Some(Response::Ack(ack)) if ack.error.is_empty() => {
                self.connection.acked.fetch_add(1, Ordering::Relaxed);
                Ok(Ok(()))
            }
            Some(Response::Ack(ack)) => Ok(Err(Refusal {
                why: cut(&ack.error),
                read: true,
            })),
            None => Err(End::closed(
                "an answer has no payload that this agent knows",
            )),
        }
    }

    /// Sends all pods, then the end of the snapshot. Waits until the pods are known: ztunnel drops every pod that is not
    /// in the snapshot.
    fn snapshot(&mut self, connection: &Connection) -> Result<(), End> {
        let until = Instant::now() + self.shared.options.patience;
        let all = loop {
            if let Some(all) = self.shared.workloads.all() {
                break all;
            }
            if self.shared.stops() {
                return Ok(());
            }
            if Instant::now() >= until {
                let patience = self.shared.options.patience;
                return Err(End::closed(format!(
                    "the pods of this node are not known within {patience:?}; ztunnel connects again"
                )));
            }
            // Detects that the peer closed, or sent an unexpected message.
            self.look(LOOK)?;
        };
        connection.listed.store(true, Ordering::Release);
        let (mut added, mut kept) = (0, 0);
        for workload in &all {
            if self.shared.stops() {
                return Ok(());
            }
            let taken = match &workload.netns {
                Some(netns) => self.exchange(add(workload), Some(&**netns))?,
                None => self.exchange(keep(workload), None)?,
            };
            let place = workload.netns.as_deref().map(place);
            if let (Ok(()), Some(Ok(place))) = (&taken, place)
                && connection.requests.was_taken(&workload.uid, place)
            {
                self.shared.observer.answered(&workload.uid);
            }
            match (taken, workload.netns.is_some()) {
                (Ok(()), true) => added += 1,
                (Ok(()), false) => kept += 1,
                (Err(refusal), has_netns) => {
                    self.shared.observer.refused(&workload.uid, &refusal.why);
                    if has_netns && !refusal.read {
                        // Otherwise it would drop the pod, known from an earlier connection, at the end of the snapshot.
                        let _ = self.exchange(keep(workload), None)?;
                    }
                }
            }
        }
        let sent = self.exchange(Request::SnapshotSent(SnapshotSent {}), None)?;
        // As upstream, a refused end of the snapshot does not close the connection: a ztunnel that cannot continue closes it, and one
        // that can accepts pods from now on.
        connection.ready.store(true, Ordering::Release);
        match sent {
            Ok(()) => self.shared.observer.snapshot(added, kept),
            Err(Refusal { why, .. }) => self.shared.observer.snapshot_refused(&why),
        }
        Ok(())
    }

    /// Fails if a packet was received: ztunnel sends nothing between requests.
    fn look(&mut self, limit: Duration) -> Result<(), End> {
        match self.buffer.receive(self.socket, limit) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Ok(()),
            Err(e) => Err(End::closed(format!("it broke: {e}"))),
            Ok([]) => Err(End::closed("ztunnel has closed it")),
            Ok(_) => Err(End::closed("ztunnel sent a packet without a request")),
        }
    }

    fn updates(&mut self, connection: &Connection, woken: &mut PipeReader) -> Result<(), End> {
        loop {
            if self.shared.stops() || connection.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some((ticket, unsent)) = connection.requests.next() {
                let exchanged = self.exchange(unsent.request, unsent.netns.as_deref());
                drop(unsent.netns);
                let (sent, end) = match exchanged {
                    Ok(Ok(())) => (Sent::Taken, Ok(())),
                    Ok(Err(Refusal { why, .. })) => {
                        self.shared.observer.refused(&ticket.uid, &why);
                        (Sent::Refused(why), Ok(()))
                    }
                    // A late answer would be taken for that of the next request, so the connection must end.
                    Err(end) => (Sent::Failed(end.fail), Err(end)),
                };
                if connection.requests.answer(&ticket, sent) {
                    self.shared.observer.answered(&ticket.uid);
                }
                end?;
                continue;
            }
            let mut fds = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(woken.as_fd(), PollFlags::POLLIN),
            ];
            let soon = packet::timeout(Instant::now() + self.shared.options.limit);
            match poll(&mut fds, soon) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(End::closed(format!("poll: {e}"))),
            }
            let [of_socket, of_pipe] = fds.map(|fd| fd.any().unwrap_or(false));
            if of_pipe {
                // One read empties the pipe, which has at most one byte per queued request.
                let _ = woken.read(&mut [0; 2 * QUEUE]);
            }
            if of_socket {
                self.look(Duration::ZERO)?;
            }
        }
    }
}

fn keep(workload: &Workload) -> Request {
    Request::Keep(KeepWorkload {
        uid: workload.uid.to_string(),
    })
}

/// Returns the first line; a backtrace may follow.
fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(WORDS).collect()
}
