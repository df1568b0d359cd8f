//! The settings of the process: the section of each module, validated before anything starts.

use crate::ambient::AmbientSettings;
use crate::repair::RepairSettings;
use std::path::PathBuf;
use weir_cni::log::Level;
use weir_core::log::Levels;
use weir_core::settings::{Resolved, SettingError};
use weir_install::Desired;

/// The settings of [`TABLE`](weir_core::settings::TABLE) that the agent uses.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The desired state of the installation on the node.
    pub(crate) desired: Desired,
    /// `None`: ambient mode is off.
    pub(crate) ambient: Option<AmbientSettings>,
    pub(crate) run_dir: PathBuf,
    /// `None`: no metrics server. With a number above the port range the agent runs without metrics.
    pub(crate) monitoring_port: Option<i64>,
    pub(crate) health_port: u16,
    pub(crate) pod_namespace: String,
    /// `POD_NAME`
    pub(crate) pod_name: String,
    /// `NODE_NAME`, else `REPAIR_NODE_NAME`: the node whose pods are watched.
    pub(crate) node_name: String,
    log_levels: String,
    pub(crate) log_json: bool,
    pub(crate) log_targets: Vec<String>,
    pub(crate) repair: Option<RepairSettings>,
}

impl Settings {
    /// Reads and validates all of them except the log levels.
    ///
    /// # Errors
    /// The first invalid setting.
    pub(crate) fn of(r: &Resolved) -> Result<Self, SettingError> {
        let name = "FORCE_IPTABLES_BINARY";
        if !matches!(r.text(name), "" | "legacy" | "nft") {
            return Err(r.refused(name, "it is neither legacy nor nft; leave it out"));
        }
        let text = |name: &'static str| r.text(name).to_owned();
        let log_levels = text("log_output_level");
        // [`Settings::levels`] refuses an invalid level before the plugin's level is used.
        let plugin = Levels::parse(&log_levels).map_or(Level::Info, |(levels, _)| levels.plugin);
        let node_name = match r.text("NODE_NAME") {
            "" => text("REPAIR_NODE_NAME"),
            name => name.to_owned(),
        };
        let ambient = AmbientSettings::of(r)?;
        if ambient.is_some() && node_name.is_empty() {
            let why = "AMBIENT_ENABLED needs the name of this node, whose pods are watched; set it from spec.nodeName";
            return Err(r.refused("NODE_NAME", why));
        }
        Ok(Self {
            desired: Desired::of(r, plugin.as_str())?,
            ambient,
            run_dir: r.path("CNI_AGENT_RUN_DIR")?,
            monitoring_port: Some(r.number("MONITORING_PORT")?).filter(|port| *port > 0),
            health_port: r.port("WEIR_HEALTH_PORT")?,
            pod_namespace: text("POD_NAMESPACE"),
            pod_name: text("POD_NAME"),
            node_name,
            log_levels,
            log_json: r.bool("log_as_json"),
            log_targets: r.list("log_target"),
            repair: RepairSettings::of(r)?,
        })
    }

    /// Returns the log levels and the unknown scopes.
    ///
    /// # Errors
    /// An item of the flag has no valid level.
    pub(crate) fn levels(&self) -> Result<(Levels, Vec<String>), String> {
        Levels::parse(&self.log_levels).map_err(|e| format!("--log_output_level: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    fn settings(env: &[(&str, &str)]) -> Result<Settings, SettingError> {
        let lookup = |name: &str| {
            let found = env.iter().find(|(k, _)| *k == name);
            found.map(|(_, v)| OsString::from(*v))
        };
        Settings::of(&resolve(&BTreeMap::new(), &lookup))
    }

    #[test]
    fn defaults() {
        let s = settings(&[]).unwrap();
        assert_eq!(
            (s.desired.kubeconfig_mode, s.monitoring_port),
            (0o600, Some(15014))
        );
        assert!(s.desired.chained && s.desired.owned.is_none() && s.desired.keep_plugin);
        assert_eq!(
            settings(&[("MONITORING_PORT", "-1")])
                .unwrap()
                .monitoring_port,
            None
        );
        assert_eq!(
            settings(&[("KUBECONFIG_MODE", "640")])
                .unwrap()
                .desired
                .kubeconfig_mode,
            640
        );
    }

    #[test]
    fn ambient_mode_is_a_section_of_its_own() {
        assert!(settings(&[]).unwrap().ambient.is_none());
        let ambient = [("AMBIENT_ENABLED", "T"), ("AMBIENT_IPV6", "true")];
        let error = settings(&ambient).unwrap_err();
        assert_eq!(error.name, "NODE_NAME");
        let s = settings(&[&ambient[..], &[("NODE_NAME", "n")]].concat()).unwrap();
        assert!(s.ambient.unwrap().rules.enable_ipv6);
    }

    #[test]
    fn what_is_refused_is_named() {
        for (name, text) in [
            ("HOST_PROBE_SNAT_IP", "nonsense"),
            ("HOST_PROBE_SNAT_IPV6", ""),
            ("FORCE_IPTABLES_BINARY", "iptables"),
            ("AMBIENT_ENABLEMENT_SELECTOR", "{{"),
            ("MONITORING_PORT", "http"),
            ("WEIR_HEALTH_PORT", "0"),
            ("KUBECONFIG_MODE", "rw"),
            ("KUBECONFIG_MODE", "-1"),
            ("MOUNTED_CNI_NET_DIR", ""),
            ("CNI_AGENT_RUN_DIR", "run/istio-cni"),
            ("CNI_CONF_NAME", "net.json"),
            ("CNI_CONF_NAME", "../x.conf"),
            ("ISTIO_OWNED_CNI_CONFIG_FILENAME", ".."),
            ("REPAIR_INIT_CONTAINER_EXIT_CODE", "x"),
        ] {
            let error = settings(&[(name, text)]).unwrap_err();
            assert_eq!((error.name, error.text.as_str()), (name, text));
        }
    }
}
