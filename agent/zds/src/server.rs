//! The socket, its connections, and who asks for something to be sent.

use crate::connection::Connection;
use crate::message::{AddWorkload, DelWorkload, Request, WorkloadInfo};
use crate::requests::{Place, Unsent};
use crate::{Namespace, Observer, Peer, Uid, Workload, Workloads, listener};
use nix::sys::stat::fstat;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where and how it is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket's path; its directory must exist.
    pub path: PathBuf,
    /// Users that may connect; ztunnel runs as 0.
    pub users: Vec<u32>,
    /// Each message has to be sent, and answered, within this time.
    pub limit: Duration,
    /// How long a ztunnel that connects waits for pods to be known.
    pub patience: Duration,
}

impl Options {
    /// As Istio's agent: root may connect, and 5 s for each message.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            users: vec![0],
            limit: Duration::from_secs(5),
            patience: Duration::from_secs(30),
        }
    }
}

/// Why a pod was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// No ztunnel is connected.
    NoProxy,
    /// ztunnel refuses it, in its words, which may be cut.
    Refused(String),
    /// There was no answer within the limit of a message, and the connection ended.
    TimedOut,
    /// There is no answer yet. What was asked for goes on: who asks for the same later has the answer.
    Waits,
    /// The connection ended before the answer.
    Closed,
    /// It cannot be sent: why.
    Unsendable(String),
}

impl std::fmt::Display for AddError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoProxy => f.write_str("no ztunnel is connected to this agent"),
            Self::Refused(why) => write!(f, "ztunnel refuses it: {why}"),
            Self::TimedOut => f.write_str("ztunnel did not answer in time"),
            Self::Waits => f.write_str("ztunnel has not answered yet"),
            Self::Closed => f.write_str("ztunnel disconnected before it answered"),
            Self::Unsendable(why) => write!(f, "it cannot be told to ztunnel: {why}"),
        }
    }
}

impl std::error::Error for AddError {}

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) workloads: Arc<dyn Workloads>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: AtomicBool,
    /// In the order in which they came.
    connections: Mutex<Vec<Arc<Connection>>>,
    last: AtomicU64,
}

impl Shared {
    pub(crate) fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        // Nothing in here panics half-way.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest that was told of all pods.
    fn ready(&self) -> Option<Arc<Connection>> {
        let connections = self.connections();
        let is_ready = |c: &&Arc<Connection>| c.ready.load(Ordering::Acquire);
        connections.iter().rev().find(is_ready).map(Arc::clone)
    }

    /// Who gets a pod: the newest that was told of all pods. While there is none, the newest that is being told of them, and
    /// hears of this one afterwards.
    fn takes_pods(&self) -> Option<Arc<Connection>> {
        self.ready().or_else(|| {
            let connections = self.connections();
            let is_listed = |c: &&Arc<Connection>| c.listed.load(Ordering::Acquire);
            connections.iter().rev().find(is_listed).map(Arc::clone)
        })
    }

    pub(crate) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The socket and its connections; they end when it is dropped. The socket's file stays for the next agent.
pub struct Server {
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

/// Adds and removes pods; clones are the same server.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Server {
    /// Binds the socket and accepts connections. A socket that an agent before this one left is replaced; one that is
    /// lost later is bound again.
    ///
    /// # Errors
    /// The socket cannot be bound; no thread.
    pub fn start(
        options: Options,
        workloads: Arc<dyn Workloads>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            options,
            workloads,
            observer,
            stop: AtomicBool::new(false),
            connections: Mutex::default(),
            last: AtomicU64::new(0),
        });
        let bound = listener::bind(&shared.options.path)?;
        shared.observer.socket(None);
        let of_thread = Arc::clone(&shared);
        let accepts = std::thread::Builder::new()
            .name("zds".into())
            .spawn(move || listener::accept(&of_thread, bound))?;
        Ok(Self {
            shared,
            accepts: Some(accepts),
        })
    }

    /// For those who add and remove.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let connections = self.shared.connections().clone();
        connections.iter().for_each(|c| c.wake());
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

