//! The servers: health, metrics, the sockets for the plugin (its lines, and its questions for pods), and the one for
//! operators.
//!
//! They have a thread and a runtime of their own and hold nothing that the installer waits for. What is
//! asked of them is bounded: connections, their time, and what is read from them.

mod health;
mod http;
mod lines;
mod logs;
mod metrics;
mod peer;
mod pods;
pub(crate) mod report;
mod room;

use crate::node::log::Log;
use crate::node::metrics::Metrics;
use crate::node::pods::watch::Watch;
use crate::node::privilege;
use crate::node::runtime;
use crate::node::settings::Resolved;
use crate::node::status::Status;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use health::bind as bind_health;
pub(crate) use logs::bind as bind_logs;
pub(crate) use metrics::bind as bind_metrics;
pub(crate) use pods::bind as bind_pods;

/// Whether the plugin is installed. (The other half of readiness, watching pods, is true from the start
/// without ambient mode.)
#[derive(Clone, Default)]
pub(crate) struct Ready(Arc<AtomicBool>);

impl Ready {
    pub(crate) fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Sockets that listen already.
pub(crate) struct Sockets {
    pub(crate) health: TcpListener,
    pub(crate) metrics: Option<TcpListener>,
    pub(crate) logs: UnixListener,
    /// The watch of pods, and where the plugin asks for them.
    pub(crate) pods: Option<(Option<UnixListener>, Watch)>,
    /// With the settings in force.
    pub(crate) report: Option<(UnixListener, Resolved)>,
}

/// Serves until the process ends.
///
/// # Errors
/// No thread, or no runtime.
pub(crate) fn start(
    sockets: Sockets,
    ready: Ready,
    numbers: Metrics,
    status: Status,
    log: Log,
) -> std::io::Result<()> {
    let runtime = runtime::of_one_thread()?;
    let said = log.clone();
    let serve = async move {
        if let Some((listener, resolved)) = sockets.report {
            let source = report::Source {
                resolved,
                log: log.clone(),
                status: status.clone(),
                metrics: numbers.clone(),
                pods: sockets.pods.as_ref().map(|(_, watch)| watch.pods()),
            };
            tokio::spawn(report::serve(listener, source));
        }
        if let Some(listener) = sockets.metrics {
            tokio::spawn(metrics::serve(listener, numbers.clone(), status.clone()));
        }
        tokio::spawn(health::serve(sockets.health, ready, status));
        if let Some((listener, watch)) = sockets.pods {
            let pods = watch.pods();
            tokio::spawn(watch.run());
            if let Some(listener) = listener {
                tokio::spawn(pods::serve(listener, pods, numbers.clone(), log.clone()));
            }
        }
        logs::serve(sockets.logs, numbers, log).await;
    };
    std::thread::Builder::new()
        .name("servers".into())
        .spawn(move || {
            privilege::drop_all_of_thread(&said);
            runtime.block_on(serve);
        })?;
    Ok(())
}
