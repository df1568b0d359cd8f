//! A ztunnel that only speaks ZDS: it keeps the protocol as the real one does, so that a server that breaks it is found out.
//!
//! As the real one it ends for good after a request out of order ([`Ztunnel::faults`]), refuses what it is told to refuse,
//! and connects again when a connection ends. It opens no listeners.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use prost::Message;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_zds::message::{Ack, Request, Response, WorkloadRequest, WorkloadResponse, ZdsHello};

/// How long a test waits for anything.
const LONG: Duration = Duration::from_secs(20);

/// A pod as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// `NAMESPACE/NAME`
    pub name: String,
    /// Device and inode of its network namespace.
    pub netns: (u64, u64),
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Known>,
    /// Since the connection began: added or kept.
    seen: BTreeSet<String>,
    complete: bool,
    snapshots: usize,
    connected: bool,
    stop: bool,
    faults: Vec<String>,
    refuse: BTreeMap<String, String>,
    pause: Duration,
}

/// The stand-in; it ends when it is dropped.
pub struct Ztunnel {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Ztunnel {
    /// Connects there, as soon as it can.
    #[must_use]
    pub fn connect(path: &Path) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let of_thread = (Arc::clone(&state), path.to_owned());
        let thread = std::thread::spawn(move || run(&of_thread.0, &of_thread.1));
        Self {
            state,
            thread: Some(thread),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Dropped by a test that fails: a second panic would end all tests of the program.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The pods that it carries, by UID.
    #[must_use]
    pub fn pods(&self) -> BTreeMap<String, Known> {
        self.state().pods.clone()
    }

    /// Faults of the server for which the real one would have ended.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    /// It answers requests about this pod with this text; without one it takes the pod again.
    pub fn refuse(&self, uid: &str, why: Option<&str>) {
        let mut state = self.state();
        match why {
            Some(why) => _ = state.refuse.insert(uid.to_owned(), why.to_owned()),
            None => _ = state.refuse.remove(uid),
        }
    }

    /// It takes so long for every answer.
    pub fn pause(&self, pause: Duration) {
        self.state().pause = pause;
    }

    /// Waits for so many complete snapshots.
    pub fn snapshots(&self, count: usize) {
        self.until("snapshots", |state| state.snapshots >= count);
    }

    /// Waits until it carries the pod in this namespace, or does not.
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

fn run(state: &Mutex<State>, path: &PathBuf) {
    let mut pause = Duration::from_millis(20);
    while !(state.lock().unwrap().stop) {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None).unwrap();
        if socket.connect(&SockAddr::unix(path).unwrap()).is_err() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
            continue;
        }
        pause = Duration::from_millis(20);
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
            serve(state, &socket);
        }
        let mut state = state.lock().unwrap();
        state.connected = false;
        if !state.faults.is_empty() {
            // Drained, and ended.
            state.pods.clear();
            return;
        }
    }
}

fn serve(state: &Mutex<State>, socket: &Socket) {
    let mut buffer = vec![0; 1024];
    loop {
        if state.lock().unwrap().stop {
            return;
        }
        let mut space = nix::cmsg_space!([RawFd; 2]);
        let mut data = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags);
        let (length, truncated, fds) = match received {
            Ok(received) => {
                let mut fds = Vec::new();
                for message in received.cmsgs().unwrap() {
                    if let ControlMessageOwned::ScmRights(more) = message {
                        fds.extend(more);
                    }
                }
                let cut = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
                (received.bytes, received.flags.intersects(cut), fds)
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
        };
        if length == 0 {
            return;
        }
        let netns: Vec<(u64, u64)> = fds.iter().map(|fd| identified(*fd)).collect();
        fds.into_iter()
            .for_each(|fd| nix::unistd::close(fd).unwrap());
        let request = WorkloadRequest::decode(&buffer[..length]);
        let mut all = state.lock().unwrap();
        let answer = match (request.map(|r| r.payload), truncated) {
            (Ok(Some(request)), false) => all.take(request, &netns),
            (request, _) => Err(format!("unreadable: {request:?}, {truncated}")),
        };
        let (ends, pause) = (!all.faults.is_empty(), all.pause);
        drop(all);
        std::thread::sleep(pause);
        let ack = Ack {
            error: answer.err().unwrap_or_default(),
        };
        let response = WorkloadResponse {
            payload: Some(Response::Ack(ack)),
        };
        if socket.send(&response.encode_to_vec()).is_err() || ends {
            return;
        }
    }
}

/// Of a namespace only (`NSFS_MAGIC`, `linux/magic.h`).
fn identified(fd: RawFd) -> (u64, u64) {
    let path = format!("/proc/self/fd/{fd}");
    let of = nix::sys::statfs::statfs(path.as_str())
        .unwrap()
        .filesystem_type();
    assert_eq!(of.0, 0x6e73_6673, "{path} is no namespace");
    let meta = std::fs::metadata(&path).unwrap();
    (meta.dev(), meta.ino())
}

impl State {
    fn fault(&mut self, what: &str) -> Result<(), String> {
        self.faults.push(what.to_owned());
        Err(what.to_owned())
    }

    fn take(&mut self, request: Request, netns: &[(u64, u64)]) -> Result<(), String> {
        match (request, netns) {
            (Request::Add(add), [netns]) => {
                let Some(info) = add.workload_info else {
                    return self.fault("a pod without identity");
                };
                if let Some(why) = self.refuse.get(&add.uid) {
                    return Err(why.clone());
                }
                let name = format!("{}/{}", info.namespace, info.name);
                self.seen.insert(add.uid.clone());
                self.pods.insert(
                    add.uid,
                    Known {
                        name,
                        netns: *netns,
                    },
                );
            }
            (Request::Keep(keep), []) => {
                if self.complete {
                    return self.fault("a pod to be kept after the snapshot");
                }
                self.seen.insert(keep.uid);
            }
            (Request::Del(del), []) => {
                self.seen.remove(&del.uid);
                self.pods.remove(&del.uid);
            }
            (Request::SnapshotSent(_), []) => {
                if self.complete {
                    return self.fault("a second end of the snapshot");
                }
                self.complete = true;
                self.snapshots += 1;
                let seen = self.seen.clone();
                self.pods.retain(|uid, _| seen.contains(uid));
            }
            (request, netns) => {
                return Err(format!("{} descriptors with {request:?}", netns.len()));
            }
        }
        Ok(())
    }
}
