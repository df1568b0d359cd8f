//! Notices at once that something changes the routing of a pod: a policy rule or a route is deleted, or a link goes down,
//! with which the kernel deletes routes without a word.
//!
//! Of what is reported only that there was something is looked at: the comparison reads the rest. A pod in which routes
//! change all the time, such as one of a VPN, is compared no more than twice a second.

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

/// From a report to the comparison: one change is many reports, and often a commit comes with them, which has a name.
const TOGETHER: Duration = Duration::from_millis(200);
/// From a comparison to the next one.
const PAUSE: Duration = Duration::from_millis(300);

/// Reports of changes in one namespace, which the socket keeps alive.
pub(super) struct Reports<T: Transport = NetlinkSocket>(Events<message::Rtnetlink, T>);

/// For the runtime.
impl<T: Transport + AsFd> AsRawFd for Reports<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Reports {
    /// In the network namespace of this thread.
    pub(super) fn open() -> Result<Self> {
        Events::open(&ROUTING_GROUPS).map(Self)
    }
}

impl<T: Transport + AsFd + Send + 'static> Reports<T> {
    /// Reads them until the task is aborted, and calls this. `None`: the runtime cannot watch the socket.
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
                // Some may be left: the next turn looks again. What cannot be read was a change, too, as the watch lasts as
                // long as the pod.
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

    /// Is readable, and answers with these.
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

    /// The watch of a pod is begun once.
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
