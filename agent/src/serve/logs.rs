//! The socket that the plugin sends its lines to.

use super::http::{self, Answer, answer};
use super::lines::{Bound, batch};
use super::peer::{Refusals, accept_root};
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_core::journal::Journal;
use weir_core::journal::serve::{Event, LineResult};
use weir_core::log::Log;

/// The plugin itself gives up after one second.
const LIMIT: Duration = Duration::from_secs(2);
/// Bytes of one batch.
const BODY: usize = 1 << 20;

/// Listens on a socket whose mode is that of `install-cni`; who connects is asked for its credentials, whatever the mode
/// of socket and directory. A socket that an agent before us left is removed.
pub(crate) fn bind(path: &Path) -> std::io::Result<UnixListener> {
    bind_for(path, 0o666)
}

/// Listens on a socket of this mode.
pub(super) fn bind_for(path: &Path, mode: u32) -> std::io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub(super) async fn serve(listener: UnixListener, (log, journal): (Log, Journal)) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else {
        return;
    };
    let bound = Arc::new(Mutex::new(Bound::new(Instant::now())));
    let refusals = Refusals::new("sends lines for the log", &journal);
    let counts = journal.clone();
    let line = move |result| counts.record(Event::PluginLine { result });
    let refused = line.clone();
    let accept = || {
        accept_root(&listener, |who| {
            refused(LineResult::Refused);
            refusals.say(&who);
        })
    };
    let handler = move |request: hyper::Request<Incoming>| {
        let (bound, line) = (Arc::clone(&bound), line.clone());
        let (log, journal) = (log.clone(), journal.clone());
        async move {
            if request.uri().path() != "/log" {
                return answer(StatusCode::NOT_FOUND, "send lines to /log\n");
            }
            match Limited::new(request.into_body(), BODY).collect().await {
                Ok(body) => say(&body.to_bytes(), &bound, (&log, &journal)),
                // Too long, or cut off.
                Err(_) => line(LineResult::Malformed),
            }
            accepted()
        }
    };
    http::serve(accept, Arc::default(), LIMIT, handler).await;
}

/// A plugin can do nothing about its lines, so it always hears that all is well.
fn accepted() -> Answer {
    answer(StatusCode::OK, Bytes::new())
}

fn say(body: &[u8], bound: &Mutex<Bound>, (log, journal): (&Log, &Journal)) {
    let now = Instant::now();
    let mut bound = bound.lock().unwrap_or_else(PoisonError::into_inner);
    let lost = bound.lost(now);
    let text = batch(body, &mut bound, now, log, journal);
    drop(bound);
    if let Some(lost) = lost {
        journal.record(Event::PluginLinesDropped { lines: lost });
    }
    log.write(&text);
}
