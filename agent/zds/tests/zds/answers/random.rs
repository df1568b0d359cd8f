//! Random answers, and the required result of each.

use crate::support::HELLO;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use weir_zds::message::{
    Ack, DelWorkload, KeepWorkload, Request, Response, WorkloadRequest, WorkloadResponse, ZdsHello,
};

/// The requests of a snapshot: two pods to add, one to keep, and the end.
pub(super) const REQUESTS: usize = 4;
/// The maximum number of bytes of an answer that the server reads.
const ANSWER: usize = 256 << 10;

/// The request that the peer answers wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Hello,
    /// The request of the snapshot with this number.
    Snapshot(usize),
    Add,
    Remove,
}

#[derive(Clone)]
pub(super) struct Answer {
    pub(super) bytes: Vec<u8>,
    /// Whether a descriptor is attached, which no answer may have.
    pub(super) is_rich: bool,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let begin = &self.bytes[..self.bytes.len().min(100)];
        let (length, rich) = (self.bytes.len(), self.is_rich);
        write!(f, "{length} bytes {begin:02x?}, descriptor: {rich}")
    }
}

impl Answer {
    /// Why the answer ends the connection. `Err`: the answer is valid; a text is that of a refusal.
    pub(super) fn fault(&self, phase: Phase) -> Result<&'static str, String> {
        if self.is_rich {
            return Ok("a descriptor");
        }
        if self.bytes.len() > ANSWER {
            return Ok("more than");
        }
        if self.bytes.is_empty() {
            return Ok("ztunnel has closed it");
        }
        if phase == Phase::Hello {
            return match ZdsHello::decode(&self.bytes[..]) {
                Ok(_) => Err(String::new()),
                Err(_) => Ok("its hello cannot be read"),
            };
        }
        match WorkloadResponse::decode(&self.bytes[..]).map(|r| r.payload) {
            Err(_) => Ok("an answer cannot be read"),
            Ok(None) => Ok("no payload that this agent knows"),
            Ok(Some(Response::Ack(ack))) => Err(ack.error),
        }
    }
}

pub(super) fn phases() -> impl Strategy<Value = Phase> {
    prop_oneof![
        2 => Just(Phase::Hello),
        3 => (0..REQUESTS).prop_map(Phase::Snapshot),
        2 => Just(Phase::Add),
        2 => Just(Phase::Remove),
    ]
}

fn message(payload: Request) -> Vec<u8> {
    let payload = Some(payload);
    WorkloadRequest { payload }.encode_to_vec()
}

/// Encoded messages of either side.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let ack = |error| {
        let payload = Some(Response::Ack(Ack { error }));
        WorkloadResponse { payload }.encode_to_vec()
    };
    prop_oneof![
        Just(HELLO.to_vec()),
        any::<i32>().prop_map(|version| ZdsHello { version }.encode_to_vec()),
        ".{0,40}".prop_map(ack),
        (1..100_000_usize).prop_map(move |n| ack("b".repeat(n))),
        ".{0,40}".prop_map(|uid| message(Request::Keep(KeepWorkload { uid }))),
        ".{0,40}".prop_map(|uid| message(Request::Del(DelWorkload { uid }))),
    ]
}

/// Bytes of a message, some of them replaced, cut off, inserted or duplicated.
fn changed((mut bytes, changes): (Vec<u8>, Vec<(Index, u8, u8)>)) -> Vec<u8> {
    for (at, byte, what) in changes {
        let at = at.index(bytes.len() + 1);
        match what {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, byte),
            2 => bytes.extend_from_within(at..),
            _ => bytes.get_mut(at).into_iter().for_each(|b| *b = byte),
        }
    }
    bytes
}

pub(super) fn answers() -> impl Strategy<Value = Answer> {
    let changes = proptest::collection::vec((any::<Index>(), any::<u8>(), 0..5_u8), 0..4);
    let random = proptest::collection::vec(any::<u8>(), 0..2000);
    // Nested groups, and lengths beyond the end of the message.
    let bomb = (
        1..3000_usize,
        prop_oneof![Just(0x0b_u8), Just(0x0a), Just(0xff), Just(0x80)],
    );
    let bytes = prop_oneof![
        5 => (messages(), changes).prop_map(changed),
        3 => random,
        1 => bomb.prop_map(|(n, byte)| vec![byte; n]),
        1 => (ANSWER - 2..ANSWER + 9000).prop_map(|n| vec![0; n]),
    ];
    let is_rich = prop_oneof![9 => Just(false), 1 => Just(true)];
    (bytes, is_rich).prop_map(|(bytes, is_rich)| Answer { bytes, is_rich })
}
