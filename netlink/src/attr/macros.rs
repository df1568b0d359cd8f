//! The declaration of attribute sets.

/// Declares a set of attributes, one line each: `field: Kind = C_NAME number,`.
///
/// Every field is an `Option`, `None` if the attribute is absent. The struct implements [`AttrSet`](crate::attr::AttrSet), and
/// each `C_NAME` is an associated constant.
///
/// ```
/// use weir_netlink::attr::{AttrSet, Be32, Str, Writer};
/// weir_netlink::attributes! {
///     /// `enum nft_table_attributes`
///     pub struct Table {
///         /// name of the table
///         name: Str = NFTA_TABLE_NAME 1,
///         /// `NFT_TABLE_F_*`
///         flags: Be32 = NFTA_TABLE_FLAGS 2,
///     }
/// }
/// let table = Table { name: Some("x".into()), ..Table::default() };
/// let mut w = Writer::new();
/// table.encode(&mut w);
/// assert_eq!(Table::decode(&w.finish().unwrap()).unwrap(), table);
/// ```
#[macro_export]
macro_rules! attributes {
    ($($(#[$m:meta])* $vis:vis struct $name:ident {
        $($(#[$fm:meta])* $field:ident: $kind:ty = $c:ident $n:literal,)*
    })*) => {$(
        $(#[$m])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        $vis struct $name {
            $(
                $(#[$fm])*
                #[doc = concat!(" (`", stringify!($c), "`)")]
                pub $field: Option<<$kind as $crate::attr::AttrKind>::Value>,
            )*
            /// Attributes that this declaration does not name.
            pub unknown: Vec<$crate::attr::Unknown>,
        }

        impl $name {
            $(
                #[doc = concat!("Number of the attribute `", stringify!($field), "`.")]
                #[allow(dead_code, unreachable_pub)]
                pub const $c: u16 = $n;
            )*
        }

        impl $crate::attr::AttrSet for $name {
            const CONSTANTS: &'static [(&'static str, u16)] = &[$((stringify!($c), $n)),*];

            fn encode(&self, w: &mut $crate::attr::Writer) {
                $(
                    if let Some(v) = &self.$field {
                        let number = $crate::attr::with_order::<$kind>($n);
                        w.attr(number, <$kind as $crate::attr::AttrKind>::NESTED, |w| {
                            <$kind as $crate::attr::AttrKind>::encode(v, w);
                        });
                    }
                )*
                for (number, bytes) in &self.unknown {
                    w.attr(*number, false, |w| w.put(bytes));
                }
            }

            fn decode(bytes: &[u8]) -> Result<Self, $crate::attr::DecodeError> {
                let mut set = Self::default();
                for attr in $crate::attr::Attrs::new(bytes) {
                    let attr = attr?;
                    match attr.number {
                        $(
                            $n => {
                                let v = <$kind as $crate::attr::AttrKind>::decode(attr.payload);
                                let step = $crate::attr::Step::Attribute {
                                    number: $n,
                                    name: Some(stringify!($c)),
                                };
                                set.$field = Some(v.map_err(|e| e.within(step))?);
                            }
                        )*
                        _ => set.unknown.push((attr.kind, attr.payload.to_vec())),
                    }
                }
                Ok(set)
            }

            // A set may have no attributes.
            #[allow(unused_variables)]
            fn path(
                bytes: &[u8],
                target: $crate::attr::Target,
            ) -> Option<$crate::attr::Path> {
                let step = |_, number| $crate::attr::Step::Attribute {
                    number,
                    name: Self::attribute_name(number),
                };
                $crate::attr::path_in(bytes, target, step, |number, payload, target| match number {
                    $($n => <$kind as $crate::attr::AttrKind>::path(payload, target, bytes),)*
                    _ => None,
                })
            }

            $crate::attribute_strategy!{ $name $($field: $kind,)* }
        }
    )*};
}

/// The generator that [`attributes!`] declares with the feature `testing`.
#[cfg(feature = "testing")]
#[macro_export]
#[doc(hidden)]
macro_rules! attribute_strategy {
    ($name:ident $($field:ident: $kind:ty,)*) => {
        fn arbitrary() -> $crate::attr::testing::BoxedStrategy<Self> {
            use $crate::attr::testing::{Just, Strategy};
            let s = Just($name::default()).boxed();
            $(
                let s = (s, $crate::attr::testing::of(<$kind as $crate::attr::AttrKind>::strategy()))
                    .prop_map(|(mut set, v)| { set.$field = v; set })
                    .boxed();
            )*
            s
        }
    };
}

/// Without the feature `testing` there is no generator.
#[cfg(not(feature = "testing"))]
#[macro_export]
#[doc(hidden)]
macro_rules! attribute_strategy {
    ($($t:tt)*) => {};
}
