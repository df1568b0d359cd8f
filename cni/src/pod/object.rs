//! The fields of a pod that affect its redirection.

use crate::config::{InputError, quoted, said};
use crate::json;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `v1.Pod`; other fields are ignored, and `null` counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name, namespace, UID, labels and annotations.
    #[serde(deserialize_with = "json::object_or_default")]
    pub metadata: PodMetadata,
    /// Node, network and containers.
    #[serde(deserialize_with = "json::object_or_default")]
    pub spec: PodSpec,
    /// Addresses.
    #[serde(deserialize_with = "json::object_or_default")]
    pub status: PodStatus,
}

/// `metav1.ObjectMeta`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodMetadata {
    /// Name, unique in the namespace.
    #[serde(deserialize_with = "json::nullable")]
    pub name: String,
    /// Namespace.
    #[serde(deserialize_with = "json::nullable")]
    pub namespace: String,
    /// UID, never reused for another pod.
    #[serde(deserialize_with = "json::nullable")]
    pub uid: String,
    /// Labels.
    #[serde(deserialize_with = "texts")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(deserialize_with = "texts")]
    pub annotations: BTreeMap<String, String>,
    /// `ownerReferences`
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "json::list")]
    pub owner_references: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// `kind`
    #[serde(deserialize_with = "json::nullable")]
    pub kind: String,
    /// `name`
    #[serde(deserialize_with = "json::nullable")]
    pub name: String,
}

/// `v1.PodSpec`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node to which the pod is bound.
    #[serde(deserialize_with = "json::nullable")]
    pub node_name: String,
    /// True if the pod uses the node's network instead of its own.
    #[serde(deserialize_with = "json::nullable")]
    pub host_network: bool,
    /// Init containers, including native sidecars.
    #[serde(deserialize_with = "json::list")]
    pub init_containers: Vec<Container>,
    /// Containers.
    #[serde(deserialize_with = "json::list")]
    pub containers: Vec<Container>,
}

/// `v1.Container`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    #[serde(deserialize_with = "json::nullable")]
    pub name: String,
    /// Arguments of the entry point.
    #[serde(deserialize_with = "json::nullable")]
    pub args: Vec<String>,
    /// Environment, in the order of the manifest.
    #[serde(deserialize_with = "json::list")]
    pub env: Vec<EnvVar>,
    /// The container's own security context.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json::optional"
    )]
    pub security_context: Option<SecurityContext>,
}

/// `v1.EnvVar`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name.
    #[serde(deserialize_with = "json::nullable")]
    pub name: String,
    /// The value; `None` if it comes from another source (`valueFrom`) or is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// `v1.SecurityContext`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext {
    /// User id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Group id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
}

/// `v1.PodStatus`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// The primary address, if the pod has one.
    #[serde(
        rename = "podIP",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub pod_ip: Option<IpAddr>,
    /// All addresses.
    #[serde(
        rename = "podIPs",
        serialize_with = "write_ips",
        deserialize_with = "read_ips"
    )]
    pub pod_ips: Vec<IpAddr>,
}

fn write_ips<S: serde::Serializer>(ips: &[IpAddr], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(ips.iter().map(|ip| BTreeMap::from([("ip", ip)])))
}

/// `v1.PodIP`
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    #[serde(deserialize_with = "address")]
    ip: Option<IpAddr>,
}

fn read_ips<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
    let items: Vec<PodIp> = json::list(deserializer)?;
    Ok(items.into_iter().filter_map(|item| item.ip).collect())
}

/// Reads an address; empty text is no address.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    let text: String = json::nullable(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    let error = |_| {
        let text = quoted(&text);
        D::Error::custom(format!("{text} is not an IP address, IPv4 or IPv6"))
    };
    text.parse().map(Some).map_err(error)
}

/// Reads labels or annotations.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let texts: BTreeMap<String, Option<String>> = json::nullable(deserializer)?;
    let texts = texts.into_iter();
    Ok(texts.map(|(k, v)| (k, v.unwrap_or_default())).collect())
}

/// Annotation of a mirror pod. A static pod, which a kubelet created from a file, has another UID there than at the API
/// server; this annotation of its mirror pod at the API server is the UID that the kubelet, and so the runtime, uses.
/// Since Kubernetes 1.17 the mirror pod is owned by its node.
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Pod {
    /// True if `uid` from the runtime (`K8S_POD_UID`) identifies this pod, and not another one of the same name.
    #[must_use]
    pub fn is_called(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// Returns the UIDs that a kubelet and its runtime may use for the pod: `metadata.uid`, and for a mirror pod that of the
    /// static pod. Only a pod owned by its node counts as a mirror pod: every user of the API may write the annotation.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let node = &self.spec.node_name;
        let mut owners = self.metadata.owner_references.iter();
        let is_mirror = owners.any(|owner| owner.kind == "Node" && owner.name == *node);
        let mirror = self.metadata.annotations.get(MIRROR).map(String::as_str);
        let mirror = mirror.filter(|_| is_mirror);
        let all = [Some(self.metadata.uid.as_str()), mirror];
        all.into_iter().flatten().filter(|uid| !uid.is_empty())
    }

    /// Reads the API object from JSON. Ignores `kind`, which items of a list do not have. `source_name` names the source in
    /// errors.
    ///
    /// # Errors
    /// A field has the wrong type; the error names its path, its type and the accepted types.
    pub fn from_value(value: &Value, source_name: &str) -> Result<Self, InputError> {
        json::from_value(value).map_err(|e| {
            let place = match e.path.as_str() {
                "" => source_name.to_owned(),
                path => format!("{source_name}: {path}"),
            };
            InputError::whole(said(&place), said(&e.reason), ACCEPTED)
        })
    }
}

/// The accepted types of a field, for errors.
const ACCEPTED: &str = "the type that the field has in the Kubernetes API; a text that reads as a number or a boolean \
    has to be put in quotes";
