//! Base64 as kubeconfigs have it: RFC 4648, with padding, line breaks ignored.

/// `base64 -d`; `None` for anything else.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !letters.len().is_multiple_of(4) {
        return None;
    }
    let padding = letters.iter().rev().take_while(|b| **b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut out = Vec::new();
    let mut bits = 0_u32;
    let digits = letters.get(..letters.len() - padding)?;
    for (index, letter) in digits.iter().enumerate() {
        bits = bits << 6 | u32::from(value(*letter)?);
        // After the second, third and fourth letter of a group a byte is whole.
        let ready = match index % 4 {
            0 => continue,
            1 => bits >> 4,
            2 => bits >> 2,
            _ => bits,
        };
        out.push((ready & 0xff) as u8);
    }
    Some(out)
}

fn value(letter: u8) -> Option<u8> {
    Some(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648, section 10.
    #[test]
    fn vectors() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9v\nYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode("/+8="), Some(vec![0xff, 0xef]));
    }

    #[test]
    fn nonsense() {
        for text in ["Z", "Zg=", "Z===", "Zg==Zg==", "Z*==", "===="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
