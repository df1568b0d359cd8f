//! Many messages in one datagram, which the kernel handles inside `sendmsg(2)`.

use super::{LOSSES, Socket};
use crate::Error;
use crate::message::{
    Ack, Answer, NLMSG_ERROR, NLMSG_HDRLEN, NLMSGERR_MSG, Received, Sent, each, u32_at,
};
use crate::transport::Transport;
use std::io;

/// A message that the kernel refused.
pub(crate) struct Refused {
    /// Index of the message in the datagram, from 0.
    pub(crate) index: usize,
    pub(crate) ack: Ack,
    /// The message as the kernel repeats it, from its family header on.
    pub(crate) echo: Vec<u8>,
}

/// The answers to a datagram.
pub(crate) struct Answers {
    /// In the order of the messages.
    pub(crate) refused: Vec<Refused>,
    /// Per message: whether it was acknowledged or refused.
    pub(crate) answered: Vec<bool>,
    /// The first answer that was lost or could not be decoded.
    pub(crate) lost: Option<Error>,
}

impl Answers {
    /// Whether a message was answered.
    pub(crate) fn has(&self, index: usize) -> bool {
        self.answered.get(index).is_some_and(|yes| *yes)
    }

    fn take(&mut self, sent: &Sent, m: Received<'_>, what: &str) -> crate::Result<()> {
        let Some(index) = sent.index(m.seq) else {
            return Ok(());
        };
        let Answer::Ack(ack) = Answer::of(m, what)? else {
            return Ok(());
        };
        if let Some(slot) = self.answered.get_mut(index) {
            *slot = true;
        }
        if ack.errno != 0 {
            let echo = echo(m);
            self.refused.push(Refused { index, ack, echo });
        }
        Ok(())
    }
}

impl<T: Transport, P> Socket<T, P> {
    /// Reads the answers to a datagram until they are complete or none is queued. The kernel handles the datagram inside
    /// `sendmsg(2)`, so every answer is already queued.
    pub(crate) fn answers(
        &mut self,
        sent: &Sent,
        what: &str,
        enough: impl Fn(&Answers) -> bool,
    ) -> Answers {
        let mut found = Answers {
            refused: Vec::new(),
            answered: vec![false; sent.len()],
            lost: None,
        };
        let mut losses = 0;
        while !enough(&found) {
            let read = match self.receive_queued() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => Err(Error::io("read the answer to", what, &e)),
                Ok(reply) => each(&reply, what, |m| found.take(sent, m, what)),
            };
            // An answer after a loss may contain the reason of a failure.
            if let Err(e) = read {
                found.lost.get_or_insert(e);
                losses += 1;
                if losses > LOSSES {
                    break;
                }
            }
        }
        if losses <= LOSSES {
            self.unread = false;
        }
        found.refused.sort_by_key(|r| r.index);
        found
    }
}

/// The message that an error repeats, without its `struct nlmsghdr`.
fn echo(m: Received<'_>) -> Vec<u8> {
    let message = || {
        let length = usize::try_from(u32_at(m.payload, NLMSGERR_MSG)?).ok()?;
        let end = NLMSGERR_MSG.checked_add(length)?;
        m.payload.get(NLMSGERR_MSG + NLMSG_HDRLEN..end)
    };
    match m.kind {
        NLMSG_ERROR => message().unwrap_or_default().to_vec(),
        _ => Vec::new(),
    }
}
