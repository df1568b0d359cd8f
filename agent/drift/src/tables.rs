//! Polls the sizes of legacy tables, of whose changes the kernel sends no notification.

use crate::OnCommit;
use weir_core::sandboxes::Held;
use weir_netfilter::xtables::{XtOutline, XtSizes};
use weir_netlink::NetnsId;
use weir_reconcile::Uid;

/// The legacy tables of a pod.
pub(crate) struct Tables {
    /// The sockets keep the network namespace alive, so its identity is not reused.
    netns: NetnsId,
    sizes: XtSizes,
    /// The outline when the tables were in sync; `None` until a comparison during which nothing changed.
    good: Option<XtOutline>,
}

impl Tables {
    pub(crate) fn open(held: &Held) -> Result<Self, String> {
        let opened = held.sandbox.visit(|_| XtSizes::open());
        Ok(Self {
            netns: held.id(),
            sizes: opened
                .and_then(|opened| opened)
                .map_err(|e| e.to_string())?,
            good: None,
        })
    }

    pub(crate) fn are_of(&self, held: &Held) -> bool {
        self.netns == held.id()
    }

    pub(crate) fn outline(&mut self) -> Option<XtOutline> {
        self.sizes.read().ok()
    }

    /// Stores that the tables were found in sync. `before` is the outline before the comparison.
    pub(crate) fn in_sync(&mut self, before: Option<XtOutline>) {
        let now = self.outline();
        self.good = before.filter(|before| now.as_ref() == Some(before));
    }

    /// Polls the sizes and reports a difference, until the tables are compared again. Returns false if polling should stop.
    pub(crate) fn ask(&mut self, uid: &Uid, on_commit: &OnCommit) -> bool {
        let Some(now) = self.outline() else {
            // The next comparison starts a new watch.
            return false;
        };
        if self.good.as_ref() != Some(&now) {
            // The kernel does not report which process changed the tables.
            on_commit(Uid::clone(uid), None);
        }
        true
    }
}
