//! The fields of a pod that decide about its redirection.

use super::node::Node;
use crate::config::InputError;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `v1.Pod`; fields that are not here are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Who it is.
    pub metadata: PodMetadata,
    /// What it runs.
    pub spec: PodSpec,
    /// What has become of it.
    pub status: PodStatus,
}

/// `metav1.ObjectMeta`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Name, unique in the namespace.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Unique in time as well.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `ownerReferences`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// `kind`
    pub kind: String,
    /// `name`
    pub name: String,
}

/// `v1.PodSpec`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: String,
    /// It uses the node's network instead of its own.
    pub host_network: bool,
    /// Containers that run first; native sidecars are here.
    pub init_containers: Vec<Container>,
    /// Containers.
    pub containers: Vec<Container>,
}

/// `v1.Container`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Name.
    pub name: String,
    /// Arguments of the entry point.
    pub args: Vec<String>,
    /// Environment, in the order of the manifest.
    pub env: Vec<EnvVar>,
    /// The container's own security context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

/// `v1.EnvVar`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// The value; none when it comes from elsewhere (`valueFrom`) or is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// `v1.SecurityContext`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityContext {
    /// User id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Group id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
}

/// `v1.PodStatus`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The first address, when it has one.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<IpAddr>,
    /// Every address.
    #[serde(rename = "podIPs", serialize_with = "write_ips")]
    pub pod_ips: Vec<IpAddr>,
}

fn write_ips<S: serde::Serializer>(ips: &[IpAddr], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(ips.iter().map(|ip| BTreeMap::from([("ip", ip)])))
}

/// Through a tree of values, because its paths name the field in an error.
impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value, "pod").map_err(D::Error::custom)
    }
}

/// A pod that a kubelet made from a file has another UID there than at the API server; this annotation
/// of its image at the API server is the UID that the kubelet, and so the runtime, uses. Since Kubernetes 1.17 the image
/// belongs to its node.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Pod {
    /// Whether a runtime that says `uid` (`K8S_POD_UID`) means this pod, and not another one of the same
    /// name.
    #[must_use]
    pub fn is_called(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// UIDs by which a kubelet and its runtime may call the pod: `metadata.uid`, and the one of the file that a
    /// mirror pod was made from. Only a pod that belongs to its node is a mirror pod: anybody may write the annotation.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let node = &self.spec.node_name;
        let mut owners = self.metadata.owner_references.iter();
        let is_mirror = owners.any(|owner| owner.kind == "Node" && owner.name == *node);
        let mirror = self.metadata.annotations.get(MIRROR).map(String::as_str);
        let mirror = mirror.filter(|_| is_mirror);
        let all = [Some(self.metadata.uid.as_str()), mirror];
        all.into_iter().flatten().filter(|uid| !uid.is_empty())
    }

    /// Reads the API object as JSON; `kind` is not looked at, because items of a list have none.
    /// `source_name` says in errors where it came from.
    ///
    /// # Errors
    ///
    /// A field has the wrong type: its path, what it is and what it must be.
    pub fn from_value(value: &Value, source_name: &str) -> Result<Self, InputError> {
        let pod = Node::root(source_name, value);
        let metadata = pod.get("metadata")?;
        let spec = pod.get("spec")?;
        let status = pod.get("status")?;
        Ok(Self {
            metadata: PodMetadata {
                name: metadata.get("name")?.text()?,
                namespace: metadata.get("namespace")?.text()?,
                uid: metadata.get("uid")?.text()?,
                labels: metadata.get("labels")?.texts_by_name()?,
                annotations: metadata.get("annotations")?.texts_by_name()?,
                owner_references: metadata.get("ownerReferences")?.list(|owner| {
                    Ok(OwnerReference {
                        kind: owner.get("kind")?.text()?,
                        name: owner.get("name")?.text()?,
                    })
                })?,
            },
            spec: PodSpec {
                node_name: spec.get("nodeName")?.text()?,
                host_network: spec.get("hostNetwork")?.boolean()?,
                init_containers: spec.get("initContainers")?.list(container)?,
                containers: spec.get("containers")?.list(container)?,
            },
            status: PodStatus {
                pod_ip: status.get("podIP")?.address()?,
                pod_ips: status
                    .get("podIPs")?
                    .list(|item| item.get("ip")?.address())?
                    .into_iter()
                    .flatten()
                    .collect(),
            },
        })
    }
}

fn container(node: &Node<'_>) -> Result<Container, InputError> {
    let security_context = node.get("securityContext")?;
    let ids = SecurityContext {
        run_as_user: security_context.get("runAsUser")?.integer()?,
        run_as_group: security_context.get("runAsGroup")?.integer()?,
    };
    Ok(Container {
        name: node.get("name")?.text()?,
        args: node.get("args")?.list(Node::text)?,
        env: node.get("env")?.list(|var| {
            let value = var.get("value")?;
            let value = if value.is_absent() {
                None
            } else {
                Some(value.text()?)
            };
            Ok(EnvVar {
                name: var.get("name")?.text()?,
                value,
            })
        })?,
        security_context: (!security_context.is_absent()).then_some(ids),
    })
}
