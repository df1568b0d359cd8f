//! The typed values, checked.

use super::resolve::Resolved;
use super::selectors::parse_selectors;
use crate::repair::RepairSettings;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// Its variable or flag.
    pub name: &'static str,
    /// Its text.
    pub text: String,
    /// Why not, and what would do.
    pub reason: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "setting {} is {:?}: {}",
            self.name, self.text, self.reason
        )
    }
}

impl std::error::Error for SettingError {}

/// What is used of [`TABLE`](super::TABLE), with the variable that says it.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the table says what each is")]
pub struct Settings {
    pub cni_conf_name: String,
    pub chained: bool,
    pub owned: bool,
    pub owned_filename: String,
    pub net_dir: PathBuf,
    pub run_dir: PathBuf,
    pub kubeconfig_mode: u32,
    pub group_read: bool,
    pub kube_ca_file: Option<PathBuf>,
    pub skip_tls_verify: bool,
    /// `None`: no metrics server. A number that is no port costs the metrics, not the agent.
    pub monitoring_port: Option<i64>,
    pub ambient: bool,
    pub ambient_detection_retry: bool,
    pub exclude_namespaces: Vec<String>,
    pub pod_namespace: String,
    /// `POD_NAME`
    pub pod_name: String,
    /// `NODE_NAME`, else `REPAIR_NODE_NAME`: the node whose pods are watched.
    pub node_name: String,
    /// JSON text in the form of the plugin's configuration.
    pub selectors: String,
    pub native_nftables: bool,
    pub service_host: String,
    pub service_port: String,
    pub service_protocol: String,
    pub bin_source_dir: PathBuf,
    pub bin_dir: PathBuf,
    pub service_account_dir: PathBuf,
    pub health_port: u16,
    pub keep_plugin: bool,
    /// `AMBIENT_DISABLE_SAFE_UPGRADE`
    pub always_removes: bool,
    pub log_levels: String,
    pub log_json: bool,
    pub log_targets: Vec<String>,
    pub repair: Option<RepairSettings>,
}

impl Settings {
    /// Reads and checks all of them.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn of(r: &Resolved) -> Result<Self, SettingError> {
        let text = |name: &'static str| r.text(name).to_owned();
        for name in ["HOST_PROBE_SNAT_IP", "HOST_PROBE_SNAT_IPV6"] {
            if r.text(name).parse::<IpAddr>().is_err() {
                return Err(refuse(
                    r,
                    name,
                    "it is no IP address; give one, or leave it out",
                ));
            }
        }
        if !matches!(r.text("FORCE_IPTABLES_BINARY"), "" | "legacy" | "nft") {
            return Err(refuse(
                r,
                "FORCE_IPTABLES_BINARY",
                "it is neither legacy nor nft; leave it out",
            ));
        }
        let selectors = parse_selectors(r.text("AMBIENT_ENABLEMENT_SELECTOR"))
            .map_err(|e| refuse(r, "AMBIENT_ENABLEMENT_SELECTOR", &e))?;
        let owned_filename = match file_name(r, "ISTIO_OWNED_CNI_CONFIG_FILENAME")? {
            name if name.is_empty() => "02-istio-cni.conflist".to_owned(),
            name => name,
        };
        let monitoring_port = Some(int(r, "MONITORING_PORT")?).filter(|port| *port > 0);
        Ok(Self {
            cni_conf_name: file_name(r, "CNI_CONF_NAME")?,
            chained: r.bool("CHAINED_CNI_PLUGIN"),
            owned: r.bool("ISTIO_OWNED_CNI_CONFIG"),
            owned_filename,
            net_dir: path(r, "MOUNTED_CNI_NET_DIR")?,
            run_dir: path(r, "CNI_AGENT_RUN_DIR")?,
            kubeconfig_mode: mode(r, "KUBECONFIG_MODE")?,
            group_read: r.bool("CNI_CONF_GROUP_READ"),
            kube_ca_file: Some(r.text("KUBE_CA_FILE"))
                .filter(|t| !t.is_empty())
                .map(PathBuf::from),
            skip_tls_verify: r.bool("SKIP_TLS_VERIFY"),
            monitoring_port,
            ambient: r.bool("AMBIENT_ENABLED"),
            ambient_detection_retry: r.bool("ENABLE_AMBIENT_DETECTION_RETRY"),
            exclude_namespaces: r.list("EXCLUDE_NAMESPACES"),
            pod_namespace: text("POD_NAMESPACE"),
            pod_name: text("POD_NAME"),
            node_name: match r.text("NODE_NAME") {
                "" => text("REPAIR_NODE_NAME"),
                name => name.to_owned(),
            },
            selectors,
            native_nftables: r.bool("NATIVE_NFTABLES"),
            service_host: text("KUBERNETES_SERVICE_HOST"),
            service_port: text("KUBERNETES_SERVICE_PORT"),
            service_protocol: text("KUBERNETES_SERVICE_PROTOCOL"),
            bin_source_dir: path(r, "WEIR_CNI_BIN_SOURCE_DIR")?,
            bin_dir: path(r, "WEIR_MOUNTED_CNI_BIN_DIR")?,
            service_account_dir: path(r, "WEIR_SERVICE_ACCOUNT_DIR")?,
            health_port: port(r, "WEIR_HEALTH_PORT")?,
            keep_plugin: r.bool("WEIR_KEEP_PLUGIN"),
            always_removes: r.bool("AMBIENT_DISABLE_SAFE_UPGRADE"),
            log_levels: text("log_output_level"),
            log_json: r.bool("log_as_json"),
            log_targets: r.list("log_target"),
            repair: RepairSettings::of(r)?,
        })
    }
}

