//! The known content of the node's CNI configurations.
//!
//! A plugin may define any key, and its secrets may have any name. Therefore this module keeps only what is known to be
//! harmless: values of keys defined by the CNI specification, its reference plugins or this plugin that match the format of
//! that key. Everything else is left out.

use super::forms::Form;
use super::secrets::CUT;
use weir_install::Json;

/// Known keys with the format of their values, which also applies to the elements of arrays.
const KNOWN: &[(&str, Form)] = &[
    // The specification.
    ("capabilities", Form::Parts),
    ("cniVersion", Form::Version),
    ("cniVersions", Form::Version),
    ("disableCheck", Form::Bool),
    ("disableGC", Form::Bool),
    ("dns", Form::Parts),
    ("domain", Form::Name),
    ("ipam", Form::Parts),
    ("loadOnlyInlinedPlugins", Form::Bool),
    ("name", Form::Name),
    ("nameservers", Form::Address),
    ("options", Form::Word(OPTIONS)),
    ("plugins", Form::Parts),
    ("search", Form::Name),
    ("type", Form::Plugin),
    ("aliases", Form::Bool),
    ("bandwidth", Form::Bool),
    ("infinibandGUID", Form::Hardware),
    ("ipRanges", Form::Bool),
    ("ips", Form::Address),
    ("mac", Form::Hardware),
    ("portMappings", Form::Bool),
    // The reference plugins.
    ("address", Form::Address),
    ("addresses", Form::Address),
    ("bridge", Form::Interface),
    ("delegate", Form::Parts),
    ("dst", Form::Address),
    ("forceAddress", Form::Bool),
    ("gateway", Form::Address),
    ("gw", Form::Address),
    ("hairpinMode", Form::Bool),
    ("ipMasq", Form::Bool),
    ("isDefaultGateway", Form::Bool),
    ("isGateway", Form::Bool),
    ("linkInContainer", Form::Bool),
    ("masqAll", Form::Bool),
    ("master", Form::Interface),
    ("mode", Form::Word(MODES)),
    ("mtu", Form::Number),
    ("promiscMode", Form::Bool),
    ("rangeEnd", Form::Address),
    ("rangeStart", Form::Address),
    ("ranges", Form::Parts),
    ("routes", Form::Parts),
    ("snat", Form::Bool),
    ("subnet", Form::Address),
    ("vlan", Form::Number),
    ("vlanId", Form::Number),
    // Path of the kubeconfig of a plugin.
    ("kubeconfig", Form::Path),
    ("kubernetes", Form::Parts),
    // This plugin.
    ("ambient_enabled", Form::Bool),
    ("cni_agent_run_dir", Form::Path),
    ("enable_ambient_detection_retry", Form::Bool),
    ("enablement_selectors", Form::Parts),
    ("exclude_namespaces", Form::Name),
    ("native_nftables", Form::Bool),
    ("plugin_log_level", Form::Word(LEVELS)),
    ("pod_namespace", Form::Name),
];

/// Options of resolv.conf(5).
const OPTIONS: &[&str] = &[
    "edns0",
    "ndots:1",
    "ndots:2",
    "ndots:3",
    "ndots:4",
    "ndots:5",
    "rotate",
    "single-request",
    "single-request-reopen",
    "trust-ad",
    "use-vc",
];
/// Modes of ipvlan, macvlan and macvtap.
const MODES: &[&str] = &[
    "bridge", "l2", "l3", "l3s", "passthru", "private", "source", "vepa",
];
const LEVELS: &[&str] = &["debug", "info", "warn", "error", "fatal", "none"];

/// Returns a configuration reduced to its known content.
///
/// # Errors
/// The text is not a JSON object.
pub(super) fn known(text: &str) -> Result<String, String> {
    let json = Json::parse(text).ok();
    match json.filter(|json| matches!(json, Json::Object(_))) {
        Some(json) => Ok(of(Form::Parts, json).pretty()),
        None => Err("it is not a JSON object; its contents are left out".into()),
    }
}

