//! A namespace, as far as it matters: its labels.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `v1.Namespace`, or `metav1.PartialObjectMetadata` of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Who it is.
    #[serde(default, deserialize_with = "crate::json::object")]
    pub metadata: NamespaceMetadata,
}

/// `metav1.ObjectMeta`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceMetadata {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Labels; `null` is none.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}
