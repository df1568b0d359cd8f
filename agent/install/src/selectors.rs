//! `AMBIENT_ENABLEMENT_SELECTOR`: a YAML or JSON list of pairs of Kubernetes label selectors.

use serde::Deserialize;
use serde_json::Value;
use weir_cni::json::any_case::{self, AnyCase};
use weir_cni::protocol::Selector;

/// Parses the list for the plugin. An empty text is an empty list.
///
/// # Errors
/// A text that names what is not valid.
pub fn selectors(text: &str) -> Result<Vec<Selector>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let refused = |error: String| {
        format!(
            "not a list of podSelector and namespaceSelector: {}",
            error.lines().next().unwrap_or_default()
        )
    };
    let value: Value = serde_saphyr::from_str(text).map_err(|e| refused(e.to_string()))?;
    has_known_keys(&value, &KEYS).map_err(refused)?;
    let pairs = Option::<Vec<AnyCase<Selector>>>::deserialize(in_texts(value));
    let pairs = pairs
        .map_err(|e| refused(e.to_string()))?
        .unwrap_or_default();
    Ok(pairs.into_iter().map(|AnyCase(pair)| pair).collect())
}

/// The keys of a pair, of its selectors, and of a requirement.
const KEYS: [&[&str]; 3] = [
    &["podSelector", "namespaceSelector"],
    &["matchLabels", "matchExpressions"],
    &["key", "operator", "values"],
];

/// Checks the keys of an object, or of each object of a list, and of nested objects. An absent selector matches every pod: a misspelled key
/// would enrol all of them. Values of other types are refused when they are read.
fn has_known_keys(value: &Value, keys: &[&[&str]]) -> Result<(), String> {
    let Some((known, below)) = keys.split_first() else {
        return Ok(());
    };
    if let Value::Array(items) = value {
        return items.iter().try_for_each(|item| has_known_keys(item, keys));
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let is = |name: &&&str| any_case::folds(key, name);
        match known.iter().find(is) {
            // Its keys are labels.
            Some(&"matchLabels") => {}
            Some(_) => has_known_keys(value, below)?,
            None => {
                let known = known.join(", ");
                return Err(format!(
                    "the key {key:?} is unknown; correct it to one of {known}"
                ));
            }
        }
    }
    Ok(())
}

/// Converts numbers and booleans of YAML to texts, as in Istio's agent: all values in selectors are texts.
fn in_texts(value: Value) -> Value {
    match value {
        Value::Bool(_) | Value::Number(_) => value.to_string().into(),
        Value::Array(items) => items.into_iter().map(in_texts).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(key, value)| (key, in_texts(value))).collect()
        }
        other => other,
    }
}

/// As [`selectors`], as JSON text for the plugin's configuration: every pair with both keys.
///
/// # Errors
/// A text that names what is not valid.
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
    fn numbers_and_booleans_are_texts() {
        let text = "[{podSelector: {matchLabels: {a: 1, b: true, 2: 1.5}, matchExpressions: \
                    [{key: k, operator: In, values: [8080, x]}]}}]";
        assert_eq!(
            parse_selectors(text).unwrap(),
            r#"[{"podSelector":{"matchLabels":{"2":"1.5","a":"1","b":"true"},"matchExpressions":[{"key":"k","operator":"In","values":["8080","x"]}]},"namespaceSelector":{}}]"#
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

    /// An absent selector matches everything: each of these selected every pod.
    #[test]
    fn unknown_keys_are_named() {
        for (text, key) in [
            ("[{podSelectr: {matchLabels: {a: b}}}]", "podSelectr"),
            ("[{}, {podSelector: {matchLabel: {a: b}}}]", "matchLabel"),
            ("[{podSelector: {}, selector: {}}]", "selector"),
            (
                "[{namespaceSelector: {matchExpressions: [{key: k, operator: In, value: [v]}]}}]",
                "value",
            ),
        ] {
            let why = parse_selectors(text).unwrap_err();
            assert!(
                why.contains(&format!("the key {key:?} is unknown")),
                "{why}"
            );
        }
    }
}
