//! Notices at once that something changes the routing of a pod: a policy rule or a route is deleted, or a link goes down,
//! with which the kernel deletes routes without a word.
//!
//! Of what is reported only that there was something is looked at: the comparison reads the rest. A pod in which routes
//! change all the time, such as one of a VPN, is compared no more than twice a second.

use super::OnCommit;
use crate::reconcile::Uid;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use weir_cni::redirection::ROUTING_GROUPS;
use weir_netlink::Result;
use weir_netlink::events::Events;
use weir_netlink::message;

/// From a report to the comparison: one change is many reports, and often a commit comes with them, which has a name.
const TOGETHER: Duration = Duration::from_millis(200);
/// From a comparison to the next one.
const PAUSE: Duration = Duration::from_millis(300);

/// Reports of changes in one namespace, which the socket keeps alive.
pub(super) struct Reports(Events<message::Rtnetlink>);

/// For the runtime.
impl AsRawFd for Reports {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Reports {
    /// In the network namespace of this thread.
    pub(super) fn open() -> Result<Self> {
        Events::open(&ROUTING_GROUPS).map(Self)
    }

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
                match ready.get_inner_mut().0.discard() {
                    Err(_) => return,
                    Ok(false) => {
                        ready.clear_ready();
                        continue;
                    }
                    // Some may be left: the next turn looks again.
                    Ok(true) => {}
                }
                on_change(Uid::clone(&uid), None);
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}
