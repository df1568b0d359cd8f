//! Matches on the packet, its socket, its connection and its interfaces.

use super::prelude::*;
use weir_netlink::attr::bytes_of;

/// `--cluster-local-node N` sets bit N-1 of the mask.
const LOCAL_NODE: Code = Code {
    read: |o, b, _, _| {
        let node = number_of(o, o.word(0), 1)?;
        if node == 0 || node > 32 {
            return Err(o.wrong("is no node; give 1 to 32"));
        }
        b.put(4, 4, 1 << (node - 1));
        Ok(())
    },
    ..Code::WORD
};

/// A label is printed as its number; names in `connlabel.conf` are not looked up.
const LABEL: Code = Code {
    words: 1,
    quote: Quote::Always,
    show: |b, _, _| Some(vec![b.uint(0, 2).to_string()]),
    read: |o, b, _, _| {
        let bit = number_of(o, o.word(0), 2)?;
        b.put(0, 2, bit);
        Ok(())
    },
};

/// The name of the genre, and its length.
const GENRE: Code = Code {
    show: |b, _, _| Some(vec![b.text(0, 32)?]),
    read: |o, b, _, _| {
        let name = bytes_of(o.word(0));
        if name.is_empty() || name.len() > 31 {
            return Err(o.wrong("is no genre; give a name of 1 to 31 bytes"));
        }
        b.set(0, &name);
        b.put(32, 4, u64::try_from(name.len()).unwrap_or(0));
        Ok(())
    },
    ..Code::WORD
};

const UPTO: Invert = Invert::Flip(Place { at: 20, width: 4 }, 1);

/// An operation of `-m recent`, with its bit.
const fn recent(names: &'static [&'static str], bit: u64) -> Field {
    flag(names, 8, 1, bit).not(9, 1, 1)
}

const TRANSPARENT: Field = flag(&["--transparent"], 0, 1, 1);
const NOWILDCARD: Field = flag(&["--nowildcard"], 0, 1, 2);

const NODES: &[&str] = &["--cluster-local-nodemask", "--cluster-local-node"];

const RECENT: &[&str] = &["--set", "--rcheck", "--update", "--remove"];

rows! {
    // `unused` is a list of ranges; rows with one IPv4 address have one range.
    #[allow(clippy::single_range_in_vec_init)]
    MATCH "cgroup" { revision: 2, size: 528 } [
        field(&["--path"], Text(512, Quote::Unsafe), 4).set(0, 1, 1).not(2, 1, 1),
        field(&["--cgroup"], Number(4), 4).set(1, 1, 1).not(3, 1, 1),
    ]
    MATCH "socket" { revision: 3, size: 1 } [TRANSPARENT, NOWILDCARD, flag(&["--restore-skmark"], 0, 1, 4)]
    MATCH "socket" { revision: 2, size: 1 } [TRANSPARENT, NOWILDCARD]
    MATCH "socket" { revision: 1, size: 1 } [TRANSPARENT]
    MATCH "socket" { family: Some(Ip) }
    MATCH "cluster" { size: 16, one_of: NODES, exclude: NODES } [
        field(&["--cluster-local-nodemask"], Hex(4, 8), 4).not(12, 4, 1),
        field(&["--cluster-local-node"], Value::Code(&LOCAL_NODE), 4).not(12, 4, 1),
        field(&["--cluster-total-nodes"], Number(4), 0).need().within(1, 32),
        field(&["--cluster-hash-seed"], Hex(4, 8), 8).need(),
    ]
    MATCH "connlabel" { size: 4 } [
        field(&["--label"], Value::Code(&LABEL), 0).not(2, 2, 1).need(),
        flag(&["--set"], 2, 2, 2),
    ]
    MATCH "connlimit" { revision: 1, size: 32, initial: &[(0, &[0xff; 16])], unused: &[4..16],
        one_of: &["--connlimit-upto", "--connlimit-above"] } [
        field(&["--connlimit-upto"], Number(4), 16).set(20, 4, 1).invert(UPTO),
        field(&["--connlimit-above"], Number(4), 16).clear(20, 4, 1).invert(UPTO),
        field(&["--connlimit-mask"], PrefixMask, 0),
        field(&["--connlimit-saddr"], Nothing, 20).clear(20, 4, 2),
        field(&["--connlimit-daddr"], Nothing, 20).set(20, 4, 2),
    ]
    MATCH "cpu" { size: 8 } [field(&["--cpu"], Number(4), 0).not(4, 4, 1).need()]
    MATCH "devgroup" { size: 20, one_of: &["--src-group", "--dst-group"] } [
        field(&["--src-group"], Masked("default"), 4).set(0, 4, 1).not(0, 4, 2),
        field(&["--dst-group"], Masked("default"), 12).set(0, 4, 4).not(0, 4, 8),
    ]
    MATCH "helper" { size: 36 } [field(&["--helper"], Text(30, Quote::Unsafe), 4).not(0, 4, 1).need()]
    MATCH "length" { size: 6 } [field(&["--length"], Range(2), 0).not(4, 1, 1).need()]
    MATCH "mac" { size: 12 } [field(&["--mac-source"], Mac, 0).not(8, 4, 1).need()]
    MATCH "nfacct" { revision: 1, size: 40 } [field(&["--nfacct-name"], Text(32, Quote::Unsafe), 0).need()]
    MATCH "osf" { family: Some(Ip), size: 48 } [
        field(&["--genre"], Value::Code(&GENRE), 0).not(36, 4, 8).need(),
        field(&["--ttl"], Number(4), 44).set(36, 4, 2).within(0, 2),
        field(&["--log"], Number(4), 40).set(36, 4, 4).within(0, 2),
    ]
    MATCH "quota" { size: 24 } [field(&["--quota"], Number(8), 8).not(0, 4, 1).need()]
    MATCH "realm" { family: Some(Ip), size: 12 } [field(&["--realm"], Masked("cosmos"), 0).not(8, 1, 1).need()]
    MATCH "recent" { revision: 1, size: 228, initial: &[(10, b"DEFAULT"), (212, &[0xff; 16])], unused: &[216..228],
        one_of: RECENT, exclude: RECENT } [
        recent(&["--set"], 2),
        recent(&["--rcheck"], 1),
        recent(&["--update"], 4),
        recent(&["--remove"], 8),
        field(&["--seconds"], Number(4), 0).unless(&[0; 4]).within(1, u64::MAX),
        flag(&["--reap"], 8, 1, 0x20),
        field(&["--hitcount"], Number(4), 4).unless(&[0; 4]),
        flag(&["--rttl"], 8, 1, 0x10),
        field(&["--name"], Text(200, Quote::Never), 10),
        field(&["--mask"], Address, 212),
        field(&["--rsource"], Nothing, 210).is(210, 1, 0),
        field(&["--rdest"], Nothing, 210).is(210, 1, 1),
    ]
    MATCH "rpfilter" { size: 1 } [
        flag(&["--loose"], 0, 1, 1),
        flag(&["--validmark"], 0, 1, 2),
        flag(&["--accept-local"], 0, 1, 4),
        flag(&["--invert"], 0, 1, 8),
    ]
}
