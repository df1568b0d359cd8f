//! Notifications of commits by any writer.

use super::super::raw;
use super::super::wire::GenAttrs;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use weir_netlink::Result;
use weir_netlink::attr::AttrSet;
use weir_netlink::events::{Events, Notification};
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, message_type};

/// The stream of commits to the ruleset of one network namespace (`nft monitor`). It reports that the ruleset changed and
/// which thread changed it, but not the change itself. Since 3.18.
#[derive(Debug)]
#[doc(alias = "NFNLGRP_NFTABLES")]
#[doc(alias = "NFT_MSG_NEWGEN")]
pub struct Commits(Events<Netfilter>);

/// One commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The generation of the ruleset after it; `None` if notifications were lost, so that there may be several commits.
    pub generation: Option<u32>,
    /// The id of the thread that made it, in the initial pid namespace; since 4.12.
    pub pid: Option<u32>,
    /// The name of that thread (`comm`), at most 15 bytes, which the thread itself can set; since 4.12.
    pub name: Option<String>,
}

impl Commits {
    /// Subscribes to `NFNLGRP_NFTABLES` in the network namespace of the calling thread. Commits after this returns are
    /// reported, also if the stream is moved to another thread.
    ///
    /// # Errors
    /// As [`Events::open`].
    pub fn open() -> Result<Self> {
        Events::open(&[NFNLGRP_NFTABLES]).map(Self)
    }

    /// Returns the next commit; `None` if there is none within `wait`, which may be zero.
    ///
    /// # Errors
    /// As [`Events::next`].
    pub fn next(&mut self, wait: Duration) -> Result<Option<Commit>> {
        loop {
            let reply = match self.0.next(wait)? {
                None => return Ok(None),
                Some(Notification::Overrun) => return Ok(Some(Commit::default())),
                Some(Notification::Event(reply)) => reply,
            };
            // Notifications of the changed objects precede that of the commit.
            if reply.kind != message_type(NFNL_SUBSYS_NFTABLES, raw::NFT_MSG_NEWGEN) {
                continue;
            }
            let attrs = GenAttrs::decode(&reply.attrs).unwrap_or_default();
            return Ok(Some(Commit {
                generation: attrs.id,
                pid: attrs.proc_pid,
                name: attrs.proc_name,
            }));
        }
    }
}

impl AsFd for Commits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
