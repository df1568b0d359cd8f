//! The messages of this crate against those of the real `nft`, byte for byte.
//!
//! Each golden of `tests/kernel/bytes` contains commands and the messages that nft sent for them (`ci/capture-nft` records them). The test
//! runs the commands with nft, reads the resulting ruleset, plans the same change, and compares the messages that it would send. The
//! comparison leaves out two differences: the generation in the begin message, and the acknowledgement that this crate requests for the
//! last one.

use crate::common::{load, read};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_netfilter::nft::expr::{Expr, ExprElem};
use weir_netfilter::nft::{NftOp, TableId, plan, raw};
use weir_netlink::attr::{AttrSet, Attrs};
use weir_netlink::message::NLM_F_ACK;
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, message_type};
use weir_testing::namespace_or_skip;

/// The contents of a golden file.
struct Golden {
    name: String,
    before: String,
    commands: String,
    messages: Vec<Vec<u8>>,
}

fn goldens() -> Vec<Golden> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/bytes");
    let files = std::fs::read_dir(&dir).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no golden in {}", dir.display());
    paths.iter().map(|p| golden(p)).collect()
}

fn golden(path: &Path) -> Golden {
    let text = std::fs::read_to_string(path).unwrap();
    let part = |head: &str| -> String {
        let lines = text.lines().skip_while(|l| *l != head).skip(1);
        lines
            .map_while(|l| l.strip_prefix("#   "))
            .map(|l| format!("{l}\n"))
            .collect()
    };
    let hex: String = text
        .lines()
        .filter_map(|l| l.split('#').next())
        .flat_map(|l| l.chars().filter(|c| !c.is_whitespace()))
        .collect();
    let bytes: Vec<u8> = hex
        .as_bytes()
        .chunks(2)
        .map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap())
        .collect();
    Golden {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        before: part("# before:"),
        commands: part("# nft -f -:"),
        messages: messages(&bytes),
    }
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(b[at..at + 2].try_into().unwrap())
}

/// The messages of a datagram, each of them complete.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
        out.push(bytes[..length].to_vec());
        bytes = &bytes[length..];
    }
    out
}

/// The messages of this crate, without the two differences.
fn comparable(mut ours: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    // The begin message ends after its headers; the generation would follow.
    ours[0].truncate(20);
    ours[0][..4].copy_from_slice(&20u32.to_ne_bytes());
    let last = ours.len() - 2;
    let flags = u16_at(&ours[last], 6);
    assert_ne!(
        flags & NLM_F_ACK,
        0,
        "the last message asks for no acknowledgement"
    );
    ours[last][6..8].copy_from_slice(&(flags & !NLM_F_ACK).to_ne_bytes());
    ours
}

/// The messages that nft sent, without the IDs of existing sets.
///
/// nft numbers existing sets from its own cache, and also refers to them by number when it adds elements. The kernel ignores the number,
/// because no set of the batch has it.
fn theirs(golden: &Golden) -> Vec<Vec<u8>> {
    let kind = |m: &[u8]| u16_at(m, 4);
    let new = |object| message_type(NFNL_SUBSYS_NFTABLES, object);
    if golden
        .messages
        .iter()
        .any(|m| kind(m) == new(raw::NFT_MSG_NEWSET))
    {
        return golden.messages.clone();
    }
    let strip = |m: &Vec<u8>| {
        if kind(m) != new(raw::NFT_MSG_NEWSETELEM) {
            return m.clone();
        }
        let mut out = m[..20].to_vec();
        for a in Attrs::new(&m[20..])
            .map(Result::unwrap)
            .filter(|a| a.number != 4)
        {
            out.extend(
                &m[20 + a.offset..20 + a.offset + (4 + a.payload.len()).next_multiple_of(4)],
            );
        }
        let length = u32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&length.to_ne_bytes());
        out
    };
    golden.messages.iter().map(strip).collect()
}

fn hex(message: &[u8]) -> String {
    message
        .chunks(4)
        .map(|c| c.iter().map(|b| format!("{b:02x}")).collect::<String>() + " ")
        .collect()
}

/// The differences, if any.
fn compare(golden: &Golden) -> Vec<String> {
    let ns = weir_netlink::Netns::create().unwrap();
    load(&ns, &golden.before);
    let before = read(&ns);
    load(&ns, &golden.commands);
    let after = read(&ns);
    let tables = after.ruleset.tables.iter().chain(&before.ruleset.tables);
    let mut owned: Vec<TableId> = tables.map(|t| (t.family, t.name.clone())).collect();
    // Before and after together, there is at most one table.
    owned.dedup();
    let transaction = plan(&after.ruleset, &before, &owned);
    let texts: Vec<String> = transaction.ops.iter().map(ToString::to_string).collect();
    let ours = comparable(messages(&transaction.to_bytes().unwrap()));
    let mut wrong = Vec::new();
    if texts.iter().any(|t| t.contains("opaque(")) {
        wrong.push(format!("{}: not understood: {texts:#?}", golden.name));
    }
    if ours.len() != golden.messages.len() {
        let n = (ours.len(), golden.messages.len());
        wrong.push(format!(
            "{}: {} messages, nft sends {}: {texts:#?}",
            golden.name, n.0, n.1
        ));
    }
    for (i, (o, g)) in ours.iter().zip(theirs(golden)).enumerate() {
        if *o != g {
            let name = &golden.name;
            wrong.push(format!(
                "{name} message {i}:\n  ours {}\n  nft  {}",
                hex(o),
                hex(&g)
            ));
        }
    }
    wrong
}

