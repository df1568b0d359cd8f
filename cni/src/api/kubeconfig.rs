//! The kubeconfig that the node agent writes for the plugin.

use std::path::Path;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Config, config};

use super::error::{Error, Reason, chain};

/// Whether the kubeconfig exists and can be used, without asking a server.
///
/// # Errors
/// [`Reason::Kubeconfig`] with what is wrong.
pub fn check(path: &Path) -> Result<(), Error> {
    let kubeconfig = read(path)?;
    let options = KubeConfigOptions::default();
    let load = config::Config::from_custom_kubeconfig(kubeconfig, &options);
    super::client::runtime(path)?
        .block_on(load)
        .map(|_| ())
        .map_err(|error| unusable(path, chain(&error)))
}

/// Reads the file and refuses what weir does not do.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, Error> {
    let kubeconfig = Kubeconfig::read_from(path).map_err(|e| unusable(path, chain(&e)))?;
    for user in &kubeconfig.auth_infos {
        if let Some(how) = user.auth_info.as_ref().and_then(runs_a_program) {
            let name = &user.name;
            return Err(unusable(
                path,
                format!(
                    "user {name:?} gets its credentials by {how}, which runs a program; use a token"
                ),
            ));
        }
    }
    Ok(kubeconfig)
}

/// The client configuration of the current context.
pub(super) async fn load(path: &Path) -> Result<Config, Error> {
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(read(path)?, &options)
        .await
        .map_err(|error| unusable(path, chain(&error)))
}

/// Both are executed by the client library.
fn runs_a_program(user: &AuthInfo) -> Option<&'static str> {
    if user.exec.is_some() {
        Some("exec")
    } else if user.auth_provider.is_some() {
        Some("auth-provider")
    } else {
        None
    }
}

fn unusable(path: &Path, reason: String) -> Error {
    Error {
        kubeconfig: path.into(),
        server: String::new(),
        object: String::new(),
        reason: Reason::Kubeconfig(reason),
    }
}
