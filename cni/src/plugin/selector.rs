//! Kubernetes label selectors.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::json;

/// `metav1.LabelSelector`: all its requirements must hold; without requirements it matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    #[serde(deserialize_with = "json::nullable")]
    match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "json::list")]
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default, deserialize_with = "json::nullable")]
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    /// Also matches when the key is absent.
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Compiles the JSON form; `null` and `{}` match everything.
    ///
    /// The error names the part that does not compile.
    pub(super) fn compile(value: &Value) -> Result<Self, String> {
        if value.is_null() {
            return Ok(Self::default());
        }
        let selector: Self = json::from_value(value).map_err(|e| e.to_string())?;
        for Requirement {
            key,
            operator,
            values,
        } in &selector.match_expressions
        {
            let needs_values = matches!(operator, Operator::In | Operator::NotIn);
            match (needs_values, values.is_empty()) {
                (true, true) => return Err(format!("{operator:?} of {key:?} needs values")),
                (false, false) => return Err(format!("{operator:?} of {key:?} takes no values")),
                _ => {}
            }
        }
        Ok(selector)
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |requirement: &Requirement| {
            let (value, values) = (labels.get(&requirement.key), &requirement.values);
            match requirement.operator {
                Operator::In => value.is_some_and(|v| values.contains(v)),
                Operator::NotIn => value.is_none_or(|v| !values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        };
        self.match_labels
            .iter()
            .all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: Value, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        LabelSelector::compile(&selector).unwrap().matches(&labels)
    }

    fn expression(operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": "m", "operator": operator, "values": values}]})
    }

    #[test]
    fn nothing_matches_everything() {
        assert!(matches(Value::Null, &[]));
        assert!(matches(json!({}), &[("a", "b")]));
    }

    #[test]
    fn operators() {
        assert!(matches(
            json!({"matchLabels": {"m": "a"}}),
            &[("m", "a"), ("x", "y")]
        ));
        assert!(!matches(json!({"matchLabels": {"m": "a"}}), &[("m", "b")]));
        assert!(matches(expression("In", &["a", "b"]), &[("m", "b")]));
        assert!(!matches(expression("In", &["a"]), &[]));
        assert!(matches(expression("NotIn", &["none"]), &[]));
        assert!(!matches(expression("NotIn", &["none"]), &[("m", "none")]));
        assert!(matches(expression("Exists", &[]), &[("m", "")]));
        assert!(matches(expression("DoesNotExist", &[]), &[]));
        assert!(!matches(expression("DoesNotExist", &[]), &[("m", "")]));
    }

    #[test]
    fn what_does_not_compile() {
        for bad in [
            expression("In", &[]),
            expression("Exists", &["a"]),
            expression("Like", &["a"]),
            json!({"matchLabels": []}),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchExpressions": {}}),
            json!({"matchExpressions": [{"operator": "Exists"}]}),
            json!("x"),
        ] {
            assert!(LabelSelector::compile(&bad).is_err(), "{bad}");
        }
    }
}
