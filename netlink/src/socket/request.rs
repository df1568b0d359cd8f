//! One request, which the kernel answers with objects and an acknowledgement.

use super::{ANSWER, Deadline, Socket};
use crate::attr::AttrSet;
use crate::message::{Ack, Answer, Datagram, FamilyHeader, Message, NLM_F_ACK, Sent, each};
use crate::transport::Transport;
use crate::{Error, InForce, Result};

/// One request, and its description for errors.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, H, A> {
    /// `nlmsg_type`
    pub kind: u16,
    /// `NLM_F_*` besides the flags that the exchange sets.
    pub flags: u16,
    /// The family header.
    pub header: H,
    /// Its attributes.
    pub attrs: &'a A,
    /// For errors: "add".
    pub operation: &'a str,
    /// For errors: "route 10.0.0.0/8".
    pub object: &'a str,
}

impl<'a, H: FamilyHeader, A: AttrSet> Request<'a, H, A> {
    /// A request without flags.
    pub fn new(
        kind: u16,
        (header, attrs): (H, &'a A),
        operation: &'a str,
        object: &'a str,
    ) -> Self {
        Self {
            kind,
            flags: 0,
            header,
            attrs,
            operation,
            object,
        }
    }

    pub(super) fn datagram(&self, flags: u16) -> Datagram<H::Protocol> {
        let mut datagram = Datagram::default();
        datagram.push(self.kind, self.flags | flags, &self.header, self.attrs);
        datagram
    }
}

impl<T: Transport, P> Socket<T, P> {
    /// Sends a request that changes nothing, and returns the objects in the answer.
    ///
    /// # Errors
    /// The errno of the kernel, such as `ENOENT` or `ENODEV` if there is no such object; [`Error::is_timed_out`].
    pub fn look_up<H, A>(&mut self, request: &Request<'_, H, A>) -> Result<Vec<Message<H>>>
    where
        H: FamilyHeader<Protocol = P>,
        A: AttrSet,
    {
        let change = self.change(request);
        change.map_err(|e| e.with_in_force(InForce::No))
    }

    /// Sends a change, and returns the objects that the kernel echoes (`NLM_F_ECHO`).
    ///
    /// # Errors
    /// The errno of the kernel. If the answer is lost, it is unknown whether the change is in force ([`Error::in_force`]).
    pub fn change<H, A>(&mut self, request: &Request<'_, H, A>) -> Result<Vec<Message<H>>>
    where
        H: FamilyHeader<Protocol = P>,
        A: AttrSet,
    {
        let (operation, object) = (request.operation, request.object);
        let deadline = self.deadline();
        let (sent, unsent) = self.post(operation, request.datagram(NLM_F_ACK), object)?;
        // A request that was not sent has no answer. If an answer is queued, it was sent.
        let wait = unsent.is_none().then_some(&deadline);
        let mut objects = Vec::new();
        let ack = self.acknowledgement(&sent, wait, (operation, object), |m| {
            objects.push(m);
            Ok(())
        });
        match (ack, unsent) {
            (Ok(ack), _) if ack.errno == 0 => Ok(objects),
            (Ok(ack), _) => Err(sent.error(operation, object, 0, ack)),
            (Err(_), Some(e)) => Err(e),
            (Err(e), None) => Err(e.with_in_force(InForce::Unknown)),
        }
    }

    /// Reads until the acknowledgement; without a deadline, only datagrams that are already queued.
    fn acknowledgement<H: FamilyHeader>(
        &mut self,
        sent: &Sent,
        wait: Option<&Deadline>,
        (operation, object): (&str, &str),
        mut f: impl FnMut(Message<H>) -> Result<()>,
    ) -> Result<Ack> {
        let mut found = None;
        let mut bytes: usize = 0;
        loop {
            let datagram = self.next(wait, operation, object)?;
            bytes = bytes.saturating_add(datagram.len());
            if bytes > ANSWER {
                return Err(too_large(operation, object));
            }
            each(&datagram, object, |m| {
                if sent.index(m.seq).is_some() {
                    match Answer::of(m, object)? {
                        Answer::Object(m) => f(Message::parse(m, object)?)?,
                        Answer::Ack(ack) => found = Some(ack),
                        Answer::Done | Answer::Nothing => {}
                    }
                }
                Ok(())
            })?;
            if let Some(ack) = found {
                self.unread = false;
                return Ok(ack);
            }
        }
    }

    /// Receives the next datagram; without a deadline, only one that is already queued.
    pub(super) fn next(
        &mut self,
        wait: Option<&Deadline>,
        operation: &str,
        object: &str,
    ) -> Result<Vec<u8>> {
        match wait {
            Some(deadline) => self
                .receive(deadline)
                .map_err(|e| deadline.error(operation, object, &e)),
            None => self
                .receive_queued()
                .map_err(|e| Error::io(operation, object, &e)),
        }
    }
}

pub(super) fn too_large(operation: &str, object: &str) -> Error {
    let reason = format!("there are more than {ANSWER} bytes of it; delete what makes it so large");
    Error::refused(operation, object, reason)
}
