//! Requests to netfilter.

use super::Socket;
use crate::attr::AttrSet;
use crate::message::{Message, NfGenMsg};
use crate::socket::Request;
use crate::transport::Transport;
use crate::{Error, Result};

/// An answer or a notification of netfilter.
pub type Reply = Message<NfGenMsg>;

pub(super) fn family(family: u8) -> NfGenMsg {
    NfGenMsg {
        family,
        ..NfGenMsg::default()
    }
}

impl<T: Transport> Socket<T> {
    /// Lists all objects that a request of this message type and family selects.
    ///
    /// # Errors
    /// As [`Socket::list`].
    pub fn dump<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        self.dump_each(kind, family, attrs, what, |reply| {
            replies.push(reply);
            Ok(())
        })?;
        Ok(replies)
    }

    /// As [`Socket::dump`], one object at a time, for lists too large to hold in memory.
    ///
    /// # Errors
    /// As [`Socket::list`], after `f` has received a part of the objects; the error of `f`.
    pub fn dump_each<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
        f: impl FnMut(Reply) -> Result<()>,
    ) -> Result<()> {
        let request = Request::new(kind, (self::family(family), attrs), "list", what);
        self.list(&request, f)
    }

    /// Reads one object.
    ///
    /// # Errors
    /// The errno of the kernel, such as `ENOENT` if there is no such object.
    pub fn get<A: AttrSet>(
        &mut self,
        kind: u16,
        family: u8,
        attrs: &A,
        what: &str,
    ) -> Result<Reply> {
        let request = Request::new(kind, (self::family(family), attrs), "read", what);
        let found = self.look_up(&request)?.pop();
        let nothing = || Error::malformed("read", what, "the kernel sent no object");
        found.ok_or_else(nothing)
    }
}
