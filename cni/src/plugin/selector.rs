//! Kubernetes label selectors.

use std::collections::BTreeMap;

use serde_json::Value;

/// A compiled `metav1.LabelSelector`: all its requirements must hold; without
/// requirements it matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    /// Also matches when the key is absent.
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Compiles the JSON form; `null` and `{}` match everything.
    ///
    /// The error names the part that does not compile.
    pub(super) fn compile(value: &Value) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let map = match value {
            Value::Null => return Ok(Self { requirements }),
            Value::Object(map) => map,
            other => return Err(format!("{other} is not a label selector")),
        };
        match map.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    let value = text(value)?;
                    let operator = Operator::In(vec![value]);
                    requirements.push(Requirement {
                        key: key.clone(),
                        operator,
                    });
                }
            }
            Some(other) => return Err(format!("matchLabels {other} is not an object")),
        }
        match map.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(Requirement::compile(expression)?);
                }
            }
            Some(other) => return Err(format!("matchExpressions {other} is not an array")),
        }
        Ok(Self { requirements })
    }

    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|v| values.contains(v)),
                Operator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Requirement {
    fn compile(expression: &Value) -> Result<Self, String> {
        let key = text(expression.get("key").unwrap_or(&Value::Null))?;
        let values = match expression.get("values") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text).collect::<Result<_, _>>()?,
            Some(other) => return Err(format!("values {other} is not an array")),
        };
        let operator = expression
            .get("operator")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let operator = match (operator, values.is_empty()) {
            ("In", false) => Operator::In(values),
            ("NotIn", false) => Operator::NotIn(values),
            ("Exists", true) => Operator::Exists,
            ("DoesNotExist", true) => Operator::DoesNotExist,
            ("In" | "NotIn", true) => return Err(format!("{operator} of {key:?} needs values")),
            ("Exists" | "DoesNotExist", false) => {
                return Err(format!("{operator} of {key:?} takes no values"));
            }
            _ => {
                return Err(format!(
                    "operator {operator:?} of {key:?} is none of In, NotIn, Exists, DoesNotExist"
                ));
            }
        };
        Ok(Self { key, operator })
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("{other} is not a text")),
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
