//! `-m sctp` (`struct xt_sctp_info`): ports, and a set of chunk types with up to four conditions on their flags.

use super::prelude::*;
use std::collections::BTreeSet;

/// Offsets of `chunkmap`, `chunk_match_type`, `flag_info` and `flag_count`.
const MAP: usize = 8;
const MAP_LEN: usize = 256;
const HOW: usize = 264;
const FLAG_INFO: usize = 268;
const FLAG_COUNT: usize = 280;
const MAX_FLAGS: usize = 4;

/// The type, the name, and the letters of its flags from bit 7 to bit 0.
#[rustfmt::skip]
const CHUNKS: &[(usize, &str, &str)] = &[
    (0, "DATA", "----IUBE"), (1, "INIT", "--------"), (2, "INIT_ACK", "--------"), (3, "SACK", "--------"),
    (4, "HEARTBEAT", "--------"), (5, "HEARTBEAT_ACK", "--------"), (6, "ABORT", "-------T"),
    (7, "SHUTDOWN", "--------"), (8, "SHUTDOWN_ACK", "--------"), (9, "ERROR", "--------"),
    (10, "COOKIE_ECHO", "--------"), (11, "COOKIE_ACK", "--------"), (12, "ECN_ECNE", "--------"),
    (13, "ECN_CWR", "--------"), (14, "SHUTDOWN_COMPLETE", "-------T"), (64, "I_DATA", "----IUBE"),
    (128, "ASCONF_ACK", "--------"), (130, "RE_CONFIG", "--------"), (132, "PAD", "--------"),
    (192, "FORWARD_TSN", "--------"), (193, "ASCONF", "--------"), (194, "I_FORWARD_TSN", "--------"),
];

const MATCHES: &[(&str, u64)] = &[("any", 1), ("all", 2), ("only", 4)];

const CHUNK_TYPES: Code = Code {
    words: 2,
    quote: Quote::Never,
    show: |b, _, _| {
        let how = b.uint(HOW, 4);
        let how = MATCHES.iter().find(|(_, n)| *n == how)?.0.to_owned();
        if !has_known_flags(b) {
            return None;
        }
        let map = b.bytes(MAP, MAP_LEN);
        if map.iter().all(|byte| *byte == 0) {
            return Some(vec![how, "NONE".into()]);
        }
        if map.iter().all(|byte| *byte == 0xff) {
            return Some(vec![how, "ALL".into()]);
        }
        let set = CHUNKS.iter().filter(|(kind, ..)| is_set(b, *kind));
        let words: Vec<String> = set
            .map(|(kind, name, letters)| format!("{name}{}", flags(b, *kind, letters)))
            .collect();
        Some(vec![how, words.join(",")])
    },
    read: |o, b, _, _| {
        b.put(HOW, 4, named(o, o.word(0), MATCHES)?);
        match o.word(1).to_ascii_uppercase().as_str() {
            "ALL" => b.set(MAP, &[0xff; MAP_LEN]),
            "NONE" => {}
            _ => {
                for word in o.word(1).split(',') {
                    chunk(o, b, word)?;
                }
            }
        }
        Ok(())
    },
};

/// The offset of the word of `chunkmap` with the bit of a type. The map has 64 words of 32 bits; the kernel uses the first eight.
fn word_of(kind: usize) -> usize {
    MAP + kind / 32 * 4
}

fn is_set(b: &Blob, kind: usize) -> bool {
    b.uint(word_of(kind), 4) & (1 << (kind % 32)) != 0
}

