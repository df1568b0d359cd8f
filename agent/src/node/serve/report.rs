//! The socket where an operator's command asks the agent about itself.

use super::http::{self, Answer, answer};
use super::peer::accept_root;
use crate::node::log::Log;
use crate::node::settings::{self, Resolved};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Name of the socket in the run directory.
pub(crate) const SOCKET: &str = "agent.sock";
/// The settings in force, as `--explain-settings --json` prints them.
pub(crate) const SETTINGS: &str = "/settings";
/// The last lines of the log.
pub(crate) const LOG: &str = "/log";

/// Everything on one connection.
const LIMIT: Duration = Duration::from_secs(5);

/// Listens on a socket for root alone. A socket that an agent before us left is removed.
pub(crate) fn bind(path: &Path) -> std::io::Result<UnixListener> {
    super::logs::bind_for(path, 0o600)
}

pub(super) async fn serve(listener: UnixListener, resolved: Resolved, log: Log) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else {
        return;
    };
    let resolved = Arc::new(resolved);
    let refused = |who: String| {
        log.warn(&format!(
            "somebody who is not root asks about the agent: {who}"
        ));
    };
    let accept = || accept_root(&listener, refused);
    let said = log.clone();
    let handler = move |request: Request<Incoming>| {
        let answer = respond(&request, &resolved, &said);
        async move { answer }
    };
    http::serve(accept, LIMIT, handler).await;
}

fn respond(request: &Request<Incoming>, resolved: &Resolved, log: &Log) -> Answer {
    match request.uri().path() {
        SETTINGS => answer(StatusCode::OK, settings::json(resolved).to_string()),
        LOG => answer(StatusCode::OK, log.recent()),
        _ => answer(
            StatusCode::NOT_FOUND,
            format!("ask for {SETTINGS} or {LOG}\n"),
        ),
    }
}
