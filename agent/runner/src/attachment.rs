//! The container and interface of a call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{Error, Result};
use weir_cni::protocol::{validate_container_id, validate_interface_name};

/// The parameters of a CNI call: a container, its network namespace and an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`, a path; empty when the namespace is already gone (DEL).
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS` as pairs, in order.
    #[serde(default)]
    pub args: Vec<(String, String)>,
    /// Values for the capabilities that plugins declare, by capability name.
    #[serde(default)]
    pub capability_args: Map<String, Value>,
}

impl Attachment {
    /// The pairs that a Kubernetes container runtime passes for a pod.
    #[must_use]
    pub fn pod_args(namespace: &str, name: &str, container_id: &str) -> Vec<(String, String)> {
        let pairs = [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", namespace),
            ("K8S_POD_NAME", name),
            ("K8S_POD_INFRA_CONTAINER_ID", container_id),
        ];
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// `CNI_ARGS` in its text form: `K=V;K=V`.
    pub(crate) fn args_text(&self) -> String {
        let pairs: Vec<_> = self
            .args
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.join(";")
    }

    /// Refuses values that no plugin accepts, and values that are not usable as
    /// file names in the cache.
    ///
    /// # Errors
    /// [`Error::NotPossible`], naming the variable and the value.
    pub fn validate(&self) -> Result<()> {
        validate_container_id(&self.container_id)
            .and_then(|()| validate_interface_name(&self.ifname))
            .map_err(|error| Error::NotPossible(error.msg))
    }
}
