//! Dumps: every object that the kernel lists.

use super::{Request, Socket};
use crate::attr::AttrSet;
use crate::message::{Answer, FamilyHeader, Message, NLM_F_DUMP, NLM_F_DUMP_INTR};
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
        let mut interrupted = false;
        let wait = (&deadline, unsent.as_ref());
        let read = self.read(&sent, wait, (operation, what), |flags, answer| {
            interrupted |= flags & NLM_F_DUMP_INTR != 0;
            match answer {
                Answer::Object(m) => f(Message::parse(m, what)?)?,
                Answer::Done => return Ok(true),
                Answer::Nothing => {}
                // A dump must end with NLMSG_DONE; after an acknowledgement it is unknown how much is missing.
                Answer::Ack(ack) if ack.errno == 0 => {
                    let detail = "the kernel acknowledged the request in the middle of the dump";
                    return Err(Error::malformed(operation, what, detail));
                }
                Answer::Ack(ack) => return Err(sent.error(operation, what, 0, ack)),
            }
            Ok(false)
        });
        self.lost |= matches!(&read, Err(e) if e.errno() == Some(libc::ENOBUFS));
        read?;
        if interrupted {
            return Err(Error::kernel(operation, what, libc::EINTR));
        }
        Ok(())
    }
}
