//! The fields of a pod that the agent reads and the plugin does not. JSON objects are decoded from objects only.

use super::view::{InitStatus, Terminated};
use serde::Deserialize;
use weir_cni::json;

/// The fields that [`Pod`](weir_cni::pod::Pod) does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Rest {
    #[serde(deserialize_with = "json::object_or_default")]
    pub(super) metadata: RestMetadata,
    #[serde(deserialize_with = "json::object_or_default")]
    pub(super) spec: RestSpec,
    #[serde(deserialize_with = "json::object_or_default")]
    pub(super) status: RestStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RestMetadata {
    #[serde(deserialize_with = "json::nullable")]
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    pub(super) creation_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RestSpec {
    pub(super) host_users: Option<bool>,
    #[serde(deserialize_with = "json::nullable")]
    pub(super) service_account_name: String,
    #[serde(deserialize_with = "json::list")]
    init_containers: Vec<RestRights>,
    #[serde(deserialize_with = "json::list")]
    containers: Vec<RestRights>,
    #[serde(deserialize_with = "json::list")]
    ephemeral_containers: Vec<RestRights>,
}

impl RestSpec {
    pub(super) fn may_write_rules(&self) -> bool {
        let all = self.init_containers.iter().chain(&self.containers);
        all.chain(&self.ephemeral_containers)
            .any(|c| c.security_context.may_write_rules())
    }
}

/// A container, reduced to its privileges.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RestRights {
    #[serde(deserialize_with = "json::object_or_default")]
    security_context: RestSecurity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RestSecurity {
    privileged: Option<bool>,
    #[serde(deserialize_with = "json::object_or_default")]
    capabilities: RestCapabilities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RestCapabilities {
    #[serde(deserialize_with = "json::nullable")]
    add: Vec<String>,
}

impl RestSecurity {
    fn may_write_rules(&self) -> bool {
        let name = |text: &String| text.to_uppercase();
        let mut added = self.capabilities.add.iter().map(name);
        let writes = |name: String| {
            let name = name.strip_prefix("CAP_").unwrap_or(&name);
            matches!(name, "ALL" | "NET_ADMIN" | "SYS_ADMIN")
        };
        self.privileged == Some(true) || added.any(writes)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RestStatus {
    #[serde(deserialize_with = "json::nullable")]
    pub(super) phase: String,
    #[serde(deserialize_with = "json::list")]
    pub(super) init_container_statuses: Vec<RestContainer>,
    #[serde(deserialize_with = "json::list")]
    conditions: Vec<RestCondition>,
}

impl RestStatus {
    pub(super) fn is_ready(&self) -> bool {
        let is_it = |c: &RestCondition| c.name == "Ready" && c.status == "True";
        self.conditions.iter().any(is_it)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RestCondition {
    #[serde(rename = "type", deserialize_with = "json::nullable")]
    name: String,
    #[serde(deserialize_with = "json::nullable")]
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RestContainer {
    #[serde(deserialize_with = "json::nullable")]
    name: String,
    #[serde(deserialize_with = "json::object_or_default")]
    state: RestState,
    #[serde(deserialize_with = "json::object_or_default")]
    last_state: RestState,
    restart_count: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RestState {
    #[serde(deserialize_with = "json::optional")]
    terminated: Option<Terminated>,
}

impl From<RestContainer> for InitStatus {
    fn from(from: RestContainer) -> Self {
        Self {
            name: from.name,
            state: from.state.terminated,
            last: from.last_state.terminated,
            restart_count: from.restart_count,
        }
    }
}
