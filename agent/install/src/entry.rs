//! Our entry in the CNI configuration.

use super::json::Json;
use super::selectors::parse_selectors;
use weir_core::settings::{Resolved, SettingError};

/// The `type` of our entry, which is also the name of the plugin's program.
pub const PLUGIN: &str = "istio-cni";

/// Our entry: the fields of [`NetConf`](weir_cni::protocol::NetConf), and the level of the plugin's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry(Json);

impl Entry {
    /// Builds the entry from the settings.
    ///
    /// # Errors
    /// The selectors or the directory are invalid.
    pub(super) fn of(r: &Resolved, plugin_log_level: &str) -> Result<Self, SettingError> {
        let name = "AMBIENT_ENABLEMENT_SELECTOR";
        let selectors = parse_selectors(r.text(name)).and_then(|text| Json::parse(&text));
        let selectors = selectors.map_err(|e| r.refused(name, e))?;
        let run_dir = r.path("CNI_AGENT_RUN_DIR")?;
        let namespaces = match r.list("EXCLUDE_NAMESPACES").as_slice() {
            [] => Json::Literal("null".into()),
            names => Json::Array(names.iter().map(|n| Json::text(n)).collect()),
        };
        let pairs = [
            ("cniVersion", Json::text("0.3.1")),
            ("name", Json::text(PLUGIN)),
            ("type", Json::text(PLUGIN)),
            ("ipam", Json::Object(Vec::new())),
            ("dns", Json::Object(Vec::new())),
            ("plugin_log_level", Json::text(plugin_log_level)),
            ("cni_agent_run_dir", Json::text(&run_dir.to_string_lossy())),
            ("ambient_enabled", Json::bool(r.bool("AMBIENT_ENABLED"))),
            ("enablement_selectors", selectors),
            ("exclude_namespaces", namespaces),
            ("pod_namespace", Json::text(r.text("POD_NAMESPACE"))),
            ("native_nftables", Json::bool(r.bool("NATIVE_NFTABLES"))),
            (
                "enable_ambient_detection_retry",
                Json::bool(detection_retry(r)),
            ),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
        Ok(Self(Json::Object(pairs.into())))
    }

    /// Returns the entry as a separate configuration.
    #[must_use]
    pub fn standalone(&self) -> &Json {
        &self.0
    }

    /// Returns the entry as an item of a list, which has one version for all items.
    #[must_use]
    pub fn chained(&self) -> Json {
        without_version(self.0.clone()).sorted()
    }
}

/// Returns true if a pod fails to start while the plugin cannot determine whether it is ambient. True in ambient mode unless
/// disabled. Without ambient mode there is nothing to determine, and the value is that of upstream.
fn detection_retry(r: &Resolved) -> bool {
    let name = "ENABLE_AMBIENT_DETECTION_RETRY";
    match r.is_default(name) {
        true => r.bool(name) && r.bool("AMBIENT_ENABLED"),
        false => r.bool(name),
    }
}

/// Returns an object without its `cniVersion`.
pub(super) fn without_version(value: Json) -> Json {
    match value {
        Json::Object(mut pairs) => {
            pairs.retain(|(key, _)| key != "cniVersion");
            Json::Object(pairs)
        }
        other => other,
    }
}

/// Returns true for an entry of our type.
pub(super) fn is_ours(value: &Json) -> bool {
    value.get("type").and_then(Json::as_str) == Some(PLUGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    /// A pod must not start outside the mesh because the API server could not be reached, unless a setting allows it.
    #[test]
    fn a_failed_decision_fails_the_pod_unless_that_is_switched_off() {
        let name = "ENABLE_AMBIENT_DETECTION_RETRY";
        for (ambient, set, expected) in [
            ("true", None, "true"),
            ("true", Some("false"), "false"),
            ("true", Some("true"), "true"),
            ("false", None, "false"),
            ("false", Some("true"), "true"),
        ] {
            let lookup = |asked: &str| match asked {
                "AMBIENT_ENABLED" => Some(OsString::from(ambient)),
                asked if asked == name => set.map(OsString::from),
                _ => None,
            };
            let entry = Entry::of(&resolve(&BTreeMap::new(), &lookup), "info").unwrap();
            let written = entry.standalone().get("enable_ambient_detection_retry");
            let expected = Json::Literal(expected.to_owned());
            assert_eq!(written, Some(&expected), "{ambient} {set:?}");
        }
    }
}
