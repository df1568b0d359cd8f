//! Messages: `struct nlmsghdr`, the family header, attributes.
//!
//! This module is common to every family. A family adds its header ([`FamilyHeader`]), its message numbers and its attribute
//! sets. Only [`Datagram::push`] writes messages; a received message is a [`Message`].

mod datagram;
mod extack;
mod header;
mod number;

pub use datagram::Datagram;
pub(crate) use datagram::Sent;
pub(crate) use extack::{Ack, NLMSGERR_MSG};
pub use extack::{NL_ATTR_TYPES, PolicyAttrs};
pub use header::{
    FamilyHeader, FibRuleHdr, IfAddrMsg, IfInfoMsg, NdMsg, Netfilter, NfGenMsg, Protocol, RtGenMsg,
    RtMsg, Rtnetlink, TcMsg,
};
pub(crate) use number::*;
pub use number::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NLM_F_REPLACE,
    NLM_F_REQUEST,
};

use crate::attr::{
    AttrSet, DecodeError, NFTA_LIST_ELEM, NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_HDRLEN,
    NLA_TYPE_MASK,
};
use crate::{Error, Result};

/// C expressions and their values in this module: message numbers, flags and attributes, sizes of structs and offsets in
/// them. A test compares each with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    let layout = [
        ("sizeof(struct nlmsghdr)", NLMSG_HDRLEN),
        ("offsetof(struct nlmsghdr, nlmsg_len)", NLMSG_LEN),
        ("offsetof(struct nlmsghdr, nlmsg_type)", NLMSG_TYPE),
        ("offsetof(struct nlmsghdr, nlmsg_flags)", NLMSG_FLAGS),
        ("offsetof(struct nlmsghdr, nlmsg_seq)", NLMSG_SEQ),
        ("offsetof(struct nlmsgerr, msg)", NLMSGERR_MSG),
        ("sizeof(struct nlattr)", NLA_HDRLEN),
        ("NLA_ALIGNTO", NLA_HDRLEN),
        ("NLMSG_ALIGNTO", NLMSG_ALIGNTO),
    ];
    let layout = layout.into_iter().chain(header::layouts());
    let layout = layout.map(|(name, n)| (name, i64::try_from(n).unwrap_or(-1)));
    let attributes = [
        ("NLA_F_NESTED", NLA_F_NESTED),
        ("NLA_F_NET_BYTEORDER", NLA_F_NET_BYTEORDER),
        ("(unsigned short) NLA_TYPE_MASK", NLA_TYPE_MASK),
        ("NFTA_LIST_ELEM", NFTA_LIST_ELEM),
    ];
    let attributes = attributes.into_iter().chain(extack::constants());
    let attributes = attributes.map(|(name, n)| (name, i64::from(n)));
    number::CONSTANTS
        .iter()
        .copied()
        .chain(layout)
        .chain(attributes)
        .collect()
}

/// One object that the kernel sent: in a dump, in answer to a request, or as a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "nlmsghdr")]
pub struct Message<H> {
    /// `nlmsg_type`
    pub kind: u16,
    /// `nlmsg_flags`
    pub flags: u16,
    /// The family header.
    pub header: H,
    /// The attributes.
    pub attrs: Vec<u8>,
}

impl<H: FamilyHeader> Message<H> {
    /// Decodes the family header and keeps the attributes after it.
    pub(crate) fn of(kind: u16, flags: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        let (header, attrs) = H::split(payload).ok_or_else(|| too_short(kind))?;
        Ok(Self {
            kind,
            flags,
            header,
            attrs: attrs.to_vec(),
        })
    }

    pub(crate) fn parse(m: Received<'_>, what: &str) -> Result<Self> {
        Self::of(m.kind, m.flags, m.payload).map_err(|e| Error::malformed("read", what, e))
    }

    /// The attributes as a declared set.
    ///
    /// # Errors
    /// They do not match the declaration.
    pub fn decode<A: AttrSet>(&self) -> Result<A, DecodeError> {
        A::decode(&self.attrs)
    }
}

/// A received message: fields of `struct nlmsghdr` and its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) payload: &'a [u8],
}

fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Splits off the first message of a datagram; `None` if it is truncated.
fn split(datagram: &[u8]) -> Option<(Received<'_>, &[u8])> {
    let length = usize::try_from(u32_at(datagram, NLMSG_LEN)?).ok()?;
    let received = Received {
        kind: u16_at(datagram, NLMSG_TYPE)?,
        flags: u16_at(datagram, NLMSG_FLAGS)?,
        seq: u32_at(datagram, NLMSG_SEQ)?,
        payload: datagram.get(NLMSG_HDRLEN..length)?,
    };
    let rest = datagram
        .get(length.checked_next_multiple_of(NLMSG_ALIGNTO)?..)
        .unwrap_or_default();
    Some((received, rest))
}

/// Calls `f` for every message of a datagram.
pub(crate) fn each(
    datagram: &[u8],
    what: &str,
    mut f: impl FnMut(Received<'_>) -> Result<()>,
) -> Result<()> {
    let mut rest = datagram;
    while rest.len() >= NLMSG_HDRLEN {
        let Some((message, next)) = split(rest) else {
            let detail = "a message of the answer is cut off";
            return Err(Error::malformed("read", what, detail));
        };
        f(message)?;
        rest = next;
    }
    Ok(())
}

fn too_short(kind: u16) -> DecodeError {
    DecodeError::new(format!("message type {kind} is too short"))
}

/// The kinds of messages in an answer.
pub(crate) enum Answer<'a> {
    Object(Received<'a>),
    Ack(Ack),
    Done,
    /// `NLMSG_NOOP`
    Nothing,
}

impl<'a> Answer<'a> {
    pub(crate) fn of(m: Received<'a>, what: &str) -> Result<Self> {
        Ok(match m.kind {
            NLMSG_NOOP => Self::Nothing,
            // A dump that failed midway ends with the errno in NLMSG_DONE.
            NLMSG_DONE => match Ack::parse(m.flags, m.kind, m.payload) {
                Some(ack) if ack.errno != 0 => Self::Ack(ack),
                _ => Self::Done,
            },
            NLMSG_ERROR => {
                let ack = Ack::parse(m.flags, m.kind, m.payload);
                Self::Ack(ack.ok_or_else(|| Error::malformed("read", what, too_short(m.kind)))?)
            }
            NLMSG_OVERRUN => return Err(Error::kernel("read", what, libc::ENOBUFS)),
            _ => Self::Object(m),
        })
    }
}
