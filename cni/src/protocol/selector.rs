//! The selectors of `enablement_selectors`, as written in the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::{self, any_case};

/// One pair of the ambient enablement selectors: both must match. [`crate::plugin`] compiles them on demand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Selector {
    /// Selector of the pod's labels; an absent one matches all.
    #[serde(deserialize_with = "any_case::object_or_default")]
    pub pod_selector: LabelSelector,
    /// Selector of the namespace's labels.
    #[serde(deserialize_with = "any_case::object_or_default")]
    pub namespace_selector: LabelSelector,
}

/// `metav1.LabelSelector`: all requirements must hold; without requirements it matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Required labels with their values.
    #[serde(
        deserialize_with = "json::nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(
        deserialize_with = "any_case::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub match_expressions: Vec<Requirement>,
}

/// `metav1.LabelSelectorRequirement`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Requirement {
    /// Key of the label.
    #[serde(deserialize_with = "json::nullable")]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(deserialize_with = "json::nullable")]
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(
        deserialize_with = "json::nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub values: Vec<String>,
}
