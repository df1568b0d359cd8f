//! Events of the process itself.

use super::About;
use weir_cni::log::Level::{Debug, Error, Info, Warn};

/// An event of the process.
#[derive(Debug)]
pub enum Event {
    /// It starts.
    Starts { version: &'static str },
    /// A setting with the origin of its value. `is_default`: the value is the default.
    Setting {
        name: &'static str,
        value: String,
        from: String,
        is_default: bool,
    },
    /// A remark about the value of a setting.
    SettingNoted { name: &'static str, note: String },
    /// `POD_NAMESPACE` is not set.
    NamespaceUnknown,
    /// `REPAIR_NODE_NAME` is not the node whose pods are watched.
    RepairsNothing { repaired: String, watched: String },
    /// `--log_output_level` has a scope that does not exist.
    ScopeUnknown { scope: String },
    /// A capability is missing, or one that is not needed cannot be dropped.
    Rights { why: String },
    /// A permanent task ended or panicked.
    TaskEnded { tasks: String },
    /// Tasks did not stop in time at shutdown.
    NotStopped { tasks: String },
    /// A log target did not accept these lines. The log contains a remark in their place.
    LinesDropped { lines: u64 },
}

impl Event {
    pub(super) fn about(&self) -> About {
        match self {
            Self::Starts { version } => {
                About::new(Info, "starts", format!("weir agent {version} starts"))
            }
            Self::Setting {
                name,
                value,
                from,
                is_default,
            } => {
                let level = if *is_default { Debug } else { Info };
                About::new(level, "setting", format!("setting {name}={value} ({from})"))
            }
            Self::SettingNoted { name, note } => {
                About::new(Warn, "setting_noted", format!("setting {name}: {note}"))
            }
            Self::NamespaceUnknown => About::new(
                Warn,
                "namespace_unknown",
                "POD_NAMESPACE is not set, and no service account with a namespace is mounted: the plugin cannot tell \
                 this agent's own pod from others, and holds it up like any other",
            ),
            Self::RepairsNothing { repaired, watched } => {
                let text = format!(
                    "REPAIR_NODE_NAME={repaired:?} is not NODE_NAME={watched:?}, whose pods are watched: no pod is \
                     repaired by the criteria; give both the name of this node"
                );
                About::new(Warn, "repairs_nothing", text)
            }
            Self::ScopeUnknown { scope } => {
                let text = format!("--log_output_level: no line has scope {scope:?}");
                About::new(Debug, "scope_unknown", text)
            }
            Self::Rights { why } => About::new(Warn, "rights", why),
            Self::TaskEnded { tasks } => {
                let text = format!(
                    "a part of the agent ended unexpectedly: {tasks}; the process ends, and nothing is removed"
                );
                About::new(Error, "task_ended", text)
            }
            Self::NotStopped { tasks } => {
                let text = format!("parts of the agent did not stop in time: {tasks}");
                About::new(Warn, "tasks_not_stopped", text)
            }
            Self::LinesDropped { lines } => {
                let text = format!("{lines} lines of the log are lost");
                About::new(None, "log_lines_dropped", text)
            }
        }
    }
}
