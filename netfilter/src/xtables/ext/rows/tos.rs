//! `-m dscp`, `-j DSCP`, `-m tos` and `-j TOS` (`linux/netfilter/xt_dscp.h`, `xt_DSCP.h`): the type of service, whose upper six bits
//! are the DSCP.

use super::prelude::*;

type Read = fn(&Opt, &mut Blob, usize, XtFamily) -> Result<(), Complaint>;

/// A DSCP, parsed as a number or as the name of a class.
const DSCP: Code = Code {
    show: |b, _, _| Some(vec![format!("{:#04x}", b.uint(0, 1))]),
    read: |o, b, _, _| {
        let value = if o.name().ends_with("-class") {
            class(o.word(0))
        } else {
            number_of(o, o.word(0), 1).ok().filter(|n| *n <= 63)
        };
        let remedy = "is no code point; give 0 to 63, or the name of a class: CSn, AFnm, BE or EF";
        b.put(0, 1, value.ok_or_else(|| o.wrong(remedy))?);
        Ok(())
    },
    ..Code::WORD
};

/// `CSn`, `AFnm`, `BE` and `EF` (RFC 2474, 2597, 3246).
fn class(name: &str) -> Option<u64> {
    let name = name.to_ascii_uppercase();
    let digit = |at: usize, max: u8| {
        let n = name.as_bytes().get(at)?.checked_sub(b'0')?;
        (n <= max).then_some(u64::from(n))
    };
    match (name.get(..2)?, name.len()) {
        ("BE", 2) => Some(0),
        ("EF", 2) => Some(46),
        ("CS", 3) => Some(digit(2, 7)? << 3),
        ("AF", 4) => {
            let (class, drop) = (digit(2, 4)?, digit(3, 3)?);
            (class > 0 && drop > 0).then_some(class << 3 | drop << 1)
        }
        _ => None,
    }
}

/// `IPTOS_NORMALSVC` and similar; a name implies the mask 0x3f.
const NAMES: &[(&str, u8)] = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];

/// `VALUE`, `VALUE/MASK` or a name.
fn value_and_mask(o: &Opt) -> Result<[u8; 2], Complaint> {
    let mut names = NAMES.iter();
    if let Some((_, value)) = names.find(|(n, _)| n.eq_ignore_ascii_case(o.word(0))) {
        return Ok([*value, 0x3f]);
    }
    let (value, mask) = o.masked(0)?;
    let mask = if mask == u32::MAX { 0xff } else { mask };
    match (u8::try_from(value), u8::try_from(mask)) {
        (Ok(value), Ok(mask)) => Ok([value, mask]),
        _ => Err(o.wrong("is more than a byte; give VALUE/MASK up to 0xff")),
    }
}

/// In the structure of the match, the mask precedes the value.
const MATCHED: Code = Code {
    show: |b, _, _| Some(vec![format!("{:#04x}/{:#04x}", b.uint(1, 1), b.uint(0, 1))]),
    read: |o, b, _, _| {
        let [value, mask] = value_and_mask(o)?;
        b.set(0, &[mask, value]);
        Ok(())
    },
    ..Code::WORD
};

const SET: Code = Code {
    show: |b, _, _| Some(vec![format!("{:#04x}/{:#04x}", b.uint(0, 1), b.uint(1, 1))]),
    read: |o, b, _, _| {
        b.set(0, &value_and_mask(o)?);
        Ok(())
    },
    ..Code::WORD
};

/// `--and-tos`, `--or-tos` and `--xor-tos`, which are stored as a value and a mask.
const fn bits(read: Read) -> Code {
    Code { read, ..Code::WORD }
}

const AND: Code = bits(|o, b, _, _| {
    let bits = number_of(o, o.word(0), 1)?;
    b.put(1, 1, !bits & 0xff);
    Ok(())
});

const OR: Code = bits(|o, b, _, _| {
    let bits = number_of(o, o.word(0), 1)?;
    b.put(0, 1, bits);
    b.put(1, 1, bits);
    Ok(())
});

const XOR: Code = bits(|o, b, _, _| {
    let bits = number_of(o, o.word(0), 1)?;
    b.put(0, 1, bits);
    Ok(())
});

const CHANGES: &[&str] = &["--set-tos", "--and-tos", "--or-tos", "--xor-tos"];

rows! {
    MATCH "dscp" { size: 2 } [field(&["--dscp", "--dscp-class"], Value::Code(&DSCP), 0).not(1, 1, 1).need()]
    TARGET "DSCP" { size: 1 } [field(&["--set-dscp", "--set-dscp-class"], Value::Code(&DSCP), 0).need()]
    MATCH "tos" { revision: 1, size: 3 } [field(&["--tos"], Value::Code(&MATCHED), 0).not(2, 1, 1).need()]
    TARGET "TOS" { revision: 1, size: 2, one_of: CHANGES, exclude: CHANGES } [
        field(&["--set-tos"], Value::Code(&SET), 0),
        field(&["--and-tos"], Value::Code(&AND), 0),
        field(&["--or-tos"], Value::Code(&OR), 0),
        field(&["--xor-tos"], Value::Code(&XOR), 0),
    ]
}
