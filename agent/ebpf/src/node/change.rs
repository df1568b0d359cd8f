//! One change of the node's or of the proxy's namespace, in words.

use super::maps::{Excluded, Which};
use super::programs::NodeRole;
use crate::hook::{Detached, Hook};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use weir_netlink::route::{PolicyRule, Route};

/// One change of the node's or of the proxy's namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sysctl below `net/` is set.
    Sysctl(String, u32),
    /// A route is added.
    AddRoute(Route),
    /// A policy rule is added.
    AddRule(PolicyRule),
    /// A route of weir is deleted.
    DeleteRoute(Route),
    /// A policy rule of weir is deleted.
    DeleteRule(PolicyRule),
    /// An address of an enrolled pod, with the host end of its link, or its index where that is gone.
    Pod(IpAddr, String, u32),
    /// An address that is no enrolled pod's any more.
    NoPod(IpAddr),
    /// An address of the node.
    Address(IpAddr),
    /// An address that the node does not have any more.
    NoAddress(IpAddr),
    /// The active proxy is behind this link.
    Proxy(String, u32),
    /// No proxy is ready.
    NoProxy,
    /// So many proxies that were active before keep their connections.
    Former(u32),
    /// Names are asked for at these addresses; with none, queries pass.
    Names(BTreeSet<IpAddr>),
    /// Peers or a port are excluded (1), or peers of a longer prefix captured (0).
    Exclude(Excluded, u32),
    /// They are not excluded any more.
    NoExclude(Excluded),
    /// A program is attached.
    Attach(Attachment),
    /// The program of a link is replaced, in one step.
    Replace(Attachment),
    /// A program of weir is detached: interface, and its name.
    Detach(String, Detached, String),
    /// What a version of weir with another layout of its pins left behind is removed.
    RemoveOtherLayout,
}

/// A program and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub(super) interface: String,
    pub(super) hook: Hook,
    pub(super) role: NodeRole,
    pub(super) program: String,
}

impl Change {
    /// The address that it writes to a map, and its value.
    pub(super) fn written(&self) -> Option<(Which, IpAddr, u32)> {
        match self {
            Self::Pod(address, _, index) => Some((Which::Pods, *address, *index)),
            Self::Address(address) => Some((Which::Node, *address, 1)),
            _ => None,
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, direction) = (&self.program, self.hook.1);
        let words = self.role.words();
        write!(
            f,
            "{program} at {direction} of {}: it {words}",
            self.interface
        )
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |table: u32| table.to_string();
        match self {
            Self::Sysctl(key, value) => write!(f, "set net.{}={value}", key.replace('/', ".")),
            Self::AddRoute(r) => write!(f, "add route {r}"),
            Self::AddRule(r) => write!(f, "add rule {} {}", r.family, r.words(number)),
            Self::DeleteRoute(r) => write!(f, "delete route {r}"),
            Self::DeleteRule(r) => write!(f, "delete rule {} {}", r.family, r.words(number)),
            Self::Pod(address, device, _) => write!(f, "enrol address {address} at {device}"),
            Self::NoPod(address) => write!(f, "release address {address}"),
            Self::Address(address) => write!(f, "except address {address} of the node"),
            Self::NoAddress(address) => {
                write!(
                    f,
                    "except address {address} no longer: the node does not have it"
                )
            }
            Self::Proxy(device, _) => write!(f, "send to the proxy at {device}"),
            Self::NoProxy => f.write_str("drop TCP of enrolled pods: no proxy is ready"),
            Self::Former(0) => f.write_str("send everything to the active proxy"),
            Self::Former(count) => {
                write!(
                    f,
                    "leave open connections to {count} proxies that were active before"
                )
            }
            Self::Names(addresses) if addresses.is_empty() => {
                f.write_str("let DNS of enrolled pods pass")
            }
            Self::Names(addresses) => {
                let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(f, "send DNS of enrolled pods to {}", all.join(" and "))
            }
            Self::Exclude(what, 0) => write!(f, "capture {what} of a longer prefix"),
            Self::Exclude(what, _) => write!(f, "exclude {what}"),
            Self::NoExclude(what) => write!(f, "exclude {what} no longer"),
            Self::Attach(a) => write!(f, "attach {a}"),
            Self::Replace(a) => write!(f, "replace by {a}"),
            Self::Detach(interface, Detached((_, direction)), program) => {
                write!(f, "detach {program} at {direction} of {interface}")
            }
            Self::RemoveOtherLayout => f.write_str("remove pins of another version of weir"),
        }
    }
}
