//! Matches on protocol headers and on extension headers of IPv6.

use super::prelude::*;

/// The range from 0 to `u32::MAX`, which matches every packet.
const ALL: &[u8] = &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// The end of that range.
const LAST: &[u8] = &[0xff; 4];

/// `DCCP_PKT_*`; the last entry is every type from 10 on.
#[rustfmt::skip]
const DCCP_TYPES: &[(&str, u64)] = &[
    ("REQUEST", 1), ("RESPONSE", 1 << 1), ("DATA", 1 << 2), ("ACK", 1 << 3), ("DATAACK", 1 << 4),
    ("CLOSEREQ", 1 << 5), ("CLOSE", 1 << 6), ("RESET", 1 << 7), ("SYNC", 1 << 8), ("SYNCACK", 1 << 9),
    ("INVALID", 0xfc00),
];

/// `MASK_*` of `ip6t_ipv6header.h`, with the names of `/etc/protocols` and those of ip6tables.
#[rustfmt::skip]
const IPV6_HEADERS: &[(&str, u64)] = &[
    ("hop-by-hop", 128), ("ipv6-opts", 64), ("ipv6-route", 32), ("ipv6-frag", 16), ("ah", 8), ("esp", 4),
    ("ipv6-nonxt", 2), ("protocol", 1), ("hop", 128), ("dst", 64), ("route", 32), ("frag", 16), ("auth", 8),
    ("none", 2), ("prot", 1), ("0", 128), ("60", 64), ("43", 32), ("44", 16), ("51", 8), ("50", 4), ("59", 2),
    ("255", 1),
];

/// `IP6_MH_TYPE_*`, with the short names of ip6tables.
#[rustfmt::skip]
const MH_TYPES: &[(&str, u64)] = &[
    ("binding-refresh-request", 0), ("home-test-init", 1), ("careof-test-init", 2), ("home-test", 3),
    ("careof-test", 4), ("binding-update", 5), ("binding-acknowledgement", 6), ("binding-error", 7), ("brr", 0),
    ("hoti", 1), ("coti", 2), ("hot", 3), ("cot", 4), ("bu", 5), ("ba", 6), ("be", 7),
];

/// `FIRST:LAST`, printed as numbers and parsed as numbers or names.
const MH: Code = Code {
    words: 1,
    quote: Quote::Never,
    show: |b, _, family| Range(1).show(b, 0, family),
    read: |o, b, _, _| {
        let named = |word: &str| {
            let mut names = MH_TYPES.iter();
            let whole = names.find(|(name, _)| name.eq_ignore_ascii_case(word));
            let found = whole.or_else(|| MH_TYPES.iter().find(|(name, _)| begins(name, word)));
            found.map_or_else(|| word.to_owned(), |(_, n)| n.to_string())
        };
        let words: Vec<String> = o.word(0).split(':').map(named).collect();
        let (first, last) = range_of(o, &words.join(":"), 1)?;
        b.put(0, 1, first);
        b.put(1, 1, last);
        Ok(())
    },
};

/// `IPT_TTL_*` and `IP6T_HL_*` in the first byte: 0 equal, 1 not equal, 2 less, 3 greater. The number is the second byte.
const fn mode(names: &'static [&'static str], mode: u64) -> Field {
    field(names, Number(1), 1).is(0, 1, mode)
}

const NOT_EQUAL: Invert = Invert::Is(Place { at: 0, width: 1 }, 1);

/// An option of `-m srh`: the offset of its number, and its bit in both words of flags.
const fn srh(names: &'static [&'static str], value: Value, at: usize, bit: u64) -> Field {
    field(names, value, at).set(104, 2, bit).not(106, 2, bit)
}

