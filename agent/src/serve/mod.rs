//! The servers: health, metrics, the sockets for the plugin (its log lines, its queries for pods), and the socket for
//! operators.
//!
//! They have their own threads and runtimes and hold no lock that the installer needs. The number of
//! connections, their duration, and the bytes read from them are bounded.
//!
//! Health and metrics run on a thread with its own descriptor table: the kubelet gets an answer even if
//! the rest of the agent runs out of descriptors.

mod entry;
mod health;
mod http;
mod kept;
mod logs;
mod metrics;
mod peer;
mod pods;
mod report;
mod reserve;
mod room;

use crate::ambient::Entry;
use http::Shared;
use kept::Kept;
use nix::sched::{CloneFlags, unshare};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use weir_core::journal::serve::Socket;
use weir_core::journal::{Event, Journal, Ring, Sink, install, serve};
use weir_core::log::Log;
use weir_core::pods::watch::Watch;
use weir_core::sandboxes::Sandboxes;
use weir_core::settings::Resolved;
use weir_core::thread::task::Tasks;
use weir_show::metrics::Metrics;
use weir_show::status::Status;

pub(crate) use health::bind as bind_port;
pub(crate) use logs::bind as bind_logs;
pub(crate) use peer::bind as bind_for_root;
pub(crate) use reserve::Reserve;
use room::Room;
use tokio::task::JoinSet;

/// True while the plugin is installed. (The other condition of readiness, the watch of pods, always holds
/// without ambient mode.)
#[derive(Clone, Default)]
pub(crate) struct Ready(Arc<AtomicBool>);

impl Sink for Ready {
    fn record(&self, _: SystemTime, event: &Event) {
        let ready = match event {
            Event::Install(install::Event::Installed { .. }) => true,
            Event::Install(install::Event::NotInForce { .. }) => false,
            _ => return,
        };
        self.0.store(ready, Ordering::Release);
    }
}

impl Ready {
    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Listening ports, with the descriptors reserved for their connections.
pub(crate) struct Ports {
    pub(crate) health: TcpListener,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) reserve: Reserve,
}

/// Serves the ports until the process ends. Must be called before any descriptor is opened that has to be closed later,
/// such as that of a pod's network namespace: the thread keeps a copy of each descriptor open at this time.
///
/// # Errors
/// The thread or its runtime cannot be started.
pub(crate) fn start_ports(
    ports: Ports,
    ready: Ready,
    numbers: Metrics,
    status: Status,
    journal: Journal,
    tasks: &Tasks,
) -> std::io::Result<()> {
    let serve = async move {
        let shared = Arc::new(Shared {
            reserve: Some(ports.reserve),
            room: Room::default(),
        });
        if let Some(listener) = ports.metrics {
            let (shared, status) = (Arc::clone(&shared), status.clone());
            tokio::spawn(metrics::serve(listener, shared, numbers, status));
        }
        health::serve(ports.health, shared, ready, status).await;
    };
    let begins = move || {
        // Needs no capability, but a seccomp profile may require CAP_SYS_ADMIN for it. With a shared table only
        // the reserve remains.
        if let Err(e) = unshare(CloneFlags::CLONE_FILES) {
            let why = e.to_string();
            journal.record(serve::Event::DescriptorsShared { why });
        }
    };
    tasks.start("health", begins, serve)
}

/// Listening sockets.
pub(crate) struct Sockets {
    /// The directory of the socket files.
    pub(crate) run_dir: PathBuf,
    pub(crate) logs: UnixListener,
    /// The watch of pods, and the socket for the plugin's queries.
    pub(crate) pods: Option<(Option<UnixListener>, Watch)>,
    /// Receives the network namespaces that the plugin reports.
    pub(crate) sandboxes: Sandboxes,
    /// The socket where the plugin hands over pods of ambient mode.
    pub(crate) entry: Option<(UnixListener, Entry)>,
    /// The socket for operators, with the settings in force and the last events.
    pub(crate) report: Option<(UnixListener, Resolved, Ring)>,
}

/// Serves until the process ends.
///
/// # Errors
/// The thread or its runtime cannot be started.
pub(crate) fn start(
    sockets: Sockets,
    numbers: Metrics,
    status: Status,
    (log, journal): (Log, Journal),
    tasks: &Tasks,
) -> std::io::Result<()> {
    let (run_dir, served) = (sockets.run_dir, journal.clone());
    let kept = move |socket, name, bind| Kept {
        socket,
        path: run_dir.join(name),
        bind,
        journal: journal.clone(),
    };
    let serve = async move {
        let mut of_thread = JoinSet::new();
        if let Some((listener, resolved, events)) = sockets.report {
            let source = Arc::new(report::Source {
                resolved,
                log: log.clone(),
                events,
                journal: served.clone(),
                status: status.clone(),
                metrics: numbers.clone(),
                pods: sockets.pods.as_ref().map(|(_, watch)| watch.pods()),
            });
            let kept = kept(Socket::Agent, weir_core::report::SOCKET, bind_for_root);
            of_thread.spawn(kept.serve(Some(listener), move |listener| {
                report::serve(listener, Arc::clone(&source))
            }));
        }
        of_thread.spawn(reserve::watch(served.clone()));
        if let Some((listener, watch)) = sockets.pods {
            let (pods, sandboxes) = (watch.pods(), sockets.sandboxes);
            of_thread.spawn(watch.run());
            let kept = kept(Socket::Pods, weir_cni::plugin::POD_SOCKET, bind_for_root);
            let journal = served.clone();
            of_thread.spawn(kept.serve(listener, move |listener| {
                let known = (pods.clone(), sandboxes.clone());
                pods::serve(listener, known, journal.clone())
            }));
        }
        if let Some((listener, entry)) = sockets.entry {
            let kept = kept(Socket::Entry, weir_cni::plugin::EVENT_SOCKET, bind_logs);
            let journal = served.clone();
            of_thread.spawn(kept.serve(Some(listener), move |listener| {
                entry::serve(listener, entry.clone(), journal.clone())
            }));
        }
        let kept = kept(Socket::Lines, weir_cni::plugin::LOG_SOCKET, bind_logs);
        let serve = move |listener| logs::serve(listener, (log.clone(), served.clone()));
        of_thread.spawn(kept.serve(Some(sockets.logs), serve));
        // None of them should end; the first that does ends the task.
        of_thread.join_next().await;
    };
    tasks.start("servers", || {}, serve)
}
