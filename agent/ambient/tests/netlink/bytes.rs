//! The bytes that are sent, against those of the real `nft`.
// matrix: needs WEIR_GOLDEN

use crate::{cases, is_of_a_pod, nft, of_a_pod, owned, read};
use std::collections::BTreeMap;
use weir_netfilter::nft::{Snapshot, plan, raw};
use weir_netlink::Netns;
use weir_netlink::attr::Attrs;
use weir_netlink::message::NLM_F_ACK;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, message_type};
use weir_testing::namespace_or_skip;

/// A message to nf_tables: what it does and to what, and its bytes.
type Sent = (String, Vec<u8>);

/// What the messages of a batch do, in their order within each chain, without sequence numbers.
fn by_object(messages: Vec<Vec<u8>>) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut all: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for message in messages {
        let (object, bytes) = sent(&message);
        all.entry(object).or_default().push(bytes);
    }
    all
}

/// `NFTA_TABLE_USERDATA`: the version that weir records with each table.
const USERDATA: u16 = 6;
/// `NFTA_CHAIN_POLICY`: weir sends the policy `accept`, which the kernel assumes otherwise.
const POLICY: u16 = 5;

fn sent(message: &[u8]) -> Sent {
    let kind = u16::from_ne_bytes(message[4..6].try_into().unwrap());
    let named = |number: u16| {
        let mut all = Attrs::new(&message[20..]).map(Result::unwrap);
        let found = all.find(|attr| attr.number == number);
        let text = |attr: &[u8]| String::from_utf8_lossy(attr).trim_matches('\0').to_owned();
        found.map(|attr| text(attr.payload)).unwrap_or_default()
    };
    let is = |object| kind == message_type(NFNL_SUBSYS_NFTABLES, object);
    let (object, left_out) = match kind {
        _ if is(raw::NFT_MSG_NEWTABLE) => (format!("table {}", named(1)), Some(USERDATA)),
        _ if is(raw::NFT_MSG_NEWCHAIN) => {
            (format!("chain {} {}", named(1), named(3)), Some(POLICY))
        }
        _ if is(raw::NFT_MSG_NEWRULE) => (format!("rule in {} {}", named(1), named(2)), None),
        other => (format!("message {other:#x}"), None),
    };
    // Kind and flags, family, version and resource.
    let mut bytes = [&message[4..8], &message[16..20]].concat();
    for attr in Attrs::new(&message[20..]).map(Result::unwrap) {
        if left_out == Some(POLICY) && attr.number == POLICY {
            assert_eq!(attr.payload, raw::NF_ACCEPT.to_be_bytes(), "{object}");
        }
        if Some(attr.number) != left_out {
            let end = attr.offset + (4 + attr.payload.len()).next_multiple_of(4);
            bytes.extend(&message[20 + attr.offset..20 + end]);
        }
    }
    (object, bytes)
}

/// The messages of nft as it prints them (`--debug=mnl`): every byte but some of the flags.
fn printed(text: &str) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    // Colours.
    let text = ["[0m", "[1;31m", "[1;32m", "[1;34m"]
        .iter()
        .fold(text.replace('\u{1b}', ""), |text, colour| {
            text.replace(colour, "")
        });
    for line in text.lines() {
        let Some((left, right)) = line.trim_start_matches("meB").split_once("|\t|") else {
            continue;
        };
        let left = left.trim_matches(['|', ' ']);
        let number = |text: &str| text.trim().parse::<u32>().unwrap();
        match right.split('|').next().unwrap_or_default().trim() {
            "message length" => messages.push(number(left).to_ne_bytes().to_vec()),
            "type" => {
                let (kind, letters) = left.split_once('|').unwrap();
                assert_eq!(letters.trim(), "R---", "{line}");
                let kind = u16::try_from(number(kind)).unwrap();
                let message = messages.last_mut().unwrap();
                message.extend(kind.to_ne_bytes());
                message.extend(flags(kind).to_ne_bytes());
            }
            "sequence number" | "port ID" => {
                messages
                    .last_mut()
                    .unwrap()
                    .extend(number(left).to_ne_bytes());
            }
            "extra header" | "data" => {
                let bytes = left
                    .split(' ')
                    .map(|byte| u8::from_str_radix(byte, 16).unwrap());
                messages.last_mut().unwrap().extend(bytes);
            }
            "len" => {
                let words: Vec<&str> = left.split('|').collect();
                let length = u16::try_from(number(words[0])).unwrap();
                let nested = if words[1].starts_with('N') { NESTED } else { 0 };
                let kind = u16::try_from(number(words[2])).unwrap() | nested;
                let message = messages.last_mut().unwrap();
                message.extend(length.to_ne_bytes());
                message.extend(kind.to_ne_bytes());
            }
            other => panic!("{other:?} in {line:?}"),
        }
    }
    for message in &messages {
        let length = u32::from_ne_bytes(message[..4].try_into().unwrap());
        assert_eq!(message.len(), usize::try_from(length).unwrap());
    }
    messages
}

