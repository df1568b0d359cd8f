//! Dumps: every object that the kernel lists.

use super::request::too_large;
use super::{ANSWER, Request, Socket};
use crate::attr::AttrSet;
use crate::message::{Answer, FamilyHeader, Message, NLM_F_DUMP, NLM_F_DUMP_INTR, each};
use crate::transport::Transport;
use crate::{Error, Result};

impl<T: Transport, P> Socket<T, P> {
    /// Sends a dump request (`NLM_F_DUMP`) and calls `f` for each object.
    ///
    /// # Errors
    /// `EINTR` if the list changed during the dump, so that it must be repeated; `ENOBUFS` if a part of it was lost;
    /// [`Error::is_timed_out`]; the errno of the kernel, such as `ENOENT`; the error of `f`. In each case `f` may have
    /// received a part of the objects.
    pub fn list<H, A>(
        &mut self,
        request: &Request<'_, H, A>,
        mut f: impl FnMut(Message<H>) -> Result<()>,
    ) -> Result<()>
    where
        H: FamilyHeader<Protocol = P>,
        A: AttrSet,
    {
        let (operation, what) = (request.operation, request.object);
        let deadline = self.deadline();
        let (sent, unsent) = self.post(operation, request.datagram(NLM_F_DUMP), what)?;
        let wait = unsent.is_none().then_some(&deadline);
        let mut interrupted = false;
        let mut done = false;
        let mut bytes: usize = 0;
        while !done {
            let datagram = match (self.next(wait, operation, what), &unsent) {
                (Err(_), Some(_)) => {
                    return Err(unsent.unwrap_or_else(|| too_large(operation, what)));
                }
                (datagram, _) => datagram?,
            };
            bytes = bytes.saturating_add(datagram.len());
            if bytes > ANSWER {
                return Err(too_large(operation, what));
            }
            each(&datagram, what, |m| {
                if sent.index(m.seq).is_none() {
                    return Ok(());
                }
                interrupted |= m.flags & NLM_F_DUMP_INTR != 0;
                match Answer::of(m, what)? {
                    Answer::Object(m) => f(Message::parse(m, what)?)?,
                    Answer::Done => done = true,
                    Answer::Nothing => {}
                    // A dump must end with NLMSG_DONE; after an acknowledgement it is unknown how much is missing.
                    Answer::Ack(ack) if ack.errno == 0 => {
                        let detail =
                            "the kernel acknowledged the request in the middle of the dump";
                        return Err(Error::malformed(operation, what, detail));
                    }
                    Answer::Ack(ack) => return Err(sent.error(operation, what, 0, ack)),
                }
                Ok(())
            })?;
        }
        self.unread = false;
        if interrupted {
            return Err(Error::kernel(operation, what, libc::EINTR));
        }
        Ok(())
    }
}