impl Handle {
    /// The newest connection that was told of all pods, by a number that no other ever has. `None`: there is none. Pods that
    /// were added to another one meanwhile are not known to it.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.0.ready().map(|c| c.id)
    }

    /// The connections, oldest first.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let connections = self.0.connections().clone();
        connections.iter().map(|c| c.peer()).collect()
    }

    /// Has the newest connection take the pod, and returns its number. A pod that it has already, in the same namespace,
    /// stays as it is; in another one it is moved. A connection that is being told of all pods takes it after them. While it has
    /// not answered, nothing is sent again, and the next call gets its answer, as if it came now.
    ///
    /// # Errors
    /// There is no connection, or it refuses the pod, or has not answered within `limit`.
    pub fn add(&self, workload: &Workload, limit: Duration) -> Result<u64, AddError> {
        let Some(netns) = workload.netns.clone() else {
            return Err(AddError::Unsendable("its namespace is not known".into()));
        };
        let place = place(&*netns)
            .map_err(|e| AddError::Unsendable(format!("its namespace cannot be looked at: {e}")))?;
        let connection = self.0.takes_pods().ok_or(AddError::NoProxy)?;
        let until = Instant::now() + limit;
        let unsent = Unsent {
            request: add(workload),
            netns: Some(netns),
        };
        let (ticket, is_new) = connection
            .requests
            .put(&workload.uid, Some(place), unsent)?;
        if is_new {
            connection.wake();
        }
        let taken = connection.requests.wait(&ticket, until);
        taken.map(|()| connection.id)
    }

    /// Has every connection forget the pod, all at once: a silent one takes no time from the others. Without a connection there is
    /// nothing to forget, and one that has ended knows nothing any more.
    ///
    /// # Errors
    /// An open connection has not answered within `limit`; as with [`Handle::add`] the next call gets its answer.
    pub fn remove(&self, uid: &str, limit: Duration) -> Result<(), AddError> {
        // Others come and go meanwhile.
        let connections = self.0.connections().clone();
        let (until, uid) = (Instant::now() + limit, Uid::from(uid));
        let asked: Vec<_> = connections
            .iter()
            .map(|connection| {
                let del = DelWorkload {
                    uid: uid.to_string(),
                };
                let unsent = Unsent {
                    request: Request::Del(del),
                    netns: None,
                };
                let put = connection.requests.put(&uid, None, unsent);
                if matches!(put, Ok((_, true))) {
                    connection.wake();
                }
                (connection, put)
            })
            .collect();
        let (mut heard, mut failed) = (Vec::new(), Ok(()));
        for (connection, put) in asked {
            let waited = put.and_then(|(ticket, _)| {
                let waited = connection.requests.wait(&ticket, until);
                heard.push((connection, ticket));
                waited
            });
            match waited {
                // ztunnel refuses no removal; what it says is told to the observer.
                Ok(()) | Err(AddError::Closed | AddError::Refused(_)) => {}
                Err(why) => failed = failed.and(Err(why)),
            }
        }
        if failed.is_ok() {
            for (connection, ticket) in heard {
                connection.requests.heard(&ticket);
            }
        }
        failed
    }
}

/// Which namespace it is.
pub(crate) fn place(netns: &dyn Namespace) -> nix::Result<Place> {
    let of = fstat(netns.as_fd())?;
    Ok((of.st_dev, of.st_ino))
}

/// The request that adds it.
pub(crate) fn add(workload: &Workload) -> Request {
    let info = WorkloadInfo {
        name: workload.name.to_string(),
        namespace: workload.namespace.to_string(),
        service_account: workload.service_account.to_string(),
    };
    Request::Add(AddWorkload {
        uid: workload.uid.to_string(),
        workload_info: Some(info),
    })
}
