//! `AMBIENT_ENABLEMENT_SELECTOR`: a YAML or JSON list of pairs of Kubernetes label selectors.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use weir_cni::json::{self, Object};
use weir_cni::protocol::Selector;

/// Keys in the order in which the plugin's configuration has them.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    #[serde(default, deserialize_with = "json::optional")]
    pod_selector: Option<LabelSelector>,
    #[serde(default, deserialize_with = "json::optional")]
    namespace_selector: Option<LabelSelector>,
}

/// `metav1.LabelSelector`
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct LabelSelector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    match_labels: Option<BTreeMap<String, String>>,
    #[serde(
        default,
        deserialize_with = "requirements",
        skip_serializing_if = "Option::is_none"
    )]
    match_expressions: Option<Vec<Requirement>>,
}

#[derive(Deserialize, Serialize)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
}

fn requirements<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Requirement>>, D::Error> {
    json::list(d).map(Some)
}

impl LabelSelector {
    /// What is empty is left out.
    fn tidy(mut self) -> Self {
        self.match_labels = self.match_labels.filter(|m| !m.is_empty());
        self.match_expressions = self.match_expressions.filter(|m| !m.is_empty());
        for e in self.match_expressions.iter_mut().flatten() {
            e.values = e.values.take().filter(|v| !v.is_empty());
        }
        self
    }
}

/// The list as JSON text in the form of the plugin's configuration: every pair with both keys. Empty text
/// is an empty list.
///
/// # Errors
/// What does not fit, in words.
pub(super) fn parse_selectors(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok("[]".into());
    }
    let pairs: Option<Vec<Object<Pair>>> = serde_saphyr::from_str(text).map_err(|e| {
        let first = e.to_string();
        format!(
            "not a list of podSelector and namespaceSelector: {}",
            first.lines().next().unwrap_or_default()
        )
    })?;
    let tidy = |Object(p): Object<Pair>| Pair {
        pod_selector: Some(p.pod_selector.unwrap_or_default().tidy()),
        namespace_selector: Some(p.namespace_selector.unwrap_or_default().tidy()),
    };
    let pairs: Vec<Pair> = pairs.unwrap_or_default().into_iter().map(tidy).collect();
    serde_json::to_string(&pairs).map_err(|e| e.to_string())
}

/// The same, as the plugin reads it.
///
/// # Errors
/// What does not fit, in words.
pub fn selectors(text: &str) -> Result<Vec<Selector>, String> {
    serde_json::from_str(&parse_selectors(text)?).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_chart_sets() {
        let text = "- podSelector:\n    matchLabels:\n      istio.io/dataplane-mode: ambient\n\
                    - podSelector:\n    matchExpressions:\n    - key: istio.io/dataplane-mode\n      operator: NotIn\n      values: [none]\n  \
                    namespaceSelector:\n    matchLabels: {istio.io/dataplane-mode: ambient}\n";
        assert_eq!(
            parse_selectors(text)
                .unwrap()
                .replace("istio.io/dataplane-mode", "M"),
            r#"[{"podSelector":{"matchLabels":{"M":"ambient"}},"namespaceSelector":{}},{"podSelector":{"matchExpressions":[{"key":"M","operator":"NotIn","values":["none"]}]},"namespaceSelector":{"matchLabels":{"M":"ambient"}}}]"#
        );
        assert_eq!(parse_selectors(" \n").unwrap(), "[]");
        assert_eq!(parse_selectors("[]").unwrap(), "[]");
        assert_eq!(
            parse_selectors(r#"[{"podSelector":{}}]"#).unwrap(),
            r#"[{"podSelector":{},"namespaceSelector":{}}]"#
        );
    }

    #[test]
    fn nonsense() {
        for text in [
            "a",
            "{",
            "- 1",
            "podSelector: {}",
            "- []",
            "- podSelector: []",
            "- podSelector: {matchExpressions: [[key, Exists]]}",
            "- podSelector: {matchLabels: [a]}",
        ] {
            assert!(parse_selectors(text).is_err(), "{text}");
        }
    }
}
