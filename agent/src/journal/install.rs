//! The plugin on the node.

use super::{About, Notice, Subject};
use std::fmt;
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
pub(crate) enum Event {
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
pub(crate) struct Retry {
    /// What of the installation is no longer as it was; `None` when all of it is.
    pub(crate) damage: Option<String>,
    /// It was the same the time before.
    pub(crate) repeated: bool,
}

impl Event {
    pub(super) fn about(&self) -> About {
        let detail = |quiet: &bool| if *quiet { Debug } else { Info };
        match self {
            Self::PassBegins => About::new(None, "install_pass"),
            Self::Detail { quiet, .. } => About::new(detail(quiet), "install_detail"),
            Self::Warned { .. } => About::new(Warn, "install_warning"),
            Self::InForce { quiet, .. } => About::new(detail(quiet), "installed"),
            Self::NotInForce { .. } => About::new(None, "install_check"),
            Self::Recovered => About::new(Info, "install_recovered"),
            Self::Failed { step, retry, .. } => {
                let repeated = retry.as_ref().is_some_and(|retry| retry.repeated);
                let level = if repeated { Debug } else { Error };
                About::new(level, "install_failed").with("step", format!("{step:?}").to_lowercase())
            }
            Self::Waits { .. } => About::new(Warn, "install_waits"),
            Self::Damped => About::new(None, "install_damped"),
            Self::Contention { .. } => About::new(Warn, "install_contested"),
            Self::ContentionEnded { passes } => {
                About::new(Info, "contention_ended").with("passes", passes)
            }
            Self::EndAsked => About::new(Info, "end_asked"),
            Self::Stays { .. } => About::new(Info, "installation_stays"),
            Self::HandedOver { .. } => About::new(Info, "token_made"),
            Self::NotHandedOver { .. } => About::new(Warn, "token_not_made"),
            Self::Goes { .. } => About::new(Info, "installation_goes"),
            Self::Removed { .. } => About::new(Info, "removed"),
            Self::NotRemoved { .. } => About::new(Error, "not_removed"),
            Self::OwnerKnown { .. } => About::new(Info, "owner_known"),
            Self::OwnerUnknown { .. } => About::new(Debug, "owner_unknown"),
            Self::OwnerNotAsked { .. } => About::new(Warn, "owner_not_asked"),
        }
    }

    pub(super) fn notice(&self) -> Option<Notice<'_>> {
        match self {
            // One for each contention.
            Self::Contention { begins: true, .. } => Some(Notice {
                about: Subject::Agent,
                reason: "InstallationContested",
                message: self.to_string(),
            }),
            _ => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassBegins => f.write_str("a pass of the installer begins"),
            Self::Detail { what, .. } | Self::Warned { what } | Self::Removed { what } => {
                f.write_str(what)
            }
            Self::InForce { .. } => f.write_str("the plugin is installed and in force"),
            Self::NotInForce { .. } => f.write_str("the installation is looked at again"),
            Self::Recovered => f.write_str("installing works again"),
            Self::Failed { why, retry, .. } => {
                let after = match retry {
                    Some(_) => "what is on the node stays, and it is tried again",
                    None => "what is on the node stays as it is",
                };
                write!(f, "cannot install: {why}; {after}")
            }
            Self::Waits { why, .. } => f.write_str(why),
            Self::Damped => f.write_str("a pass of the installer has to wait"),
            Self::Contention { configuration, .. } => {
                let path = configuration.as_deref().map(Path::display);
                let path = path.map(|p| p.to_string()).unwrap_or_default();
                let hint = match path.to_lowercase().contains("cilium") {
                    true => "; Cilium does this unless its Helm value cni.exclusive is false",
                    false => "",
                };
                write!(
                    f,
                    "another component keeps changing what is installed ({path}){hint}; the agent repairs it once a \
                     second, and pods that start in between may lack the plugin"
                )
            }
            Self::ContentionEnded { passes } => write!(
                f,
                "contention has ended, after {passes} passes that had to wait"
            ),
            Self::EndAsked => f.write_str("a signal asks to end"),
            Self::Stays { why } => write!(f, "the installation stays: {why}"),
            Self::HandedOver { until } => write!(
                f,
                "the plugin's kubeconfig has a token of its own, good until {until}"
            ),
            Self::NotHandedOver { why } => write!(
                f,
                "the plugin's kubeconfig keeps the token of this pod, and with the pod that ends: until another agent \
                 writes a new one, pods whose plugin has to ask the API server do not start. There is no other token: \
                 {why}"
            ),
            Self::Goes { why } => write!(f, "the installation is removed: {why}"),
            Self::NotRemoved { why } => write!(
                f,
                "the installation is not removed: {why}; weir uninstall tries again"
            ),
            Self::OwnerKnown { daemon_set } => {
                write!(f, "this pod belongs to DaemonSet {daemon_set}")
            }
            Self::OwnerUnknown { why } => {
                write!(f, "the DaemonSet of this pod is not known yet: {why}")
            }
            Self::OwnerNotAsked { why } => write!(
                f,
                "the DaemonSet of this pod is not known before the end: {why}"
            ),
        }
    }
}
