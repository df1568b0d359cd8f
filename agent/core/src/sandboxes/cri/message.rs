//! Encoding and decoding of the needed parts of CRI v1 messages.
//!
//! ```text
//! StatusResponse           { 1: RuntimeStatus status, 2: map<string, string> info, ... }
//! PodSandboxStatusResponse { 1: PodSandboxStatus status, 2: map<string, string> info, ... }
//! PodSandboxStatusRequest  { 1: string pod_sandbox_id, 2: bool verbose }
//! ListPodSandboxRequest    { 1: PodSandboxFilter { 2: { 1: state }, 3: map<string, string> label_selector } }
//! ListPodSandboxResponse   { 1: repeated PodSandbox { 1: id, 2: { 2: uid, ... } metadata, 3: state, ... } }
//! entry of a map           { 1: key, 2: value }
//! ```
//! The wire format is that of <https://protobuf.dev/programming-guides/encoding>: each field begins with a varint of number
//! and type. Unknown fields are skipped.

use std::collections::BTreeMap;

/// `info` of a verbose answer.
const INFO: u64 = 2;
/// `PodSandboxState.SANDBOX_READY`
const READY: u64 = 0;
/// The label by which the kubelet passes the UID of a pod to the runtime.
const UID_LABEL: &[u8] = b"io.kubernetes.pod.uid";

/// Returns the texts of `info` by name. If a name occurs twice, the last one counts.
///
/// # Errors
/// The bytes are not a valid message.
pub(crate) fn info(message: &[u8]) -> Result<BTreeMap<String, String>, &'static str> {
    let mut info = BTreeMap::new();
    for entry in fields(message) {
        let (INFO, Value::Bytes(entry)) = entry? else {
            continue;
        };
        let (mut key, mut value) = (String::new(), String::new());
        for field in fields(entry) {
            match field? {
                (1, Value::Bytes(bytes)) => key = text(bytes),
                (2, Value::Bytes(bytes)) => value = text(bytes),
                _ => {}
            }
        }
        info.insert(key, value);
    }
    Ok(info)
}

/// Encodes a `ListPodSandboxRequest` for the ready sandboxes of a pod.
pub(super) fn list_request(uid: &str) -> Vec<u8> {
    // proto3 omits a number that is 0, so the state is an empty message.
    let state = written(2, &[]);
    let label = [written(1, UID_LABEL), written(2, uid.as_bytes())].concat();
    written(1, &[state, written(3, &label)].concat())
}

/// Returns the IDs of the ready sandboxes of this pod; other sandboxes in the answer are ignored.
///
/// # Errors
/// The bytes are not a valid message.
pub(super) fn ready(message: &[u8], uid: &str) -> Result<Vec<String>, &'static str> {
    let mut found = Vec::new();
    for item in fields(message) {
        let (1, Value::Bytes(item)) = item? else {
            continue;
        };
        let (mut id, mut of, mut state) = (String::new(), String::new(), READY);
        for field in fields(item) {
            match field? {
                (1, Value::Bytes(bytes)) => id = text(bytes),
                (2, Value::Bytes(metadata)) => {
                    for field in fields(metadata) {
                        if let (2, Value::Bytes(bytes)) = field? {
                            of = text(bytes);
                        }
                    }
                }
                (3, Value::Number(number)) => state = number,
                _ => {}
            }
        }
        if of == uid && state == READY {
            found.push(id);
        }
    }
    Ok(found)
}

/// Encodes a verbose `PodSandboxStatusRequest`.
pub(super) fn status_request(id: &str) -> Vec<u8> {
    // Field 2 (`verbose`), a varint: true.
    [written(1, id.as_bytes()), vec![0x10, 1]].concat()
}

/// Encodes a length-delimited field; the field numbers used here are below 16.
fn written(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const BROKEN: &str = "the answer is not a protobuf message";

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A fixed-length value (4 or 8 bytes).
    Fixed,
}

/// Iterates over the fields of a message and their numbers. Ends after the first error.
fn fields(mut message: &[u8]) -> impl Iterator<Item = Result<(u64, Value<'_>), &'static str>> {
    std::iter::from_fn(move || {
        (!message.is_empty()).then(|| field(&mut message).inspect_err(|_| message = &[]))
    })
}

/// Decodes one field and advances `message`.
fn field<'a>(message: &mut &'a [u8]) -> Result<(u64, Value<'a>), &'static str> {
    let tag = varint(message)?;
    let (number, kind) = (tag >> 3, tag & 7);
    let length = match kind {
        0 => return Ok((number, Value::Number(varint(message)?))),
        1 => 8,
        2 => usize::try_from(varint(message)?).map_err(|_| BROKEN)?,
        5 => 4,
        _ => return Err(BROKEN),
    };
    let (bytes, rest) = message.split_at_checked(length).ok_or(BROKEN)?;
    *message = rest;
    let value = match kind {
        2 => Value::Bytes(bytes),
        _ => Value::Fixed,
    };
    Ok((number, value))
}

/// Decodes a varint: seven bits per byte, lowest first.
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

    /// Bytes as `protoc --encode` of the definitions of cri-api writes them.
    #[test]
    fn requests() {
        assert_eq!(
            list_request("u1"),
            b"\x0a\x1f\x12\x00\x1a\x1b\x0a\x15io.kubernetes.pod.uid\x12\x02u1"
        );
        assert_eq!(status_request("ab"), b"\x0a\x02ab\x10\x01");
        let long = "x".repeat(300);
        assert_eq!(status_request(&long)[..3], [0x0a, 0xac, 0x02]);
    }

    /// Two that are ready, of two pods, and one that is not.
    #[test]
    fn sandboxes_that_are_ready() {
        let item = |id: &[u8], uid: &[u8], more: &[u8]| {
            let metadata = [written(1, b"web"), written(2, uid), written(3, b"shop")].concat();
            written(
                1,
                &[written(1, id), written(2, &metadata), more.to_vec()].concat(),
            )
        };
        let created = b"\x20\x01";
        let message = [
            item(b"mine", b"u1", created),
            item(b"other", b"u2", created),
            item(b"old", b"u1", b"\x18\x01"),
        ]
        .concat();
        assert_eq!(ready(&message, "u1").unwrap(), ["mine"]);
        assert_eq!(ready(&[], "u1").unwrap(), Vec::<String>::new());
        assert_eq!(ready(&message[..message.len() - 1], "u1"), Err(BROKEN));
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(bytes: Vec<u8>) {
            let _ = (info(&bytes), ready(&bytes, "u1"));
        }
    }
}
