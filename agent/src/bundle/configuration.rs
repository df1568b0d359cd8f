//! CNI configurations of the node, as far as what is in them is known.
//!
//! Any plugin may have any key, and its secrets any name. So nothing is looked for: a value is taken when its key is one
//! of those that the CNI specification, its reference plugins and this plugin have, and everything else is left out.

use super::secrets::CUT;
use crate::node::install::Json;

/// Keys whose values are objects, arrays of them, or plain.
const KNOWN: &[&str] = &[
    // The specification.
    "capabilities",
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "dns",
    "domain",
    "ipam",
    "loadOnlyInlinedPlugins",
    "name",
    "nameservers",
    "options",
    "plugins",
    "search",
    "type",
    "aliases",
    "bandwidth",
    "infinibandGUID",
    "ipRanges",
    "ips",
    "mac",
    "portMappings",
    // The reference plugins.
    "address",
    "addresses",
    "bridge",
    "delegate",
    "dst",
    "forceAddress",
    "gateway",
    "gw",
    "hairpinMode",
    "ipMasq",
    "isDefaultGateway",
    "isGateway",
    "linkInContainer",
    "masqAll",
    "master",
    "mode",
    "mtu",
    "promiscMode",
    "rangeEnd",
    "rangeStart",
    "ranges",
    "routes",
    "snat",
    "subnet",
    "vlan",
    "vlanId",
    // Where a plugin has its kubeconfig: the path.
    "kubeconfig",
    "kubernetes",
    // This plugin.
    "ambient_enabled",
    "cni_agent_run_dir",
    "enable_ambient_detection_retry",
    "enablement_selectors",
    "exclude_namespaces",
    "native_nftables",
    "plugin_log_level",
    "pod_namespace",
];

/// Characters of a value that is a name, a path, an address or a number.
const LONGEST: usize = 200;

/// The text of a configuration with what is known of it.
///
/// # Errors
/// It is no JSON object: nothing in it is known.
pub(super) fn known(text: &str) -> Result<String, String> {
    let json = Json::parse(text).ok();
    match json.filter(|json| matches!(json, Json::Object(_))) {
        Some(json) => Ok(of(json).pretty()),
        None => {
            Err("it is no JSON object, so nothing in it is known; its contents are left out".into())
        }
    }
}

fn of(json: Json) -> Json {
    match json {
        Json::Object(pairs) => {
            let one = |(key, value): (String, Json)| match KNOWN.contains(&key.as_str()) {
                true => (key, of(value)),
                // Its name may say as much as its value.
                false => (CUT.to_owned(), Json::text(CUT)),
            };
            let mut pairs: Vec<_> = pairs.into_iter().map(one).collect();
            // One mark for all of them: a reader of JSON takes the last of equal keys.
            let mut seen = false;
            pairs.retain(|(key, _)| key != CUT || !std::mem::replace(&mut seen, true));
            Json::Object(pairs)
        }
        Json::Array(items) => Json::Array(items.into_iter().map(of).collect()),
        other => match other.as_str().map(is_plain) {
            Some(false) => Json::text(CUT),
            _ => other,
        },
    }
}

/// No text of several lines or words, nor one with a user in it.
fn is_plain(text: &str) -> bool {
    let of_value = |c: char| c.is_ascii_alphanumeric() || "_-.:/%,[]".contains(c);
    text.len() <= LONGEST && text.chars().all(of_value)
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
            ("/plugins/0/(left out)", "(left out)"),
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

    #[test]
    fn what_is_no_object_is_left_out_whole() {
        for text in ["", "{\"token\": \"47\", ", "[\"47\"]", "\"47\"", "47"] {
            assert!(!known(text).unwrap_err().contains("47"), "{text}");
        }
    }
}
