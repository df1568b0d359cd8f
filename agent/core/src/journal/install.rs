//! The plugin on the node.

use super::About;
use std::path::{Path, PathBuf};
use weir_cni::log::Level::{Debug, Error, Info, Warn};

/// Which part of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Programs.
    Binaries,
    /// Kubeconfig.
    Kubeconfig,
    /// CNI configuration.
    Config,
}

/// What happens to the installation. `quiet`: contention goes on, and details would flood the log.
#[derive(Debug)]
pub enum Event {
    /// A pass begins.
    PassBegins,
    /// What a pass wrote, or why it has more to do.
    Detail { what: String, quiet: bool },
    /// What a person should know.
    Warned { what: String },
    /// The plugin is installed and in force, with this configuration.
    InForce {
        configuration: Option<PathBuf>,
        quiet: bool,
    },
    /// It is looked at again, or no longer.
    NotInForce { configuration: Option<PathBuf> },
    /// After a failure a pass is complete again.
    Recovered,
    /// A pass could not be completed.
    Failed {
        step: Step,
        why: String,
        /// `None`: this agent ends.
        retry: Option<Retry>,
    },
    /// There is nothing yet that the plugin could be added to, for this reason.
    Waits {
        why: String,
        /// A pass was complete before.
        retry: Option<Retry>,
    },
    /// A pass has to wait because of those before it.
    Damped,
    /// Another installer keeps changing what is installed.
    Contention {
        configuration: Option<PathBuf>,
        begins: bool,
    },
    /// Something beside it changes again and again, and each time what is installed is compared: what happened last.
    Restless { what: String },
    /// After so many passes that had to wait.
    ContentionEnded { passes: u32 },
    /// A signal came.
    EndAsked,
    /// The installation stays, for this reason.
    Stays { why: String },
    /// The plugin has a token of its own.
    HandedOver { until: String },
    /// It has none, for this reason.
    NotHandedOver { why: String },
    /// The installation is removed, for this reason.
    Goes { why: String },
    /// What was removed.
    Removed { what: String },
    /// It is not removed.
    NotRemoved { why: String },
    /// To which `NAMESPACE/NAME` the agent's pod belongs.
    OwnerKnown { daemon_set: String },
    /// That is not known yet.
    OwnerUnknown { why: String },
    /// It cannot be asked for.
    OwnerNotAsked { why: String },
}

/// A failure that is tried again.
#[derive(Debug)]
pub struct Retry {
    /// What of the installation is no longer as it was; `None` when all of it is.
    pub damage: Option<String>,
    /// It was the same the time before.
    pub repeated: bool,
}

impl Event {
    pub fn about(&self) -> About {
        let detail = |quiet: &bool| if *quiet { Debug } else { Info };
        match self {
            Self::PassBegins => About::silent("install_pass"),
            Self::Detail { what, quiet } => About::new(detail(quiet), "install_detail", what),
            Self::Warned { what } => About::new(Warn, "install_warning", what),
            Self::InForce { quiet, .. } => About::new(
                detail(quiet),
                "installed",
                "the plugin is installed and in force",
            ),
            Self::NotInForce { .. } => About::silent("install_check"),
            Self::Recovered => About::new(Info, "install_recovered", "installing works again"),
            Self::Failed { step, why, retry } => {
                let (level, after) = match retry {
                    Some(Retry { repeated, .. }) => (
                        if *repeated { Debug } else { Error },
                        "what is on the node stays, and it is tried again",
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
                    // One for each contention.
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
