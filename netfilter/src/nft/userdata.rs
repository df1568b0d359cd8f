//! Userdata: private data of `nft` that the kernel stores, as type, length, value (one byte each for the first two).
//! The kernel does not interpret it.
//!
//! Comments of tables, chains, rules and elements have type 0, a set's comment 7
//! (libnftnl's `udata.h`). Texts end with a NUL.

use weir_netlink::attr::{bytes_of, text_of};

/// `NFTNL_UDATA_RULE_COMMENT`, and the same number for tables, chains and elements
pub(crate) const COMMENT: u8 = 0;
/// The version of a table ([`Table::version`](super::Table)); no type of libnftnl, which has 0 to 2 for tables.
pub(crate) const TABLE_VERSION: u8 = b'w';
/// `NFTNL_UDATA_SET_KEYBYTEORDER`
pub(crate) const SET_KEYBYTEORDER: u8 = 0;
/// `NFTNL_UDATA_SET_DATABYTEORDER`
pub(crate) const SET_DATABYTEORDER: u8 = 1;
/// `NFTNL_UDATA_SET_MERGE_ELEMENTS`: `auto-merge`
pub(crate) const SET_MERGE_ELEMENTS: u8 = 2;
/// `NFTNL_UDATA_SET_KEY_TYPEOF`
pub(crate) const SET_KEY_TYPEOF: u8 = 3;
/// `NFTNL_UDATA_SET_DATA_TYPEOF`
pub(crate) const SET_DATA_TYPEOF: u8 = 4;
/// `NFTNL_UDATA_SET_DATA_INTERVAL`
pub(crate) const SET_DATA_INTERVAL: u8 = 6;
/// `NFTNL_UDATA_SET_COMMENT`
pub(crate) const SET_COMMENT: u8 = 7;
/// `BYTEORDER_HOST_ENDIAN` of nft's `enum byteorder`
pub(crate) const HOST_ENDIAN: u32 = 1;
/// `BYTEORDER_BIG_ENDIAN`
pub(crate) const BIG_ENDIAN: u32 = 2;

/// A sequence of entries.
#[derive(Default)]
pub(crate) struct Userdata(Vec<u8>);

impl Userdata {
    /// Appends an entry of at most 255 bytes. `engine::check` refuses longer ones earlier.
    pub(crate) fn put(mut self, kind: u8, value: &[u8]) -> Self {
        let len = u8::try_from(value.len()).unwrap_or(u8::MAX);
        self.0.push(kind);
        self.0.push(len);
        self.0.extend(value.iter().take(usize::from(len)));
        self
    }

    /// Appends a number in host order.
    pub(crate) fn put_u32(self, kind: u8, value: u32) -> Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Appends a text with its NUL.
    pub(crate) fn put_text(self, kind: u8, text: &str) -> Self {
        let mut bytes = bytes_of(text).into_owned();
        bytes.push(0);
        self.put(kind, &bytes)
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// All entries, in ascending order of their types. `None` if the bytes are not a sequence of entries.
fn entries(mut rest: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut all = Vec::new();
    while let [kind, len, tail @ ..] = rest {
        let (value, next) = tail.split_at_checked(usize::from(*len))?;
        all.push((*kind, value));
        rest = next;
    }
    all.sort_by_key(|(kind, _)| *kind);
    rest.is_empty().then_some(all)
}

/// Whether both hold the same entries, byte for byte, in any order: programs write entries in different orders, which has
/// no meaning.
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a == b || entries(a).is_some_and(|found| entries(b) == Some(found))
}

/// The value of the first entry of this type.
pub(crate) fn find(bytes: &[u8], kind: u8) -> Option<&[u8]> {
    let mut rest = bytes;
    while let [k, len, tail @ ..] = rest {
        let (value, next) = tail.split_at_checked(usize::from(*len))?;
        if *k == kind {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// A text without its NUL, in any encoding, see [`text_of`].
pub(crate) fn text(bytes: Option<&[u8]>, kind: u8) -> Option<String> {
    let value = find(bytes?, kind)?;
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    Some(text_of(value))
}

/// A number in host order.
pub(crate) fn number(bytes: Option<&[u8]>, kind: u8) -> Option<u32> {
    find(bytes?, kind)?.try_into().ok().map(u32::from_ne_bytes)
}

/// A table's userdata.
pub(crate) fn table(comment: Option<&str>, version: Option<u32>) -> Option<Vec<u8>> {
    let mut made = Userdata::default();
    if let Some(text) = comment {
        made = made.put_text(COMMENT, text);
    }
    if let Some(number) = version {
        made = made.put_u32(TABLE_VERSION, number);
    }
    Some(made.bytes()).filter(|bytes| !bytes.is_empty())
}

/// A comment as userdata.
pub(crate) fn comment(text: Option<&str>) -> Option<Vec<u8>> {
    text.map(|t| Userdata::default().put_text(COMMENT, t).bytes())
}
