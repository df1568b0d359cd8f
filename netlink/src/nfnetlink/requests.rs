//! Requests that the kernel carries out one by one, many in one datagram.

use super::batch::Pushed;
use super::message::{
    self, NFGENMSG_LEN, NLM_F_ACK, NLMSG_ERROR, NLMSG_HDRLEN, NLMSG_SEQ, Received, u32_at,
};
use super::reply::NLMSGERR_MSG;
use super::socket::{Answer, Socket, answer, each};
use crate::attr::{AttrSet, Writer};
use crate::transport::Transport;
use crate::{Error, InForce, Result};
use std::io;

/// Requests without a batch around them: each is in force, or refused, for itself.
#[derive(Debug)]
pub struct Requests {
    subsystem: u16,
    w: Writer,
    messages: Vec<Pushed>,
}

/// Why one request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which request, from 0.
    pub index: usize,
    /// Positive; a subsystem's own numbers are above 4096.
    pub errno: i32,
    /// The kernel's own words.
    pub extack: Option<String>,
    /// C names down to the attribute that the kernel points at, or misses.
    pub attribute: Option<String>,
    /// The request's attributes as the kernel returned them. ipset writes into them.
    pub echo: Vec<u8>,
}

impl Requests {
    /// None yet, for a subsystem.
    #[must_use]
    pub fn new(subsystem: u16) -> Self {
        Self {
            subsystem,
            w: Writer::new(),
            messages: Vec::new(),
        }
    }

    /// Appends one request and returns its index. An acknowledgement is asked for.
    pub fn push<A: AttrSet>(&mut self, kind: u16, flags: u16, family: u8, attrs: &A) -> usize {
        let index = self.messages.len();
        let flags = flags | NLM_F_ACK;
        self.messages.push(Pushed::new::<A>(self.w.len(), flags));
        let kind = message::message_type(self.subsystem, kind);
        message::write(&mut self.w, (kind, flags, 0), (family, 0), |w| {
            attrs.encode(w)
        });
        index
    }

    /// How many requests there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes so far. Keep them below the receive buffer: every refusal repeats its request.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.w.len()
    }
}

impl<T: Transport> Socket<T> {
    /// Sends requests in one datagram and reads the answer to each. Returns those that were refused, in
    /// their order; the others are in force.
    ///
    /// # Errors
    /// The datagram could not be sent, and nothing is in force; or not every answer could be read, and it is not
    /// known which requests are ([`Error::in_force`]).
    pub fn exchange(&mut self, requests: Requests, what: &str) -> Result<Vec<Refusal>> {
        let Requests {
            mut w, messages, ..
        } = requests;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.numbers(messages.len());
        for (m, seq) in messages.iter().zip(first..) {
            w.patch(m.start + NLMSG_SEQ, &seq.to_ne_bytes());
        }
        let datagram = w
            .finish()
            .map_err(|e| Error::malformed("write", what, e.to_string()))?;
        self.send("send", &datagram, what)?;
        let answers = self.answers_to(&messages, first, &datagram, what);
        // Those that were answered before are in force, or refused, for themselves.
        answers.map_err(|e| e.with_in_force(InForce::Unknown))
    }

    fn answers_to(
        &mut self,
        messages: &[Pushed],
        first: u32,
        datagram: &[u8],
        what: &str,
    ) -> Result<Vec<Refusal>> {
        let mut answered = vec![false; messages.len()];
        let mut refusals = Vec::new();
        while answered.contains(&false) {
            // The kernel worked inside the send: every answer is queued by now.
            let reply = match self.receive_queued() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::malformed(
                        "send",
                        what,
                        "the kernel did not answer all of it",
                    ));
                }
                other => other.map_err(|e| Error::io("read the answer to", what, &e))?,
            };
            each(&reply, what, |m| {
                let index = m
                    .seq
                    .checked_sub(first)
                    .and_then(|n| usize::try_from(n).ok());
                let Some((index, pushed)) = index.and_then(|i| Some((i, messages.get(i)?))) else {
                    return Ok(());
                };
                let Answer::Ack(_, ack) = answer(m, what)? else {
                    return Ok(());
                };
                if let Some(slot) = answered.get_mut(index) {
                    *slot = true;
                }
                if ack.errno != 0 {
                    let attribute = pushed.attribute(&ack, datagram);
                    let (errno, extack) = (ack.errno, ack.message);
                    refusals.push(Refusal {
                        index,
                        errno,
                        extack,
                        attribute,
                        echo: echo(m),
                    });
                }
                Ok(())
            })?;
        }
        self.settled();
        refusals.sort_by_key(|r| r.index);
        Ok(refusals)
    }
}

/// The attributes of the request that an error repeats.
fn echo(m: Received<'_>) -> Vec<u8> {
    let attrs = || {
        let length = usize::try_from(u32_at(m.payload, NLMSGERR_MSG)?).ok()?;
        let end = NLMSGERR_MSG.checked_add(length)?;
        m.payload
            .get(NLMSGERR_MSG + NLMSG_HDRLEN + NFGENMSG_LEN..end)
    };
    if m.kind == NLMSG_ERROR {
        attrs().unwrap_or_default().to_vec()
    } else {
        Vec::new()
    }
}
