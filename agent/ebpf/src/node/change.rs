//! Changes of the node's or of the proxy's namespace, and their text.

use super::desired::Wanted;
use super::maps::{Excluded, Which};
use super::parts::{OF_NODE, OF_PROXY};
use super::programs::NodeRole;
use crate::hook::{Detached, Hook};
use crate::words::{self, Words};
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
    /// An address of an enrolled pod is written, with the host end of its link, or its index if that is gone.
    Pod(IpAddr, String, u32),
    /// The address of a pod that is no longer enrolled is deleted.
    NoPod(IpAddr),
    /// An address of the node is written.
    Address(IpAddr),
    /// An address of a proxy is written.
    ProxyAddress(IpAddr),
    /// An address that neither the node nor a proxy has any longer is deleted.
    NoAddress(IpAddr),
    /// The link of the active proxy is set.
    Proxy(String, u32),
    /// The link of the active proxy is cleared: no proxy is ready.
    NoProxy,
    /// The number of previously active proxies that keep their connections is set.
    Former(u32),
    /// DNS queries go to these addresses; with none, they pass.
    Names(BTreeSet<IpAddr>),
    /// Peers or a port are excluded (1), or peers in a longer prefix are captured (0).
    Exclude(Excluded, u32),
    /// An exclusion is deleted.
    NoExclude(Excluded),
    /// A program is attached.
    Attach(Attachment),
    /// The program of a link is replaced atomically.
    Replace(Attachment),
    /// A program is attached again, before a foreign program that was put before it.
    MoveFirst(Attachment, String),
    /// A program of weir is detached: the interface, the hook, and the program's name.
    Detach(String, Detached, String),
    /// A map that an earlier version pinned is unpinned: no program uses it any longer.
    Unpin(&'static str),
    /// Pins left by a version of weir with another layout are removed.
    RemoveOtherLayout,
}

/// A program and its hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub(super) interface: String,
    pub(super) hook: Hook,
    pub(super) role: NodeRole,
    pub(super) program: String,
}

impl Change {
    /// True if a program of a pod is detached.
    pub(super) fn detaches_of_pod(&self) -> bool {
        let role = match self {
            Self::Detach(_, _, program) => NodeRole::of_name(program),
            _ => None,
        };
        role.is_some_and(NodeRole::is_of_pod)
    }

    /// True if the change is about a pod at this link.
    pub(super) fn is_at(&self, link: &str, wanted: &Wanted) -> bool {
        let has = |pod: &IpAddr| wanted.pods.get(pod).is_some_and(|device| device == link);
        match self {
            Self::Attach(a) | Self::MoveFirst(a, _) => a.interface == link,
            Self::Pod(_, device, _) => device == link,
            Self::Exclude(Excluded::PodPeer(pod, _) | Excluded::PodPort(pod, ..), _) => has(pod),
            _ => false,
        }
    }

    /// Returns the map, the address and the value that the change writes.
    pub(super) fn written(&self) -> Option<(Which, IpAddr, u32)> {
        match self {
            Self::Pod(address, _, index) => Some((Which::Pods, *address, *index)),
            Self::Address(address) => Some((Which::Node, *address, OF_NODE)),
            Self::ProxyAddress(address) => Some((Which::Node, *address, OF_PROXY)),
            _ => None,
        }
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = (self.program.as_str(), self.interface.as_str());
        words::attachment(f, named, self.hook, self.role.words())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(key, value) => write!(f, "set {}={value}", weir_rules::sysctl::name(key)),
            Self::AddRoute(r) => Words::AddRoute(r).fmt(f),
            Self::AddRule(r) => Words::AddRule(r).fmt(f),
            Self::DeleteRoute(r) => Words::DeleteRoute(r).fmt(f),
            Self::DeleteRule(r) => Words::DeleteRule(r).fmt(f),
            Self::Pod(address, device, _) => write!(f, "enrol address {address} at {device}"),
            Self::NoPod(address) => write!(f, "release address {address}"),
            Self::Address(address) => write!(f, "except address {address} of the node"),
            Self::ProxyAddress(address) => write!(f, "except address {address} of a proxy"),
            Self::NoAddress(address) => {
                write!(
                    f,
                    "except address {address} no longer: neither the node nor a proxy has it"
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
            Self::Attach(a) => Words::Attach(a).fmt(f),
            Self::Replace(a) => Words::Replace(a).fmt(f),
            Self::MoveFirst(a, other) => Words::MoveFirst(a, other).fmt(f),
            Self::Detach(interface, hook, program) => {
                Words::Detach(interface, *hook, program).fmt(f)
            }
            Self::Unpin(name) => write!(f, "unpin map {name} of an earlier version"),
            Self::RemoveOtherLayout => Words::RemoveOtherLayout.fmt(f),
        }
    }
}
