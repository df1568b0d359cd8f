//! Label selectors of Kubernetes, compiled.

use std::collections::BTreeMap;

use crate::protocol::{LabelSelector, Requirement};

/// Maximum length of a label's value, and of the name in its key.
const LONGEST: usize = 63;
/// Maximum length of the prefix of a key, which is a DNS name.
const LONGEST_PREFIX: usize = 253;

/// The conditions of a selector, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compiled(Vec<Condition>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    /// Also matches if the key is absent.
    NotIn,
    Exists,
    DoesNotExist,
}

impl Compiled {
    /// Compiles a selector by the rules of `metav1.LabelSelectorAsSelector`. The error names the member and the reason.
    pub(super) fn of(selector: &LabelSelector) -> Result<Self, String> {
        let mut conditions = Vec::new();
        for (key, value) in &selector.match_labels {
            let place = |why: String| format!("matchLabels: {why}");
            check_key(key).map_err(place)?;
            check_value(value).map_err(|why| format!("matchLabels[{key:?}]: {why}"))?;
            conditions.push(Condition {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
            });
        }
        for (n, requirement) in selector.match_expressions.iter().enumerate() {
            let condition = Condition::of(requirement);
            conditions.push(condition.map_err(|why| format!("matchExpressions[{n}].{why}"))?);
        }
        Ok(Self(conditions))
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |condition: &Condition| {
            let (value, values) = (labels.get(&condition.key), &condition.values);
            match condition.operator {
                Operator::In => value.is_some_and(|v| values.contains(v)),
                Operator::NotIn => value.is_none_or(|v| !values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        };
        self.0.iter().all(holds)
    }
}

impl Condition {
    fn of(requirement: &Requirement) -> Result<Self, String> {
        let (key, values) = (&requirement.key, &requirement.values);
        check_key(key).map_err(|why| format!("key: {why}"))?;
        let operator = match requirement.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                return Err(format!(
                    "operator: {other:?} is none; use In, NotIn, Exists or DoesNotExist"
                ));
            }
        };
        match (operator, values.is_empty()) {
            (Operator::In | Operator::NotIn, true) => {
                return Err(format!("values: {operator:?} of {key:?} needs values"));
            }
            (Operator::Exists | Operator::DoesNotExist, false) => {
                return Err(format!("values: {operator:?} of {key:?} takes no values"));
            }
            _ => {}
        }
        for (n, value) in values.iter().enumerate() {
            check_value(value).map_err(|why| format!("values[{n}]: {why}"))?;
        }
        Ok(Self {
            key: key.clone(),
            operator,
            values: values.clone(),
        })
    }
}

/// Checks a key, `[PREFIX/]NAME`.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if is_name(name) && prefix.is_none_or(is_dns_name) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is no key of a label: a name of 1 to {LONGEST} letters, digits, '-', '_' and '.', with or without \
         a DNS name and a slash before it"
    ))
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no value of a label: up to {LONGEST} letters, digits, '-', '_' and '.', with a letter or \
         digit at both ends"
    ))
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let at_an_end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    let ends = at_an_end(text.bytes().next()) && at_an_end(text.bytes().next_back());
    ends && text.len() <= LONGEST && text.bytes().all(inner)
}

/// True for a DNS name by RFC 1123, in lower case.
fn is_dns_name(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label =
        |l: &str| edge(l.bytes().next()) && edge(l.bytes().next_back()) && l.bytes().all(inner);
    text.len() <= LONGEST_PREFIX && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn compile(selector: Value) -> Result<Compiled, String> {
        Compiled::of(&serde_json::from_value(selector).unwrap())
    }

    fn matches(selector: Value, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        compile(selector).unwrap().matches(&labels)
    }

    fn expression(operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": "m", "operator": operator, "values": values}]})
    }

    #[test]
    fn nothing_matches_everything() {
        assert!(matches(json!({}), &[]));
        assert!(matches(
            json!({"matchLabels": null, "matchExpressions": null}),
            &[("a", "b")]
        ));
    }

    #[test]
    fn operators() {
        assert!(matches(
            json!({"matchLabels": {"m": "a"}}),
            &[("m", "a"), ("x", "y")]
        ));
        assert!(!matches(json!({"matchLabels": {"m": "a"}}), &[("m", "b")]));
        assert!(!matches(json!({"matchLabels": {"m": "a"}}), &[]));
        assert!(matches(expression("In", &["a", "b"]), &[("m", "b")]));
        assert!(!matches(expression("In", &["a"]), &[]));
        assert!(matches(expression("NotIn", &["none"]), &[]));
        assert!(!matches(expression("NotIn", &["none"]), &[("m", "none")]));
        assert!(matches(expression("Exists", &[]), &[("m", "")]));
        assert!(matches(expression("DoesNotExist", &[]), &[]));
        assert!(!matches(expression("DoesNotExist", &[]), &[("m", "")]));
    }

    #[test]
    fn what_does_not_compile_is_named() {
        let long = "x".repeat(64);
        let with_key =
            |key: &str| json!({"matchExpressions": [{}, {"key": key, "operator": "Exists"}]});
        let key = |key: &str| {
            let mut selector = with_key(key);
            selector["matchExpressions"][0] = json!({"key": "istio.io/a", "operator": "Exists"});
            selector
        };
        for (bad, place) in [
            (
                expression("In", &[]),
                "matchExpressions[0].values: In of \"m\" needs",
            ),
            (
                expression("NotIn", &[]),
                "matchExpressions[0].values: NotIn",
            ),
            (
                expression("Exists", &["a"]),
                "matchExpressions[0].values: Exists of \"m\" takes no",
            ),
            (
                expression("DoesNotExist", &["a"]),
                "matchExpressions[0].values: DoesNotExist",
            ),
            (
                expression("Like", &["a"]),
                "matchExpressions[0].operator: \"Like\"",
            ),
            (
                expression("in", &["a"]),
                "matchExpressions[0].operator: \"in\"",
            ),
            (expression("", &["a"]), "matchExpressions[0].operator: \"\""),
            (
                expression("In", &["a", "b c"]),
                "matchExpressions[0].values[1]: \"b c\"",
            ),
            (
                expression("In", &[&long]),
                "matchExpressions[0].values[0]: ",
            ),
            (key(""), "matchExpressions[1].key: \"\""),
            (key("a/b/c"), "matchExpressions[1].key: "),
            (key("/b"), "matchExpressions[1].key: "),
            (key("Istio.io/b"), "matchExpressions[1].key: "),
            (key("a..b/c"), "matchExpressions[1].key: "),
            (key("-a"), "matchExpressions[1].key: "),
            (
                json!({"matchLabels": {"a": "-"}}),
                "matchLabels[\"a\"]: \"-\"",
            ),
            (json!({"matchLabels": {"a b": ""}}), "matchLabels: \"a b\""),
        ] {
            let why = compile(bad.clone()).unwrap_err();
            assert!(why.starts_with(place), "{bad}: {why}");
        }
        assert!(compile(key("istio.io/dataplane-mode")).is_ok());
        assert!(compile(json!({"matchLabels": {"A_b.c": "", "x": "Y-1"}})).is_ok());
    }
}
