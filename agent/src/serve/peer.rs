//! Sockets of the run directory that only root may use.

use super::http::{self, Answer};
use hyper::Request;
use hyper::body::Incoming;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener as Listener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use weir_core::journal::Journal;
use weir_core::journal::serve::Event;

/// The response to other users.
const REFUSED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 23\r\nConnection: close\r\n\r\n\
    only root may ask here\n";

/// Interval between two events about refused users: each may reconnect at once.
const SAID: Duration = Duration::from_secs(60);

/// Records refused users at a limited rate.
struct Refusals {
    does: &'static str,
    journal: Journal,
    /// Time of the last event, and the number of refusals since.
    said: Mutex<(Option<Instant>, u64)>,
}

impl Refusals {
    /// `does` is the predicate of a sentence whose subject is the user.
    fn new(does: &'static str, journal: &Journal) -> Self {
        Self {
            does,
            journal: journal.clone(),
            said: Mutex::default(),
        }
    }

    fn say(&self, who: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, more) = *said;
        if last.is_some_and(|last| last.elapsed() < SAID) {
            *said = (last, more + 1);
            return;
        }
        *said = (Some(Instant::now()), 0);
        drop(said);
        let (does, who) = (self.does, who.to_owned());
        self.journal.record(Event::Refused { does, who, more });
    }
}

/// Listens on a socket with access for root only. A socket left by an earlier agent is removed, and
/// no other file.
pub(crate) fn bind(path: &Path) -> io::Result<Listener> {
    bind_for(path, 0o600)
}

/// Listens on a socket with this file mode.
pub(super) fn bind_for(path: &Path, mode: u32) -> io::Result<Listener> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
    }
    weir_zds::may_bind_at(path)?;
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = Listener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves connections of root. `does` describes what other users attempt, as in [`Refusals::new`], and `refused` counts them.
pub(super) async fn serve<H, F>(
    listener: Listener,
    (does, journal): (&'static str, &Journal),
    refused: impl Fn(),
    limit: Duration,
    handler: H,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Answer> + Send,
{
    let Ok(listener) = UnixListener::from_std(listener) else {
        return;
    };
    let refusals = Refusals::new(does, journal);
    let refused = |who: String| {
        refusals.say(&who);
        refused();
    };
    http::serve(
        || accept_root(&listener, &refused),
        Arc::default(),
        limit,
        handler,
    )
    .await;
}

/// Accepts the next connection of root. The modes of the directory, and of some sockets, already exclude other users; a
/// connection that gets through is answered with 403, and `refused` receives its credentials.
async fn accept_root(listener: &UnixListener, refused: impl Fn(String)) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        match is_root(&stream) {
            Ok(()) => return Ok(stream),
            Err(who) => {
                refused(who);
                // The async runtime has no write readiness for it yet and would not try to write.
                if let Ok(mut stream) = stream.into_std() {
                    let _ = stream.write_all(REFUSED);
                }
            }
        }
    }
}

/// Accepts root, and the process's own user for tests that run without root.
fn is_root(stream: &UnixStream) -> Result<(), String> {
    match getsockopt(stream, PeerCredentials) {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => Ok(()),
        Ok(peer) => Err(format!("uid {}, process {}", peer.uid(), peer.pid())),
        Err(e) => Err(format!("its credentials cannot be read: {e}")),
    }
}
