//! `-m string` (`struct xt_string_info`, revision 1): a pattern of up to 128 bytes anywhere in the packet.

use super::prelude::*;

const PATTERN: usize = 20;
const MAX: usize = 128;
const LEN: usize = 148;
const FLAGS: usize = 149;

fn pattern(b: &Blob) -> &[u8] {
    let len = usize::try_from(b.uint(LEN, 1)).unwrap_or(0).min(MAX);
    b.bytes(PATTERN, len)
}

/// Whether the pattern is printed as text; as in iptables, any other pattern is printed entirely in hexadecimal.
fn is_text(pattern: &[u8]) -> bool {
    pattern.iter().all(|byte| (0x20..0x7f).contains(byte)) && pattern.last() != Some(&b'\\')
}

fn put(o: &Opt, b: &mut Blob, bytes: &[u8]) -> Result<(), Complaint> {
    if bytes.is_empty() || bytes.len() > MAX {
        return Err(o.wrong("is no pattern of 1 to 128 bytes; give one"));
    }
    b.set(PATTERN, bytes);
    b.put(LEN, 1, u64::try_from(bytes.len()).unwrap_or(0));
    Ok(())
}

const STRING: Code = Code {
    words: 1,
    quote: Quote::Always,
    show: |b, _, _| {
        let text = Some(pattern(b)).filter(|p| is_text(p))?;
        Some(vec![String::from_utf8(text.to_vec()).ok()?])
    },
    read: |o, b, _, _| put(o, b, o.word(0).as_bytes()),
};

/// Text with bytes in hexadecimal between bars; a backslash precedes a literal bar.
const HEX_STRING: Code = Code {
    words: 1,
    quote: Quote::Always,
    show: |b, _, _| {
        let bytes = Some(pattern(b)).filter(|p| !is_text(p))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(vec![format!("|{hex}|")])
    },
    read: |o, b, _, _| {
        let wrong = || {
            o.wrong("is no text with pairs of hexadecimal digits between bars, |0d 0a|; give those")
        };
        let mut bytes = Vec::new();
        let (mut is_hex, mut high) = (false, None);
        let mut rest = o.word(0).bytes();
        while let Some(byte) = rest.next() {
            match (is_hex, byte) {
                (_, b'|') if high.is_none() => is_hex = !is_hex,
                (false, b'\\') => bytes.push(rest.next().ok_or_else(wrong)?),
                (false, _) => bytes.push(byte),
                (true, b' ') if high.is_none() => {}
                (true, _) => {
                    let digit = char::from(byte)
                        .to_digit(16)
                        .and_then(|d| u8::try_from(d).ok());
                    let digit = digit.ok_or_else(wrong)?;
                    match high.take() {
                        Some(first) => bytes.push(first << 4 | digit),
                        None => high = Some(digit),
                    }
                }
            }
        }
        if is_hex || high.is_some() {
            return Err(wrong());
        }
        put(o, b, &bytes)
    },
};

const TEXTS: &[&str] = &["--string", "--hex-string"];

rows! {
    // iptables 1.8.1 to 1.8.8 copies 128 bytes, also those after a shorter pattern.
    MATCH "string" { revision: 1, size: 160, initial: &[(2, &[0xff; 2])], one_of: TEXTS,
        exclude: TEXTS, counted: Some((PATTERN..LEN, LEN)) } [
        field(&["--string"], Value::Code(&STRING), 0).not(FLAGS, 1, 1),
        field(&["--hex-string"], Value::Code(&HEX_STRING), 0).not(FLAGS, 1, 1),
        field(&["--algo"], Value::Text(16, Quote::Never), 4).need(),
        field(&["--from"], Value::Number(2), 0).unless(&[0; 2]),
        field(&["--to"], Value::Number(2), 2).unless(&[0xff; 2]),
        flag(&["--icase"], FLAGS, 1, 2),
    ]
}
