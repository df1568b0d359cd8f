//! Expressions: the instructions of a rule, as the kernel holds them.
//!
//! One file per expression, each a declaration of its attributes in the order in which `nft` writes them. [`Expr`] is
//! the sum type; an unknown expression remains [`Expr::Opaque`] with its bytes. The file of an expression also defines
//! its normal form and its text (`Instruction`). `nft::linearize` converts statements to expressions,
//! `nft::delinearize` expressions to statements, and `nft::listing` expressions to text.

/// The names that the file of every expression imports.
mod prelude {
    pub(super) use super::key::{Key, keys};
    pub(super) use super::registers::Registers;
    pub(super) use super::{DataAttrs, Expr, Instruction, Numbers, SetName, expr};
    pub(super) use crate::nft::listing::{Binary, Kind, Listing, Right, Term};
    pub(super) use crate::nft::model::{CmpOp, Data, DataType, Selector, TableFamily};
    pub(super) use crate::nft::raw;
    pub(super) use weir_netlink::attr::{Be16, Be32, Be64, Nest, Str, U8};
}

mod bitwise;
mod byteorder;
mod cmp;
mod connlimit;
mod counter;
pub(crate) mod ct;
mod data;
mod dup;
mod dynset;
mod exthdr;
pub(crate) mod fib;
mod flow_offload;
mod fwd;
mod hash;
mod immediate;
mod key;
mod last;
mod limit;
mod log;
mod lookup;
mod masq;
pub(crate) mod meta;
mod nat;
mod numgen;
mod objref;
mod osf;
mod payload;
mod queue;
mod quota;
mod range;
mod redir;
mod registers;
mod reject;
pub(crate) mod rt;
pub(crate) mod socket;
mod synproxy;
mod tproxy;
pub(crate) mod xfrm;

pub use data::{DataAttrs, VerdictAttrs};
pub(crate) use exthdr::noted as noted_exthdr;
pub(crate) use key::Key;
pub(crate) use registers::Registers;
pub use rt::RtKey;
pub use xfrm::XfrmKey;

use super::listing::Listing;
use crate::features::{Feature, LEGACY, NONE};
use std::ffi::CStr;
use weir_netlink::attr::{AttrSet, Attrs, DecodeError, Path, RawNest, Step, Str, Target, Writer};

weir_netlink::attributes! {
    /// `enum nft_expr_attributes`
    pub struct ExprAttrs {
        /// name of the expression
        name: Str = NFTA_EXPR_NAME 1,
        /// its own attributes
        data: RawNest = NFTA_EXPR_DATA 2,
    }
}

/// The name of a set, and its id in a batch or its index in a rule.
pub(crate) type SetName<'a> = (&'a mut Option<String>, &'a mut Option<u32>);

/// C names and numbers of constants.
pub(crate) type Numbers = &'static [(&'static str, i64)];

/// The behaviour of an expression: its normal form, its set, its text.
pub(crate) trait Instruction {
    /// The constants that its file declares.
    const NUMBERS: Numbers = &[];

    /// Gives attributes in which a dump differs from the messages of `nft` one form, so that expressions can be compared as
    /// values: most of them are removed if they have the default value.
    fn normalize(&mut self) {}

    /// The set that it refers to.
    fn set(&mut self) -> Option<SetName<'_>> {
        None
    }

    /// Loads its result into a register, or appends its text. `None` if that is not possible: the expression is then listed
    /// by its bytes.
    fn list(&self, l: &mut Listing<'_>) -> Option<()>;
}

/// Clears an attribute with its default value.
pub(super) fn drop_if<T: PartialEq>(field: &mut Option<T>, default: T) {
    if field.as_ref() == Some(&default) {
        *field = None;
    }
}

/// Clears the end of a range that has only one value.
pub(super) fn same(min: Option<u32>, max: &mut Option<u32>) {
    if min == *max {
        *max = None;
    }
}

/// `expr!(Meta { key: raw::NFT_META_MARK, dreg: 1 })`: an expression with these attributes only.
macro_rules! expr {
    ($kind:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $crate::nft::expr::Expr::$kind($crate::nft::expr::$kind {
            $($field: $crate::nft::expr::expr!(@ $field $(, $value)?).into(),)*
            ..Default::default()
        })
    };
    (@ $field:ident) => { $field };
    (@ $field:ident, $value:expr) => { $value };
}
pub(crate) use expr;