/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;

/// The flags with which nft sends a message, see `netfilter/tests/kernel/bytes`.
fn flags(kind: u16) -> u16 {
    let is = |object| kind == message_type(NFNL_SUBSYS_NFTABLES, object);
    // NLM_F_REQUEST, with NLM_F_CREATE and NLM_F_APPEND.
    match () {
        () if is(raw::NFT_MSG_NEWRULE) => 0xc01,
        () if is(raw::NFT_MSG_NEWCHAIN) => 0x401,
        () => 0x001,
    }
}

/// weir asks for an acknowledgement of the last message before the end of the batch.
fn without_ack(mut batch: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let last = batch.len() - 2;
    let flags = batch[last].get_mut(6..8).unwrap();
    assert_eq!(flags, (flags_of_last() | NLM_F_ACK).to_ne_bytes());
    flags.copy_from_slice(&flags_of_last().to_ne_bytes());
    batch
}

/// It adds a rule.
fn flags_of_last() -> u16 {
    flags(message_type(NFNL_SUBSYS_NFTABLES, raw::NFT_MSG_NEWRULE))
}

fn split(mut batch: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(length) = batch.first_chunk() {
        let (message, rest) = batch.split_at(u32::from_ne_bytes(*length) as usize);
        messages.push(message.to_vec());
        batch = rest;
    }
    messages
}

/// What is sent for a pod that has no rules, and what nft sends for the same.
#[test]
fn the_bytes_for_a_pod_are_those_of_nft() {
    drop(namespace_or_skip!());
    for case in cases().iter().filter(|case| is_of_a_pod(case)) {
        let name = case.display().to_string();
        let ruleset = of_a_pod(case);
        let transaction = plan(&ruleset, &Snapshot::default(), &owned(&ruleset));
        let ours = by_object(without_ack(split(&transaction.to_bytes().unwrap())));
        let netns = Netns::create().unwrap();
        let said = nft(&netns, &["--debug=mnl", "-f", "-"], &read(case, "golden"));
        let theirs = by_object(printed(&said));
        let is_new = |(object, _): &(&String, &Vec<Vec<u8>>)| !object.starts_with("message");
        let only_new = |all: &BTreeMap<String, Vec<Vec<u8>>>| -> BTreeMap<String, Vec<Vec<u8>>> {
            let new = all.iter().filter(is_new);
            new.map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let (ours, theirs) = (only_new(&ours), only_new(&theirs));
        assert!(theirs.len() >= 10, "{name}: {theirs:?}");
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "{name}"
        );
        for (object, theirs) in &theirs {
            assert_eq!(ours[object].len(), theirs.len(), "{name}: {object}");
            for (number, (ours, theirs)) in ours[object].iter().zip(theirs).enumerate() {
                assert_eq!(hex(ours), hex(theirs), "{name}: {object}, {number}");
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| {
        let byte = |b: &u8| format!("{b:02x}");
        word.iter().map(byte).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}
