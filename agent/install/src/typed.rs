//! The types into which runtimes decode a configuration. They do not load a file with a member of another type.
//!
//! Reference: `PluginConf` and `NetworkConfFromBytes` of the CNI library 1.3.0; CNI specification 1.1.0, section 1. A
//! member that is `null` counts as absent within a plugin, but not beside `plugins`.

use super::json::Json;

enum Form {
    Text,
    Texts,
    Versions,
    Switch,
    Bools,
    Object(&'static [Member]),
}
use Form::{Bools, Object, Switch, Text, Texts, Versions};

type Member = (&'static str, Form);

const PLUGIN: [Member; 6] = [
    ("cniVersion", Text),
    ("name", Text),
    ("type", Text),
    ("capabilities", Bools),
    ("ipam", Object(&[("type", Text)])),
    (
        "dns",
        Object(&[
            ("nameservers", Texts),
            ("domain", Text),
            ("search", Texts),
            ("options", Texts),
        ]),
    ),
];

/// Checks one plugin, in a list or as a separate configuration. The error names the member after `path`.
pub(super) fn plugin(json: &Json, path: &str) -> Result<(), String> {
    members(json, path, &PLUGIN)?;
    match json.get("type").and_then(Json::as_str) {
        Some(kind) if !kind.is_empty() => Ok(()),
        _ if path.is_empty() => Err("has no type".into()),
        _ => Err(format!("has {path} without a type")),
    }
}

/// Checks the `plugins` of a list, at least one.
pub(super) fn plugins(plugins: &Json) -> Result<(), String> {
    let plugins = plugins
        .as_array()
        .ok_or("has plugins that are not an array")?;
    if plugins.is_empty() {
        return Err("has no plugins".into());
    }
    let mut plugins = plugins.iter().enumerate();
    plugins.try_for_each(|(n, json)| plugin(json, &format!("plugins[{n}]")))
}

/// The optional members of a list beside its plugins.
const LIST: [Member; 6] = [
    ("name", Text),
    ("cniVersion", Text),
    ("cniVersions", Versions),
    ("disableCheck", Switch),
    ("disableGC", Switch),
    ("loadOnlyInlinedPlugins", Switch),
];

/// Checks the optional members of a list beside its plugins.
pub(super) fn list(json: &Json) -> Result<(), String> {
    let there = |(key, form)| json.get(key).map(|value| (key, form, value));
    let mut members = LIST.into_iter().filter_map(there);
    members.try_for_each(|(key, form, value)| one(value, key, &form))?;
    // It is compared with the others, and only then.
    match (json.get("cniVersions"), json.get("cniVersion")) {
        (Some(_), Some(version)) if version.as_str() != Some("") => {
            one(&Json::Array(vec![version.clone()]), "cniVersion", &Versions)
        }
        _ => Ok(()),
    }
}

/// Returns the value of a boolean that may be written as a string.
pub(super) fn switch(value: &Json) -> Option<bool> {
    let text = match value {
        Json::Literal(text) => text.clone(),
        Json::String(text) => text.to_lowercase(),
        _ => return None,
    };
    text.parse().ok()
}

/// Returns true for a version as the library parses it: up to three numbers, or nothing.
fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let mut numbers = parts.iter();
    text.is_empty() || (parts.len() < 4 && numbers.all(|part| part.parse::<i64>().is_ok()))
}

fn members(json: &Json, path: &str, forms: &[Member]) -> Result<(), String> {
    let Json::Object(_) = json else {
        return Err(misfit(path, "object"));
    };
    for (key, form) in forms {
        match json.get(key) {
            Some(Json::Literal(null)) if null == "null" => {}
            Some(value) => one(value, &join(path, key), form)?,
            None => {}
        }
    }
    Ok(())
}

fn one(value: &Json, path: &str, form: &Form) -> Result<(), String> {
    let is_bool = |v: &Json| matches!(v, Json::Literal(text) if text == "true" || text == "false");
    match (form, value) {
        (Text, Json::String(_)) => Ok(()),
        (Text, Json::Literal(text)) if text.starts_with('"') => Ok(()),
        (Text, _) => Err(misfit(path, "string")),
        (Texts, Json::Array(items)) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(n, item)| one(item, &format!("{path}[{n}]"), &Text))
        }
        (Versions, Json::Array(items)) => {
            let is_odd = |item: &&Json| item.as_str().is_none_or(|text| !is_version(text));
            match items.iter().find(is_odd) {
                Some(_) => Err(format!("has {path} with an entry that is not a version")),
                None => Ok(()),
            }
        }
        (Texts | Versions, _) => Err(misfit(path, "array")),
        (Switch, value) => match switch(value) {
            Some(_) => Ok(()),
            None => Err(misfit(path, "boolean")),
        },
        (Bools, Json::Object(pairs)) => match pairs.iter().find(|(_, value)| !is_bool(value)) {
            Some((key, _)) => Err(misfit(&join(path, key), "boolean")),
            None => Ok(()),
        },
        (Bools, _) => Err(misfit(path, "object")),
        (Object(forms), value) => members(value, path, forms),
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

fn misfit(path: &str, what: &str) -> String {
    match path {
        "" => format!("is not a JSON {what}"),
        path if what.starts_with(['a', 'o']) => format!("has {path} that is not an {what}"),
        path => format!("has {path} that is not a {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let json = Json::parse(text).unwrap();
        list(&json)?;
        plugins(json.get("plugins").unwrap())
    }

    #[test]
    fn what_a_runtime_decodes() {
        let fits = r#"{"name": "n", "cniVersion": "1.0.0", "x": 1, "plugins": [
            {"type": "a", "name": null, "capabilities": {"portMappings": true, "x": false}, "mtu": 1500,
             "ipam": {"type": "host-local", "ranges": [[]]}, "dns": {"search": ["a"], "domain": ""}},
            {"type": "b", "capabilities": null, "ipam": {}, "dns": null}]}"#;
        assert_eq!(check(fits), Ok(()));
    }

