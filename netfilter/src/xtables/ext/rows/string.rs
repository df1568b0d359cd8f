//! `-m string` (`struct xt_string_info`, revision 1): a pattern of up to 128 bytes anywhere in the packet.

use super::prelude::*;
use weir_netlink::attr::bytes_of;

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
    read: |o, b, _, _| put(o, b, &bytes_of(o.word(0))),
};

/// Text with bytes in hexadecimal between bars; a backslash precedes a literal bar. As in iptables, the character after such a block is
/// literal, also if it is a bar or a backslash.
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
        let digit = |byte: Option<u8>| {
            let digit = byte.and_then(|byte| char::from(byte).to_digit(16));
            digit.and_then(|d| u8::try_from(d).ok()).ok_or_else(wrong)
        };
        let text = bytes_of(o.word(0));
        let mut rest = text.iter().copied();
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => bytes.push(rest.next().ok_or_else(wrong)?),
                // A last bar begins no block.
                b'|' if rest.len() == 0 => {}
                b'|' => {
                    let before = bytes.len();
                    loop {
                        match rest.next() {
                            Some(b' ') => {}
                            Some(b'|') if bytes.len() > before => break,
                            high => bytes.push(digit(high)? << 4 | digit(rest.next())?),
                        }
                    }
                    bytes.extend(rest.next());
                }
                _ => bytes.push(byte),
            }
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
