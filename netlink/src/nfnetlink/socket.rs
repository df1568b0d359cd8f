//! Requests to netfilter.

use super::Socket;
use crate::Error;
use crate::Result;
use crate::attr::{AttrSet, DecodeError};
use crate::message::{Message, NfGenMsg};
use crate::socket::Request;
use crate::transport::Transport;

/// One object of a dump, or the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// `nlmsg_type`
    pub kind: u16,
    /// `nfgen_family`
    pub family: u8,
    /// `res_id`: for nf_tables the low 16 bits of the generation.
    pub res_id: u16,
    /// The attributes.
    pub attrs: Vec<u8>,
}

impl From<Message<NfGenMsg>> for Reply {
    fn from(m: Message<NfGenMsg>) -> Self {
        Self {
            kind: m.kind,
            family: m.header.family,
            res_id: m.header.res_id,
            attrs: m.attrs,
        }
    }
}

impl Reply {
    /// The attributes as a declared set.
    ///
    /// # Errors
    /// They do not match the declaration.
    pub fn decode<A: AttrSet>(&self) -> Result<A, DecodeError> {
        A::decode(&self.attrs)
    }
}

pub(super) fn family(family: u8) -> NfGenMsg {
    NfGenMsg {
        family,
        ..NfGenMsg::default()
    }
}

impl<T: Transport> Socket<T> {
    /// Every object that the kernel lists.
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
        mut f: impl FnMut(Reply) -> Result<()>,
    ) -> Result<()> {
        let request = Request::new(kind, (self::family(family), attrs), "list", what);
        self.list(&request, |m| f(m.into()))
    }

    /// One object.
    ///
    /// # Errors
    /// As the kernel answers: `ENOENT` when there is none.
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
        found.map(Reply::from).ok_or_else(nothing)
    }
}
