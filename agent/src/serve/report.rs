//! The socket where operators' commands query the agent.

use super::http::{Answer, answer};
use super::peer;
use crate::dataplane::sidecar::asks;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use weir_core::journal::{Journal, Ring};
use weir_core::log::Log;
use weir_core::pods::Pods;
use weir_core::report::{Asking, EVENTS, LOG, METRICS, PODS, SETTINGS, STATUS};
use weir_core::sandboxes::place::Identity;
use weir_core::settings::{self, Resolved};
use weir_show::metrics::Metrics;
use weir_show::status::{Facts, Status};

/// Time limit of a connection.
const LIMIT: Duration = Duration::from_secs(5);

/// The data that is served.
pub(super) struct Source {
    pub(super) resolved: Resolved,
    pub(super) log: Log,
    pub(super) events: Ring,
    pub(super) journal: Journal,
    pub(super) status: Status,
    pub(super) metrics: Metrics,
    /// `None` if pods are not watched.
    pub(super) pods: Option<Pods>,
}

pub(super) async fn serve(listener: UnixListener, source: Arc<Source>) {
    let does = ("asks about the agent", &source.journal);
    let told = Arc::clone(&source);
    let handler = move |request: Request<Incoming>| {
        let answer = respond(request.uri().path(), &told);
        async move { answer }
    };
    peer::serve(listener, does, || {}, LIMIT, handler).await;
}

fn respond(path: &str, source: &Source) -> Answer {
    let text = match path {
        SETTINGS => settings::json(&source.resolved).to_string(),
        LOG => source.log.recent(),
        EVENTS => source.events.text(),
        STATUS => Facts::of(&source.status).json(),
        METRICS => source.metrics.text(),
        PODS => match pods(source.pods.as_ref()) {
            Ok(text) => text,
            Err(why) => return answer(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        _ => {
            let paths = [SETTINGS, LOG, EVENTS, STATUS, METRICS, PODS].join(" ");
            return answer(StatusCode::NOT_FOUND, format!("ask for one of {paths}\n"));
        }
    };
    answer(StatusCode::OK, text)
}

fn pods(pods: Option<&Pods>) -> Result<String, String> {
    let pods = pods.ok_or("the pods of this node are not watched\n")?;
    if !pods.synced() {
        return Err("the API server has not listed the pods of this node yet\n".into());
    }
    let asking = pods.all().into_iter().filter_map(|view| {
        let facts = asks(&view)?;
        Some(Asking {
            namespace: facts.namespace,
            name: facts.name,
            identity: Identity::of(&view),
        })
    });
    let asking: Vec<Asking> = asking.collect();
    serde_json::to_string(&asking).map_err(|e| e.to_string())
}
