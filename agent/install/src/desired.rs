//! The desired state of the installation on the node.

use super::config::list_name;
use super::copy;
use super::entry::Entry;
use super::listing;
use super::own_names;
use std::path::{Path, PathBuf};
use weir_core::api::access::Access;
use weir_core::settings::{Resolved, SettingError};

/// The desired state as plain data, which depends only on the settings.
#[derive(Debug, Clone)]
pub struct Desired {
    /// Directory of CNI configurations.
    pub net_dir: PathBuf,
    /// The configuration to use, if a setting names one.
    pub conf_name: Option<String>,
    /// True if our entry is part of a list; false if it is a separate configuration.
    pub chained: bool,
    /// The name of our own list. Set only in chained and ambient mode; installation and removal must use the same condition,
    /// or removal would delete the node's primary configuration.
    pub owned: Option<String>,
    /// The same name, set in every mode: an earlier agent may have used owned mode.
    pub owned_name: String,
    /// Mode of new configurations.
    pub mode: u32,
    /// Our entry.
    pub entry: Entry,
    /// Directory whose files are all copied to `bin_dir`.
    pub bin_source_dir: PathBuf,
    /// The node's directory of plugins.
    pub bin_dir: PathBuf,
    /// Path of the plugin's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its mode.
    pub kubeconfig_mode: u32,
    /// Its content: access to the API server.
    pub access: Access,
    /// Removal keeps the plugin's program.
    pub keep_plugin: bool,
}

impl Desired {
    /// Returns the path of the file of [`own_names`].
    pub(super) fn own_names(&self) -> PathBuf {
        self.kubeconfig.with_file_name(own_names::FILE)
    }

    /// Builds the desired state from the settings and the plugin's log level.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn of(r: &Resolved, plugin_log_level: &str) -> Result<Self, SettingError> {
        let entry = Entry::of(r, plugin_log_level)?;
        let run_dir = r.path("CNI_AGENT_RUN_DIR")?;
        if !run_dir.is_absolute() {
            let why = "the plugin reads this path from its configuration and runs in another directory; give an absolute path";
            return Err(r.refused("CNI_AGENT_RUN_DIR", why));
        }
        let chained = r.bool("CHAINED_CNI_PLUGIN");
        let owned = r.bool("ISTIO_OWNED_CNI_CONFIG") && chained && r.bool("AMBIENT_ENABLED");
        let conf_name = Some(r.file_name("CNI_CONF_NAME")?).filter(|n| !n.is_empty());
        is_read(r, chained, conf_name)?;
        let owned_name = owned_name(r, owned, conf_name)?;
        Ok(Self {
            conf_name: conf_name.map(str::to_owned),
            net_dir: r.path("MOUNTED_CNI_NET_DIR")?,
            chained,
            owned: owned.then(|| owned_name.clone()),
            owned_name,
            mode: match r.bool("CNI_CONF_GROUP_READ") {
                true => 0o640,
                false => 0o600,
            },
            entry,
            kubeconfig: run_dir.join(weir_cni::plugin::KUBECONFIG),
            kubeconfig_mode: r.mode("KUBECONFIG_MODE")?,
            bin_source_dir: r.path("WEIR_CNI_BIN_SOURCE_DIR")?,
            bin_dir: r.path("WEIR_MOUNTED_CNI_BIN_DIR")?,
            access: Access::of(r)?,
            keep_plugin: r.bool("WEIR_KEEP_PLUGIN"),
        })
    }
}

/// Checks the extension of the configuration's name. Runtimes load a list only from a `.conflist`, to which a `.conf` is
/// converted, and a single plugin never from a `.conflist`.
fn is_read(r: &Resolved, chained: bool, name: Option<&str>) -> Result<(), SettingError> {
    let ends_in = |ending| name.is_none_or(|name| listing::ends_in(Path::new(name), ending));
    let why = match chained {
        true if ends_in(".conf") || ends_in(".conflist") => return Ok(()),
        true => "no runtime reads a list of this name; give one that ends in .conf or .conflist",
        false if ends_in(".conf") => return Ok(()),
        false => {
            "with CHAINED_CNI_PLUGIN=false the configuration is a single plugin, which runtimes read from a .conf; give such a name"
        }
    };
    Err(r.refused("CNI_CONF_NAME", why))
}

/// Returns the name of our own list, which runtimes must read and which must differ from that of the copied configuration.
fn owned_name(r: &Resolved, is_used: bool, primary: Option<&str>) -> Result<String, SettingError> {
    let setting = "ISTIO_OWNED_CNI_CONFIG_FILENAME";
    let name = match r.file_name(setting)? {
        "" => copy::DEFAULT,
        name => name,
    };
    let list = |name: &str| list_name(Path::new(name)).to_string_lossy().into_owned();
    let name = list(name);
    if !is_used {
        return Ok(name);
    }
    if !name.ends_with(".conflist") {
        let why = "no runtime reads a list of this name; give one that ends in .conflist";
        return Err(r.refused(setting, why));
    }
    if primary.is_some_and(|primary| list(primary) == name) {
        let why = "CNI_CONF_NAME names the same file, which is copied and stays unchanged; give another name";
        return Err(r.refused(setting, why));
    }
    Ok(name)
}
