//! Selectors of Kubernetes, for pods that are here already.
//!
//! The agent has one watch for all pods of the node, so what would be asked of the API server with a list of its own is
//! decided here.

use kube::core::{Expression, Selector, SelectorExt};
use weir_core::pods::PodView;

/// Which pods are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// `metadata.labels`
    pub(crate) labels: Selector,
    /// Fields that all must be as wanted.
    pub(crate) fields: Vec<Field>,
}

/// One condition of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    name: &'static str,
    equal: bool,
    value: String,
}

/// The fields by which pods can be selected, as far as they are kept.
const FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "status.phase",
    "status.podIP",
];

fn value(view: &PodView, field: &str) -> String {
    match field {
        "metadata.name" => view.name().to_owned(),
        "metadata.namespace" => view.namespace().to_owned(),
        "spec.nodeName" => view.pod.spec.node_name.clone(),
        "status.phase" => view.phase.clone(),
        _ => {
            let first = view.addresses().first().map(ToString::to_string);
            first.unwrap_or_default()
        }
    }
}

impl Filter {
    /// Whether the pod is meant.
    pub(crate) fn meets(&self, view: &PodView) -> bool {
        let field = |f: &Field| (value(view, f.name) == f.value) == f.equal;
        self.labels.matches(&view.pod.metadata.labels) && self.fields.iter().all(field)
    }

    /// `a=b,c!=d,e in (f,g),h notin (i),j,!k`
    ///
    /// # Errors
    /// What of it is no condition.
    pub(crate) fn labels(text: &str) -> Result<Selector, String> {
        conditions(text).into_iter().map(label).collect()
    }

    /// `metadata.namespace!=kube-system,status.phase=Pending`
    ///
    /// # Errors
    /// What of it is no condition, or a field by which this agent does not select.
    pub(crate) fn fields(text: &str) -> Result<Vec<Field>, String> {
        conditions(text).into_iter().map(field).collect()
    }
}

/// Parted at commas that are in no parentheses; empty ones are left out.
fn conditions(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|p| !p.is_empty()).collect()
}

/// Key, whether it is to be equal, value.
fn equality(text: &str) -> Option<(&str, bool, &str)> {
    let (key, equal, value) = if let Some((key, value)) = text.split_once("!=") {
        (key, false, value)
    } else {
        let (key, value) = text.split_once('=')?;
        (key, true, value.strip_prefix('=').unwrap_or(value))
    };
    Some((key.trim(), equal, value.trim()))
}

fn field(text: &str) -> Result<Field, String> {
    let (name, equal, value) = equality(text)
        .ok_or_else(|| format!("{text:?} is neither FIELD=VALUE nor FIELD!=VALUE"))?;
    let known = FIELDS.iter().find(|known| **known == name);
    let name = known.ok_or_else(|| {
        let names = FIELDS.join(", ");
        format!("this agent does not select by the field {name:?}; it knows {names}")
    })?;
    let value = value.to_owned();
    Ok(Field { name, equal, value })
}

fn label(text: &str) -> Result<Expression, String> {
    let wrong = || {
        format!(
            "{text:?} is no condition on a label; write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), \
             KEY or !KEY"
        )
    };
    let key = |text: &str| {
        let text = text.trim();
        let is_key = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let good = !text.is_empty() && text.chars().all(is_key);
        good.then(|| text.to_owned()).ok_or_else(wrong)
    };
    if let Some((left, list)) = text.split_once('(') {
        let list = list.trim().strip_suffix(')').ok_or_else(wrong)?;
        let values = list.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = left.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Expression::In(key(name)?, values)),
            (Some(name), Some("notin"), None) => Ok(Expression::NotIn(key(name)?, values)),
            _ => Err(wrong()),
        };
    }
    if let Some((name, equal, value)) = equality(text) {
        let (name, value) = (key(name)?, value.to_owned());
        return Ok(match equal {
            true => Expression::Equal(name, value),
            false => Expression::NotEqual(name, value),
        });
    }
    match text.strip_prefix('!') {
        Some(name) => Ok(Expression::DoesNotExist(key(name)?)),
        None => Ok(Expression::Exists(key(text)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meets(labels: &str, fields: &str) -> bool {
        let mut view = PodView::default();
        view.pod.metadata.namespace = "shop".into();
        view.pod.metadata.name = "web-0".into();
        view.pod.metadata.labels = [("app", "web"), ("tier", "front")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        view.phase = "Pending".into();
        view.pod.status.pod_ip = "10.0.0.2".parse().ok();
        let filter = Filter {
            labels: Filter::labels(labels).unwrap(),
            fields: Filter::fields(fields).unwrap(),
        };
        filter.meets(&view)
    }

    #[test]
    fn labels() {
        for yes in [
            "",
            " , ",
            "app=web",
            "app == web,tier",
            "app!=x",
            "none!=x",
            "app in (a, web),tier notin (back)",
            "!none",
        ] {
            assert!(meets(yes, ""), "{yes}");
        }
        for no in [
            "app=x",
            "app!=web",
            "app in (a,b)",
            "none",
            "!app",
            "app=web,none",
        ] {
            assert!(!meets(no, ""), "{no}");
        }
        for wrong in [
            "a b",
            "app in web",
            "app in (web",
            "in (x)",
            "=x",
            "app within (x)",
        ] {
            let error = Filter::labels(wrong).unwrap_err();
            assert!(error.contains("KEY notin"), "{wrong}: {error}");
        }
    }

    #[test]
    fn fields() {
        for (text, holds) in [
            ("metadata.namespace!=kube-system,status.phase=Pending", true),
            ("metadata.name=web-0", true),
            ("status.podIP==10.0.0.2", true),
            ("metadata.name!=web-0", false),
            ("spec.nodeName=node1", false),
        ] {
            assert_eq!(meets("", text), holds, "{text}");
        }
        let error = Filter::fields("spec.restartPolicy=Always").unwrap_err();
        assert!(error.contains("spec.nodeName"), "{error}");
        assert!(Filter::fields("status.phase").is_err());
    }
}
