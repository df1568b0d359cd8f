//! `-m policy` (`struct xt_policy_info`): the IPsec policy, up to four elements of 76 bytes, then the flags and the count of elements.
//!
//! ```text
//! element  saddr smask daddr dmask (16 each) | spi reqid (4 each) | proto mode match invert (1 each)
//! ```

use super::prelude::*;
use crate::address::Address;
use crate::xtables::Protocol;
use std::ops::Range;

const ELEMENT: usize = 76;
const MAX: u64 = 4;
const FLAGS: Place = Place { at: 304, width: 2 };
const LEN: Place = Place { at: 306, width: 2 };

/// `XT_POLICY_MATCH_*`
const IN: u64 = 1;
const OUT: u64 = 2;
const NONE: u64 = 4;
const STRICT: u64 = 8;

/// The bytes of the masks after the four of IPv4. iptables sets all of them for an address without a prefix length.
const MASKS: &[Range<usize>] = &[
    20..32,
    52..64,
    96..108,
    128..140,
    172..184,
    204..216,
    248..260,
    280..292,
];

/// Options and their bits of `struct xt_policy_spec`, in the order in which iptables prints them.
const REQID: (&str, u64) = ("--reqid", 32);
const SPI: (&str, u64) = ("--spi", 16);
const PROTO: (&str, u64) = ("--proto", 4);
const MODE: (&str, u64) = ("--mode", 8);
const DESTINATION: (&str, u64) = ("--tunnel-dst", 2);
const SOURCE: (&str, u64) = ("--tunnel-src", 1);

const MODES: &[(&str, u64)] = &[("transport", 0), ("tunnel", 1)];

rows! {
    MATCH "policy" { size: 308, unused: MASKS, options: Options::Code { repeated: true, show, read, names: &[
        ("--dir", 1), ("--pol", 1), ("--strict", 0), ("--reqid", 1), ("--spi", 1), ("--tunnel-src", 1),
        ("--tunnel-dst", 1), ("--proto", 1), ("--mode", 1), ("--next", 0),
    ] } }
}

fn net(b: &Blob, at: usize, family: XtFamily) -> String {
    let address = Address(address_at(b, at, family));
    match length_of(address_at(b, at + 16, family)) {
        all if all == u32::from(max_length(family)) => address.to_string(),
        length => format!("{address}/{length}"),
    }
}

fn show(b: &Blob, family: XtFamily) -> Option<Vec<Shown>> {
    let direction = if b.has(FLAGS, IN) { "in" } else { "out" };
    let policy = if b.has(FLAGS, NONE) { "none" } else { "ipsec" };
    let mut all = vec![Shown::one("--dir", direction), Shown::one("--pol", policy)];
    if b.has(FLAGS, STRICT) {
        all.push(Shown::new("--strict", Vec::new()));
    }
    let len = b.uint(LEN.at, LEN.width);
    // With `--pol none` iptables accepts the options of one element and does not count it.
    let len = if b.has(FLAGS, NONE) { len + 1 } else { len };
    for n in 0..usize::try_from(len.min(MAX)).ok()? {
        let at = ELEMENT * n;
        if n > 0 {
            all.push(Shown::new("--next", Vec::new()));
        }
        for (name, bit) in [REQID, SPI, PROTO, MODE, DESTINATION, SOURCE] {
            if b.uint(at + 74, 1) & bit == 0 {
                continue;
            }
            let word = match name {
                "--reqid" => b.uint(at + 68, 4).to_string(),
                "--spi" => format!("{:#x}", b.uint(at + 64, 4)),
                "--proto" => Protocol(u8::try_from(b.uint(at + 72, 1)).ok()?).to_string(),
                "--mode" => {
                    let mode = b.uint(at + 73, 1);
                    MODES.iter().find(|(_, n)| *n == mode)?.0.to_owned()
                }
                "--tunnel-dst" => net(b, at + 32, family),
                _ => net(b, at, family),
            };
            all.push(Shown {
                not: b.uint(at + 75, 1) & bit != 0,
                ..Shown::one(name, word)
            });
        }
    }
    Some(all)
}

