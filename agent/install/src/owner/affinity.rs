//! Matches a DaemonSet with a node: `nodeSelector` and required node affinity, as the scheduler evaluates them.

use serde_json::{Map, Value};

type Labels = Map<String, Value>;

/// Returns true if the DaemonSet is restricted to some nodes, so that the node's labels are needed.
pub(crate) fn is_needed(spec: &Value) -> bool {
    selector(spec).is_some_and(|s| !s.is_empty()) || terms(spec).is_some()
}

/// Returns true if a DaemonSet with this `spec` selects the node. Unknown operators count as a match.
pub(crate) fn matches(spec: &Value, node: &str, labels: &Labels) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let selected = selector(spec)
        .into_iter()
        .flatten()
        .all(|(key, value)| value.as_str() == label(key));
    let field = |key: &str| (key == "metadata.name").then_some(node);
    let term = |term: &Value| {
        let (labels, fields) = (list(term, "matchExpressions"), list(term, "matchFields"));
        // A term without requirements matches no node.
        let some = labels.len() + fields.len() > 0;
        some && labels.iter().all(|r| holds(r, label)) && fields.iter().all(|r| holds(r, field))
    };
    selected && terms(spec).is_none_or(|terms| terms.iter().any(term))
}

fn selector(spec: &Value) -> Option<&Labels> {
    spec.pointer("/template/spec/nodeSelector")?.as_object()
}

/// Returns the terms of the required node affinity; `None` if there is none.
fn terms(spec: &Value) -> Option<&Vec<Value>> {
    const TERMS: &str = "/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    spec.pointer(TERMS)?.as_array()
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn holds<'a>(requirement: &Value, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    let text = |key: &str| {
        let text = requirement.get(key).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let values = list(requirement, "values");
    let found = value(text("key"));
    let is_in = || found.is_some_and(|f| values.iter().any(|v| v.as_str() == Some(f)));
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || {
        let wanted = values.first().and_then(Value::as_str).and_then(number);
        Some((found.and_then(number)?, wanted?))
    };
    match text("operator") {
        "In" => is_in(),
        "NotIn" => !is_in(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, wanted)| found > wanted),
        "Lt" => compared().is_some_and(|(found, wanted)| found < wanted),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_for(pod: &Value) -> bool {
        let labels = json!({"os": "linux", "cores": "8"});
        let spec = json!({"template": {"spec": pod}});
        assert!(is_needed(&spec), "{pod}");
        matches(&spec, "node1", labels.as_object().unwrap())
    }

    fn affinity(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn selectors() {
        assert!(is_for(&json!({"nodeSelector": {"os": "linux"}})));
        assert!(!is_for(
            &json!({"nodeSelector": {"os": "linux", "mesh": "on"}})
        ));
        assert!(!is_needed(&json!({"template": {"spec": {}}})));
        assert!(!is_needed(&Value::Null));
    }

    #[test]
    fn terms_are_alternatives_and_their_requirements_are_not() {
        let is = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        for (requirement, holds) in [
            (is("os", "In", &["windows", "linux"]), true),
            (is("os", "NotIn", &["linux"]), false),
            (is("mesh", "NotIn", &["off"]), true),
            (is("os", "Exists", &[]), true),
            (is("mesh", "Exists", &[]), false),
            (is("mesh", "DoesNotExist", &[]), true),
            (is("cores", "Gt", &["7"]), true),
            (is("cores", "Lt", &["8"]), false),
            (is("os", "Gt", &["7"]), false),
            (is("os", "Later", &[]), true),
        ] {
            let terms = json!([{"matchExpressions": [requirement]}]);
            assert_eq!(is_for(&affinity(&terms)), holds, "{terms}");
        }
        let (yes, no) = (is("os", "Exists", &[]), is("mesh", "Exists", &[]));
        assert!(!is_for(&affinity(
            &json!([{"matchExpressions": [yes, no]}])
        )));
        assert!(is_for(&affinity(
            &json!([{"matchExpressions": [no]}, {"matchExpressions": [yes]}])
        )));
        assert!(!is_for(&affinity(&json!([{}]))));
        let named = is("metadata.name", "In", &["node1"]);
        assert!(is_for(&affinity(&json!([{"matchFields": [named]}]))));
        let other = is("metadata.name", "In", &["node2"]);
        assert!(!is_for(&affinity(&json!([{"matchFields": [other]}]))));
    }
}
