//! The registries of matches and of targets with a value type. The enum, its encoding and decoding, its parsing and its text
//! are derived from one row for each type.

/// Declares an enum of matches or targets. Its option (`-m` or `-j`) comes first, then the verdicts and the jumps to chains, which
/// only targets have, then each extension: its value, its kind, and the function that prints its options if not the value's `Display`.
macro_rules! registry {
    (
        $(#[$doc:meta])*
        $sum:ident: $option:literal
        verdicts { $($(#[$vm:meta])* $verdict:ident = $word:literal,)* }
        chains { $($(#[$cm:meta])* $chain:ident = $to:literal,)* }
        $($(#[$m:meta])* $variant:ident($value:ty) = $kind:path $(, $print:path)?;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $sum {
            $($(#[$vm])* $verdict,)*
            $($(#[$cm])* $chain(String),)*
            $($(#[$m])* $variant($value),)*
            /// An extension without a value type, described by a row.
            Extension($crate::xtables::ext::Extension),
            /// Any other extension, as raw bytes.
            Unknown($crate::xtables::ext::Unknown),
        }

        /// The kind of each extension.
        pub(super) const KINDS: &[&$crate::xtables::ext::Kind<$sum>] = &[$(&$crate::xtables::ext::Kind {
            name: $kind.name,
            forms: $kind.forms,
            encode: |value, form, cx| match value {
                $sum::$variant(v) => ($kind.encode)(v, form, cx),
                _ => Ok(None),
            },
            decode: |form, bytes, cx| ($kind.decode)(form, bytes, cx).map($sum::$variant),
            options: $kind.options,
            parse: |given| ($kind.parse)(given).map($sum::$variant),
        },)*];

        impl $sum {
            /// The word after the option: the name of the extension, verdict or chain.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$verdict => $word,)*
                    $(Self::$chain(name) => name,)*
                    $(Self::$variant(_) => $kind.name,)*
                    Self::Extension(v) => v.name(),
                    Self::Unknown(v) => &v.name,
                }
            }
        }

        /// Prints a space before every option, as the `save` functions of iptables do.
        impl std::fmt::Display for $sum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$chain(_) => f.write_str($to)?,)*
                    _ => f.write_str($option)?,
                }
                match self {
                    Self::Unknown(v) => return v.fmt(f),
                    _ => f.write_str(self.name())?,
                }
                match self {
                    $(Self::$variant(v) => registry!(@print v, f $(, $print)?),)*
                    Self::Extension(v) => v.fmt(f),
                    _ => Ok(()),
                }
            }
        }
    };
    (@print $value:ident, $f:ident) => { $value.fmt($f) };
    (@print $value:ident, $f:ident, $print:path) => { $print($value, $f) };
}
pub(in crate::xtables) use registry;
