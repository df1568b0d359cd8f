//! The fields of a pod that decide about its redirection.

use crate::config::{InputError, quoted, said};
use crate::json;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `v1.Pod`; fields that are not here are ignored, `null` is absence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "json::object_or_default")]
    pub metadata: PodMetadata,
    /// What it runs.
    #[serde(deserialize_with = "json::object_or_default")]
    pub spec: PodSpec,
    /// What has become of it.
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
    /// Unique in time as well.
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
    /// The node it is bound to.
    #[serde(deserialize_with = "json::nullable")]
    pub node_name: String,
    /// It uses the node's network instead of its own.
    #[serde(deserialize_with = "json::nullable")]
    pub host_network: bool,
    /// Containers that run first; native sidecars are here.
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
    /// The value; none when it comes from elsewhere (`valueFrom`) or is not given.
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
    /// The first address, when it has one.
    #[serde(
        rename = "podIP",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub pod_ip: Option<IpAddr>,
    /// Every address.
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

/// Empty text is no address.
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

/// Labels or annotations.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let texts: BTreeMap<String, Option<String>> = json::nullable(deserializer)?;
    let texts = texts.into_iter();
    Ok(texts.map(|(k, v)| (k, v.unwrap_or_default())).collect())
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
    /// mirror pod was made from. Only a pod that belongs to its node is a mirror pod: every user of the API may write the annotation.
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
    /// A field has the wrong type: its path, what it is and what it must be.
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

/// What a field of the API object may be.
const ACCEPTED: &str = "the type that the field has in the Kubernetes API; a text that reads as a number or a boolean \
    has to be put in quotes";
