//! `AMBIENT_ENABLEMENT_SELECTOR`: a YAML or JSON list of pairs of Kubernetes label selectors.

use weir_cni::json::any_case::AnyCase;
use weir_cni::protocol::Selector;

/// The list as the plugin reads it. Empty text is an empty list.
///
/// # Errors
/// What does not fit, in words.
pub fn selectors(text: &str) -> Result<Vec<Selector>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let pairs: Option<Vec<AnyCase<Selector>>> = serde_saphyr::from_str(text).map_err(|e| {
        let first = e.to_string();
        format!(
            "not a list of podSelector and namespaceSelector: {}",
            first.lines().next().unwrap_or_default()
        )
    })?;
    let pairs = pairs.unwrap_or_default().into_iter();
    Ok(pairs.map(|AnyCase(pair)| pair).collect())
}

/// The same as JSON text in the form of the plugin's configuration: every pair with both keys.
///
/// # Errors
/// What does not fit, in words.
pub(super) fn parse_selectors(text: &str) -> Result<String, String> {
    serde_json::to_string(&selectors(text)?).map_err(|e| e.to_string())
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

    /// As in the plugin, whose configuration gets the usual spelling.
    #[test]
    fn keys_in_any_case() {
        let text = "- PodSelector:\n    matchlabels: {A: b}\n    MATCHEXPRESSIONS: [{Key: k, operator: Exists}]\n";
        assert_eq!(
            parse_selectors(text).unwrap(),
            r#"[{"podSelector":{"matchLabels":{"A":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]},"namespaceSelector":{}}]"#
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
