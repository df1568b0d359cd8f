//! Requests that the kernel handles one by one, many in one datagram.

use super::socket::family;
use super::{Refusal, Socket, message_type};
use crate::attr::AttrSet;
use crate::message::{Datagram, NLM_F_ACK, Netfilter};
use crate::socket::Refused;
use crate::transport::Transport;
use crate::{Error, InForce, Result};

/// Requests that are no batch: each one succeeds or fails on its own.
#[derive(Debug)]
pub struct Requests {
    subsystem: u16,
    datagram: Datagram<Netfilter>,
}

impl Requests {
    /// An empty list of requests for a subsystem.
    #[must_use]
    pub fn new(subsystem: u16) -> Self {
        Self {
            subsystem,
            datagram: Datagram::default(),
        }
    }

    /// Appends one request with `NLM_F_ACK` and returns its index.
    pub fn push<A: AttrSet>(&mut self, kind: u16, flags: u16, family: u8, attrs: &A) -> usize {
        let kind = message_type(self.subsystem, kind);
        let header = self::family(family);
        self.datagram.push(kind, flags | NLM_F_ACK, &header, attrs)
    }

    /// Number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.datagram.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.datagram.is_empty()
    }

    /// Size so far in bytes. Keep it below the receive buffer: every refusal repeats its request.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.datagram.bytes()
    }
}

impl<T: Transport> Socket<T> {
    /// Sends the requests in one datagram and reads the answer to each. Returns the refused requests in their order; the
    /// others are in force.
    ///
    /// # Errors
    /// The datagram could not be sent, and nothing is in force; or not every answer could be read, and it is unknown which
    /// requests are in force ([`Error::in_force`]).
    pub fn exchange(&mut self, requests: Requests, what: &str) -> Result<Vec<Refusal>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let (sent, unsent) = self.post("send", requests.datagram, what)?;
        if let Some(e) = unsent {
            return Err(e);
        }
        let all = |a: &crate::socket::Answers| !a.answered.contains(&false);
        let answers = self.answers(&sent, what, all);
        let is_whole = all(&answers);
        let silent = || Error::malformed("send", what, "the kernel did not answer every request");
        if let Some(e) = answers.lost.or_else(|| (!is_whole).then(silent)) {
            // The requests that were answered before succeeded or failed on their own.
            return Err(e.with_in_force(InForce::Unknown));
        }
        let refusal = |r: Refused| Refusal::of(Some(r.index), r, &sent);
        Ok(answers.refused.into_iter().map(refusal).collect())
    }
}
