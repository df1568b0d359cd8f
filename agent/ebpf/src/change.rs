//! Changes of a pod's namespace, and their text.

use crate::hook::{Detached, Hook};
use crate::inpod::Role;
use crate::words::{self, Words};
use std::fmt;
use weir_netlink::route::{AddressFamily, PolicyRule, Route};

/// One change of the namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sysctl of `lo` is set.
    Switch(&'static str, bool),
    /// The previous values of the sysctls of `lo` are lost: weir stores that they were off.
    Forgotten,
    /// Connections of the node's own processes pass (true), or are captured.
    Node(bool),
    /// A route is added.
    AddRoute(Route),
    /// A policy rule is added.
    AddRule(PolicyRule),
    /// A route of weir is deleted.
    DeleteRoute(Route),
    /// A policy rule of weir is deleted.
    DeleteRule(PolicyRule),
    /// A program is attached to an interface.
    Attach(Attachment),
    /// The program of a link is replaced atomically.
    Replace(Attachment),
    /// A program is attached again, before a foreign program that was put before it.
    MoveFirst(Attachment, String),
    /// A program of weir is detached: the interface, the hook, and the program's name.
    Detach(String, Detached, String),
    /// Pins left by a version of weir with another layout are removed.
    RemoveOtherLayout,
}

impl Change {
    /// Returns true if, in a namespace with pins, another program has detached or replaced a program, put one before it, or deleted
    /// routing that every setting needs. False for what a new version, a new setting or another interface changes.
    #[must_use]
    pub fn is_loss(changes: &[Self]) -> bool {
        let is_loss = |change: &Self| match change {
            Self::Attach(a) | Self::Replace(a) => a.is_lost,
            Self::MoveFirst(..) => true,
            Self::AddRoute(route) => route.family() == AddressFamily::V4,
            Self::AddRule(rule) => rule.family == AddressFamily::V4,
            _ => false,
        };
        // A version with another layout may have had other programs, and other routing.
        !changes.contains(&Self::RemoveOtherLayout) && changes.iter().any(is_loss)
    }
}

/// A program and its hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The interface.
    pub interface: String,
    pub(crate) hook: Hook,
    /// The role of the program.
    pub role: Role,
    /// Its name in the kernel.
    pub program: String,
    /// Another program has detached or replaced it.
    pub(crate) is_lost: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(name, on) => write!(f, "set net.ipv4.conf.lo.{name}={}", u8::from(*on)),
            Self::Forgotten => f.write_str(
                "store that the sysctls of lo were off before weir set them, because the stored values are lost",
            ),
            Self::Node(true) => f.write_str("let connections of the node's own processes pass"),
            Self::Node(false) => f.write_str("make no exception for connections of the node's own processes"),
            Self::AddRoute(r) => Words::AddRoute(r).fmt(f),
            Self::AddRule(r) => Words::AddRule(r).fmt(f),
            Self::DeleteRoute(r) => Words::DeleteRoute(r).fmt(f),
            Self::DeleteRule(r) => Words::DeleteRule(r).fmt(f),
            Self::Attach(a) => Words::Attach(a).fmt(f),
            Self::Replace(a) => Words::Replace(a).fmt(f),
            Self::MoveFirst(a, other) => Words::MoveFirst(a, other).fmt(f),
            Self::Detach(interface, hook, program) => {
                Words::Detach(interface, *hook, program).fmt(f)
            }
            Self::RemoveOtherLayout => Words::RemoveOtherLayout.fmt(f),
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = (self.program.as_str(), self.interface.as_str());
        words::attachment(f, named, self.hook, self.role.words())
    }
}