impl Settings {
    /// What this agent was told to do and cannot do yet.
    ///
    /// # Errors
    /// Ambient mode. Pods would start outside of the mesh if it were silently left out.
    pub fn is_built(&self) -> Result<(), SettingError> {
        match self.ambient {
            false => Ok(()),
            true => Err(SettingError {
                name: "AMBIENT_ENABLED",
                text: "true".to_owned(),
                reason: "ambient mode is not part of this agent yet; set it to false, or run \
                         Istio's own install-cni on this node"
                    .to_owned(),
            }),
        }
    }
}

fn refuse(r: &Resolved, name: &'static str, reason: &str) -> SettingError {
    let (text, reason) = (r.text(name).to_owned(), reason.to_owned());
    SettingError { name, text, reason }
}

fn int(r: &Resolved, name: &'static str) -> Result<i64, SettingError> {
    r.int(name)
        .ok_or_else(|| refuse(r, name, "it is no whole number"))
}

fn port(r: &Resolved, name: &'static str) -> Result<u16, SettingError> {
    u16::try_from(int(r, name)?)
        .ok()
        .filter(|p| *p > 0)
        .ok_or_else(|| refuse(r, name, "it is no port; give a number from 1 to 65535"))
}

fn mode(r: &Resolved, name: &'static str) -> Result<u32, SettingError> {
    u32::try_from(int(r, name)?)
        .ok()
        .filter(|m| *m <= 0o7777)
        .ok_or_else(|| refuse(r, name, "it is no file mode; give one like 0600"))
}

fn path(r: &Resolved, name: &'static str) -> Result<PathBuf, SettingError> {
    match r.text(name) {
        "" => Err(refuse(
            r,
            name,
            "it is empty; give a directory, or leave it out",
        )),
        text if text.contains('\0') => Err(refuse(r, name, "no path has a zero byte")),
        text => Ok(PathBuf::from(text)),
    }
}

/// The name of a file in a directory that is not ours: it must stay in it.
fn file_name(r: &Resolved, name: &'static str) -> Result<String, SettingError> {
    match r.text(name) {
        "." | ".." => Err(refuse(
            r,
            name,
            "it is a directory; give the name of a file",
        )),
        text if text.contains(['/', '\0']) => Err(refuse(
            r,
            name,
            "it is a path; give the name of a file in MOUNTED_CNI_NET_DIR",
        )),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;

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
        assert_eq!((s.kubeconfig_mode, s.monitoring_port), (0o600, Some(15014)));
        assert_eq!(s.owned_filename, "02-istio-cni.conflist");
        assert!(s.chained && !s.owned && s.keep_plugin);
        assert_eq!(
            settings(&[("MONITORING_PORT", "-1")])
                .unwrap()
                .monitoring_port,
            None
        );
        assert_eq!(
            settings(&[("KUBECONFIG_MODE", "640")])
                .unwrap()
                .kubeconfig_mode,
            640
        );
    }

    #[test]
    fn ambient_mode_is_refused_and_not_left_out() {
        assert!(settings(&[]).unwrap().is_built().is_ok());
        let error = settings(&[("AMBIENT_ENABLED", "T")])
            .unwrap()
            .is_built()
            .unwrap_err();
        assert!(error.to_string().contains("AMBIENT_ENABLED"), "{error}");
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
            ("CNI_CONF_NAME", "../x.conf"),
            ("ISTIO_OWNED_CNI_CONFIG_FILENAME", ".."),
            ("REPAIR_INIT_CONTAINER_EXIT_CODE", "x"),
        ] {
            let error = settings(&[(name, text)]).unwrap_err();
            assert_eq!((error.name, error.text.as_str()), (name, text));
        }
    }
}