/// Reduces a value to what matches the format.
fn of(form: Form, json: Json) -> Json {
    match json {
        Json::Object(pairs) => {
            let known = |key: &str| KNOWN.iter().find(|(known, _)| *known == key);
            let one = |(key, value): (String, Json)| match known(&key) {
                Some((_, form)) => (key, of(*form, value)),
                // The name may reveal as much as the value.
                None => (CUT.to_owned(), value),
            };
            let (mut pairs, cut): (Vec<_>, Vec<_>) =
                pairs.into_iter().map(one).partition(|(key, _)| key != CUT);
            // One mark with the number of removed keys: a JSON reader keeps only the last of equal keys.
            if !cut.is_empty() {
                pairs.push((CUT.to_owned(), mark(cut.len(), "keys")));
            }
            Json::Object(pairs)
        }
        Json::Array(items) => Json::Array(items.into_iter().map(|item| of(form, item)).collect()),
        Json::String(text) if !form.fits(&text) && !text.is_empty() => mark(text.len(), "bytes"),
        Json::Literal(text) if text != "null" && !form.fits(&text) => mark(text.len(), "bytes"),
        other => other,
    }
}

/// Returns the mark with the size of the removed content.
fn mark(size: usize, unit: &str) -> Json {
    let inner = CUT.trim_end_matches(')');
    Json::text(&format!("{inner}, {size} {unit})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_left_out_whatever_it_is_called() {
        let text = known(
            r#"{"name": "n", "cniVersion": "1.0.0", "mtu": 1500, "plugins": [
                {"type": "x", "pwd": "S1", "pass": "S2", "psk": "S3", "args": ["--password", "S4"],
                 "env": {"DB_PASS": "S5", "name": "S6"}, "pin": 4711, "bridge": "https://u:S7@h/",
                 "kubeconfig": "apiVersion: v1\nS8", "S 9": 1, "ipam": {"subnet": "10.0.0.0/8", "x": ["S"]}},
                {"type": "y", "kubernetes": {"kubeconfig": "/etc/cni/net.d/y-kubeconfig"}}]}"#,
        )
        .unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(!text.contains("pwd") && !text.contains("psk"), "{text}");
        assert!(!text.contains('S') && !text.contains("4711"), "{text}");
        for (pointer, value) in [
            ("/name", "n"),
            ("/plugins/0/type", "x"),
            ("/plugins/0/(left out)", "(left out, 7 keys)"),
            ("/plugins/0/ipam/subnet", "10.0.0.0/8"),
            (
                "/plugins/1/kubernetes/kubeconfig",
                "/etc/cni/net.d/y-kubeconfig",
            ),
        ] {
            assert_eq!(json.pointer(pointer).unwrap(), value, "{text}");
        }
        assert_eq!(json["mtu"], 1500);
    }

    /// A known key may have a secret as its value.
    #[test]
    fn a_value_that_has_not_the_form_of_its_key_is_left_out() {
        let secret = "hunter2:S3cr3t-4f9d8e7a6b5c4d3e2f1a/x";
        for (key, form) in KNOWN {
            let text = known(&format!(
                r#"{{"{key}": "{secret}", "plugins": [{{"{key}": ["{secret}"]}}]}}"#
            ))
            .unwrap();
            assert!(
                !text.contains("hunter2") && !text.contains("S3cr3t"),
                "{key} {form:?}: {text}"
            );
            let mark = format!("(left out, {} bytes)", secret.len());
            assert!(text.contains(&mark), "{key}: {text}");
        }
        for (key, value) in [
            ("mtu", "\"Hunter2\""),
            ("bridge", "12345678901234567890"),
            ("snat", "4711"),
            ("name", "true"),
        ] {
            let text = known(&format!(r#"{{"{key}": {value}}}"#)).unwrap();
            let is_shown = text.contains(value.trim_matches('"'));
            assert_eq!(is_shown, key == "name", "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_left_out_whole() {
        for text in ["", "{\"token\": \"47\", ", "[\"47\"]", "\"47\"", "47"] {
            assert!(!known(text).unwrap_err().contains("47"), "{text}");
        }
    }
}
