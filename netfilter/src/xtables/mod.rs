//! Legacy xtables rules as plain values: what `iptables-legacy` and `ip6tables-legacy` handle.
//!
//! [`Ruleset`] > [`Table`] > [`Chain`] > [`Rule`]; a rule is a list of conditions on the packet's
//! headers, a list of [`Match`]es and one [`Target`]. Every value is `PartialEq` and prints itself
//! as `iptables-save` does, without packet counters.
//!
//! This model and the one in [`nft`](crate::nft) are two on purpose, and nothing converts one into the
//! other. They look alike and differ where it matters:
//!
//! - `-m owner ! --uid-owner 0` holds for a packet without a socket; `meta skuid != 0` does not.
//! - A rule here belongs to IPv4 or to IPv6 by its table; a rule of an `inet` table without an address
//!   sees both.
//! - Built-in chains exist with their table and have a policy; base chains are made, with a type, a
//!   hook and a priority.
//!
//! So what is wished is compiled twice, once for each, and never translated.

mod matching;
mod net;
mod rule;
mod ruleset;
mod target;

pub use matching::{ConntrackState, Match, PortMatch, PortRange};
pub use net::{Interface, Protocol};
pub use rule::{Not, Rule, RuleBuilder};
pub use ruleset::{Chain, ChainKind, Family, Policy, Ruleset, Table};
pub use target::Target;

#[cfg(test)]
mod tests;