    /// As `NetworkConfFromBytes`.
    #[test]
    fn members_of_a_list_beside_its_plugins() {
        let list = |members: &str| {
            check(&format!(
                r#"{{"name": "n", {members}, "plugins": [{{"type": "a"}}]}}"#
            ))
        };
        for fits in [
            r#""disableCheck": true, "disableGC": "False", "loadOnlyInlinedPlugins": "TRUE""#,
            r#""cniVersions": []"#,
            r#""cniVersions": ["0.4.0", "1.1", "7", ""], "cniVersion": """#,
            r#""cniVersion": "new""#,
        ] {
            assert_eq!(list(fits), Ok(()), "{fits}");
        }
        for (misfit, field) in [
            (r#""disableCheck": "maybe""#, "disableCheck"),
            (r#""disableCheck": null"#, "disableCheck"),
            (r#""disableGC": 1"#, "disableGC"),
            (
                r#""loadOnlyInlinedPlugins": "yes""#,
                "loadOnlyInlinedPlugins",
            ),
            (r#""cniVersions": "1.0.0""#, "cniVersions"),
            (r#""cniVersions": [1]"#, "cniVersions"),
            (r#""cniVersions": ["1.0.0.0"]"#, "cniVersions"),
            (r#""cniVersions": ["1.x"]"#, "cniVersions"),
            (r#""cniVersions": [], "cniVersion": "new""#, "cniVersion"),
        ] {
            let why = list(misfit).unwrap_err();
            assert!(why.contains(field), "{misfit}: {why}");
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let list =
            |plugin: &str| format!(r#"{{"name": "n", "plugins": [{{"type": "a"}}, {plugin}]}}"#);
        for (text, field) in [
            (
                r#"{"name": 1, "plugins": []}"#.to_owned(),
                "name that is not a string",
            ),
            (
                r#"{"name": null, "plugins": []}"#.to_owned(),
                "name that is not a string",
            ),
            (
                r#"{"name": "n", "cniVersion": 1, "plugins": []}"#.to_owned(),
                "cniVersion",
            ),
            (
                r#"{"name": "n", "plugins": {}}"#.to_owned(),
                "plugins that are not an array",
            ),
            (
                r#"{"name": "n", "plugins": []}"#.to_owned(),
                "has no plugins",
            ),
            (list("7"), "plugins[1] that is not an object"),
            (list("{}"), "plugins[1] without a type"),
            (
                list(r#"{"type": 1}"#),
                "plugins[1].type that is not a string",
            ),
            (
                list(r#"{"type": "b", "name": {}}"#),
                "plugins[1].name that is not a string",
            ),
            (
                list(r#"{"type": "b", "capabilities": ["portMappings"]}"#),
                "plugins[1].capabilities that is not an object",
            ),
            (
                list(r#"{"type": "b", "capabilities": {"portMappings": "true"}}"#),
                "plugins[1].capabilities.portMappings that is not a boolean",
            ),
            (
                list(r#"{"type": "b", "ipam": []}"#),
                "plugins[1].ipam that is not an object",
            ),
            (
                list(r#"{"type": "b", "dns": {"search": ["a", 1]}}"#),
                "plugins[1].dns.search[1] that is not a string",
            ),
        ] {
            let why = check(&text).unwrap_err();
            assert!(why.contains(field), "{text}: {why}");
        }
    }
}
