//! The plugin's own keys of the network configuration.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::Error;
use serde_json::{Map, Value};

use super::call::Call;
use super::error::CniError;
use crate::json;

/// One pair of the ambient enablement selectors: both must match. Kept as JSON;
/// [`crate::plugin`] compiles them when it needs them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Selector {
    /// Kubernetes `LabelSelector` for the pod's labels; absent matches all.
    #[serde(default, rename = "podSelector", deserialize_with = "selector")]
    pub pod: Value,
    /// Kubernetes `LabelSelector` for the namespace's labels.
    #[serde(default, rename = "namespaceSelector", deserialize_with = "selector")]
    pub namespace: Value,
}

/// The keys that the installer writes into the plugin's entry. Unknown keys are
/// ignored; `null` is the same as absent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct NetConf {
    /// debug, info, warn, error, fatal or none; anything else is info.
    #[serde(default, deserialize_with = "json::nullable")]
    pub plugin_log_level: String,
    /// Directory of the kubeconfig, the sockets and the log file. Empty means the
    /// working directory.
    #[serde(default, deserialize_with = "json::nullable")]
    pub cni_agent_run_dir: String,
    /// Pods may be enrolled in ambient mode.
    #[serde(default, deserialize_with = "json::nullable")]
    pub ambient_enabled: bool,
    /// Selectors of ambient pods; empty selects none.
    #[serde(default, deserialize_with = "json::list")]
    pub enablement_selectors: Vec<Selector>,
    /// Namespaces whose pods are not redirected.
    #[serde(default, deserialize_with = "json::nullable")]
    pub exclude_namespaces: Vec<String>,
    /// Namespace of the node agent.
    #[serde(default, deserialize_with = "json::nullable")]
    pub pod_namespace: String,
    /// Write sidecar rules to native nf_tables.
    #[serde(default, deserialize_with = "json::nullable")]
    pub native_nftables: bool,
    /// A failed ambient decision fails the ADD. `None` when the key is absent.
    #[serde(default)]
    pub enable_ambient_detection_retry: Option<bool>,
}

impl NetConf {
    /// Reads the keys from the configuration of a call.
    ///
    /// # Errors
    /// Code 999: a key has a value of another type.
    pub fn read(call: &Call) -> Result<Self, CniError> {
        Self::deserialize(Value::Object(call.config.clone())).map_err(|error| {
            CniError::internal(format!(
                "the plugin's entry in the network configuration is not readable: {error}; the \
                 node agent writes it again when it is removed"
            ))
        })
    }

    /// A file of the run directory.
    #[must_use]
    pub fn run_file(&self, name: &str) -> PathBuf {
        Path::new(&self.cni_agent_run_dir).join(name)
    }
}

/// Must be an object even without ambient mode, where nothing compiles it.
fn selector<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let members: Option<Map<String, Value>> = json::optional(deserializer).map_err(|e| {
        D::Error::custom(format!(
            "enablement_selectors: podSelector or namespaceSelector: {e}"
        ))
    })?;
    Ok(members.map_or(Value::Null, Value::Object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Command, Environment};

    fn read(config: &str) -> Result<NetConf, CniError> {
        let config = serde_json::from_str(config).unwrap();
        let env = Environment::default();
        NetConf::read(&Call {
            command: Command::Add,
            env,
            config,
            version: "1.0.0".into(),
        })
    }

    #[test]
    fn what_the_installer_writes() {
        let conf = read(
            r#"{"cniVersion":"0.3.1","name":"istio-cni","type":"istio-cni",
                "plugin_log_level":"info","cni_agent_run_dir":"/run/istio-cni",
                "ambient_enabled":false,"enablement_selectors":[],"exclude_namespaces":null,
                "pod_namespace":"istio-system","native_nftables":true,"ipam":{},"dns":{},
                "kubernetes":{"x":1}}"#,
        )
        .unwrap();
        assert_eq!(
            conf.run_file("log.sock"),
            Path::new("/run/istio-cni/log.sock")
        );
        assert!(conf.native_nftables && conf.exclude_namespaces.is_empty());
        assert_eq!(conf.enable_ambient_detection_retry, None);
    }

    #[test]
    fn wrong_types_are_named() {
        let error = read(r#"{"name":"a","native_nftables":"yes"}"#).unwrap_err();
        assert_eq!(error.code, 999);
        assert!(error.msg.contains("boolean"), "{error}");
    }

    #[test]
    fn a_selector_is_an_object_also_without_ambient_mode() {
        for key in ["podSelector", "namespaceSelector"] {
            let conf = |value: &str| {
                read(&format!(
                    r#"{{"ambient_enabled":false,"enablement_selectors":[{{"{key}":{value}}}]}}"#
                ))
            };
            assert!(conf("{}").is_ok() && conf("null").is_ok());
            assert!(conf(r#"{"matchLabels":{"a":"b"}}"#).is_ok());
            for other in ["[]", "1", r#""a""#] {
                let error = conf(other).unwrap_err();
                assert!(
                    error.msg.contains("enablement_selectors: podSelector or"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn empty_run_dir_is_the_working_directory() {
        assert_eq!(
            read("{}").unwrap().run_file("log.sock"),
            Path::new("log.sock")
        );
    }
}
