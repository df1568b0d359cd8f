//! The properties that identify the network namespace of a pod.

use crate::pods::PodView;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

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
