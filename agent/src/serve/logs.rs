//! The socket that receives the plugin's log lines.

use super::http::{Answer, answer};
use super::peer;
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_core::journal::Journal;
use weir_core::journal::serve::{Event, LineResult};
use weir_core::log::Log;
use weir_core::log::lines::{Bound, batch};

/// Time limit of a connection; the plugin gives up after one second.
const LIMIT: Duration = Duration::from_secs(2);
/// Maximum size of a batch in bytes.
const BODY: usize = 1 << 20;

/// Listens on a socket with the file mode of `install-cni`. Credentials of peers are checked, regardless of the modes
/// of socket and directory. A socket left by an earlier agent is removed.
pub(crate) fn bind(path: &Path) -> std::io::Result<UnixListener> {
    peer::bind_for(path, 0o666)
}

pub(super) async fn serve(listener: UnixListener, (log, journal): (Log, Journal)) {
    let bound = Arc::new(Mutex::new(Bound::new(Instant::now())));
    let (does, counts) = (
        ("sends lines for the log", &journal.clone()),
        journal.clone(),
    );
    let line = move |result| counts.record(Event::PluginLine { result });
    let refused = line.clone();
    let handler = move |request: hyper::Request<Incoming>| {
        let (bound, line) = (Arc::clone(&bound), line.clone());
        let (log, journal) = (log.clone(), journal.clone());
        async move {
            if request.uri().path() != "/log" {
                return answer(StatusCode::NOT_FOUND, "send lines to /log\n");
            }
            match Limited::new(request.into_body(), BODY).collect().await {
                Ok(body) => say(&body.to_bytes(), &bound, (&log, &journal)),
                // Too long, or truncated.
                Err(_) => line(LineResult::Malformed),
            }
            accepted()
        }
    };
    let refused = || refused(LineResult::Refused);
    peer::serve(listener, does, refused, LIMIT, handler).await;
}

/// The response is always a success: the plugin cannot react to a failure.
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
