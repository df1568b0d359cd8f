//! A fake ztunnel that only speaks ZDS. It checks the protocol as the real one does, so that a server's violation is found.
//!
//! Like the real one it ends for good after a request out of order, closes the connection after a packet that it cannot use
//! (both are recorded in [`Ztunnel::faults`]), and reconnects when a connection ends. It refuses the pods that a test tells
//! it to refuse, and opens listeners only as [`Ztunnel::listening`]. [`Program`] runs the real one, or a program that stands for it;
//! [`Peer`] is what tests ask of any of them.

mod listens;
mod program;
mod stand_in;

pub use program::{Peer, Program, programs, until};
pub use stand_in::stands_for_ztunnel;

use listens::Listeners;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use prost::Message;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_zds::message::{Ack, Request, Response, WorkloadRequest, WorkloadResponse, ZdsHello};

/// How long a test waits for an event.
const LONG: Duration = Duration::from_secs(30);
/// The most bytes that it reads of a packet, as in the real one.
const REQUEST: usize = 1024;
/// The pauses after failed attempts: the first one after a failed connect and after a failed hello, which doubles, and the longest.
const CONNECT: Duration = Duration::from_millis(20);
const HELLO: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(15);
/// How much faster than the real one it is, unless a test wants otherwise: its longest pause is 200 ms.
const FASTER: u32 = 75;
/// The maximum number of descriptors in a packet (`SCM_MAX_FD`, `net/scm.h`).
const DESCRIPTORS: usize = 253;

/// A pod that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name as `NAMESPACE/NAME`.
    pub name: String,
    /// `spec.serviceAccountName`
    pub service_account: String,
    /// Device and inode of its network namespace.
    pub netns: (u64, u64),
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Known>,
    /// The number of add requests per pod.
    adds: BTreeMap<String, usize>,
    /// The pods that were added or kept since the connection began.
    seen: BTreeSet<String>,
    complete: bool,
    snapshots: usize,
    connected: bool,
    stop: bool,
    faults: Vec<String>,
    /// Set after a request out of order.
    ended: bool,
    refuse: BTreeMap<String, String>,
    pause: Duration,
    /// The pauses are those of the real one, divided by this.
    faster: u32,
    /// When it tried to connect.
    attempts: Vec<Instant>,
    /// The listeners of each pod, if it opens any.
    listeners: Option<BTreeMap<String, Listeners>>,
}

/// The fake ztunnel; it ends on drop.
pub struct Ztunnel {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Ztunnel {
    /// Starts it; it connects to the socket as soon as that exists.
    #[must_use]
    pub fn connect(path: &Path) -> Self {
        Self::start(path, State::default())
    }

    /// Like [`Ztunnel::connect`], and opens the listeners of ztunnel in the namespaces of pods.
    #[must_use]
    pub fn listening(path: &Path) -> Self {
        let state = State {
            listeners: Some(BTreeMap::new()),
            ..State::default()
        };
        Self::start(path, state)
    }

    /// Like [`Ztunnel::connect`], with pauses this many times shorter than those of the real one.
    #[must_use]
    pub fn faster(path: &Path, faster: u32) -> Self {
        let state = State {
            faster,
            ..State::default()
        };
        Self::start(path, state)
    }

