//! What is wanted on the node.

use super::config::list_name;
use super::entry::Entry;
use std::path::{Path, PathBuf};
use weir_core::api::access::Access;
use weir_core::settings::{Resolved, SettingError};

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

impl Desired {
    /// From the settings and the level at which the plugin logs.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn of(r: &Resolved, plugin_log_level: &str) -> Result<Self, SettingError> {
        let entry = Entry::of(r, plugin_log_level)?;
        let chained = r.bool("CHAINED_CNI_PLUGIN");
        let owned = r.bool("ISTIO_OWNED_CNI_CONFIG") && chained && r.bool("AMBIENT_ENABLED");
        let owned_name = match r.file_name("ISTIO_OWNED_CNI_CONFIG_FILENAME")? {
            "" => "02-istio-cni.conflist",
            name => name,
        };
        let owned_name = list_name(Path::new(owned_name));
        Ok(Self {
            conf_name: Some(r.file_name("CNI_CONF_NAME")?)
                .filter(|n| !n.is_empty())
                .map(str::to_owned),
            net_dir: r.path("MOUNTED_CNI_NET_DIR")?,
            chained,
            owned: owned.then(|| owned_name.to_string_lossy().into_owned()),
            mode: match r.bool("CNI_CONF_GROUP_READ") {
                true => 0o640,
                false => 0o600,
            },
            entry,
            kubeconfig: r
                .path("CNI_AGENT_RUN_DIR")?
                .join(weir_cni::plugin::KUBECONFIG),
            kubeconfig_mode: r.mode("KUBECONFIG_MODE")?,
            bin_source_dir: r.path("WEIR_CNI_BIN_SOURCE_DIR")?,
            bin_dir: r.path("WEIR_MOUNTED_CNI_BIN_DIR")?,
            access: Access::of(r)?,
            keep_plugin: r.bool("WEIR_KEEP_PLUGIN"),
        })
    }
}