rows! {
    MATCH "ah" { family: Some(Ip), size: 12, initial: &[(4, LAST)] } [
        field(&["--ahspi"], Range(4), 0).unless(ALL).not(8, 1, 1),
    ]
    MATCH "ah" { family: Some(Ip6), size: 16, initial: &[(4, LAST)] } [
        field(&["--ahspi"], Range(4), 0).unless(ALL).not(13, 1, 1),
        field(&["--ahlen"], Number(4), 8).unless(&[0; 4]).not(13, 1, 2),
        flag(&["--ahres"], 12, 1, 1),
    ]
    MATCH "esp" { size: 12, initial: &[(4, LAST)] } [field(&["--espspi"], Range(4), 0).unless(ALL).not(8, 1, 1)]
    MATCH "ipcomp" { size: 12 } [
        field(&["--ipcompspi"], Range(4), 0).not(8, 1, 1),
        flag(&["--compres"], 9, 1, 1),
    ]
    MATCH "dccp" { size: 16 } [
        field(&["--sport", "--source-port"], Range(2), 4).set(8, 2, 1).not(10, 2, 1),
        field(&["--dport", "--destination-port"], Range(2), 0).set(8, 2, 2).not(10, 2, 2),
        field(&["--dccp-types"], Names(2, DCCP_TYPES), 12).set(8, 2, 4).not(10, 2, 4),
        field(&["--dccp-option"], Number(1), 14).set(8, 2, 8).not(10, 2, 8).within(1, 255),
    ]
    MATCH "tcpmss" { size: 6 } [field(&["--mss"], Range(2), 0).not(4, 1, 1).need()]
    MATCH "ecn" { size: 4, one_of: &["--ecn-tcp-ece", "--ecn-tcp-cwr", "--ecn-ip-ect"] } [
        flag(&["--ecn-tcp-ece"], 0, 1, 0x10).not(1, 1, 0x10),
        flag(&["--ecn-tcp-cwr"], 0, 1, 0x20).not(1, 1, 0x20),
        field(&["--ecn-ip-ect"], Number(1), 2).set(0, 1, 1).not(1, 1, 1).within(0, 3),
    ]
    MATCH "ttl" { family: Some(Ip), size: 2, one_of: &["--ttl-eq", "--ttl", "--ttl-lt", "--ttl-gt"] } [
        mode(&["--ttl-eq", "--ttl"], 0).invert(NOT_EQUAL),
        mode(&["--ttl-lt"], 2),
        mode(&["--ttl-gt"], 3),
    ]
    MATCH "hl" { family: Some(Ip6), size: 2, one_of: &["--hl-eq", "--hl", "--hl-lt", "--hl-gt"] } [
        mode(&["--hl-eq", "--hl"], 0).invert(NOT_EQUAL),
        mode(&["--hl-lt"], 2),
        mode(&["--hl-gt"], 3),
    ]
    MATCH "eui64" { family: Some(Ip6), size: 4 }
    MATCH "frag" { family: Some(Ip6), size: 16, initial: &[(4, LAST)] } [
        field(&["--fragid"], Range(4), 0).set(12, 1, 1).not(13, 1, 1),
        field(&["--fraglen"], Number(4), 8).set(12, 1, 2).not(13, 1, 2),
        flag(&["--fragres"], 12, 1, 4),
        flag(&["--fragfirst"], 12, 1, 8),
        flag(&["--fragmore"], 12, 1, 0x10),
        flag(&["--fraglast"], 12, 1, 0x20),
    ]
    MATCH "ipv6header" { family: Some(Ip6), size: 3 } [
        field(&["--header"], Names(1, IPV6_HEADERS), 0).not(1, 1, 0xff).need(),
        flag(&["--soft"], 2, 1, 0xff),
    ]
    MATCH "mh" { family: Some(Ip6), size: 3, initial: &[(1, &[0xff])] } [
        field(&["--mh-type"], Value::Code(&MH), 0).unless(&[0, 0xff]).not(2, 1, 1),
    ]
    MATCH "srh" { revision: 1, family: Some(Ip6), size: 108 } [
        srh(&["--srh-next-hdr"], Number(1), 0, 1),
        srh(&["--srh-hdr-len-eq"], Number(1), 1, 1 << 1),
        srh(&["--srh-hdr-len-gt"], Number(1), 1, 1 << 2),
        srh(&["--srh-hdr-len-lt"], Number(1), 1, 1 << 3),
        srh(&["--srh-segs-left-eq"], Number(1), 2, 1 << 4),
        srh(&["--srh-segs-left-gt"], Number(1), 2, 1 << 5),
        srh(&["--srh-segs-left-lt"], Number(1), 2, 1 << 6),
        srh(&["--srh-last-entry-eq"], Number(1), 3, 1 << 7),
        srh(&["--srh-last-entry-gt"], Number(1), 3, 1 << 8),
        srh(&["--srh-last-entry-lt"], Number(1), 3, 1 << 9),
        srh(&["--srh-tag"], Number(2), 4, 1 << 10),
        srh(&["--srh-psid"], NetMask(56), 8, 1 << 11),
        srh(&["--srh-nsid"], NetMask(72), 24, 1 << 12),
        srh(&["--srh-lsid"], NetMask(88), 40, 1 << 13),
    ]
}