/// The expressions: the name, which is that of the module, the type, and the fields of [`Feature`].
macro_rules! expressions {
    ($($name:ident $variant:ident: $since:literal, $needs:literal, $instead:expr;)*) => {
        $(pub use $name::$variant;)*

        /// Every expression of [`Expr::KNOWN`], and the one that holds a match of xtables.
        pub(crate) const FEATURES: &[Feature] = &[
            $(Feature::of(concat!("expression ", stringify!($name)), $since, $needs, $instead),)*
            Feature::of("expression notrack", "4.9", "nft_ct nf_conntrack", NONE),
            Feature::of(
                "expression match",
                "3.13",
                "nft_compat x_tables xt_comment",
                "not used: iptables-nft cannot write here either",
            ),
        ];

        /// One instruction of a rule.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Expr {
            $(#[doc = concat!("`", stringify!($name), "`")] $variant($variant),)*
            /// `notrack` has no attributes. Since 4.9.
            Notrack,
            /// An expression that this version does not know, or one with bytes that it cannot decode.
            Opaque(ExprAttrs),
        }

        impl Expr {
            /// Names of all known expressions, `notrack` included.
            pub const KNOWN: &[&str] = &[$(stringify!($name),)* "notrack"];

            /// Gives its attributes their normal form.
            pub(crate) fn normalize(&mut self) {
                match self {
                    $(Self::$variant(x) => x.normalize(),)*
                    Self::Notrack | Self::Opaque(_) => {}
                }
            }

            /// The set that it refers to.
            pub(crate) fn set(&mut self) -> Option<SetName<'_>> {
                match self {
                    $(Self::$variant(x) => x.set(),)*
                    Self::Notrack | Self::Opaque(_) => None,
                }
            }

            /// Loads its result, or appends its text.
            pub(crate) fn list(&self, l: &mut Listing<'_>) -> Option<()> {
                match self {
                    $(Self::$variant(x) if x.unknown.is_empty() => x.list(l),)*
                    Self::Notrack => l.say("notrack"),
                    _ => None,
                }
            }

            /// Its name, as the kernel registers it.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => stringify!($name),)*
                    Self::Notrack => "notrack",
                    Self::Opaque(attrs) => attrs.name.as_deref().unwrap_or_default(),
                }
            }

            /// The C name of one of its attributes.
            pub(crate) fn attribute_name(&self, number: u16) -> Option<&'static str> {
                match self {
                    $(Self::$variant(_) => $variant::attribute_name(number),)*
                    Self::Notrack | Self::Opaque(_) => None,
                }
            }

            /// Its encoded attributes (`NFTA_EXPR_DATA`).
            pub(crate) fn data(&self) -> Vec<u8> {
                if let Self::Opaque(attrs) = self {
                    return attrs.data.clone().unwrap_or_default();
                }
                let mut w = Writer::new();
                self.encode_data(&mut w);
                w.finish().unwrap_or_default()
            }

            fn encode_data(&self, w: &mut Writer) {
                match self {
                    $(Self::$variant(x) => x.encode(w),)*
                    Self::Notrack | Self::Opaque(_) => {}
                }
            }

            /// Decodes one expression. It never fails: bytes that cannot be decoded are kept in [`Expr::Opaque`].
            #[must_use]
            pub fn from_attrs(attrs: ExprAttrs) -> Self {
                let data = attrs.data.as_deref().unwrap_or_default();
                let known = match attrs.name.as_deref() {
                    _ if !attrs.unknown.is_empty() => None,
                    Some(name) => Self::known(name, data),
                    None => None,
                };
                known.unwrap_or(Self::Opaque(attrs))
            }

            fn known(name: &str, data: &[u8]) -> Option<Self> {
                match name {
                    $(stringify!($name) => $variant::decode(data).ok().map(Self::$variant),)*
                    "notrack" if data.is_empty() => Some(Self::Notrack),
                    _ => None,
                }
            }

            /// C names and numbers of the constants that the files of expressions declare, for the same test.
            #[must_use]
            pub fn numbers() -> Vec<(&'static str, i64)> {
                [$($variant::NUMBERS,)*].concat()
            }

            /// C names and numbers of every expression's attributes, for a test that compares them with the system's headers.
            #[must_use]
            pub fn constants() -> Vec<(&'static str, u16)> {
                let sets: &[&[(&str, u16)]] = &[
                    $($variant::CONSTANTS,)*
                    ExprAttrs::CONSTANTS,
                    DataAttrs::CONSTANTS,
                    VerdictAttrs::CONSTANTS,
                ];
                sets.concat()
            }

            fn path_in(name: &str, data: &[u8], target: Target) -> Option<Path> {
                match name {
                    $(stringify!($name) => $variant::path(data, target),)*
                    _ => None,
                }
            }

            /// Generates any known expression, for property tests.
            #[cfg(feature = "testing")]
            pub fn arbitrary() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::{Just, Strategy, Union};
                Union::new([
                    Just(Self::Notrack).boxed(),
                    $(<$variant as AttrSet>::arbitrary().prop_map(Self::$variant).boxed(),)*
                ])
                .boxed()
            }
        }
    };
}

