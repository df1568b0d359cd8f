//! Conversion of names, which may be any bytes, to text and back.
//!
//! The kernel compares the names of tables, chains and sets as bytes, and accepts any byte but zero. A name that is not UTF-8
//! must neither make a listing fail nor be changed when it is sent back: each byte that is not part of a UTF-8 character is
//! mapped to a character of a private use area, and that character is mapped back to the byte. Such a character in a name is
//! mapped bytewise, too, so that no two names become the same text.

use std::borrow::Cow;

/// The character for byte 0. The characters for bytes below 0x80 are never used, because these bytes are ASCII.
const FIRST: u32 = 0xf700;

/// The byte that a character represents.
fn byte_of(c: char) -> Option<u8> {
    let offset = u32::from(c).checked_sub(FIRST)?;
    u8::try_from(offset).ok().filter(|byte| *byte >= 0x80)
}

/// Converts bytes to text. Valid UTF-8 without characters of U+F780 to U+F7FF is unchanged.
#[must_use]
pub fn text_of(bytes: &[u8]) -> String {
    // Fast path: nearly every name is ASCII, and a dump has several in each rule.
    if let Ok(text) = std::str::from_utf8(bytes)
        && text.is_ascii()
    {
        return text.to_owned();
    }
    let mut text = String::with_capacity(bytes.len());
    let stand_in = |byte: &u8| char::from_u32(FIRST + u32::from(*byte)).unwrap_or_default();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match byte_of(c) {
                None => text.push(c),
                Some(_) => text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stand_in)),
            }
        }
        text.extend(chunk.invalid().iter().map(stand_in));
    }
    text
}

/// Converts text to bytes; the inverse of [`text_of`].
#[must_use]
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if text.is_ascii() || !text.chars().any(|c| byte_of(c).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_text() {
        for text in ["", "istio-proxy-nat", "таблица", "\u{f6ff}\u{f800}"] {
            assert_eq!(text_of(text.as_bytes()), text);
            assert_eq!(bytes_of(text), text.as_bytes());
        }
        assert_eq!(text_of(b"a\xff"), "a\u{f7ff}");
        // The character that represents a byte, and the byte itself, are different names.
        assert_ne!(text_of("\u{f7ff}".as_bytes()), text_of(b"\xff"));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(bytes_of(&text_of(&bytes)).into_owned(), bytes);
        }

        #[test]
        fn bytes_of_private_use_come_back(text in "[a-z\u{f7f0}-\u{f810}]{0,9}", more in any::<[u8; 3]>()) {
            let bytes = [text.as_bytes(), &more].concat();
            prop_assert_eq!(bytes_of(&text_of(&bytes)).into_owned(), bytes);
        }
    }
}
