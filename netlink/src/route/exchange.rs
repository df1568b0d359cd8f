//! One request and everything that answers it.

use futures_util::StreamExt;
use rtnetlink::packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;

use super::{DUMP_ATTEMPTS, Routing};
use crate::{Error, ErrorKind, Result};

/// `NLM_F_DUMP_INTR` of `linux/netlink.h`: the objects changed during the dump.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// `NLM_F_CAPPED`: an error repeats only the header of the request.
const NLM_F_CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: attributes follow in an error.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// What a request answered with, before it is known to be whole.
struct Reply {
    messages: Vec<RouteNetlinkMessage>,
    interrupted: bool,
}

impl Routing {
    /// Creates something that must be new (`NLM_F_CREATE | NLM_F_EXCL`).
    pub(super) fn create(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL, operation, object)
            .map(drop)
    }

    /// Like [`Routing::create`]; false when it is there already.
    pub(super) fn ensure(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<bool> {
        match self.create(message, operation, object) {
            Ok(()) => Ok(true),
            Err(e) if e.is_exists() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Deletes; false when it is not there.
    pub(super) fn remove(
        &self,
        message: RouteNetlinkMessage,
        operation: &str,
        object: &str,
    ) -> Result<bool> {
        match self.request(message, 0, operation, object) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// One request that is answered by an ack, and by objects before it.
    pub(super) fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: &str,
        object: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        // The ack is also what ends the wait when the object cannot be decoded.
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        Ok(self.exchange(message, flags, operation, object)?.messages)
    }

    /// A dump, repeated while the kernel says that it was interrupted.
    pub(super) fn dump(
        &self,
        message: &RouteNetlinkMessage,
        object: &str,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        whole(object, || {
            self.exchange(message.clone(), flags, "list", object)
        })
    }

    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: &str,
        object: &str,
    ) -> Result<Reply> {
        let lost = || Error::malformed(operation, object, "the routing socket was closed");
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let mut handle = self.handle.clone();
        let mut answers = handle.request(request).map_err(|_| lost())?;
        self.runtime.block_on(async move {
            let mut reply = Reply {
                messages: Vec::new(),
                interrupted: false,
            };
            while let Some(answer) = answers.next().await {
                reply.interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                match answer.payload {
                    NetlinkPayload::InnerMessage(object) => reply.messages.push(object),
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(Error::kernel(operation, object, done.code.saturating_abs()));
                    }
                    NetlinkPayload::Done(_) => return Ok(reply),
                    NetlinkPayload::Error(ack) if ack.code.is_none() => return Ok(reply),
                    NetlinkPayload::Error(error) => {
                        return Err(kernel_error(operation, object, answer.header.flags, &error));
                    }
                    _ => {}
                }
            }
            Err(lost())
        })
    }
}

/// The first reply that was not interrupted.
fn whole(object: &str, mut ask: impl FnMut() -> Result<Reply>) -> Result<Vec<RouteNetlinkMessage>> {
    for _ in 0..DUMP_ATTEMPTS {
        let reply = ask()?;
        if !reply.interrupted {
            return Ok(reply.messages);
        }
    }
    let what = format!(
        "they changed during each of {DUMP_ATTEMPTS} dumps; try again when the namespace is quiet"
    );
    Err(Error::exhausted("list", object, what))
}

/// The errno with the text of the extended ack, if there is one.
fn kernel_error(operation: &str, object: &str, flags: u16, error: &ErrorMessage) -> Error {
    let mut made = Error::kernel(operation, object, error.raw_code().saturating_abs());
    if let ErrorKind::Kernel { extack, .. } = &mut made.kind {
        *extack = message_text(flags, &error.header);
    }
    made
}

/// Reads `NLMSGERR_ATTR_MSG` behind the repeated request.
///
/// ```text
/// struct nlmsgerr { int error; struct nlmsghdr msg; }   `repeated` starts at msg
///   payload of the request                              unless NLM_F_CAPPED
///   attributes                                          if NLM_F_ACK_TLVS
/// ```
fn message_text(flags: u16, repeated: &[u8]) -> Option<String> {
    const NLMSG_HDRLEN: usize = 16;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let length = u32::from_ne_bytes(*repeated.first_chunk::<4>()?);
    let start = if flags & NLM_F_CAPPED != 0 {
        NLMSG_HDRLEN
    } else {
        usize::try_from(length).ok()?.checked_next_multiple_of(4)?
    };
    let mut rest = repeated.get(start..)?;
    while let Some((header, _)) = rest.split_first_chunk::<4>() {
        let [l0, l1, t0, t1] = *header;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([t0, t1]) == NLMSGERR_ATTR_MSG {
            let text = value.split(|&b| b == 0).next()?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nlmsghdr` with a length, then whatever follows.
    fn repeated(length: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.resize(16, 0);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).expect("short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn an_interrupted_dump_is_repeated_but_not_for_ever() {
        let mut asked = 0;
        let mut answers = |whole_at: usize| {
            asked = 0;
            let answer = whole("the links", || {
                asked += 1;
                Ok(Reply {
                    messages: Vec::new(),
                    interrupted: asked < whole_at,
                })
            });
            (answer, asked)
        };
        let (answer, asked) = answers(DUMP_ATTEMPTS);
        assert!(answer.is_ok() && asked == DUMP_ATTEMPTS);
        let (answer, asked) = answers(DUMP_ATTEMPTS + 1);
        let error = answer.expect_err("given up");
        assert!(
            matches!(error.kind, ErrorKind::Exhausted(_)) && asked == DUMP_ATTEMPTS,
            "{error}"
        );
    }

    #[test]
    fn the_text_is_found_behind_other_attributes_and_the_repeated_request() {
        let attributes = [
            attribute(2, &[20, 0, 0, 0]),
            attribute(1, b"No such thing\0"),
        ]
        .concat();
        let whole = repeated(23, &[vec![0xa5; 8], attributes.clone()].concat());
        let text = Some("No such thing".to_owned());
        assert_eq!(message_text(NLM_F_ACK_TLVS, &whole), text);
        let capped = repeated(23, &attributes);
        assert_eq!(message_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &capped), text);
        assert_eq!(
            message_text(NLM_F_CAPPED, &capped),
            None,
            "no attributes announced"
        );
    }

    #[test]
    fn torn_attributes_are_no_text_and_no_panic() {
        for bytes in [vec![], vec![1, 2, 3], repeated(u32::MAX, &[1, 2, 3, 4, 5])] {
            assert_eq!(message_text(NLM_F_ACK_TLVS, &bytes), None);
        }
        for length in 0..8u16 {
            let torn = [length.to_ne_bytes(), 7u16.to_ne_bytes()].concat();
            assert_eq!(
                message_text(NLM_F_ACK_TLVS | NLM_F_CAPPED, &repeated(16, &torn)),
                None
            );
        }
    }
}
