//! Netlink attributes, declared once.
//!
//! [`attributes!`](crate::attributes) takes one line per attribute: field, [`AttrKind`] (type *and byte order*), C name,
//! number. The macro derives from it the struct, encoding, decoding, the path for an error offset, the list that a test
//! compares with the system's headers, and (feature `testing`) a generator of values. Fields are encoded in the order of
//! their lines, which is the order in which tools such as `nft` write them.
//!
//! Attributes that a declaration does not name are kept in `unknown` and written back.

mod kind;
mod macros;
mod order;
mod path;
mod read;
mod text;
mod write;

pub use kind::{
    AttrKind, Be16, Be32, Be64, Bytes, I32Be, Ip4, Ip6, ListOf, NFTA_LIST_ELEM, Ne16, Ne32, Ne64,
    Nest, NumberedListOf, Opaque, RawNest, Str, U8,
};
pub use order::{Ip, NetOrder, with_order};
pub use path::{Path, Step, Target, path_in};
pub use read::{Attr, Attrs, DecodeError};
pub use text::{bytes_of, text_of};
pub use write::{EncodeError, Writer};

/// `NLA_F_NESTED` (`linux/netlink.h`): the payload consists of attributes.
pub const NLA_F_NESTED: u16 = 1 << 15;
/// `NLA_F_NET_BYTEORDER` (`linux/netlink.h`): the payload is in network order. Of nfnetlink's subsystems only ipset sets it,
/// and refuses integers without it.
pub const NLA_F_NET_BYTEORDER: u16 = 1 << 14;
/// `NLA_TYPE_MASK` (`linux/netlink.h`): the bits of the number, without the flags.
pub const NLA_TYPE_MASK: u16 = !(NLA_F_NESTED | NLA_F_NET_BYTEORDER);
/// `NLA_HDRLEN` (`linux/netlink.h`): the size of length and type in bytes.
pub const NLA_HDRLEN: usize = 4;

/// An attribute that no declaration names: its number with its flags, and its payload.
pub type Unknown = (u16, Vec<u8>);

/// A declared set of attributes.
pub trait AttrSet: Clone + std::fmt::Debug + PartialEq + 'static {
    /// C names and numbers, in the order of the declaration.
    const CONSTANTS: &'static [(&'static str, u16)];

    /// Writes every field that is set, then the unknown attributes.
    fn encode(&self, w: &mut Writer);

    /// Reads a sequence of attributes.
    ///
    /// # Errors
    /// A truncated or overlong attribute, or a payload that does not match its kind.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// The path from this set to the target of an extended ack; `None` if it is not in these attributes.
    fn path(bytes: &[u8], target: Target) -> Option<Path>;

    /// The C name of one attribute.
    #[must_use]
    fn attribute_name(number: u16) -> Option<&'static str> {
        Self::CONSTANTS
            .iter()
            .find(|(_, n)| *n == number)
            .map(|(name, _)| *name)
    }

    /// Any value without unknown attributes; by default, the set without attributes.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn arbitrary() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::prelude::*;
        let decode = |_| Self::decode(&[]).ok();
        Just(()).prop_filter_map("no attributes", decode).boxed()
    }
}

/// Dependencies of the generated strategies.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use proptest::option::of;
    pub use proptest::strategy::{BoxedStrategy, Just, Strategy};
}

#[cfg(test)]
mod tests;
