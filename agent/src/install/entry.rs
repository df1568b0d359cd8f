//! Our entry in the CNI configuration.

use super::json::Json;
use crate::settings::Settings;

/// The `type` of our entry, which is also the name of the plugin's program.
pub const PLUGIN: &str = "istio-cni";

/// What [`NetConf`](weir_cni::protocol::NetConf) reads, with the level of the plugin's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry(Json);

impl Entry {
    /// From the settings. The selectors must be JSON, which [`Settings`] sees to.
    ///
    /// # Errors
    /// The selectors are not JSON.
    pub fn new(s: &Settings, plugin_log_level: &str) -> Result<Self, String> {
        let namespaces = match s.exclude_namespaces.as_slice() {
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
            (
                "cni_agent_run_dir",
                Json::text(&s.run_dir.to_string_lossy()),
            ),
            ("ambient_enabled", Json::bool(s.ambient)),
            ("enablement_selectors", Json::parse(&s.selectors)?),
            ("exclude_namespaces", namespaces),
            ("pod_namespace", Json::text(&s.pod_namespace)),
            ("native_nftables", Json::bool(s.native_nftables)),
            (
                "enable_ambient_detection_retry",
                Json::bool(s.ambient_detection_retry),
            ),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
        Ok(Self(Json::Object(pairs.into())))
    }

    /// As a configuration of its own.
    #[must_use]
    pub fn standalone(&self) -> &Json {
        &self.0
    }

    /// As an item of a list, which has the version for all of its items.
    #[must_use]
    pub fn chained(&self) -> Json {
        without_version(self.0.clone()).sorted()
    }
}

/// An object without its `cniVersion`.
pub(super) fn without_version(value: Json) -> Json {
    match value {
        Json::Object(mut pairs) => {
            pairs.retain(|(key, _)| key != "cniVersion");
            Json::Object(pairs)
        }
        other => other,
    }
}

/// Whether this is an entry of our type.
pub(super) fn is_ours(value: &Json) -> bool {
    value.get("type").and_then(Json::as_str) == Some(PLUGIN)
}
