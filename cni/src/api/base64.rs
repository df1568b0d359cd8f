//! Base64 as used in kubeconfigs: RFC 4648, with padding, line breaks ignored.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, PAD};

/// Decodes like Go, whose programs write the text: ignores bits left over after the last byte.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// Decodes a text like `base64 -d`; `None` if it is not base64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    LENIENT.decode(letters).ok()
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
        assert_eq!(decode("Zh=="), Some(vec![b'f']), "bits left over");
    }

    #[test]
    fn nonsense() {
        for text in ["Z", "Zg=", "Z===", "Zg==Zg==", "Z*==", "===="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
