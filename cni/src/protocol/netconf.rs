//! The plugin's own keys of the network configuration.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::call::Call;
use super::error::CniError;
use super::selector::Selector;
use crate::json::{self, any_case};

/// The keys that the installer writes into the plugin's entry, accepted in any case. Unknown keys are ignored; `null`
/// counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct NetConf {
    /// debug, info, warn, error, fatal or none; anything else is info.
    #[serde(default, deserialize_with = "json::nullable")]
    pub plugin_log_level: String,
    /// Directory of the kubeconfig, the sockets and the log file. Empty means the
    /// working directory.
    #[serde(default, deserialize_with = "json::nullable")]
    pub cni_agent_run_dir: String,
    /// True if pods may be enrolled in ambient mode.
    #[serde(default, deserialize_with = "json::nullable")]
    pub ambient_enabled: bool,
    /// Selectors of ambient pods; empty selects none.
    #[serde(default, deserialize_with = "any_case::list")]
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
    /// True if a failed ambient decision fails the ADD. `None` if the key is absent.
    #[serde(default)]
    pub enable_ambient_detection_retry: Option<bool>,
}

impl NetConf {
    /// Reads the keys from the configuration of a call.
    ///
    /// # Errors
    /// Code 999: a key has a value of another type.
    pub fn read(call: &Call) -> Result<Self, CniError> {
        any_case::from_map(call.config.clone()).map_err(|error| {
            CniError::internal(format!(
                "the plugin's entry in the network configuration is not readable: {error}; the \
                 node agent writes it again when it is removed"
            ))
        })
    }

    /// Returns the path of a file in the run directory.
    pub(crate) fn run_file(&self, name: &str) -> PathBuf {
        Path::new(&self.cni_agent_run_dir).join(name)
    }
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
                let field = format!("enablement_selectors[0]: {key}: ");
                assert!(error.msg.contains(&field), "{error}");
            }
        }
    }

    /// The node agent refuses such selectors at start; another installer may not.
    #[test]
    fn a_selector_of_other_types_is_named_also_without_ambient_mode() {
        for (selector, field) in [
            (r#"{"matchLabels":["a"]}"#, "podSelector: matchLabels: "),
            (r#"{"matchLabels":{"a":1}}"#, "podSelector: matchLabels.a: "),
            (
                r#"{"matchExpressions":{}}"#,
                "podSelector: matchExpressions: ",
            ),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"In","values":"b"}]}"#,
                "podSelector: matchExpressions[0]: values: ",
            ),
            (
                r#"{"MatchExpressions":[{"Key":1}]}"#,
                "podSelector: matchExpressions[0]: key: ",
            ),
        ] {
            let error = read(&format!(
                r#"{{"enablement_selectors":[{{}},{{"podSelector":{selector}}}]}}"#
            ));
            let error = error.unwrap_err();
            let field = format!("enablement_selectors[1]: {field}");
            assert!(error.msg.contains(&field), "{error}");
        }
    }

    /// Upstream's plugin, which this one replaces, accepts keys in any case.
    #[test]
    fn keys_in_any_case() {
        let conf = read(
            r#"{"Plugin_Log_Level":"debug","CNI_AGENT_RUN_DIR":"/run","Ambient_Enabled":true,
                "Exclude_Namespaces":["a"],"pod_Namespace":"x","Native_NFTables":true,
                "Enablement_Selectors":[{"PodSelector":{"MatchLabels":{"A":"b"},
                  "matchexpressions":[{"Key":"k","OPERATOR":"In","Values":["v"]}]}}]}"#,
        );
        let conf = conf.unwrap();
        assert!(conf.ambient_enabled && conf.native_nftables);
        assert_eq!(conf.plugin_log_level, "debug");
        assert_eq!(conf.run_file("f"), Path::new("/run/f"));
        assert_eq!(
            (conf.exclude_namespaces, conf.pod_namespace),
            (vec!["a".into()], "x".into())
        );
        let selector = &conf.enablement_selectors[0].pod_selector;
        // Keys of labels are not keys of the configuration.
        assert_eq!(selector.match_labels["A"], "b");
        assert_eq!(selector.match_expressions[0].values, ["v"]);
    }

    #[test]
    fn empty_run_dir_is_the_working_directory() {
        assert_eq!(
            read("{}").unwrap().run_file("log.sock"),
            Path::new("log.sock")
        );
    }
}
