//! The server: the socket, its connections, and the handle for requests.

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

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket's path; its directory must exist.
    pub path: PathBuf,
    /// User IDs that may connect; ztunnel runs as 0.
    pub users: Vec<u32>,
    /// Time limit to send a message and receive the answer.
    pub limit: Duration,
    /// Maximum time that a new connection waits for the pods to be known.
    pub patience: Duration,
}

impl Options {
    /// The values of Istio's agent: only root may connect, 5 s per message.
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
    /// ztunnel refused it; the text may be truncated.
    Refused(String),
    /// There was no answer within the time limit of a message, and the connection ended.
    TimedOut,
    /// There is no answer yet. The request continues, and a later call gets the answer.
    Waits,
    /// The connection ended before the answer.
    Closed,
    /// It cannot be sent, for this reason.
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
            Self::Unsendable(why) => write!(f, "it cannot be sent to ztunnel: {why}"),
        }
    }
}

impl std::error::Error for AddError {}

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) workloads: Arc<dyn Workloads>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: AtomicBool,
    /// Oldest first.
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

    /// Returns the newest connection with a complete snapshot.
    fn ready(&self) -> Option<Arc<Connection>> {
        let connections = self.connections();
        let is_ready = |c: &&Arc<Connection>| c.ready.load(Ordering::Acquire);
        connections.iter().rev().find(is_ready).map(Arc::clone)
    }

    /// Returns the connection that gets a new pod: the newest with a complete snapshot, otherwise the newest whose snapshot is in
    /// progress.
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

/// The socket and its connections, which end when it is dropped, within two seconds. The socket's file is left to the next agent.
pub struct Server {
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

/// Adds and removes pods. Clones refer to the same server.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Server {
    /// Binds the socket and accepts connections. A socket left by an earlier agent is replaced; one that is
    /// lost later is bound again.
    ///
    /// # Errors
    /// The socket cannot be bound, or no thread can be started.
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

    /// Returns the handle to add and remove pods.
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
    /// Returns the unique number of the newest connection with a complete snapshot; `None` if there is none. Pods that
    /// were added to another connection in the meantime are not known to it.
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

    /// Adds the pod to the newest connection and returns its number. A pod that it already has in the same network namespace
    /// is unchanged; in another one it is moved. A connection with a snapshot in progress gets it afterwards. Until it has
    /// answered, nothing is sent again, and the next call gets the answer.
    ///
    /// # Errors
    /// There is no connection, it refused the pod, or it has not answered within `limit`.
    pub fn add(&self, workload: &Workload, limit: Duration) -> Result<u64, AddError> {
        let Some(netns) = workload.netns.clone() else {
            return Err(AddError::Unsendable(
                "its network namespace is unknown".into(),
            ));
        };
        let place = place(&*netns).map_err(|e| {
            AddError::Unsendable(format!("fstat of its network namespace failed: {e}"))
        })?;
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

    /// Removes the pod from all connections in parallel: a silent one does not delay the others. Without a connection there is
    /// nothing to do, and a closed connection has forgotten the pod.
    ///
    /// # Errors
    /// An open connection has not answered within `limit`; as with [`Handle::add`], the next call gets its answer.
    pub fn remove(&self, uid: &str, limit: Duration) -> Result<(), AddError> {
        // Connections may be opened and closed in the meantime.
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
                // ztunnel refuses no removal; its text is passed to the observer.
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

/// Returns the identity of the network namespace.
pub(crate) fn place(netns: &dyn Namespace) -> nix::Result<Place> {
    let of = fstat(netns.as_fd())?;
    Ok((of.st_dev, of.st_ino))
}

/// Returns the request that adds the pod.
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