fn read(given: &mut Given, b: &mut Blob) -> Result<(), Complaint> {
    let mut n = 0;
    let options = given.take_all();
    for name in ["--dir", "--pol", "--strict"] {
        if let Some(o) = options.iter().filter(|o| o.is(name)).nth(1) {
            return Err(o.wrong("is given twice; give it once"));
        }
    }
    for o in options {
        if o.is("--next") {
            n += 1;
            if n == MAX {
                return Err(o.wrong("is a fifth element; a policy has four at most"));
            }
            continue;
        }
        one(
            &o,
            given.family,
            b,
            ELEMENT * usize::try_from(n).unwrap_or(0),
        )?;
    }
    if b.uint(FLAGS.at, FLAGS.width) & (IN | OUT) == 0 {
        return Err(given.lacks("--dir"));
    }
    let is_strict = b.has(FLAGS, STRICT);
    if n > 0 && !is_strict {
        return Err(given.lacks("--strict for --next"));
    }
    if b.has(FLAGS, NONE) {
        return match is_strict {
            true => Err(given.conflict("--pol none, --strict")),
            false => Ok(()),
        };
    }
    b.put(LEN.at, LEN.width, n + 1);
    for n in 0..=usize::try_from(n).unwrap_or(0) {
        let at = ELEMENT * n;
        let given_bits = b.uint(at + 74, 1);
        if is_strict && given_bits == 0 {
            return Err(given.lacks("a condition in each element for --strict"));
        }
        // The mode is `tunnel`, or not `transport`.
        let is_tunnel = (b.uint(at + 73, 1) == 1) != (b.uint(at + 75, 1) & MODE.1 != 0);
        if given_bits & (SOURCE.1 | DESTINATION.1) != 0 && !is_tunnel {
            return Err(given.lacks("--mode tunnel for --tunnel-src and --tunnel-dst"));
        }
    }
    Ok(())
}

/// Parses one option of the element at this offset.
fn one(o: &Opt, family: XtFamily, b: &mut Blob, at: usize) -> Result<(), Complaint> {
    let word = o.word(0);
    let flag = match (o.name(), word) {
        ("--dir", "in") => IN,
        ("--dir", "out") => OUT,
        ("--pol", "none") => NONE,
        ("--pol", "ipsec") => 0,
        ("--strict", _) => STRICT,
        ("--dir" | "--pol", _) => return Err(o.wrong("is unknown; give in or out, ipsec or none")),
        (name, _) => {
            let all = [REQID, SPI, PROTO, MODE, DESTINATION, SOURCE];
            let bit = all
                .iter()
                .find(|(n, _)| *n == name)
                .map_or(0, |(_, bit)| *bit);
            if b.uint(at + 74, 1) & bit != 0 {
                return Err(o.wrong("is given twice; write --next before the next element"));
            }
            let mut set = |at| b.or(Place { at, width: 1 }, bit);
            set(at + 74);
            if o.not.0 {
                set(at + 75);
            }
            match name {
                "--reqid" => b.put(at + 68, 4, number_of(o, word, 4)?),
                "--spi" => b.put(at + 64, 4, number_of(o, word, 4)?),
                "--proto" => match o.protocol(0)?.0 {
                    // ESP, AH and IPComp
                    protocol @ (50 | 51 | 108) => b.put(at + 72, 1, protocol.into()),
                    _ => return Err(o.wrong("is no protocol of IPsec; give esp, ah or ipcomp")),
                },
                "--mode" => b.put(at + 73, 1, named(o, word, MODES)?),
                _ => {
                    let net = o.network(0, family)?;
                    let at = if name == "--tunnel-dst" { at + 32 } else { at };
                    b.set(at, &union_of(net.addr()));
                    let is_host = net.prefix_len() == net.max_prefix_len();
                    let mask = union_of(net.netmask());
                    b.set(at + 16, if is_host { &[0xff; 16] } else { &mask });
                }
            }
            return Ok(());
        }
    };
    let _ = o.plain()?;
    b.or(FLAGS, flag);
    Ok(())
}
