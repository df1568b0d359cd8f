//! A batch: messages that the kernel commits together or not at all.

use super::message::{self, NFGENMSG_LEN, NLM_F_REQUEST, NLMSG_FLAGS, NLMSG_HDRLEN, NLMSG_SEQ};
use super::reply::Ack;
use super::{NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, NLM_F_ACK};
use crate::attr::{AttrSet, EncodeError, Writer};

type PathFn = fn(&[u8], usize) -> Option<String>;
type NameFn = fn(u16) -> Option<&'static str>;

/// Messages between `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
///
/// Sequence numbers count from the begin message, so the n-th pushed message (from 0) has n + 1 more. Which
/// number that is, is said when the datagram is made.
#[derive(Debug)]
pub struct Batch {
    subsystem: u16,
    w: Writer,
    messages: Vec<Pushed>,
}

/// Where a message begins in its datagram, and what names its attributes.
#[derive(Debug)]
pub(super) struct Pushed {
    pub(super) start: usize,
    flags: u16,
    path: PathFn,
    name: NameFn,
}

impl Pushed {
    pub(super) fn new<A: AttrSet>(start: usize, flags: u16) -> Self {
        Self {
            start,
            flags,
            path: A::path,
            name: A::attribute_name,
        }
    }

    /// The attribute that an answer speaks of.
    pub(super) fn attribute(&self, ack: &Ack, datagram: &[u8]) -> Option<String> {
        if let Some(n) = ack.missing.and_then(|n| u16::try_from(n).ok()) {
            return Some(format!("missing {}", (self.name)(n)?));
        }
        let head = NLMSG_HDRLEN + NFGENMSG_LEN;
        let attrs = datagram.get(self.start + head..)?;
        (self.path)(attrs, ack.offset?.checked_sub(head)?)
    }
}

/// Why one message of a batch was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which pushed message, from 0; `None` when the batch as a whole was refused.
    pub index: Option<usize>,
    /// Positive errno.
    pub errno: i32,
    /// The kernel's own words.
    pub extack: Option<String>,
    /// C names down to the attribute that the kernel points at, or misses.
    pub attribute: Option<String>,
}

impl Batch {
    /// An empty batch for a subsystem; with a generation, it is committed only if the ruleset
    /// still has that generation (`NFNL_BATCH_GENID`, since 4.12), and fails with `ERESTART` otherwise.
    #[must_use]
    pub fn new(subsystem: u16, generation: Option<u32>) -> Self {
        let mut w = Writer::new();
        message::write(&mut w, (NFNL_MSG_BATCH_BEGIN, 0, 0), (0, subsystem), |w| {
            if let Some(g) = generation {
                w.attr(NFNL_BATCH_GENID, false, |w| w.put(&g.to_be_bytes()));
            }
        });
        Self {
            subsystem,
            w,
            messages: Vec::new(),
        }
    }

    /// Appends one message and returns its index.
    pub fn push<A: AttrSet>(&mut self, kind: u16, flags: u16, family: u8, attrs: &A) -> usize {
        let index = self.messages.len();
        self.messages.push(Pushed::new::<A>(self.w.len(), flags));
        let kind = message::message_type(self.subsystem, kind);
        message::write(&mut self.w, (kind, flags, 0), (family, 0), |w| {
            attrs.encode(w)
        });
        index
    }

    /// How many messages were pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The datagram, its begin message with this sequence number. The last pushed message asks for an acknowledgement, so that success is
    /// something the kernel said and not the absence of an error: an acknowledgement on begin
    /// and end is given only since 6.10.
    ///
    /// # Errors
    /// A value did not fit its attribute.
    pub fn datagram(mut self, first: u32) -> Result<(Vec<u8>, BatchIndex), EncodeError> {
        if let Some(last) = self.messages.last() {
            let flags = last.flags | NLM_F_ACK | NLM_F_REQUEST;
            self.w.patch(last.start + NLMSG_FLAGS, &flags.to_ne_bytes());
        }
        let end = self.w.len();
        message::write(
            &mut self.w,
            (NFNL_MSG_BATCH_END, 0, 0),
            (0, self.subsystem),
            |_| {},
        );
        let starts = self.messages.iter().map(|m| m.start);
        for (start, seq) in [0].into_iter().chain(starts).chain([end]).zip(first..) {
            self.w.patch(start + NLMSG_SEQ, &seq.to_ne_bytes());
        }
        let datagram = self.w.finish()?;
        Ok((
            datagram,
            BatchIndex {
                first,
                messages: self.messages,
            },
        ))
    }
}

/// Finds the message, and the attribute in it, that an answer speaks of.
#[derive(Debug)]
pub struct BatchIndex {
    first: u32,
    messages: Vec<Pushed>,
}

impl BatchIndex {
    /// Whether nothing was pushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Sequence number of the last pushed message, which asks for an acknowledgement.
    pub(crate) fn last(&self) -> u32 {
        self.first
            .saturating_add(u32::try_from(self.messages.len()).unwrap_or(u32::MAX))
    }

    /// Whether an answer with this sequence number is to this batch.
    pub(crate) fn has(&self, seq: u32) -> bool {
        (self.first..=self.last().saturating_add(1)).contains(&seq)
    }

    pub(crate) fn failure(&self, seq: u32, ack: Ack, datagram: &[u8]) -> Failure {
        let after = seq
            .checked_sub(self.first)
            .and_then(|n| usize::try_from(n).ok());
        let index = after.and_then(|n| n.checked_sub(1));
        let pushed = index.and_then(|i| self.messages.get(i));
        let attribute = pushed.and_then(|p| p.attribute(&ack, datagram));
        let index = pushed.and(index);
        Failure {
            index,
            errno: ack.errno,
            extack: ack.message,
            attribute,
        }
    }
}