#[test]
fn our_messages_are_those_of_nft() {
    let _probe = namespace_or_skip!();
    let goldens = goldens();
    // Weir has no statement that writes into the packet. It keeps such an expression as the kernel lists it, which is longer than what nft
    // sends.
    let compared = goldens.iter().filter(|g| g.name != "payload-set");
    let wrong: Vec<String> = compared.flat_map(compare).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every expression of every rule in the goldens.
fn expressions() -> Vec<(String, Vec<u8>)> {
    let new_rule = message_type(NFNL_SUBSYS_NFTABLES, raw::NFT_MSG_NEWRULE);
    let mut out = Vec::new();
    for message in goldens().iter().flat_map(|g| &g.messages) {
        if u16_at(message, 4) != new_rule {
            continue;
        }
        let lists = Attrs::new(&message[20..])
            .map(Result::unwrap)
            .filter(|a| a.number == 4);
        for list in lists {
            for element in Attrs::new(list.payload).map(Result::unwrap) {
                let name = ExprElem::decode(element.payload)
                    .unwrap()
                    .0
                    .name()
                    .to_owned();
                out.push((name, element.payload.to_vec()));
            }
        }
    }
    out
}

/// The expressions of which the statements of a rule consist.
const NAMES: [&str; 20] = [
    "bitwise",
    "byteorder",
    "cmp",
    "counter",
    "ct",
    "fib",
    "immediate",
    "limit",
    "log",
    "lookup",
    "masq",
    "meta",
    "nat",
    "notrack",
    "payload",
    "range",
    "redir",
    "reject",
    "socket",
    "tproxy",
];

// matrix: none: about values and programs, with no namespace, no rule and no kernel
#[test]
fn every_expression_has_a_golden_and_is_read_and_written_alike() {
    let mut missing: BTreeSet<&str> = NAMES.iter().copied().collect();
    for (name, bytes) in expressions() {
        missing.remove(name.as_str());
        let read = ExprElem::decode(&bytes).unwrap();
        assert!(
            !matches!(read.0, Expr::Opaque(_)),
            "{name} is not known: {read:?}"
        );
        let mut w = weir_netlink::attr::Writer::new();
        read.encode(&mut w);
        assert_eq!(hex(&w.finish().unwrap()), hex(&bytes), "{name}: {read:?}");
    }
    assert!(
        missing.is_empty(),
        "no golden for {missing:?}: add a file and run ci/capture-nft"
    );
}

/// Attributes for which nft 1.0.6 has no rule, or which only a dump contains.
const NEVER_SENT: &[(&str, &str)] = &[
    (
        "NFTA_BITWISE_DATA",
        "for shifts, which only arithmetic on keys of concatenations writes",
    ),
    (
        "NFTA_PAYLOAD_CSUM_FLAGS",
        "0 in all rules that keep the transport checksum right by itself",
    ),
];

// matrix: none: about values and programs, with no namespace, no rule and no kernel
#[test]
fn every_attribute_of_an_expression_is_in_a_golden() {
    // The attributes of the other expressions are sent as they were read: see `nft_rules`.
    let own = |name: &str| format!("NFTA_{}_", name.to_uppercase());
    let own: Vec<String> = NAMES.iter().map(|name| own(name)).collect();
    let mut missing: BTreeSet<&str> = Expr::constants()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| own.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    for (name, bytes) in expressions() {
        let prefix = format!("NFTA_{}_", name.to_uppercase());
        for attr in Attrs::new(&bytes).map(Result::unwrap) {
            for inner in Attrs::new(if attr.nested { attr.payload } else { &[] }) {
                let number = inner.unwrap().number;
                let known = Expr::constants().into_iter();
                let found = known
                    .into_iter()
                    .find(|(c, n)| *n == number && c.starts_with(&prefix));
                missing.remove(
                    found
                        .unwrap_or_else(|| panic!("{name} attribute {number}"))
                        .0,
                );
            }
        }
    }
    for (name, _) in NEVER_SENT {
        assert!(missing.remove(name), "{name} is sent after all");
    }

    assert!(missing.is_empty(), "in no golden: {missing:?}");
}

// matrix: none: about values and programs, with no namespace, no rule and no kernel
#[test]
fn every_operation_has_a_golden() {
    let all: BTreeSet<u16> = goldens()
        .iter()
        .flat_map(|g| &g.messages)
        .map(|m| u16_at(m, 4))
        .collect();
    for kind in [
        raw::NFT_MSG_NEWTABLE,
        raw::NFT_MSG_DELTABLE,
        raw::NFT_MSG_NEWCHAIN,
        raw::NFT_MSG_DELCHAIN,
        raw::NFT_MSG_NEWRULE,
        raw::NFT_MSG_DELRULE,
        raw::NFT_MSG_NEWSET,
        raw::NFT_MSG_DELSET,
        raw::NFT_MSG_NEWSETELEM,
        raw::NFT_MSG_DELSETELEM,
    ] {
        assert!(
            all.contains(&message_type(NFNL_SUBSYS_NFTABLES, kind)),
            "message {kind}"
        );
    }
    // The match forces a decision about each new kind of operation.
    let known = |op: &NftOp| match op {
        NftOp::AddTable(..)
        | NftOp::DeleteTable(..)
        | NftOp::ReplaceTable(..)
        | NftOp::AddSet(..)
        | NftOp::DeleteSet(..)
        | NftOp::AddObject(..)
        | NftOp::AddElements(..)
        | NftOp::DeleteElements(..)
        | NftOp::AddChain(..)
        | NftOp::SetPolicy(..)
        | NftOp::DeleteChain(..)
        | NftOp::AddRule(..)
        | NftOp::DeleteRule(..) => true,
    };
    assert!(known(&NftOp::DeleteTable((
        weir_netfilter::nft::TableFamily::Inet,
        "x".to_owned()
    ))));
}
