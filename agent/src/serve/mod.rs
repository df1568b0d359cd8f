//! The servers: health, metrics, the sockets for the plugin (its lines, and its questions for pods), and the one for
//! operators.
//!
//! They have threads and runtimes of their own and hold nothing that the installer waits for. What is
//! asked of them is bounded: connections, their time, and what is read from them.
//!
//! Health and metrics have a thread whose table of descriptors is its own: whatever the rest of the agent leaves open,
//! the kubelet gets its answer.

mod entry;
mod health;
mod http;
mod kept;
mod lines;
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

/// Whether the plugin is installed. (The other half of readiness, watching pods, is true from the start
/// without ambient mode.)
#[derive(Clone, Default)]
pub(crate) struct Ready(Arc<AtomicBool>);

impl Sink for Ready {
    fn record(&self, _: SystemTime, event: &Event) {
        let ready = match event {
            Event::Install(install::Event::InForce { .. }) => true,
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

/// Ports that listen already, and what keeps them answering.
pub(crate) struct Ports {
    pub(crate) health: TcpListener,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) reserve: Reserve,
}

/// Answers there until the process ends. To be called before anything is opened that has to be closed at some time,
/// as the namespace of a pod: the thread keeps a copy of each descriptor of now.
///
/// # Errors
/// No thread, or no runtime.
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
        // Needs no capability, but a seccomp profile may want CAP_SYS_ADMIN for it. In a shared table the reserve
        // is what is left.
        if let Err(e) = unshare(CloneFlags::CLONE_FILES) {
            let why = e.to_string();
            journal.record(serve::Event::DescriptorsShared { why });
        }
    };
    tasks.start("health", begins, serve)
}

/// Sockets that listen already.
pub(crate) struct Sockets {
    /// Where their names are.
    pub(crate) run_dir: PathBuf,
    pub(crate) logs: UnixListener,
    /// The watch of pods, and where the plugin asks for them.
    pub(crate) pods: Option<(Option<UnixListener>, Watch)>,
    /// What the plugin tells about pods goes there.
    pub(crate) sandboxes: Sandboxes,
    /// Where the plugin hands pods of ambient mode over.
    pub(crate) entry: Option<(UnixListener, Entry)>,
    /// With the settings in force and the last events.
    pub(crate) report: Option<(UnixListener, Resolved, Ring)>,
}

/// Serves until the process ends.
///
/// # Errors
/// No thread, or no runtime.
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
        // None of them ends; the first that does ends the task.
        of_thread.join_next().await;
    };
    tasks.start("servers", || {}, serve)
}
