//! Ids of network namespaces: `ip netns set`, `ip netns list-id`. Each namespace assigns its own ids to other namespaces,
//! such as those of the peers of its links.

use std::os::fd::{AsFd, AsRawFd};

use super::Routing;
use super::number::{RTM_GETNSID, RTM_NEWNSID};
use crate::Result;
use crate::attr::{DecodeError, Ne32};
use crate::message::{Message, RtGenMsg};
use crate::netns::Netns;

crate::attributes! {
    /// `NETNSA_*` (`linux/net_namespace.h`)
    pub(super) struct NsidAttrs {
        /// the id; signed, -1 for none
        nsid: Ne32 = NETNSA_NSID 1,
        /// the namespace of this process
        pid: Ne32 = NETNSA_PID 2,
        /// the namespace of this descriptor
        fd: Ne32 = NETNSA_FD 3,
    }
}

impl NsidAttrs {
    fn of(netns: &Netns) -> Self {
        Self {
            // A borrowed descriptor is not negative.
            fd: Some(netns.as_fd().as_raw_fd().cast_unsigned()),
            ..Self::default()
        }
    }
}

impl Routing {
    /// `ip netns list-id`: every id that this namespace assigned to another namespace.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if ids kept changing.
    pub fn nsids(&self) -> Result<Vec<i32>> {
        let all = (RtGenMsg::default(), NsidAttrs::default());
        self.list(RTM_GETNSID, all, "the namespace ids", read)
    }

    /// The id that this namespace assigned to another namespace (`RTM_GETNSID`); `None` if it assigned none.
    ///
    /// # Errors
    /// The errno of the kernel; [`Error::is_timed_out`](crate::Error::is_timed_out).
    pub fn nsid(&self, netns: &Netns) -> Result<Option<i32>> {
        let about = (RtGenMsg::default(), NsidAttrs::of(netns));
        let object = format!("the id of {}", netns.origin().display());
        let id = self.find(RTM_GETNSID, about, &object, read)?;
        Ok((id >= 0).then_some(id))
    }

    /// `ip netns set NETNS ID`; for a negative id the kernel chooses one (`auto`). False if the namespace already has an id, or
    /// the id is in use.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_nsid(&self, netns: &Netns, id: i32) -> Result<bool> {
        let attrs = NsidAttrs {
            nsid: Some(id.cast_unsigned()),
            ..NsidAttrs::of(netns)
        };
        let object = format!("id {id} of {}", netns.origin().display());
        let about = (RtGenMsg::default(), attrs);
        match self.change((RTM_NEWNSID, 0), about, "set", &object) {
            Ok(()) => Ok(true),
            // rtnl_net_newid() of net/core/net_namespace.c: the id belongs to another namespace.
            Err(e) if e.is_exists() || e.errno() == Some(libc::ENOSPC) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

pub(super) fn read(message: &Message<RtGenMsg>) -> Result<Option<i32>, DecodeError> {
    let attrs: NsidAttrs = message.decode()?;
    Ok(attrs.nsid.map(u32::cast_signed))
}
