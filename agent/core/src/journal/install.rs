//! The installation of the plugin on the node.

use super::About;
use std::path::{Path, PathBuf};
use weir_cni::log::Level::{Debug, Error, Info, Warn};

/// A step of an installation pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Executables.
    Binaries,
    /// Kubeconfig.
    Kubeconfig,
    /// CNI configuration.
    Config,
}

/// An event of the installation. `quiet`: contention continues, and details would flood the log.
#[derive(Debug)]
pub enum Event {
    /// A pass starts.
    PassBegins,
    /// What a pass wrote, or why it is not finished.
    Detail { what: String, quiet: bool },
    /// A warning.
    Warned { what: String },
    /// The plugin is installed, with this configuration.
    Installed {
        configuration: Option<PathBuf>,
        /// Why runtimes may use another configuration; `None`: it is in force.
        preempted: Option<String>,
        quiet: bool,
    },
    /// The installation is being checked again, or is no longer in force.
    NotInForce { configuration: Option<PathBuf> },
    /// A pass succeeded after a failure.
    Recovered,
    /// A pass failed.
    Failed {
        step: Step,
        why: String,
        /// `None`: the agent exits.
        retry: Option<Retry>,
    },
    /// There is no configuration yet to which the plugin could be added.
    Waits {
        why: String,
        /// Set if an earlier pass succeeded.
        retry: Option<Retry>,
    },
    /// A pass is delayed because of earlier ones.
    Damped,
    /// Another installer keeps reverting the installation.
    Contention {
        configuration: Option<PathBuf>,
        begins: bool,
    },
    /// Unrelated files keep changing, and each change causes a comparison. `what` is the last change.
    Restless { what: String },
    /// Contention ended after this number of delayed passes.
    ContentionEnded { passes: u32 },
    /// A termination signal was received.
    EndAsked,
    /// The installation is kept, for this reason.
    Stays { why: String },
    /// The plugin has a separate token.
    HandedOver { until: String },
    /// The plugin has no separate token, for this reason.
    NotHandedOver { why: String },
    /// The installation will be removed, for this reason.
    Goes { why: String },
    /// This was removed.
    Removed { what: String },
    /// Removal failed.
    NotRemoved { why: String },
    /// The DaemonSet (`NAMESPACE/NAME`) of the agent's pod is known.
    OwnerKnown { daemon_set: String },
    /// The DaemonSet is not known yet.
    OwnerUnknown { why: String },
    /// The DaemonSet cannot be requested.
    OwnerNotAsked { why: String },
}

/// A failure that is retried.
#[derive(Debug)]
pub struct Retry {
    /// What changed in the installation; `None` if it is unchanged.
    pub damage: Option<String>,
    /// The previous failure was the same.
    pub repeated: bool,
}

impl Event {
    pub fn about(&self) -> About {
        let detail = |quiet: &bool| if *quiet { Debug } else { Info };
        match self {
            Self::PassBegins => About::silent("install_pass"),
            Self::Detail { what, quiet } => About::new(detail(quiet), "install_detail", what),
            Self::Warned { what } => About::new(Warn, "install_warning", what),
            Self::Installed {
                preempted, quiet, ..
            } => {
                let text = match preempted {
                    None => "the plugin is installed and in force",
                    // The reason is a warning of its own.
                    Some(_) => {
                        "the plugin is installed, and runtimes may use another configuration"
                    }
                };
                About::new(detail(quiet), "installed", text)
            }
            Self::NotInForce { .. } => About::silent("install_check"),
            Self::Recovered => About::new(Info, "install_recovered", "installing works again"),
            Self::Failed { step, why, retry } => {
                let (level, after) = match retry {
                    Some(Retry { repeated, .. }) => (
                        if *repeated { Debug } else { Error },
                        "what is on the node stays, and it is retried",
                    ),
                    None => (Error, "what is on the node stays as it is"),
                };
                let step = format!("{step:?}").to_lowercase();
                About::new(
                    level,
                    "install_failed",
                    format!("cannot install: {why}; {after}"),
                )
                .with("step", step)
            }
            Self::Waits { why, .. } => About::new(Warn, "install_waits", why),
            Self::Damped => About::silent("install_damped"),
            Self::Contention {
                configuration,
                begins,
            } => {
                let about = About::new(Warn, "install_contested", contention(configuration));
                match begins {
                    // One Kubernetes event per contention.
                    true => about.notice_of_agent("InstallationContested"),
                    false => about,
                }
            }
            Self::Restless { what } => {
                let text = format!(
                    "{what}, as again and again: what is installed is compared once a second, and nothing of it was changed"
                );
                About::new(Warn, "install_restless", text)
            }
            Self::ContentionEnded { passes } => {
                let text = format!("contention has ended, after {passes} passes that had to wait");
                About::new(Info, "contention_ended", text).with("passes", passes)
            }
            Self::EndAsked => About::new(Info, "end_asked", "a signal asks to end"),
            Self::Stays { why } => {
                let text = format!("the installation stays: {why}");
                About::new(Info, "installation_stays", text)
            }
            Self::HandedOver { until } => {
                let text =
                    format!("the plugin's kubeconfig has a token of its own, good until {until}");
                About::new(Info, "token_made", text)
            }
            Self::NotHandedOver { why } => {
                let text = format!(
                    "the plugin's kubeconfig keeps the token of this pod, and with the pod that ends: until another \
                     agent writes a new one, pods whose plugin has to ask the API server do not start. There is no \
                     other token: {why}"
                );
                About::new(Warn, "token_not_made", text)
            }
            Self::Goes { why } => {
                let text = format!("the installation is removed: {why}");
                About::new(Info, "installation_goes", text)
            }
            Self::Removed { what } => About::new(Info, "removed", what),
            Self::NotRemoved { why } => {
                let text =
                    format!("the installation is not removed: {why}; weir uninstall tries again");
                About::new(Error, "not_removed", text)
            }
            Self::OwnerKnown { daemon_set } => {
                let text = format!("this pod belongs to DaemonSet {daemon_set}");
                About::new(Info, "owner_known", text)
            }
            Self::OwnerUnknown { why } => {
                let text = format!("the DaemonSet of this pod is not known yet: {why}");
                About::new(Debug, "owner_unknown", text)
            }
            Self::OwnerNotAsked { why } => {
                let text = format!("the DaemonSet of this pod is not known before the end: {why}");
                About::new(Warn, "owner_not_asked", text)
            }
        }
    }
}

fn contention(configuration: &Option<PathBuf>) -> String {
    let path = configuration.as_deref().map(Path::display);
    let path = path.map(|p| p.to_string()).unwrap_or_default();
    let hint = match path.to_lowercase().contains("cilium") {
        true => "; Cilium does this unless its Helm value cni.exclusive is false",
        false => "",
    };
    format!(
        "another component keeps changing what is installed ({path}){hint}; the agent repairs it once a second, and \
         pods that start in between may lack the plugin"
    )
}
