//! The answers of a kernel as one input.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use weir_netfilter::xtables::{self, XtFamily};

/// The largest size of a table in a conversation, in bytes.
const LARGEST_TABLE: u32 = 1 << 20;

/// The answers of a kernel, in order.
///
/// As bytes, each is its length (`u32`, host order) and then the answer. An empty answer is a read that found nothing (`EAGAIN`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The answers.
    pub answers: Vec<Vec<u8>>,
}

impl Conversation {
    /// Decodes any bytes. An answer whose length is too large consists of the rest.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Self {
        let mut answers = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
            let (answer, rest) = rest.split_at(length.min(rest.len()));
            answers.push(answer.to_vec());
            bytes = rest;
        }
        Self { answers }
    }

    /// Encodes the answers as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for answer in &self.answers {
            bytes.extend(
                u32::try_from(answer.len())
                    .unwrap_or(u32::MAX)
                    .to_ne_bytes(),
            );
            bytes.extend(answer);
        }
        bytes
    }

    /// A fake kernel that returns these answers, and then `EAGAIN`.
    #[must_use]
    pub fn replay(bytes: &[u8]) -> Replay {
        Replay {
            answers: RefCell::new(Self::decode(bytes).answers.into()),
            info: None,
        }
    }
}

/// Returns the answers in order, regardless of the requests.
#[derive(Debug)]
pub struct Replay {
    answers: RefCell<VecDeque<Vec<u8>>>,
    /// The answer about a table, which is repeated after its entries: a conversation contains it once.
    info: Option<Vec<u8>>,
}

impl Replay {
    fn next(&self) -> io::Result<Vec<u8>> {
        // The error of a socket that has nothing to read.
        self.answers
            .borrow_mut()
            .pop_front()
            .ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// Copies as many bytes as fit.
fn copy(from: &[u8], to: &mut [u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

impl weir_netlink::Transport for Replay {
    fn reopen(&self) -> weir_netlink::Result<Self> {
        // The new socket continues with the remaining answers.
        Ok(Self {
            answers: RefCell::new(self.answers.take()),
            info: None,
        })
    }

    fn send(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn receive(&self, buf: &mut [u8], _: Duration) -> io::Result<usize> {
        let datagram = self.next()?;
        if datagram.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        copy(&datagram, buf);
        Ok(datagram.len())
    }
}

impl xtables::XtTransport for Replay {
    fn names(&mut self, _: XtFamily) -> io::Result<Vec<String>> {
        let text = self.next()?;
        Ok(String::from_utf8_lossy(&text)
            .lines()
            .map(str::to_owned)
            .collect())
    }

    fn get(&mut self, _: XtFamily, option: i32, value: &mut [u8]) -> io::Result<usize> {
        let is_info = option == xtables::raw::IPT_SO_GET_INFO;
        if is_info && let Some(info) = self.info.take() {
            copy(&info, value);
            return Ok(info.len());
        }
        let answer = self.next()?;
        copy(&answer, value);
        if is_info {
            // `size` is the last field of `struct ipt_getinfo`. No kernel has a table larger than 512 MiB
            // (`XT_MAX_TABLE_SIZE`). The size is limited because the time for a large table is not a finding.
            if let Some(size) = value.last_chunk_mut::<4>() {
                *size = u32::from_ne_bytes(*size).min(LARGEST_TABLE).to_ne_bytes();
            }
            self.info = Some(value.to_vec());
        }
        Ok(answer.len())
    }

    fn replace(&mut self, _: XtFamily, _: &mut [u8], counters: &mut [u8]) -> io::Result<()> {
        copy(&self.next()?, counters);
        Ok(())
    }

    fn add_counters(&mut self, _: XtFamily, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
