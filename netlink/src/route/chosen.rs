//! Nested attributes whose declaration is selected by the string in a sibling attribute: the data of a link by its kind, the
//! options of a filter by its classifier.

use crate::attr::{AttrKind, AttrSet, Attrs, DecodeError, Path, Str, Target, Writer};
use crate::message::FamilyHeader;
use std::marker::PhantomData;

/// Maps the string to the declaration.
pub trait Choice {
    /// Number of the attribute that holds the string.
    const WORD: u16;
    /// The path to the target inside the nest, whose declaration `word` selects.
    fn path(word: &str, bytes: &[u8], target: Target) -> Option<Path>;
}

/// A nested attribute whose declaration is selected by the string in a sibling attribute. Its value is bytes.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<C>(PhantomData<C>);

impl<C: Choice> AttrKind for Chosen<C> {
    type Value = Vec<u8>;
    const NESTED: bool = true;
    fn encode(value: &Vec<u8>, w: &mut Writer) {
        w.put(value);
    }
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
    fn path(bytes: &[u8], target: Target, around: &[u8]) -> Option<Path> {
        let mut around = Attrs::new(around).filter_map(Result::ok);
        let word = around.find(|attr| attr.number == C::WORD)?;
        let word = Str::decode(word.payload).ok()?;
        C::path(&word, bytes, target)
    }
}

/// A family header and its attributes, inside an attribute: the peer of a link.
#[derive(Clone, Copy, Debug)]
pub struct Headed<H, A>(PhantomData<(H, A)>);

impl<H, A> AttrKind for Headed<H, A>
where
    H: FamilyHeader + Clone + std::fmt::Debug + PartialEq + Default + 'static,
    A: AttrSet,
{
    type Value = (H, A);
    const NESTED: bool = true;
    fn encode((header, attrs): &(H, A), w: &mut Writer) {
        header.write(w);
        w.align();
        attrs.encode(w);
    }
    fn decode(bytes: &[u8]) -> Result<(H, A), DecodeError> {
        let short = || {
            DecodeError::new(format!(
                "{} bytes where {} are the least",
                bytes.len(),
                H::SIZE
            ))
        };
        let (header, attrs) = H::split(bytes).ok_or_else(short)?;
        Ok((header, A::decode(attrs)?))
    }
    fn path(bytes: &[u8], target: Target, _: &[u8]) -> Option<Path> {
        let target = match target.offset {
            Some(_) => target.after(H::ATTRS)?,
            None => target,
        };
        A::path(bytes.get(H::ATTRS..)?, target)
    }
    #[cfg(feature = "testing")]
    fn strategy() -> proptest::strategy::BoxedStrategy<(H, A)> {
        use proptest::strategy::Strategy as _;
        A::arbitrary().prop_map(|a| (H::default(), a)).boxed()
    }
}

/// Declares the values of such a nested attribute: variant, string, declared set. Any other string, and data that does not
/// match the declaration, remain opaque.
macro_rules! chosen {
    ($(#[$m:meta])* pub enum $name:ident by $number:literal {
        $($(#[$vm:meta])* $variant:ident($set:ty) = $word:literal,)*
    }) => {
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vm])* $variant($set),)*
            /// A kind without a declaration here: the string, and the bytes of its nested attributes.
            Other(String, Option<Vec<u8>>),
        }

        impl $name {
            /// The kind with this string and no attributes of its own.
            #[must_use]
            pub fn plain(word: &str) -> Self {
                match word {
                    $($word => Self::$variant(Default::default()),)*
                    _ => Self::Other(word.to_owned(), None),
                }
            }

            /// The kernel's name for it.
            #[must_use]
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $word,)*
                    Self::Other(word, _) => word,
                }
            }

            pub(super) fn read(word: String, data: Option<Vec<u8>>) -> Self {
                let bytes = data.as_deref().unwrap_or_default();
                let known = match word.as_str() {
                    $($word => <$set as $crate::attr::AttrSet>::decode(bytes).ok().map(Self::$variant),)*
                    _ => None,
                };
                known.unwrap_or(Self::Other(word, data))
            }

            /// The encoded nested attributes; `None` if there are none.
            pub(super) fn data(&self) -> Result<Option<Vec<u8>>, $crate::attr::EncodeError> {
                let mut w = $crate::attr::Writer::new();
                match self {
                    $(Self::$variant(set) => $crate::attr::AttrSet::encode(set, &mut w),)*
                    Self::Other(_, data) => return Ok(data.clone()),
                }
                let bytes = w.finish()?;
                Ok((!bytes.is_empty()).then_some(bytes))
            }
        }

        impl $crate::route::chosen::Choice for $name {
            const WORD: u16 = $number;
            fn path(
                word: &str,
                bytes: &[u8],
                target: $crate::attr::Target,
            ) -> Option<$crate::attr::Path> {
                match word {
                    $($word => <$set as $crate::attr::AttrSet>::path(bytes, target),)*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use chosen;
