//! The properties that identify the network namespace of a pod, and whether a namespace has them.

use crate::pods::PodView;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use weir_cni::redirection::Sandbox;
use weir_netlink::{Netns, NetnsId};

/// The properties that identify the network namespace of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// UIDs that the kubelet may use for the pod.
    pub(super) uids: Vec<String>,
    /// `hostUsers: false`: its namespaces belong to its own user namespace.
    pub(super) own_users: bool,
    /// Addresses that its namespace must have, all of them.
    pub addresses: Vec<IpAddr>,
    /// Its addresses are not known: the control group alone identifies its namespace.
    #[serde(skip)]
    pub(super) by_group: bool,
    /// One of its addresses is sufficient.
    #[serde(skip)]
    pub(super) by_any: bool,
}

impl Identity {
    /// Builds the identity from the pod object of the API server.
    pub fn of(view: &PodView) -> Self {
        Self {
            uids: view.pod.uids().map(str::to_owned).collect(),
            own_users: view.host_users == Some(false),
            addresses: view.addresses(),
            by_group: false,
            by_any: false,
        }
    }

    /// Builds the identity of a pod from its UID alone, for read-only use: not sufficient to write to a namespace.
    pub fn called(uid: &str) -> Self {
        Self {
            uids: vec![uid.to_owned()],
            by_group: true,
            ..Self::default()
        }
    }

    /// The same pod, with `hostUsers: false`.
    pub(super) fn with_own_users(self) -> Self {
        Self {
            own_users: true,
            ..self
        }
    }

    /// The same pod, with these addresses instead of those from the API server.
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Self {
        Self { addresses, ..self }
    }

    /// The same pod, with any addresses in its namespace. As with [`Identity::called`], not sufficient to write to a namespace.
    pub fn with_any_addresses(self) -> Self {
        Self {
            addresses: Vec::new(),
            by_group: true,
            ..self
        }
    }

    /// The same pod, where one of its addresses is sufficient in addition to its control group or the runtime's statement: a
    /// namespace once found to be the pod's may lose addresses, such as all of a family that the pod disables.
    pub fn with_any_of_addresses(self) -> Self {
        Self {
            by_any: true,
            ..self
        }
    }

    /// Returns true if its namespace was once found to be the pod's ([`Identity::with_any_of_addresses`]).
    pub fn was_found(&self) -> bool {
        self.by_any
    }

    /// Returns the UID of the API object. A pod without one cannot be distinguished from others.
    pub fn uid(&self) -> Option<&str> {
        self.uids.first().map(String::as_str)
    }

    /// Returns all UIDs that the kubelet may use for it.
    pub(super) fn uids(&self) -> &[String] {
        &self.uids
    }

    pub(super) fn is_called(&self, uid: &str) -> bool {
        self.uids.iter().any(|known| known == uid)
    }

    /// Returns the addresses required of its namespace, after `words`; empty if none are required.
    pub(super) fn and_addresses(&self, words: &str) -> String {
        match self.by_group {
            true => String::new(),
            false => format!("{words}{}", self.list()),
        }
    }

    pub(super) fn list(&self) -> String {
        let texts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        texts.join(" and ")
    }
}

/// Why a namespace is not accepted as that of a pod.
#[derive(Debug)]
pub enum Refusal {
    /// It is not the pod's: a condition does not hold.
    Other(String),
    /// A condition could not be checked, so it may be the pod's.
    Unknown(String),
}

impl From<Refusal> for String {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Other(why) | Refusal::Unknown(why) => why,
        }
    }
}

/// The refusal of a namespace that could not be examined.
pub(super) fn unknown(error: impl std::fmt::Display) -> Refusal {
    Refusal::Unknown(error.to_string())
}

/// Refuses a namespace that was created inside the pod, by a process in a user namespace of its own.
pub(super) fn not_nested(netns: &Netns, pod: &Identity) -> Result<(), Refusal> {
    let depth = netns.user_namespace_depth().map_err(unknown)?;
    match (depth, pod.own_users) {
        (Some(0), _) | (Some(1), true) => Ok(()),
        (Some(_), _) => Err(Refusal::Other(format!(
            "{} belongs to a user namespace that was made inside of the pod",
            netns.id()
        ))),
        (None, _) => Err(Refusal::Other(format!(
            "{} belongs to a user namespace outside of this agent's",
            netns.id()
        ))),
    }
}

/// Checks that the namespace has all addresses of the pod, or one of them if that is sufficient. Fails if the pod has no
/// addresses.
///
/// # Errors
/// It does not, or it cannot be read.
pub(super) fn owns(sandbox: &Sandbox, pod: &Identity) -> Result<(), Refusal> {
    let have = sandbox
        .visit(|visit| visit.addresses(&[]))
        .map_err(unknown)?;
    has_addresses(sandbox.netns().id(), &have, pod)
}

/// Like [`owns`], for a namespace whose addresses are known.
pub(super) fn has_addresses(
    netns: NetnsId,
    have: &[IpAddr],
    pod: &Identity,
) -> Result<(), Refusal> {
    let wanted = &pod.addresses;
    let is_there = |wanted: &IpAddr| have.contains(wanted);
    let has_them = match pod.by_any {
        true => wanted.iter().any(is_there),
        false => !wanted.is_empty() && wanted.iter().all(is_there),
    };
    match has_them {
        true => Ok(()),
        false => Err(Refusal::Other(format!(
            "{netns} does not have the addresses {}",
            pod.list()
        ))),
    }
}
