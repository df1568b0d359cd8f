//! The part of a `v1.Namespace` that the decisions need: its labels.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `v1.Namespace`, or `metav1.PartialObjectMetadata` of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Name and labels.
    #[serde(default, deserialize_with = "crate::json::object")]
    pub metadata: NamespaceMetadata,
}

/// `metav1.ObjectMeta`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceMetadata {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Labels; `None` for `null`.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}
