//! Rules of nf_tables as plain values, independent of a kernel.
//!
//! [`Ruleset`] > [`Table`] > [`Chain`] > [`Rule`] > [`Statement`]; a [`Set`] belongs to a table.
//! Every value is `PartialEq` and prints itself in the syntax of `nft list ruleset`.
//!
//! A rule is what the kernel holds, not what a user typed: `tcp dport 80` is two matches here, `meta l4proto tcp` and
//! a load of two bytes from the transport header, because the kernel keeps two. The constructors ([`Rule::builder`])
//! add such dependencies where `nft` adds them; `Display` omits what the following matches imply, as `nft` does in
//! listings.

#[cfg(feature = "testing")]
pub mod arbitrary;
mod builder;
mod data;
mod data_type;
mod matching;
mod object;
mod rule;
mod ruleset;
mod set;
mod statement;

pub use crate::nft::expr::ct::{CtDirection, CtKey};
pub use crate::nft::expr::fib::FibResult;
pub use crate::nft::expr::meta::MetaKey;
pub use crate::nft::expr::socket::SocketKey;
pub use crate::nft::expr::{Counter, Limit, Log, Reject};
pub use builder::{L4Proto, RuleBuilder};
pub use data::Data;
pub use data_type::DataType;
pub(crate) use data_type::Shown;
pub use matching::{CmpOp, Match, Operand, PayloadBase, Selector};
pub use object::{Object, ObjectKind};
pub use rule::{AnonymousSet, Rule};
pub use ruleset::{
    BaseChain, Chain, ChainType, Hook, Policy, Ruleset, Table, TableFamily, priority,
};
pub use set::{Element, ElementKey, Extra, Set, SetData, TypeOf, Unread};
pub use statement::{Masquerade, Nat, NatKind, Redirect, Source, Statement, Tproxy, Verdict};
