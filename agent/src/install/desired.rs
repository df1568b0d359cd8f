//! What is wanted on the node.

use super::config::list_name;
use super::entry::Entry;
use crate::settings::Settings;
use std::path::{Path, PathBuf};

/// Plain data: the same for the same settings.
#[derive(Debug, Clone)]
pub struct Desired {
    /// Where configurations are.
    pub net_dir: PathBuf,
    /// The configuration to use, when one is named.
    pub conf_name: Option<String>,
    /// Our entry goes into a list; otherwise it is a configuration of its own.
    pub chained: bool,
    /// The name of a list of our own. Effective only in chained and ambient mode: installing and removing ask
    /// the same question, or removing would delete the node's primary configuration.
    pub owned: Option<String>,
    /// Mode of configurations that are new.
    pub mode: u32,
    /// Our entry.
    pub entry: Entry,
    /// Every file in it goes to `bin_dir`.
    pub bin_source_dir: PathBuf,
    /// Where the node has its plugins.
    pub bin_dir: PathBuf,
    /// Path of the plugin's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its mode.
    pub kubeconfig_mode: u32,
    /// What is in it.
    pub access: Access,
    /// Removal leaves the plugin's program.
    pub keep_plugin: bool,
}

/// How the plugin reaches the API server.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `https`; empty means that too.
    pub protocol: String,
    /// A name or an address, without brackets.
    pub host: String,
    /// A number.
    pub port: String,
    /// PEM; `None` is `ca.crt` of the service account.
    pub ca_file: Option<PathBuf>,
    /// The server is not verified.
    pub skip_tls_verify: bool,
    /// Directory with `token` and `ca.crt`; the kubelet changes both.
    pub service_account_dir: PathBuf,
}

impl Desired {
    /// From the settings and the level at which the plugin logs.
    ///
    /// # Errors
    /// As for [`Entry::new`].
    pub fn new(s: &Settings, plugin_log_level: &str) -> Result<Self, String> {
        let owned = s.owned && s.chained && s.ambient;
        Ok(Self {
            net_dir: s.net_dir.clone(),
            conf_name: Some(s.cni_conf_name.clone()).filter(|n| !n.is_empty()),
            chained: s.chained,
            owned: owned.then(|| {
                let name = list_name(Path::new(&s.owned_filename));
                name.to_string_lossy().into_owned()
            }),
            mode: if s.group_read { 0o640 } else { 0o600 },
            entry: Entry::new(s, plugin_log_level)?,
            bin_source_dir: s.bin_source_dir.clone(),
            bin_dir: s.bin_dir.clone(),
            kubeconfig: s.run_dir.join(weir_cni::plugin::KUBECONFIG),
            kubeconfig_mode: s.kubeconfig_mode,
            access: Access {
                protocol: s.service_protocol.clone(),
                host: s.service_host.clone(),
                port: s.service_port.clone(),
                ca_file: s.kube_ca_file.clone(),
                skip_tls_verify: s.skip_tls_verify,
                service_account_dir: s.service_account_dir.clone(),
            },
            keep_plugin: s.keep_plugin,
        })
    }
}
