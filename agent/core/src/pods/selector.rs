//! Label and field selectors of Kubernetes, applied to the known pods.
//!
//! The agent has one watch for all pods of the node, so selectors are evaluated here and not by the API server.

use super::PodView;
use kube::core::{Expression, Selector, SelectorExt};

/// A label selector and a field selector, both of which must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// `metadata.labels`
    pub labels: Selector,
    /// Conditions on fields, all of which must hold.
    pub fields: Vec<Field>,
}

/// One condition of a field selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    name: &'static str,
    equal: bool,
    value: String,
}

/// The supported fields: those by which pods can be selected and which [`PodView`] has.
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
    /// Returns true if the pod matches.
    pub fn meets(&self, view: &PodView) -> bool {
        let field = |f: &Field| (value(view, f.name) == f.value) == f.equal;
        self.labels.matches(&view.pod.metadata.labels) && self.fields.iter().all(field)
    }

    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k`, as the API server does. A blank text selects every pod.
    ///
    /// # Errors
    /// Names the part that is not a condition. An empty part is an error, so that a list of empty parts does not select all pods.
    pub fn labels(text: &str) -> Result<Selector, String> {
        match text.trim().is_empty() {
            true => Ok(Selector::default()),
            false => conditions(text).map(label).collect(),
        }
    }

    /// Parses `metadata.namespace!=kube-system,status.phase=Pending`.
    ///
    /// # Errors
    /// Names the part that is not a condition, or the field that is not supported.
    pub fn fields(text: &str) -> Result<Vec<Field>, String> {
        // The API server ignores empty parts of field selectors.
        let conditions = conditions(text).filter(|part| !part.is_empty());
        conditions.map(field).collect()
    }
}

/// Splits at commas outside of parentheses.
fn conditions(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim)
}

/// Parses `KEY=VALUE`, `KEY==VALUE` or `KEY!=VALUE` into key, true for equal, and value.
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

/// Returns true for a valid label name or non-empty label value.
fn is_name(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let mut ends = text.chars();
    let has_ends = is_end(ends.next()) && ends.next_back().is_none_or(|c| is_end(Some(c)));
    has_ends && text.len() <= 63 && text.chars().all(is_part)
}

/// Returns true for `name` or `prefix/name`, where the prefix is a DNS subdomain.
fn is_key(text: &str) -> bool {
    let Some((prefix, name)) = text.split_once('/') else {
        return is_name(text);
    };
    let is_label = |part: &str| {
        let is_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let has_ends = !part.starts_with('-') && !part.ends_with('-');
        !part.is_empty() && has_ends && part.chars().all(is_dns)
    };
    is_name(name) && prefix.len() <= 253 && prefix.split('.').all(is_label)
}

fn label(text: &str) -> Result<Expression, String> {
    let wrong = || {
        format!(
            "{text:?} is not a condition on a label; write KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), \
             KEY or !KEY"
        )
    };
    let key = |text: &str| {
        let text = text.trim();
        is_key(text).then(|| text.to_owned()).ok_or_else(wrong)
    };
    let value = |text: &str| {
        let text = text.trim();
        let is_value = text.is_empty() || is_name(text);
        let why = || {
            format!(
                "{}; {text:?} is not a value of a label: at most 63 letters, digits, '-', '_' and '.', the first and the last a \
                 letter or digit",
                wrong()
            )
        };
        is_value.then(|| text.to_owned()).ok_or_else(why)
    };
    if let Some((left, list)) = text.split_once('(') {
        let list = list.trim().strip_suffix(')').ok_or_else(wrong)?;
        if list.trim().is_empty() {
            return Err(wrong());
        }
        let values = list.split(',').map(value).collect::<Result<_, _>>()?;
        let mut words = left.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Expression::In(key(name)?, values)),
            (Some(name), Some("notin"), None) => Ok(Expression::NotIn(key(name)?, values)),
            _ => Err(wrong()),
        };
    }
    if let Some((name, equal, wanted)) = equality(text) {
        let (name, wanted) = (key(name)?, value(wanted)?);
        return Ok(match equal {
            true => Expression::Equal(name, wanted),
            false => Expression::NotEqual(name, wanted),
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
            "  ",
            "app=web",
            "app == web,tier",
            "app!=x",
            "none!=x",
            "app in (a, web),tier notin (back)",
            "app in(web)",
            "none notin (a,)",
            "!none",
            "none!=",
            "example.com/none!=1.x_y-z",
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
            // Of two settings of a chart, both empty, or one.
            ",",
            " , ",
            "app=web,",
            ",app=web",
            "app=web,,tier",
            "app=web x",
            "app=web=x",
            "app=-web",
            "app in ()",
            "app in (web x)",
            "app in (web,x y)",
            "a/b/c=d",
            "Example.com/a",
            "/a",
            "a/",
            "-app",
            "n>5",
            "n<5",
        ] {
            let error = Filter::labels(wrong).unwrap_err();
            assert!(error.contains("KEY notin"), "{wrong}: {error}");
        }
        for long in ["x", "k=x"].map(|text| format!("{text}{}", "x".repeat(63))) {
            assert!(Filter::labels(&long).is_err(), "{long}");
            let (fits, _) = long.split_at(long.len() - 1);
            assert!(Filter::labels(fits).is_ok(), "{long}");
        }
    }

    #[test]
    fn fields() {
        for (text, holds) in [
            ("metadata.namespace!=kube-system,status.phase=Pending", true),
            ("metadata.name=web-0", true),
            ("metadata.name=web-0,", true),
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
