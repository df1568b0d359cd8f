//! The kinds of attribute payloads. The byte order is part of the kind.

use super::text::{bytes_of, text_of};
use super::{AttrSet, Attrs, DecodeError, Path, Step, Target, Writer, path_in};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A kind of payload: the conversion between a value and bytes.
pub trait AttrKind {
    /// The value in Rust.
    type Value: Clone + std::fmt::Debug + PartialEq;
    /// Whether `NLA_F_NESTED` is set when it is written.
    const NESTED: bool = false;
    /// Whether `NLA_F_NET_BYTEORDER` is set when it is written: ipset requires it, nf_tables does not.
    const NET_BYTEORDER: bool = false;

    /// Appends the payload.
    fn encode(value: &Self::Value, w: &mut Writer);

    /// Reads the payload.
    ///
    /// # Errors
    /// The length is wrong, or the content does not match this kind.
    fn decode(bytes: &[u8]) -> Result<Self::Value, DecodeError>;

    /// The path to a target inside this attribute. `around` is the sequence of attributes that contains this one.
    fn path(_bytes: &[u8], _target: Target, _around: &[u8]) -> Option<Path> {
        None
    }

    /// Any value of this kind; by default, what random bytes decode to.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn strategy() -> proptest::strategy::BoxedStrategy<Self::Value>
    where
        Self: 'static,
    {
        use proptest::prelude::*;
        let lengths = prop_oneof![Just(4), Just(16), 0..40_usize];
        let bytes = lengths.prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n));
        let decode = |bytes: Vec<u8>| Self::decode(&bytes).ok();
        bytes.prop_filter_map("other bytes", decode).boxed()
    }
}

