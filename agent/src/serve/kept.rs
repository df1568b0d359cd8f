//! Keeps the path of a socket in the run directory bound to this process.
//!
//! If the path is deleted or replaced by another process, clients no longer reach the listener, and `accept(2)` does not
//! report it. The path is therefore checked every two seconds and bound again, unless another process listens there: an
//! agent of the next version takes over while this one ends, and both would replace each other's socket forever.

use futures::future::{Either, select};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use weir_core::journal::Journal;
use weir_core::journal::serve::{Event, Socket};
use weir_core::socket::{REPLACED, SocketFile};

/// Interval between checks.
const LOOK: Duration = Duration::from_secs(2);
/// Time limit of the connection that shows whether a process listens.
const CONNECT: Duration = Duration::from_secs(1);

/// A socket that is kept bound, and the journal for its events.
pub(super) struct Kept {
    pub(super) socket: Socket,
    pub(super) path: PathBuf,
    pub(super) bind: fn(&Path) -> Result<UnixListener>,
    pub(super) journal: Journal,
}

impl Kept {
    /// Serves forever: `first` until its path is lost, then each listener bound after it. `None`: it could not be bound
    /// yet, which was recorded.
    pub(super) async fn serve<F: Future<Output = ()>>(
        self,
        first: Option<UnixListener>,
        serve: impl Fn(UnixListener) -> F,
    ) {
        let mut next = first.map(|listener| (listener, SocketFile::bound_at(&self.path)));
        let socket = self.socket;
        if next.is_some() {
            self.journal.record(Event::SocketReady { socket });
        }
        loop {
            let (listener, own) = match next.take() {
                Some(bound) => bound,
                None => self.bind_again().await,
            };
            let why = match own {
                Ok(own) => match select(pin!(serve(listener)), pin!(self.lost(own))).await {
                    Either::Right((lost, _)) => lost,
                    Either::Left(((), _)) => "the listener has ended".to_owned(),
                },
                Err(e) => e.to_string(),
            };
            let (socket, path) = (self.socket, self.path.clone());
            self.journal.record(Event::SocketLost { socket, path, why });
        }
    }

    /// Waits until the path no longer refers to the socket and returns the reason.
    async fn lost(&self, own: SocketFile) -> String {
        loop {
            sleep(LOOK).await;
            match own.is_at(&self.path) {
                Ok(true) => {}
                Ok(false) => return REPLACED.into(),
                Err(e) => return e.to_string(),
            }
        }
    }

    async fn bind_again(&self) -> (UnixListener, Result<SocketFile>) {
        let mut last = String::new();
        loop {
            let (socket, path) = (self.socket, self.path.clone());
            let why = match self.try_again().await {
                Ok(bound) => {
                    self.journal.record(Event::SocketBound { socket, path });
                    return bound;
                }
                Err(e) => e.to_string(),
            };
            if why != last {
                last.clone_from(&why);
                self.journal
                    .record(Event::SocketNotBound { socket, path, why });
            }
            sleep(LOOK).await;
        }
    }

    async fn try_again(&self) -> Result<(UnixListener, Result<SocketFile>)> {
        if may_be_socket(&self.path) && listens(&self.path).await {
            return Err(Error::new(
                ErrorKind::AddrInUse,
                "another process listens there",
            ));
        }
        let listener = (self.bind)(&self.path)?;
        Ok((listener, SocketFile::bound_at(&self.path)))
    }
}

/// Returns true if the path leads to a socket, or if that cannot be determined.
fn may_be_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).map_or(true, |found| found.file_type().is_socket())
}

/// Returns true if a process listens, or if that cannot be determined: the path is not taken from a process that may be busy.
async fn listens(path: &Path) -> bool {
    match timeout(CONNECT, UnixStream::connect(path)).await {
        Ok(Err(e)) => !matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound),
        Ok(Ok(_)) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;
    use weir_testing::TempDir;

    /// It was taken from the process that listens there.
    #[test]
    fn a_path_that_cannot_be_examined_is_not_taken() {
        let dir = TempDir::new();
        std::os::unix::fs::symlink("loop", dir.file("loop")).unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let why = |path: PathBuf| {
            let kept = Kept {
                socket: Socket::Agent,
                path,
                bind: |_| Err(Error::other("it is taken")),
                journal: Journal::default(),
            };
            let bound = runtime.block_on(kept.try_again());
            bound.map(drop).unwrap_err()
        };
        assert_eq!(why(dir.file("loop/socket")).kind(), ErrorKind::AddrInUse);
        for path in [dir.file("none"), dir.write("file", "")] {
            assert_eq!(why(path).to_string(), "it is taken");
        }
        let path = dir.file("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(why(path).kind(), ErrorKind::AddrInUse);
        let path = dir.file("left");
        weir_testing::sockets::left_over(&path);
        assert_eq!(why(path).to_string(), "it is taken");
    }
}
