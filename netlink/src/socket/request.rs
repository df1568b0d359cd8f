//! One request, which the kernel answers with objects and an acknowledgement.

use super::{ANSWER, Deadline, Socket};
use crate::attr::AttrSet;
use crate::message::{Answer, Datagram, FamilyHeader, Message, NLM_F_ACK, Sent, each};
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
        let (mut objects, mut found) = (Vec::new(), None);
        let wait = (&deadline, unsent.as_ref());
        let read = self.read(&sent, wait, (operation, object), |_, answer| {
            match answer {
                Answer::Object(m) => objects.push(Message::parse(m, object)?),
                Answer::Ack(ack) => found = Some(ack),
                Answer::Done | Answer::Nothing => {}
            }
            Ok(found.is_some())
        });
        match (read, found) {
            (Ok(()), Some(ack)) if ack.errno != 0 => Err(sent.error(operation, object, 0, ack)),
            (Ok(()), _) => Ok(objects),
            (Err(e), _) => Err(unsent.unwrap_or(e.with_in_force(InForce::Unknown))),
        }
    }

    /// Calls `f` with the flags and content of each message of the answer, until it returns true. A request that was not sent
    /// has no answer; if an answer is queued, it was sent.
    pub(super) fn read(
        &mut self,
        sent: &Sent,
        (deadline, unsent): (&Deadline, Option<&Error>),
        (operation, object): (&str, &str),
        mut f: impl FnMut(u16, Answer<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (mut is_whole, mut bytes) = (false, 0_usize);
        while !is_whole {
            let datagram = match unsent {
                Some(e) => self.receive_queued().map_err(|_| e.clone())?,
                None => self
                    .receive(deadline)
                    .map_err(|e| deadline.error(operation, object, &e))?,
            };
            bytes = bytes.saturating_add(datagram.len());
            if bytes > ANSWER {
                let reason = format!(
                    "there are more than {ANSWER} bytes of it; delete what makes it so large"
                );
                return Err(Error::refused(operation, object, reason));
            }
            each(&datagram, object, |m| {
                if sent.index(m.seq).is_some() {
                    is_whole |= f(m.flags, Answer::of(m, object)?)?;
                }
                Ok(())
            })?;
        }
        self.unread = false;
        Ok(())
    }
}