/// Whether the conditions on flags can be printed: one for each chunk of the set at most, of flags that have letters.
fn has_known_flags(b: &Blob) -> bool {
    let count = usize::try_from(b.uint(FLAG_COUNT, 4)).unwrap_or(usize::MAX);
    let mut kinds = BTreeSet::new();
    let is_known = |n: usize| {
        let at = FLAG_INFO + 3 * n;
        let (of, flag, mask) = (b.uint(at, 1), b.uint(at + 1, 1), b.uint(at + 2, 1));
        if n >= count {
            return (of, flag, mask) == (0xff, 0, 0);
        }
        let mut chunks = CHUNKS.iter();
        let chunk = chunks.find(|(kind, ..)| u64::try_from(*kind) == Ok(of) && is_set(b, *kind));
        let letters = chunk.map_or("", |(_, _, letters)| letters).chars();
        let known = letters.fold(0, |all, letter| all << 1 | u64::from(letter != '-'));
        mask != 0 && mask & !known == 0 && flag & !mask == 0 && kinds.insert(of)
    };
    count <= MAX_FLAGS && (0..MAX_FLAGS).all(is_known)
}

/// Prints the conditions on the flags of a chunk: upper case for a set flag, lower case for a clear one.
fn flags(b: &Blob, kind: usize, letters: &str) -> String {
    let count = usize::try_from(b.uint(FLAG_COUNT, 4))
        .unwrap_or(0)
        .min(MAX_FLAGS);
    let mut text = String::new();
    for at in (0..count).map(|n| FLAG_INFO + 3 * n) {
        let (of, flag, mask) = (b.uint(at, 1), b.uint(at + 1, 1), b.uint(at + 2, 1));
        if usize::try_from(of) != Ok(kind) || mask == 0 {
            continue;
        }
        text.push(':');
        for (n, letter) in letters.chars().enumerate() {
            let bit = 0x80 >> n;
            if mask & bit != 0 {
                text.push(if flag & bit != 0 {
                    letter
                } else {
                    letter.to_ascii_lowercase()
                });
            }
        }
    }
    text
}

/// `NAME` or `NAME:FLAGS`
fn chunk(o: &Opt, b: &mut Blob, word: &str) -> Result<(), Complaint> {
    let (name, given) = word.split_once(':').unwrap_or((word, ""));
    let found = CHUNKS
        .iter()
        .find(|(_, known, _)| known.eq_ignore_ascii_case(name));
    let (kind, _, letters) = found.ok_or_else(|| {
        let known: Vec<&str> = CHUNKS.iter().map(|(_, name, _)| *name).collect();
        o.wrong(&format!("has an unknown chunk; give {}", known.join(", ")))
    })?;
    let old = b.uint(word_of(*kind), 4);
    b.put(word_of(*kind), 4, old | 1 << (kind % 32));
    if given.is_empty() {
        return Ok(());
    }
    let count = usize::try_from(b.uint(FLAG_COUNT, 4)).unwrap_or(0);
    if count >= MAX_FLAGS {
        return Err(o.wrong("has flags of more than four chunks; leave some out"));
    }
    let (mut flag, mut mask) = (0, 0);
    for letter in given.chars() {
        let n = letters
            .find(letter.to_ascii_uppercase())
            .filter(|_| letter != '-');
        let bit = n
            .map(|n| 0x80 >> n)
            .ok_or_else(|| o.wrong("has an unknown flag; give letters of IUBE or T"))?;
        mask |= bit;
        flag |= if letter.is_ascii_uppercase() { bit } else { 0 };
    }
    let kind = u8::try_from(*kind).unwrap_or(0);
    b.set(FLAG_INFO + 3 * count, &[kind, flag, mask]);
    b.put(FLAG_COUNT, 4, u64::try_from(count + 1).unwrap_or(0));
    Ok(())
}

const ANY_CHUNK: &[u8] = &[0xff];

rows! {
    // The order of the conditions on flags has no meaning, and iptables prints them in the order of the chunks.
    MATCH "sctp" { size: 292, rounded: FLAG_INFO..FLAG_COUNT, initial: &[(268, ANY_CHUNK), (271, ANY_CHUNK), (274, ANY_CHUNK), (277, ANY_CHUNK)] } [
        field(&["--sport", "--source-port"], Value::Range(2), 4).set(284, 4, 1).not(288, 4, 1),
        field(&["--dport", "--destination-port"], Value::Range(2), 0).set(284, 4, 2).not(288, 4, 2),
        field(&["--chunk-types"], Value::Code(&CHUNK_TYPES), 0).set(284, 4, 4).not(288, 4, 4),
    ]
}
