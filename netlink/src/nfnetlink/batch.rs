//! A batch: messages that the kernel commits as one transaction.

use super::socket::family;
use super::{
    NFNL_BATCH_GENID, NFNL_MSG_BATCH_BEGIN, NFNL_MSG_BATCH_END, Refusal, Socket, message_type,
};
use crate::attr::{AttrSet, EncodeError};
use crate::message::{Datagram, NLM_F_ACK, Netfilter, NfGenMsg};
use crate::transport::Transport;
use crate::{Error, InForce, Result};

crate::attributes! {
    /// `enum nfnl_batch_attributes`
    struct BatchAttrs {
        /// commit only if the ruleset still has this generation; since 4.12
        generation: crate::attr::Be32 = NFNL_BATCH_GENID 1,
    }
}
const _: () = assert!(BatchAttrs::NFNL_BATCH_GENID == NFNL_BATCH_GENID);

/// Messages between `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
///
/// The begin message is the first of the datagram, so pushed message n (from 0) is message n + 1 of the datagram.
#[derive(Debug)]
#[doc(alias = "NFNL_MSG_BATCH_BEGIN")]
pub struct Batch {
    subsystem: u16,
    datagram: Datagram<Netfilter>,
}

impl Batch {
    /// An empty batch for a subsystem (`NFNL_SUBSYS_*`). With a generation, the kernel commits it only if the ruleset still has
    /// that generation, and refuses it with `ERESTART` otherwise (`NFNL_BATCH_GENID`, since 4.12).
    #[must_use]
    pub fn new(subsystem: u16, generation: Option<u32>) -> Self {
        let mut batch = Self {
            subsystem,
            datagram: Datagram::default(),
        };
        let attrs = BatchAttrs {
            generation,
            ..BatchAttrs::default()
        };
        batch.put(NFNL_MSG_BATCH_BEGIN, &attrs);
        batch
    }

    fn put(&mut self, kind: u16, attrs: &BatchAttrs) {
        let header = NfGenMsg {
            res_id: self.subsystem,
            ..NfGenMsg::default()
        };
        self.datagram.push(kind, 0, &header, attrs);
    }

    /// Appends one message and returns its index.
    pub fn push<A: AttrSet>(&mut self, kind: u16, flags: u16, family: u8, attrs: &A) -> usize {
        let kind = message_type(self.subsystem, kind);
        let header = self::family(family);
        self.datagram
            .push(kind, flags, &header, attrs)
            .saturating_sub(1)
    }

    /// Number of messages that were pushed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagram.len().saturating_sub(1)
    }

    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests an acknowledgement of the last pushed message, so that success is reported by the kernel and not
    /// inferred from the absence of an error: the kernel acknowledges begin and end only since 6.10.
    fn close(mut self) -> Datagram<Netfilter> {
        if !self.is_empty() {
            self.datagram.add_flags(self.len(), NLM_F_ACK);
        }
        self.put(NFNL_MSG_BATCH_END, &BatchAttrs::default());
        self.datagram
    }

    /// Encodes the datagram; the begin message gets this sequence number.
    ///
    /// # Errors
    /// A value did not fit its attribute.
    pub fn datagram(self, first: u32) -> Result<Vec<u8>, EncodeError> {
        Ok(self.close().finish(first)?.bytes)
    }
}

impl<T: Transport> Socket<T> {
    /// Sends a batch and reads every answer to it. An empty batch changes nothing; it returns after a pending commit of
    /// another writer, since both take the lock of the subsystem.
    ///
    /// # Errors
    /// The inner error contains the refused messages, in their order; nothing of the batch is in force. For the outer error,
    /// [`Error::in_force`] is no if the batch could not be sent, unknown if it was sent and an answer was lost or cannot be
    /// decoded.
    pub fn commit(&mut self, batch: Batch) -> Result<Result<(), Vec<Refusal>>> {
        let what = "a batch";
        let len = batch.len();
        let (sent, unsent) = self.post("send", batch.close(), what)?;
        let answers = self.answers(&sent, what, |_| false);
        // Only a pushed message requests an acknowledgement.
        let acknowledged = len == 0 || answers.has(len);
        if !answers.refused.is_empty() {
            let refusal = |r: crate::socket::Refused| {
                let pushed = r.index.checked_sub(1).filter(|n| *n < len);
                Refusal::of(pushed, r, &sent)
            };
            let mut refusals: Vec<_> = answers.refused.into_iter().map(refusal).collect();
            refusals.sort_by_key(|r| r.index);
            return Ok(Err(refusals));
        }
        // A batch that was not sent has no answer. If an answer is queued, it was sent.
        match (unsent, answers.lost) {
            (Some(e), _) if len == 0 || !acknowledged => Err(e),
            (_, Some(e)) if len == 0 => Err(e),
            // An acknowledgement alone proves nothing: the lost answer may be an earlier refusal.
            (_, Some(e)) => Err(e.with_in_force(InForce::Unknown)),
            _ if acknowledged => Ok(Ok(())),
            _ => {
                let detail = "the kernel acknowledged nothing and refused nothing";
                let error = Error::malformed("commit", what, detail);
                Err(error.with_in_force(InForce::Unknown))
            }
        }
    }
}
