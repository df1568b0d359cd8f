//! Targets (`-j`).

use super::ext::registry;
use super::ext::targets::*;
use super::raw::{NF_ACCEPT, NF_DROP, NF_QUEUE, XT_RETURN};

registry! {
    /// The action for a packet that all conditions of a rule match.
    Target: " -j "
    verdicts {
        /// `ACCEPT`: continue with the next table or hook.
        Accept = "ACCEPT",
        /// `DROP`: drop the packet.
        Drop = "DROP",
        /// `RETURN`: continue in the calling chain, or with the policy.
        Return = "RETURN",
        /// `QUEUE`: to a program that listens on queue 0.
        Queue = "QUEUE",
    }
    chains {
        /// `-j CHAIN`: continue in a chain, and after its end with the next rule.
        Jump = " -j ",
        /// `-g CHAIN`: continue in a chain without returning.
        Goto = " -g ",
    }
    /// `REDIRECT`: destination NAT to this machine. Only in `nat`.
    Redirect(nat::Nat) = nat::REDIRECT, nat::to_ports;
    /// `MASQUERADE`: the source becomes the address of the outgoing interface. Only in `nat POSTROUTING`.
    Masquerade(nat::Nat) = nat::MASQUERADE, nat::to_ports;
    /// `SNAT`: the source becomes another address or port. Only in `nat`.
    Snat(nat::Nat) = nat::SNAT, nat::to_source;
    /// `DNAT`: the destination becomes another address or port. Only in `nat`.
    Dnat(nat::Nat) = nat::DNAT, nat::to_destination;
    /// `TPROXY`: delivers the packet to a local socket without changing it. Only in `mangle PREROUTING`, for TCP and UDP.
    Tproxy(tproxy::Tproxy) = tproxy::KIND;
    /// `MARK`: changes the packet's mark.
    Mark(mark::Xmark) = mark::KIND;
    /// `CONNMARK`: changes the connection's mark, or copies it from or to the packet's.
    Connmark(connmark::Connmark) = connmark::KIND;
    /// `NOTRACK`: the old name of `CT --notrack`. Only in `raw`.
    Notrack(ct::Notrack) = ct::NOTRACK;
    /// `CT`: sets how connection tracking treats the packet. Only in `raw`.
    Ct(ct::Ct) = ct::KIND;
    /// `SET`: adds the packet's addresses or ports to sets, or deletes them.
    Set(set::SetTarget) = set::KIND;
}

/// The verdicts, with their numbers in a standard target of the kernel.
pub(super) static VERDICTS: [(Target, i32); 4] = [
    (Target::Accept, -NF_ACCEPT - 1),
    (Target::Drop, -NF_DROP - 1),
    (Target::Return, XT_RETURN),
    (Target::Queue, -NF_QUEUE - 1),
];

impl Target {
    /// The user chain to which it jumps or goes.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    /// The name of the extension; `None` for verdicts and chains.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        let is_verdict = VERDICTS.iter().any(|(verdict, _)| verdict == self);
        (!is_verdict && self.chain().is_none()).then(|| self.name())
    }
}
