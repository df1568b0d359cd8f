//! Legacy xtables: rules as values, and the engine that reads and writes them by `getsockopt` and
//! `setsockopt`, as `iptables-legacy` and `ip6tables-legacy` do.
//!
//! [`Ruleset`] > [`Table`] > [`Chain`] > [`Rule`]; a rule is a list of conditions on the packet's
//! headers, a list of [`Match`]es and one [`Target`]. Every value is `PartialEq` and prints itself
//! as `iptables-save` does, without packet counters. [`Script`] is the text of `iptables-restore` as values.
//! [`XtEngine`] reads, plans, writes and reads back; start with [`XtEngine::apply`].
//!
//! [`raw`] is the level of the kernel's interface, and follows its headers.
//!
//! Foreign rules are never encoded again: their bytes are kept as they were read, and only the offsets of jumps
//! change. So a rule that this crate cannot decode, such as one with a match of a newer kernel, survives every change.
//!
//! This model and that of [`nft`](crate::nft) are separate on purpose. The engines convert no rule of one model to the other;
//! only [`nft::compat`](crate::nft::compat) converts what `iptables-nft` wrote to this model. The models look alike and
//! differ in meaning:
//!
//! - `-m owner ! --uid-owner 0` holds for a packet without a socket; `meta skuid != 0` does not.
//! - A rule here belongs to IPv4 or to IPv6 by its table; a rule of an `inet` table without an address
//!   sees both.
//! - Built-in chains exist with their table and have a policy; base chains are created, with a type, a hook and a
//!   priority.
//!
//! So desired rules are compiled twice, once for each model, and never translated.

mod engine;
mod entry;
mod ext;
mod matching;
mod net;
pub mod raw;
mod rule;
mod ruleset;
mod sets;
mod structs;
mod table;
mod target;
mod text;

pub(crate) use engine::revision_request;
pub use engine::{
    Checked, OwnerChains, Ownership, Removed, Snapshot, TableId, Transaction, Writers, XtApplied,
    XtEngine, XtListing, XtOp, XtOutline, XtSizes, XtSockets, XtTransport, canonical_table, plan,
    plan_restore,
};
#[cfg(test)]
pub(crate) use ext::extensions;
pub use ext::matches::{
    comment::Comment,
    conntrack::{Conntrack, ConntrackState, Direction},
    mark::Mark,
    multiport::{Multiport, Side},
    owner::Owner,
    set::{Compare, SetMatch, SetRef},
    tcp::{Tcp, TcpFlags},
    udp::Udp,
};
pub use ext::targets::{
    connmark::{Connmark, Shift},
    ct::{Ct, Notrack, Zone},
    mark::Xmark,
    nat::Nat,
    set::SetTarget,
    tproxy::Tproxy,
};
pub use ext::{Extension, Form, Part, Revisions, Unknown};
pub(crate) use ext::{match_of, target_of};
pub use matching::{Match, PortRange};
pub use net::{Interface, Network, Protocol};
pub use rule::{Not, Rule, RuleBuilder};
pub use ruleset::{Chain, ChainKind, Policy, Ruleset, Table, XtFamily};
pub use sets::{Sets, SocketSets};
pub use table::Counters;
pub use target::Target;
pub use text::{Command, ParseError, Position, Script, ScriptTable};

#[cfg(test)]
mod tests;
