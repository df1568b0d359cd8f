//! Matches and targets whose structures end with a list: the options headers and the routing header of IPv6, and the
//! TCP options that a target removes.

use super::prelude::*;
use crate::address::Address;
use std::net::Ipv6Addr;

/// `IP6T_OPTS_OPTSNR` and `IP6T_RT_HOPS`
const MAX: usize = 16;

/// A list of `TYPE` or `TYPE:LENGTH` from offset 6 on; their count is at 38.
const OPTIONS: Code = Code {
    show: |b, _, _| {
        let count = usize::try_from(b.uint(38, 1)).ok()?.min(MAX);
        let option = |n: usize| match (b.uint(6 + 2 * n, 2) >> 8, b.uint(6 + 2 * n, 2) & 0xff) {
            (kind, 0xff) => kind.to_string(),
            (kind, length) => format!("{kind}:{length}"),
        };
        Some(vec![(0..count).map(option).collect::<Vec<_>>().join(",")])
    },
    read: |o, b, _, _| {
        let mut count = 0;
        for word in o.word(0).split(',') {
            if count == MAX {
                return Err(o.wrong("has more than 16 options; leave some out"));
            }
            let (kind, length) = word.split_once(':').unwrap_or((word, "255"));
            let value = number_of(o, kind, 1)? << 8 | number_of(o, length, 1)?;
            b.put(6 + 2 * count, 2, value);
            count += 1;
        }
        b.put(38, 1, u64::try_from(count).unwrap_or(0));
        Ok(())
    },
    ..Code::WORD
};

/// A list of addresses from offset 20 on; their count is at 276.
const ADDRESSES: Code = Code {
    show: |b, _, _| {
        let count = usize::try_from(b.uint(276, 1)).ok()?.min(MAX);
        let address = |n: usize| {
            let bytes: [u8; 16] = b.bytes(20 + 16 * n, 16).try_into().unwrap_or_default();
            Address(Ipv6Addr::from(bytes).into()).to_string()
        };
        Some(vec![(0..count).map(address).collect::<Vec<_>>().join(",")])
    },
    read: |o, b, _, _| {
        let mut count = 0;
        for word in o.word(0).split(',') {
            let address: Option<Ipv6Addr> = word.parse().ok().filter(|_| count < MAX);
            let address =
                address.ok_or_else(|| o.wrong("is no list of up to 16 addresses; give those"))?;
            b.set(20 + 16 * count, &address.octets());
            count += 1;
        }
        b.put(276, 1, u64::try_from(count).unwrap_or(0));
        Ok(())
    },
    ..Code::WORD
};

/// Names that are parsed; the numbers are printed.
const TCP_OPTIONS: &[(&str, u64)] = &[
    ("wscale", 3),
    ("mss", 2),
    ("sack-permitted", 4),
    ("sack", 5),
    ("timestamp", 8),
    ("md5", 19),
];

/// `strip_bmap`: one bit for each option, in words of 32 bits.
const STRIPPED: Code = Code {
    show: |b, _, _| {
        let set = (0..256).filter(|n| b.uint(n / 32 * 4, 4) & (1 << (n % 32)) != 0);
        let all: Vec<String> = set.map(|n| n.to_string()).collect();
        (!all.is_empty()).then(|| vec![all.join(",")])
    },
    read: |o, b, _, _| {
        for word in o.word(0).split(',') {
            let named = TCP_OPTIONS.iter().find(|(name, _)| *name == word);
            let number = named.map_or_else(|| number_of(o, word, 1), |(_, n)| Ok(*n))?;
            if number < 2 {
                return Err(o.wrong("has the option 0 or 1, which cannot be removed; leave it out"));
            }
            let at = usize::try_from(number / 32 * 4).unwrap_or(0);
            let old = b.uint(at, 4);
            b.put(at, 4, old | 1 << (number % 32));
        }
        Ok(())
    },
    ..Code::WORD
};

rows! {
    MATCH "dst" { family: Some(Ip6), size: 40 } [
        field(&["--dst-len"], Number(4), 0).set(4, 1, 1).not(5, 1, 1),
        field(&["--dst-opts"], Value::Code(&OPTIONS), 0).set(4, 1, 2),
    ]
    MATCH "hbh" { family: Some(Ip6), size: 40 } [
        field(&["--hbh-len"], Number(4), 0).set(4, 1, 1).not(5, 1, 1),
        field(&["--hbh-opts"], Value::Code(&OPTIONS), 0).set(4, 1, 2),
    ]
    MATCH "rt" { family: Some(Ip6), size: 280, initial: &[(8, &[0xff; 4])] } [
        field(&["--rt-type"], Number(4), 0).set(16, 1, 1).not(17, 1, 1),
        field(&["--rt-segsleft"], Range(4), 4).set(16, 1, 2).not(17, 1, 2),
        field(&["--rt-len"], Number(4), 12).set(16, 1, 4).not(17, 1, 4),
        flag(&["--rt-0-res"], 16, 1, 8),
        field(&["--rt-0-addrs"], Value::Code(&ADDRESSES), 0).set(16, 1, 0x10),
        flag(&["--rt-0-not-strict"], 16, 1, 0x20),
    ]
    TARGET "TCPOPTSTRIP" { size: 32 } [field(&["--strip-options"], Value::Code(&STRIPPED), 0)]
}