    fn start(path: &Path, mut state: State) -> Self {
        if state.faster == 0 {
            state.faster = FASTER;
        }
        let state = Arc::new(Mutex::new(state));
        let of_thread = (Arc::clone(&state), path.to_owned());
        let thread = std::thread::spawn(move || run(&of_thread.0, &of_thread.1));
        Self {
            state,
            thread: Some(thread),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A failed test may have poisoned the lock; a panic while unwinding would abort the whole test program.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The pods that it carries, by UID.
    #[must_use]
    pub fn pods(&self) -> BTreeMap<String, Known> {
        self.state().pods.clone()
    }

    /// The number of add requests for each pod, by UID.
    #[must_use]
    pub fn adds(&self) -> BTreeMap<String, usize> {
        self.state().adds.clone()
    }

    /// When it tried to connect.
    #[must_use]
    pub fn attempts(&self) -> Vec<Instant> {
        self.state().attempts.clone()
    }

    /// Violations by the server for which the real ztunnel would have ended, or closed the connection.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    /// Refuses requests about this pod with this text; with `None`, accepts them again.
    pub fn refuse(&self, uid: &str, why: Option<&str>) {
        let mut state = self.state();
        match why {
            Some(why) => _ = state.refuse.insert(uid.to_owned(), why.to_owned()),
            None => _ = state.refuse.remove(uid),
        }
    }

    /// Delays every answer by this time.
    pub fn pause(&self, pause: Duration) {
        self.state().pause = pause;
    }

    /// Waits for this number of complete snapshots.
    pub fn snapshots(&self, count: usize) {
        self.until("snapshots", |state| state.snapshots >= count);
    }

    /// Waits until it carries the pod in this namespace, or with `None` until it does not carry the pod.
    pub fn carries(&self, uid: &str, netns: Option<(u64, u64)>) {
        self.until(&format!("{uid} in {netns:?}"), |state| {
            state.pods.get(uid).map(|pod| pod.netns) == netns
        });
    }

    fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let begun = Instant::now();
        while !holds(&self.state()) {
            let state = self.state();
            assert!(state.faults.is_empty(), "{what}: {:?}", state.faults);
            assert!(begun.elapsed() < LONG, "{what}: {:?}", state.pods);
            drop(state);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Ztunnel {
    fn drop(&mut self) {
        self.state().stop = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The pause after this many failures before.
fn backoff(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(LONGEST)
}

/// A random part of it.
fn jittered(pause: Duration) -> Duration {
    // Each `RandomState` has random keys.
    let part = RandomState::new().hash_one(()) % 1000;
    pause.mul_f64(part as f64 / 1000.0)
}

/// Pauses; returns early when it is to stop.
fn pause(state: &Mutex<State>, pause: Duration) {
    let begun = Instant::now();
    let pause = pause / state.lock().unwrap().faster;
    while begun.elapsed() < pause && !state.lock().unwrap().stop {
        let left = pause.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Connects at once when a connection ends, whatever the reason; pauses after failures.
fn run(state: &Mutex<State>, path: &PathBuf) {
    let (mut connects, mut hellos) = (0, 0);
    while !(state.lock().unwrap().stop) {
        state.lock().unwrap().attempts.push(Instant::now());
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None).unwrap();
        if socket.connect(&SockAddr::unix(path).unwrap()).is_err() {
            pause(state, backoff(CONNECT, connects));
            connects += 1;
            continue;
        }
        connects = 0;
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        {
            let mut state = state.lock().unwrap();
            (state.connected, state.complete) = (true, false);
            state.seen.clear();
        }
        let hello = ZdsHello { version: 1 };
        if socket.send(&hello.encode_to_vec()).is_ok() {
            hellos = 0;
            serve(state, &socket);
        } else {
            pause(state, jittered(backoff(HELLO, hellos)));
            hellos += 1;
        }
        let mut state = state.lock().unwrap();
        state.connected = false;
        if state.ended {
            // Like the real one, it drains its pods before it ends.
            state.pods.clear();
            state.only_listeners();
            return;
        }
    }
}

fn serve(state: &Mutex<State>, socket: &Socket) {
    loop {
        if state.lock().unwrap().stop {
            return;
        }
        let packet = match Packet::receive(socket) {
            Ok(packet) if packet.bytes.is_empty() => return,
            Ok(packet) => packet,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
        };
        let mut all = state.lock().unwrap();
        let answer = all.take(&packet);
        let pause = all.pause;
        drop((all, packet));
        std::thread::sleep(pause);
        let closes = matches!(answer, Err(Wrong::Fault(_)));
        let ack = Ack {
            error: match answer {
                Ok(()) => String::new(),
                Err(Wrong::Refused(why) | Wrong::Fault(why)) => why,
            },
        };
        let response = WorkloadResponse {
            payload: Some(Response::Ack(ack)),
        };
        if socket.send(&response.encode_to_vec()).is_err() || closes {
            return;
        }
    }
}

/// A namespace with its device and inode.
type Identified = Result<(File, (u64, u64)), String>;

/// One received packet.
struct Packet {
    bytes: Vec<u8>,
    /// Whether the packet was longer than the buffer.
    is_cut: bool,
    /// The namespaces of its descriptors, with device and inode.
    netns: Vec<Identified>,
}

impl Packet {
    fn receive(socket: &Socket) -> nix::Result<Self> {
        let mut bytes = vec![0; REQUEST];
        let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
        let mut data = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags)?;
        let mut netns = Vec::new();
        // The buffer has room for all descriptors; if the kernel had truncated them, cmsgs() would be an error.
        for message in received.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmRights(fds) = message {
                netns.extend(fds.iter().map(|fd| identified(*fd)));
                fds.into_iter()
                    .for_each(|fd| nix::unistd::close(fd).unwrap());
            }
        }
        let cut = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
        let (length, is_cut) = (received.bytes, received.flags.intersects(cut));
        bytes.truncate(length);
        Ok(Self {
            bytes,
            is_cut,
            netns,
        })
    }
}

/// Device and inode of a namespace; an error for a descriptor of another file system (`NSFS_MAGIC`, `linux/magic.h`).
fn identified(fd: RawFd) -> Identified {
    let path = format!("/proc/self/fd/{fd}");
    let of = nix::sys::statfs::statfs(path.as_str())
        .unwrap()
        .filesystem_type();
    let meta = std::fs::metadata(&path).unwrap();
    match of.0 {
        0x6e73_6673 => Ok((File::open(&path).unwrap(), (meta.dev(), meta.ino()))),
        _ => Err(format!("a descriptor of no namespace: {meta:?}")),
    }
}

/// The reason why a request is not acknowledged.
enum Wrong {
    /// The test requested the refusal, or the listeners cannot be opened.
    Refused(String),
    /// The request violates the protocol; it is recorded and the connection is closed.
    Fault(String),
}

impl State {
    /// Closes the connection; the carried pods stay.
    fn unusable(&mut self, what: String) -> Result<(), Wrong> {
        self.faults.push(what.clone());
        Err(Wrong::Fault(what))
    }

    /// Ends ztunnel; it carries no pods any more.
    fn out_of_order(&mut self, what: &str) -> Result<(), Wrong> {
        self.ended = true;
        self.unusable(what.to_owned())
    }

    /// Closes the listeners of pods that it does not carry.
    fn only_listeners(&mut self) {
        let all = self.listeners.iter_mut();
        all.for_each(|all| all.retain(|uid, _| self.pods.contains_key(uid)));
    }

    fn take(&mut self, packet: &Packet) -> Result<(), Wrong> {
        if packet.is_cut {
            return self.unusable(format!("a packet of more than {REQUEST} bytes"));
        }
        let request = match WorkloadRequest::decode(&packet.bytes[..]) {
            Ok(request) => request.payload,
            Err(e) => return self.unusable(format!("a packet that cannot be read: {e}")),
        };
        let Some(request) = request else {
            return self.unusable(format!("a packet without payload: {:?}", packet.bytes));
        };
        match (request, &packet.netns[..]) {
            (Request::Add(add), [netns]) => {
                let (file, netns) = match netns {
                    Ok((file, netns)) => (file, *netns),
                    Err(why) => return self.unusable(format!("{}: {why}", add.uid)),
                };
                let Some(info) = add.workload_info else {
                    return self.out_of_order("a pod without identity");
                };
                *self.adds.entry(add.uid.clone()).or_default() += 1;
                if let Some(why) = self.refuse.get(&add.uid) {
                    return Err(Wrong::Refused(why.clone()));
                }
                self.seen.insert(add.uid.clone());
                let is_there = self.pods.get(&add.uid).is_some_and(|p| p.netns == netns);
                if let Some(all) = self.listeners.as_mut().filter(|_| !is_there) {
                    all.remove(&add.uid);
                    let opened = Listeners::open(file);
                    let refused = |e| Wrong::Refused(format!("failure to start proxy: {e}"));
                    all.insert(add.uid.clone(), opened.map_err(refused)?);
                }
                let known = Known {
                    name: format!("{}/{}", info.namespace, info.name),
                    service_account: info.service_account,
                    netns,
                };
                self.pods.insert(add.uid, known);
            }
            (Request::Keep(keep), []) => {
                if self.complete {
                    return self.out_of_order("a pod to be kept after the snapshot");
                }
                self.seen.insert(keep.uid);
            }
            (Request::Del(del), []) => {
                self.seen.remove(&del.uid);
                self.pods.remove(&del.uid);
                self.only_listeners();
            }
            (Request::SnapshotSent(_), []) => {
                if self.complete {
                    return self.out_of_order("a second end of the snapshot");
                }
                self.complete = true;
                self.snapshots += 1;
                let seen = self.seen.clone();
                self.pods.retain(|uid, _| seen.contains(uid));
                self.only_listeners();
            }
            (request, netns) => {
                let count = netns.len();
                return self.unusable(format!("{count} descriptors with {request:?}"));
            }
        }
        Ok(())
    }
}