/// Declares kinds of a fixed length: the value, to bytes and from bytes, whether the byte order flag is set.
macro_rules! fixed {
    ($($(#[$m:meta])* $name:ident: $ty:ty, $to:ident, $from:ident, $flag:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}
        impl AttrKind for $name {
            type Value = $ty;
            const NET_BYTEORDER: bool = $flag;
            fn encode(value: &$ty, w: &mut Writer) {
                w.put(&value.$to());
            }
            fn decode(bytes: &[u8]) -> Result<$ty, DecodeError> {
                let array: [u8; size_of::<$ty>()] = bytes.try_into().map_err(|_| {
                    let want = size_of::<$ty>();
                    DecodeError::new(format!("{} bytes where {want} are expected", bytes.len()))
                })?;
                Ok(<$ty>::$from(array))
            }
            #[cfg(feature = "testing")]
            fn strategy() -> proptest::strategy::BoxedStrategy<$ty> {
                use proptest::strategy::Strategy as _;
                proptest::arbitrary::any::<$ty>().boxed()
            }
        }
    )*};
}

fixed! {
    /// One byte (`NLA_U8`).
    U8: u8, to_ne_bytes, from_ne_bytes, false;
    /// Network order (`NLA_BE16`).
    Be16: u16, to_be_bytes, from_be_bytes, false;
    /// Network order (`NLA_BE32`).
    Be32: u32, to_be_bytes, from_be_bytes, false;
    /// Network order (`NLA_BE64`).
    Be64: u64, to_be_bytes, from_be_bytes, false;
    /// Signed, network order: verdicts, hook priorities.
    I32Be: i32, to_be_bytes, from_be_bytes, false;
    /// Host order (`NLA_U16`).
    Ne16: u16, to_ne_bytes, from_ne_bytes, false;
    /// Host order (`NLA_U32`).
    Ne32: u32, to_ne_bytes, from_ne_bytes, false;
    /// Host order (`NLA_U64`).
    Ne64: u64, to_ne_bytes, from_ne_bytes, false;
    /// An IPv4 address, as on the wire; with the flag, as ipset requires.
    Ip4: Ipv4Addr, octets, from, true;
    /// An IPv6 address, as on the wire; with the flag.
    Ip6: Ipv6Addr, octets, from, true;
}

/// A string that ends with a NUL (`NLA_NUL_STRING`); decoding tolerates a missing NUL. Bytes that are not UTF-8 survive a
/// round trip: see [`text_of`].
#[derive(Clone, Copy, Debug)]
#[doc(alias = "nla_put_string")]
pub enum Str {}

impl AttrKind for Str {
    type Value = String;
    fn encode(value: &String, w: &mut Writer) {
        w.put(&bytes_of(value));
        w.put(&[0]);
    }
    fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Ok(text_of(bytes.get(..end).unwrap_or_default()))
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<String> {
        use proptest::strategy::Strategy as _;
        proptest::string::string_regex("[a-zA-Z0-9_.-]{1,15}")
            .map(proptest::strategy::Strategy::boxed)
            .unwrap_or_else(|_| proptest::strategy::Just(String::from("x")).boxed())
    }
}

/// Uninterpreted bytes (`NLA_BINARY`).
#[doc(alias = "nla_put")]
pub type Bytes = Opaque<false>;
/// Nested attributes whose declaration depends on a sibling, such as the data of an expression on its name.
pub type RawNest = Opaque<true>;

/// Uninterpreted bytes; `NESTED`: they are attributes, written with `NLA_F_NESTED`.
#[derive(Clone, Copy, Debug)]
pub enum Opaque<const NESTED: bool> {}

impl<const NESTED: bool> AttrKind for Opaque<NESTED> {
    type Value = Vec<u8>;
    const NESTED: bool = NESTED;
    fn encode(value: &Vec<u8>, w: &mut Writer) {
        w.put(value);
    }
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}

/// Another declared set inside this attribute.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "nla_nest_start")]
pub struct Nest<T>(PhantomData<T>);

impl<T: AttrSet> AttrKind for Nest<T> {
    type Value = T;
    const NESTED: bool = true;
    fn encode(value: &T, w: &mut Writer) {
        value.encode(w);
    }
    fn decode(bytes: &[u8]) -> Result<T, DecodeError> {
        T::decode(bytes)
    }
    fn path(bytes: &[u8], target: Target, _: &[u8]) -> Option<Path> {
        T::path(bytes, target)
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<T> {
        T::arbitrary()
    }
}

/// A list: attributes with the same number, each holding a declared set. nf_tables uses the number 1
/// (`NFTA_LIST_ELEM`). Any numbers are accepted when it is read.
#[derive(Clone, Copy, Debug)]
pub struct ListOf<T, const N: u16 = NFTA_LIST_ELEM>(PhantomData<T>);

/// A list whose attributes are numbered from 1 (`NFTA_SET_ELEM_LIST_ELEMENTS`, as libnftnl writes it).
pub type NumberedListOf<T> = ListOf<T, COUNTED>;

/// `NFTA_LIST_ELEM` (`linux/netfilter/nf_tables.h`)
pub const NFTA_LIST_ELEM: u16 = 1;
/// Special value instead of a number: the attributes are numbered from 1.
const COUNTED: u16 = 0;

impl<T: AttrSet, const N: u16> AttrKind for ListOf<T, N> {
    type Value = Vec<T>;
    const NESTED: bool = true;
    fn encode(value: &Vec<T>, w: &mut Writer) {
        for (count, v) in (1_usize..).zip(value) {
            let number = match N {
                // With more than 16 383 elements the enclosing attribute is too long, which the writer reports.
                COUNTED => u16::try_from(count).unwrap_or(u16::MAX),
                number => number,
            };
            w.attr(number, true, |w| v.encode(w));
        }
    }
    fn decode(bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
        Attrs::new(bytes)
            .enumerate()
            .map(|(i, a)| T::decode(a?.payload).map_err(|e| e.within(Step::Element(i))))
            .collect()
    }
    fn path(bytes: &[u8], target: Target, _: &[u8]) -> Option<Path> {
        let step = |place, _| Step::Element(place);
        path_in(bytes, target, step, |_, payload, target| {
            T::path(payload, target)
        })
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<Vec<T>> {
        use proptest::strategy::Strategy as _;
        proptest::collection::vec(T::arbitrary(), 0..3).boxed()
    }
}
