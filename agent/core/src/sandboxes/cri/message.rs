//! `StatusResponse` of CRI v1, as far as it is needed: the map `info`.
//!
//! ```text
//! StatusResponse { 1: RuntimeStatus status, 2: map<string, string> info, ... }
//! entry of a map { 1: key, 2: value }
//! ```
//! The wire format is that of <https://protobuf.dev/programming-guides/encoding>: a varint of number and type before
//! each field. What is not known is stepped over, as every reader of it does.

use std::collections::BTreeMap;

/// `StatusResponse.info`
const INFO: u64 = 2;

/// The texts of `info` by name. Of a name that is there twice the last counts.
///
/// # Errors
/// The bytes are no message.
pub(crate) fn info(mut message: &[u8]) -> Result<BTreeMap<String, String>, &'static str> {
    let mut info = BTreeMap::new();
    while !message.is_empty() {
        let (number, Some(mut entry)) = field(&mut message)? else {
            continue;
        };
        if number != INFO {
            continue;
        }
        let (mut key, mut value) = (String::new(), String::new());
        while !entry.is_empty() {
            match field(&mut entry)? {
                (1, Some(text)) => key = String::from_utf8_lossy(text).into_owned(),
                (2, Some(text)) => value = String::from_utf8_lossy(text).into_owned(),
                _ => {}
            }
        }
        info.insert(key, value);
    }
    Ok(info)
}

const BROKEN: &str = "the answer is no protobuf message";

/// Takes one field: its number, and its bytes where its type has some.
fn field<'a>(message: &mut &'a [u8]) -> Result<(u64, Option<&'a [u8]>), &'static str> {
    let tag = varint(message)?;
    let (number, kind) = (tag >> 3, tag & 7);
    let length = match kind {
        0 => {
            varint(message)?;
            return Ok((number, None));
        }
        1 => 8,
        2 => usize::try_from(varint(message)?).map_err(|_| BROKEN)?,
        5 => 4,
        _ => return Err(BROKEN),
    };
    let (bytes, rest) = message.split_at_checked(length).ok_or(BROKEN)?;
    *message = rest;
    Ok((number, Some(bytes).filter(|_| kind == 2)))
}

/// Seven bits a byte, the lowest first.
fn varint(message: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first().ok_or(BROKEN)?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A status with one condition, two entries of info, and fields that came later.
    #[test]
    fn a_status() {
        let mut message = vec![0x0a, 6, 0x0a, 4, 0x0a, 0, 0x10, 1];
        for (key, value) in [("config", "{}".repeat(100)), ("golang", "go1.19".into())] {
            let mut entry = vec![0x0a, u8::try_from(key.len()).unwrap()];
            entry.extend(key.as_bytes());
            entry.push(0x12);
            match value.len() {
                200 => entry.extend([0xc8, 0x01]),
                n => entry.push(u8::try_from(n).unwrap()),
            }
            entry.extend(value.as_bytes());
            message.push(0x12);
            match entry.len() {
                n if n > 127 => message.extend([u8::try_from(n & 0x7f).unwrap() | 0x80, 1]),
                n => message.push(u8::try_from(n).unwrap()),
            }
            message.extend(entry);
        }
        message.extend([0x22, 2, 0x08, 1, 0x3d, 1, 2, 3, 4]);
        let info = info(&message).unwrap();
        assert_eq!(info["config"], "{}".repeat(100));
        assert_eq!((info["golang"].as_str(), info.len()), ("go1.19", 2));
    }

    #[test]
    fn what_is_cut_off_is_no_message() {
        for bytes in [
            &[0x12][..],
            &[0x12, 5, 0x0a],
            &[0x80],
            &[0x13],
            &[0xff; 11],
            &[0x12, 2, 0x0a, 9],
        ] {
            assert_eq!(info(bytes), Err(BROKEN), "{bytes:?}");
        }
        assert_eq!(info(&[]), Ok(BTreeMap::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(bytes: Vec<u8>) {
            let _ = info(&bytes);
        }
    }
}