// Module and type, the first kernel, its modules (none if it is part of nf_tables), the substitute for a missing one.
expressions! {
    bitwise Bitwise: "3.13", "", LEGACY;
    byteorder Byteorder: "3.13", "", LEGACY;
    cmp Cmp: "3.13", "", LEGACY;
    connlimit Connlimit: "4.18", "nft_connlimit nf_conntrack", NONE;
    counter Counter: "3.13", "nft_counter", LEGACY;
    ct Ct: "3.13", "nft_ct nf_conntrack", LEGACY;
    dup Dup: "4.3", "nft_dup_ipv4 nft_dup_ipv6", NONE;
    dynset Dynset: "4.1", "", "not used";
    exthdr Exthdr: "3.13", "", NONE;
    fib Fib: "4.10", "nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_fib_inet", "addresses are listed in rules";
    flow_offload FlowOffload: "4.16", "nft_flow_offload nf_flow_table nf_conntrack", NONE;
    fwd Fwd: "4.5", "nft_fwd_netdev nf_dup_netdev", NONE;
    hash Hash: "4.9", "nft_hash", NONE;
    immediate Immediate: "3.13", "", LEGACY;
    last Last: "5.14", "", NONE;
    limit Limit: "3.13", "nft_limit", NONE;
    log Log: "3.13", "nft_log nf_log_syslog nf_log_ipv4 nf_log_ipv6", "drops are not logged";
    lookup Lookup: "3.13", "", LEGACY;
    masq Masq: "3.18", "nft_masq nft_chain_nat nf_nat", NONE;
    meta Meta: "3.13", "", LEGACY;
    nat Nat: "3.13", "nft_nat nft_chain_nat nf_nat", LEGACY;
    numgen Numgen: "4.9", "nft_numgen", NONE;
    objref Objref: "4.10", "nft_objref", NONE;
    osf Osf: "4.19", "nft_osf", NONE;
    payload Payload: "3.13", "", LEGACY;
    queue Queue: "3.14", "nft_queue", "not used";
    quota Quota: "4.9", "nft_quota", NONE;
    range Range: "4.9", "", LEGACY;
    redir Redir: "3.19", "nft_redir nft_chain_nat nf_nat", LEGACY;
    reject Reject: "3.14", "nft_reject nft_reject_inet", "drop";
    rt Rt: "4.10", "", NONE;
    socket Socket: "4.18", "nft_socket", LEGACY;
    synproxy Synproxy: "5.3", "nft_synproxy", NONE;
    tproxy Tproxy: "4.19", "nft_tproxy", LEGACY;
    xfrm Xfrm: "4.20", "nft_xfrm", NONE;
}

/// An expression as the element of a list (`NFTA_RULE_EXPRESSIONS`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExprElem(pub Expr);

impl AttrSet for ExprElem {
    const CONSTANTS: &'static [(&'static str, u16)] = ExprAttrs::CONSTANTS;

    fn encode(&self, w: &mut Writer) {
        if let Expr::Opaque(attrs) = &self.0 {
            return attrs.encode(w);
        }
        w.attr(ExprAttrs::NFTA_EXPR_NAME, false, |w| {
            w.put(self.0.name().as_bytes());
            w.put(&[0]);
        });
        if self.0 != Expr::Notrack {
            w.attr(ExprAttrs::NFTA_EXPR_DATA, true, |w| self.0.encode_data(w));
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match in_place(bytes) {
            Some(expr) => Ok(Self(expr)),
            None => Ok(Self(Expr::from_attrs(ExprAttrs::decode(bytes)?))),
        }
    }

    fn path(bytes: &[u8], target: Target) -> Option<Path> {
        let attrs = ExprAttrs::decode(bytes).ok()?;
        let name = attrs.name.unwrap_or_default();
        let data = attrs.data.unwrap_or_default();
        // The data is the last attribute, so its start follows from its length.
        let start = bytes.len().saturating_sub(data.len().next_multiple_of(4));
        let inner = target
            .after(start)
            .and_then(|target| Expr::path_in(&name, &data, target));
        Some(inner.unwrap_or_default().within(Step::Kind(name)))
    }

    #[cfg(feature = "testing")]
    fn arbitrary() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::strategy::Strategy;
        Expr::arbitrary().prop_map(Self).boxed()
    }
}

/// Decodes a known expression of the usual form, name and data only, without copying them.
fn in_place(bytes: &[u8]) -> Option<Expr> {
    let (mut name, mut data) = (None, None);
    for attr in Attrs::new(bytes) {
        let attr = attr.ok()?;
        let twice = match attr.number {
            ExprAttrs::NFTA_EXPR_NAME => name.replace(attr.payload),
            ExprAttrs::NFTA_EXPR_DATA => data.replace(attr.payload),
            _ => return None,
        };
        if twice.is_some() {
            return None;
        }
    }
    let name = CStr::from_bytes_with_nul(name?).ok()?.to_str().ok()?;
    Expr::known(name, data.unwrap_or_default())
}
