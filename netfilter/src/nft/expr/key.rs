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

/// Declares the enum of an expression's keys, one row each: the byte order, the variant, the constant, `nft`'s word, the type and
/// the number of bytes. An unknown number is displayed after the text that follows the name of the enum.
macro_rules! keys {
    ($(#[$m:meta])* $name:ident $other:literal {
        $($(#[$vm:meta])* $order:ident $v:ident = $c:ident $word:literal $data_type:ident $len:literal;)*
    }) => {
        open_enum! {
            $(#[$m])*
            $name: u32, $other { $($(#[$vm])* $v = $c $word,)* }
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
