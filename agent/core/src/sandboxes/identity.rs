//! What tells the network namespace of a pod from all others.

use crate::pods::PodView;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What tells the network namespace of a pod from all others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// UIDs by which the kubelet calls the pod.
    pub(super) uids: Vec<String>,
    /// `hostUsers: false`: its namespaces belong to a user namespace of its own.
    pub(super) own_users: bool,
    /// All of them have to be in its namespace.
    pub addresses: Vec<IpAddr>,
    /// Its addresses are not known: the control group alone tells its namespace.
    #[serde(skip)]
    pub(super) by_group: bool,
    /// One of its addresses is enough.
    #[serde(skip)]
    pub(super) by_any: bool,
}

impl Identity {
    /// Of a pod as the API server describes it.
    pub fn of(view: &PodView) -> Self {
        Self {
            uids: view.pod.uids().map(str::to_owned).collect(),
            own_users: view.host_users == Some(false),
            addresses: view.addresses(),
            by_group: false,
            by_any: false,
        }
    }

    /// Of a pod of which only the UID is known, for looking at it: nothing is written to a namespace on this word.
    pub fn called(uid: &str) -> Self {
        Self {
            uids: vec![uid.to_owned()],
            by_group: true,
            ..Self::default()
        }
    }

    /// The same pod if it is one with `hostUsers: false`.
    pub(super) fn with_own_users(self) -> Self {
        Self {
            own_users: true,
            ..self
        }
    }

    /// The same pod with these addresses, whatever the API server says.
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Self {
        Self { addresses, ..self }
    }

    /// The same pod with whatever addresses its namespace has. As for [`Identity::called`], nothing is written to a namespace on this
    /// word.
    pub fn with_any_addresses(self) -> Self {
        Self {
            addresses: Vec::new(),
            by_group: true,
            ..self
        }
    }

    /// The same pod where one of its addresses is enough beside its control group, or the word of the runtime: what was once found to
    /// be its namespace may lose some, as all of a family that the pod disables.
    pub fn with_any_of_addresses(self) -> Self {
        Self {
            by_any: true,
            ..self
        }
    }

    /// The UID of the API object; pods without one cannot be told from others.
    pub fn uid(&self) -> Option<&str> {
        self.uids.first().map(String::as_str)
    }

    /// All by which the kubelet may call it.
    pub(super) fn uids(&self) -> &[String] {
        &self.uids
    }

    pub(super) fn is_called(&self, uid: &str) -> bool {
        self.uids.iter().any(|known| known == uid)
    }

    /// What else is asked of its namespace.
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
