//! Keys: the numbers by which an expression selects the value that it loads.

use crate::nft::model::DataType;

/// A value that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) data_type: DataType,
    /// Number of bytes; 0 if nothing determines it.
    pub(crate) len: u32,
    /// Whether the kernel keeps it in host order.
    pub(crate) host_order: bool,
}

impl Key {
    /// A number in host order.
    pub(crate) const fn host(data_type: DataType, len: u32) -> Self {
        Self {
            data_type,
            len,
            host_order: true,
        }
    }

    /// Bytes, or a number in network order.
    pub(crate) const fn net(data_type: DataType, len: u32) -> Self {
        Self {
            host_order: false,
            ..Self::host(data_type, len)
        }
    }
}

/// Declares the keys of an expression in the order of the kernel's enum, one row each: the byte order, the variant, the constant
/// and, where it does not follow from the row before, its number, then `nft`'s word, the type and the number of bytes. An unknown
/// number is displayed after the text that follows the name of the enum.
macro_rules! keys {
    ($enum:ident $name:ident $other:literal {
        $($(#[$m:meta])* $order:ident $v:ident = $c:ident $(($n:literal))? $word:literal $data_type:ident $len:literal;)*
    }) => {
        // `raw` exports the constants, and has a list of its own.
        #[allow(unreachable_pub)]
        pub(crate) mod constants {
            constants! {
                enum $enum: u32 { $($c $(= $n)?),* }
                values:
            }
        }

        open_enum! {
            #[doc = concat!("`enum ", stringify!($enum), "`")]
            $name: u32, $other { $($(#[$m])* $v = $c $word,)* }
        }

        impl $name {
            /// The value that is loaded; `None` if this version does not know the number.
            pub(crate) const fn key(self) -> Option<Key> {
                match self {
                    $(Self::$v => Some(Key::$order(DataType::$data_type, $len)),)*
                    Self::Other(_) => None,
                }
            }
        }
    };
}
pub(crate) use keys;
