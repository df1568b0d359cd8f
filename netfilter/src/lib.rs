//! Packet filter rules as plain values, and the engines that read and write them.
//!
//! The crate is independent of Istio, Kubernetes and CNI. It has three engines, each with its own values, which it reads,
//! plans, applies and reads back: [`nft`] (nf_tables), [`xtables`] (legacy tables) and [`ipset`]. [`probe`] determines
//! which of their features a kernel has, and [`conntrack`] reads the result of NAT for a connection. Start with
//! [`nft::Ruleset`], the rules as values, and [`nft::NftEngine::apply`].
//!
//! Four types matter in each engine: a `Ruleset` (in [`ipset`]: a `Set`) is plain data;
//! [`NftEngine`](nft::NftEngine), [`XtEngine`](xtables::XtEngine) or [`IpsetEngine`](ipset::IpsetEngine) is a connection
//! to one network namespace; an `NftOp`, `XtOp` or `IpsetOp` is one change, printed as the equivalent command;
//! `NftApplied`, `XtApplied` or `IpsetApplied` lists what was changed.
//!
//! ```
//! use weir_netfilter::nft::{
//!     Chain, ChainType, CmpOp, Hook, L4Proto, NftEngine, Policy, Rule, Ruleset, Table, TableFamily, Verdict, priority,
//! };
//! use weir_netlink::Netns;
//!
//! # fn main() -> weir_netlink::Result<()> {
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let netns = Netns::create()?;
//! let mut input = Chain::base("input", ChainType::Filter, Hook::Input, priority::FILTER).policy(Policy::Drop);
//! input.rules = vec![
//!     Rule::builder().iifname(CmpOp::Eq, "lo").verdict(Verdict::Accept),
//!     Rule::builder().dport(L4Proto::Tcp, CmpOp::Eq, 22..=22).counter().verdict(Verdict::Accept),
//! ];
//! let mut table = Table::new(TableFamily::Inet, "firewall");
//! table.chains.push(input);
//! let desired = Ruleset { tables: vec![table] };
//! let owned = [(TableFamily::Inet, "firewall".to_owned())];
//!
//! // Read, planned, sent as one transaction, read back and compared.
//! let apply = || NftEngine::open()?.apply(&desired, &owned);
//! for op in netns.run(apply)??.ops {
//!     println!("{op}");
//! }
//! assert!(netns.run(apply)??.ops.is_empty(), "nothing is written twice");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

/// Declares constants of the kernel's interface by their C names: first the enums, whose members are numbered as in C.
macro_rules! constants {
    (
        $(enum $enum:ident: $of:ident { $($constant:ident $(= $number:literal)?),* $(,)? })+
        values: $($rest:tt)*
    ) => {
        $(
            #[allow(non_camel_case_types, clippy::enum_variant_names)]
            #[repr($of)]
            enum $enum { $($constant $(= $number)?),* }
            $(#[allow(missing_docs)] pub const $constant: $of = $enum::$constant as $of;)*
        )+
        constants! { @ [$($($constant)*)+] $($rest)* }
    };
    (@ [$($known:ident)*] $($name:ident: $ty:ty = $value:expr,)*) => {
        $(#[allow(missing_docs)] pub const $name: $ty = $value;)*
        /// Names and values, for the comparison with the system's headers.
        pub const CONSTANTS: &[(&str, i64)] = &[
            $((stringify!($known), $known as i64),)*
            $((stringify!($name), $name as i64),)*
        ];
    };
    ($first:ident $($rest:tt)*) => { constants! { @ [] $first $($rest)* } };
}

/// Declares an enum of numbers to which a newer kernel may add: per variant the constant in `raw` and, where it has one, its
/// word for `Display`. An unknown number is printed after the text that follows the type.
macro_rules! open_enum {
    ($(#[$m:meta])* $name:ident: $ty:ty $(, $other:literal)? {
        $($(#[$vm:meta])* $v:ident = $c:ident $($word:literal)?,)*
    }) => {
        $(#[$m])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vm])* #[doc = concat!($("`", $word, "`",)? " (`", stringify!($c), "`)")] $v,)*
            /// A number that this version does not know.
            Other($ty),
        }
        impl $name {
            /// Every named variant, for tests of completeness.
            pub const KNOWN: &[Self] = &[$(Self::$v),*];
            /// The number in the kernel's interface.
            #[must_use]
            pub const fn number(self) -> $ty {
                match self { $(Self::$v => raw::$c,)* Self::Other(n) => n }
            }
        }
        impl From<$ty> for $name {
            fn from(n: $ty) -> Self {
                match n { $(raw::$c => Self::$v,)* n => Self::Other(n) }
            }
        }
        open_enum! { @ $name [$($other)?] $($($v $word)?)* }
    };
    (@ $name:ident []) => {};
    (@ $name:ident [$($other:literal)?] $($v:ident $word:literal)+) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$v => f.write_str($word),)+
                    Self::Other(n) => write!(f, concat!($($other,)? "{}"), n),
                }
            }
        }
    };
}

mod address;
#[doc(hidden)]
pub mod calendar;
pub mod conntrack;
mod converge;
mod diff;
mod features;
mod icmp;
pub mod ipset;
pub mod nft;
pub mod probe;
mod protocols;
mod text;
pub mod xtables;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
