//! Messages that are sent together.

use super::FamilyHeader;
use super::extack::Ack;
use super::number::{NLM_F_REQUEST, NLMSG_FLAGS, NLMSG_HDRLEN, NLMSG_LEN, NLMSG_SEQ};
use crate::attr::{AttrSet, EncodeError, Path, Target, Writer};
use crate::{Error, ErrorKind};
use std::marker::PhantomData;

/// Initial capacity in bytes: most requests are smaller, and a batch grows.
const ROOM: usize = 256;

/// Messages of one protocol that are sent with one `sendmsg(2)`.
#[derive(Debug)]
#[doc(alias = "nlmsg_for_each_msg")]
pub struct Datagram<P> {
    w: Writer,
    messages: Vec<Pushed>,
    protocol: PhantomData<P>,
}

/// Offset of a message, and the function that names its attributes.
#[derive(Debug)]
struct Pushed {
    start: usize,
    flags: u16,
    attrs: usize,
    path: fn(&[u8], Target) -> Option<Path>,
}

impl<P> Default for Datagram<P> {
    fn default() -> Self {
        Self {
            w: Writer::with_room(ROOM),
            messages: Vec::new(),
            protocol: PhantomData,
        }
    }
}

impl<P> Datagram<P> {
    /// Appends one message and returns its index. `NLM_F_REQUEST` is added to `flags`; the sequence number is chosen when
    /// the datagram is sent.
    pub fn push<H, A>(&mut self, kind: u16, flags: u16, header: &H, attrs: &A) -> usize
    where
        H: FamilyHeader<Protocol = P>,
        A: AttrSet,
    {
        let index = self.messages.len();
        self.messages.push(Pushed {
            start: self.w.len(),
            flags,
            attrs: NLMSG_HDRLEN + H::ATTRS,
            path: A::path,
        });
        write(&mut self.w, (kind, flags, 0), header, |w| attrs.encode(w));
        index
    }

    /// Number of messages that were pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether no message was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Size so far in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.w.len()
    }

    /// Adds flags to a message.
    pub(crate) fn add_flags(&mut self, index: usize, flags: u16) {
        if let Some(m) = self.messages.get_mut(index) {
            m.flags |= flags | NLM_F_REQUEST;
            self.w.patch(m.start + NLMSG_FLAGS, &m.flags.to_ne_bytes());
        }
    }

    /// Encodes the bytes, with sequence numbers from `first` on.
    pub(crate) fn finish(mut self, first: u32) -> Result<Sent, EncodeError> {
        for (m, seq) in self.messages.iter().zip(first..) {
            self.w.patch(m.start + NLMSG_SEQ, &seq.to_ne_bytes());
        }
        Ok(Sent {
            bytes: self.w.finish()?,
            first,
            messages: self.messages,
        })
    }
}

/// A datagram with its sequence numbers: finds the message, and the attribute in it, that an answer refers to.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    first: u32,
    messages: Vec<Pushed>,
}

impl Sent {
    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Index of the message with this sequence number.
    pub(crate) fn index(&self, seq: u32) -> Option<usize> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        (index < self.messages.len()).then_some(index)
    }

    /// Path to the attribute that an answer to a message refers to.
    pub(crate) fn attribute(&self, index: usize, ack: &Ack) -> Option<Path> {
        let pushed = self.messages.get(index)?;
        let attrs = self.bytes.get(pushed.start + pushed.attrs..)?;
        let target = ack.target();
        let target = match target.offset {
            Some(_) => target.after(pushed.attrs)?,
            None => target,
        };
        (pushed.path)(attrs, target).map(|path| path.with_policy(ack.attrs.policy.clone()))
    }

    /// The error for an answer to a message.
    pub(crate) fn error(&self, operation: &str, what: &str, index: usize, ack: Ack) -> Error {
        let attribute = self.attribute(index, &ack);
        let kind = ErrorKind::Kernel {
            errno: ack.errno,
            extack: ack.attrs.msg,
            attribute,
        };
        Error::new(operation, what, kind)
    }
}

/// Appends one message: `struct nlmsghdr` (host order), the family header, attributes.
pub(crate) fn write<H: FamilyHeader>(
    w: &mut Writer,
    (kind, flags, seq): (u16, u16, u32),
    header: &H,
    body: impl FnOnce(&mut Writer),
) {
    let start = w.len();
    w.put(&0u32.to_ne_bytes());
    w.put(&kind.to_ne_bytes());
    w.put(&(flags | NLM_F_REQUEST).to_ne_bytes());
    w.put(&seq.to_ne_bytes());
    w.put(&0u32.to_ne_bytes());
    header.write(w);
    w.align();
    body(w);
    w.align();
    // A datagram is far below 4 GiB: its size is bounded by the socket's send buffer.
    let length = u32::try_from(w.len() - start).unwrap_or(u32::MAX);
    w.patch(start + NLMSG_LEN, &length.to_ne_bytes());
}
