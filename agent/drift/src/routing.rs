//! Detects changes to the routing of a pod immediately: a deleted policy rule or route, or a link that goes down (the kernel
//! then deletes its routes without a notification).
//!
//! The content of notifications is ignored: any notification triggers a comparison, which reads the actual state. A pod whose
//! routes change constantly, such as a VPN gateway, is compared at most twice per second.

use super::OnCommit;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use weir_cni::redirection::ROUTING_GROUPS;
use weir_netlink::events::Events;
use weir_netlink::message;
use weir_netlink::{NetlinkSocket, Result, Transport};
use weir_reconcile::Uid;

/// Delay between a notification and the comparison. One change causes many notifications, and often a commit of nf_tables
/// that names the process.
const TOGETHER: Duration = Duration::from_millis(200);
/// Pause after a reported change.
const PAUSE: Duration = Duration::from_millis(300);

/// Notifications of routing changes in one network namespace. The socket keeps the namespace alive.
pub(super) struct Reports<T: Transport = NetlinkSocket>(Events<message::Rtnetlink, T>);

/// Required by `AsyncFd`.
impl<T: Transport + AsFd> AsRawFd for Reports<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Reports {
    /// Opens a socket in the network namespace of the calling thread.
    pub(super) fn open() -> Result<Self> {
        Events::open(&ROUTING_GROUPS).map(Self)
    }
}

impl<T: Transport + AsFd + Send + 'static> Reports<T> {
    /// Starts a task that reads notifications and calls `on_change` until it is aborted. `None` if the runtime cannot poll the
    /// socket.
    pub(super) fn begin(self, uid: &Uid, on_change: &OnCommit) -> Option<JoinHandle<()>> {
        let (uid, on_change) = (Uid::clone(uid), Arc::clone(on_change));
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe; the socket is owned by what is registered"
        )]
        let mut socket = AsyncFd::new(self).ok()?;
        Some(tokio::spawn(async move {
            loop {
                if socket.readable_mut().await.is_err() {
                    return;
                }
                tokio::time::sleep(TOGETHER).await;
                let Ok(mut ready) = socket.readable_mut().await else {
                    return;
                };
                // More may be queued: the next iteration reads again. A read error counts as a change, because the task has to
                // continue for the lifetime of the pod.
                if let Ok(false) = ready.get_inner_mut().0.discard() {
                    ready.clear_ready();
                    continue;
                }
                on_change(Uid::clone(&uid), None);
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    /// A transport that is always readable and returns these results in turn.
    struct Answers(UnixStream, Mutex<VecDeque<io::Result<usize>>>);

    impl AsFd for Answers {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Transport for Answers {
        fn send(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn receive(&self, _: &mut [u8], _: Duration) -> io::Result<usize> {
            let next = self.1.lock().unwrap().pop_front();
            next.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
        }

        fn reopen(&self) -> Result<Self> {
            Err(weir_netlink::Error::refused("open", "it", "there is one"))
        }
    }

    /// The task is started once per pod, so a read error must not end it.
    #[test]
    fn a_report_that_cannot_be_read_is_a_change_and_no_end() {
        let (socket, mut other) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut other, b"x").unwrap();
        let error = || Err(io::ErrorKind::OutOfMemory.into());
        let answers = Mutex::new([error(), error(), Ok(64)].into());
        let reports = Reports(Events::with_transport(Answers(socket, answers)));
        let (sender, mut changes) = unbounded_channel();
        let on_change: OnCommit = Arc::new(move |_, _| sender.send(()).unwrap());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let task = reports.begin(&"a".into(), &on_change).unwrap();
            for _ in 0..3 {
                let change = timeout(Duration::from_secs(60), changes.recv()).await;
                assert_eq!(change, Ok(Some(())));
            }
            task.abort();
        });
    }
}
