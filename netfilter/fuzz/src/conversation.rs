//! What a kernel said, as one input.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use weir_netfilter::xtables::{self, XtFamily};

/// Bytes of a table that a conversation may speak of.
const LARGEST_TABLE: u32 = 1 << 20;

/// Answers in their order. As bytes: for each its length (`u32`, host order), then the answer. An empty one: there was
/// nothing more to read just then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The answers.
    pub answers: Vec<Vec<u8>>,
}

impl Conversation {
    /// Reads any bytes: a length that is too large means the rest.
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

    /// As bytes.
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

    /// A kernel that gives these answers and then no more.
    #[must_use]
    pub fn replay(bytes: &[u8]) -> Replay {
        Replay(RefCell::new(Self::decode(bytes).answers.into()))
    }
}

/// Gives answers, whatever it is asked.
#[derive(Debug)]
pub struct Replay(RefCell<VecDeque<Vec<u8>>>);

impl Replay {
    fn next(&self) -> io::Result<Vec<u8>> {
        // What a socket says that has nothing more to read.
        self.0
            .borrow_mut()
            .pop_front()
            .ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// Copies as much as there is room for.
fn copy(from: &[u8], to: &mut [u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

impl weir_netlink::Transport for Replay {
    fn reopen(&self) -> weir_netlink::Result<Self> {
        // The same kernel goes on.
        Ok(Self(RefCell::new(self.0.take())))
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
        let answer = self.next()?;
        copy(&answer, value);
        if option == xtables::raw::IPT_SO_GET_INFO {
            // `size` is the last field of `struct ipt_getinfo`. No kernel has a table of 512 MiB
            // (`XT_MAX_TABLE_SIZE`); the time that a large one takes is no finding.
            if let Some(size) = value.last_chunk_mut::<4>() {
                *size = u32::from_ne_bytes(*size).min(LARGEST_TABLE).to_ne_bytes();
            }
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
