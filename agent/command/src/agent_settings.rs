//! Settings of the node agent that decide what a pod has, for commands that read a pod (`--pod`).
//!
//! They come from the environment, as in the agent's container. A shell on the node does not have them: those that are not set there
//! are asked of the running agent.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_cni::files::is_absence;
use weir_core::report;
use weir_core::settings::{TABLE, resolve};

/// Time limit of the agent's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The known settings among the requested ones.
#[derive(Default)]
pub(super) struct AgentSettings {
    known: BTreeMap<&'static str, String>,
    /// Settings that neither the environment nor an agent has.
    missing: Vec<&'static str>,
    /// Why no agent could be asked; `None` if one answered.
    why: Option<String>,
    /// There may be an agent that could not be asked.
    unasked: bool,
}

impl AgentSettings {
    /// Reads the settings from the environment, and requests them from the agent if one is missing there.
    pub(super) fn of(names: &[&'static str]) -> Self {
        let (mut known, mut missing) = (BTreeMap::new(), Vec::new());
        for name in names {
            match std::env::var_os(name) {
                Some(text) => _ = known.insert(*name, text.to_string_lossy().into_owned()),
                None => missing.push(*name),
            }
        }
        let (mut why, mut unasked) = (None, false);
        if !missing.is_empty() {
            let socket = socket();
            match asked(&socket) {
                Ok(settings) => missing.retain(|name| match value(&settings, name) {
                    Some(text) => known.insert(name, text).is_some(),
                    None => true,
                }),
                Err(e) => (why, unasked) = (Some(e), may_exist(&socket)),
            }
        }
        Self {
            known,
            missing,
            why,
            unasked,
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.known.get(name).map(String::as_str)
    }

    /// Prints a note if an agent may exist that could not be asked for missing settings.
    pub(super) fn tell_unasked(self) -> Self {
        if self.unasked {
            eprintln!(
                "weir: note: {} have their defaults: the node's agent, which may have other values, could not be asked ({}); run this as \
                 root of the node, or set them as the agent has them",
                self.missing.join(", "),
                self.why.as_deref().unwrap_or_default()
            );
        }
        self
    }

    /// Prints a note if these settings have their defaults because they are set nowhere.
    pub(super) fn tell_defaults(&self, names: &[&str]) {
        let missing = self.missing.iter().filter(|name| names.contains(name));
        let with_default = |name: &&str| {
            let setting = TABLE.iter().find(|s| s.env == *name)?;
            Some(format!("{name}={}", setting.default))
        };
        let missing: Vec<String> = missing.filter_map(with_default).collect();
        if !missing.is_empty() {
            let agent = match &self.why {
                Some(why) => format!("no agent could be asked ({why})"),
                None => "the running agent does not have them".to_owned(),
            };
            eprintln!(
                "weir: note: {} are assumed: the environment does not set them, and {agent}; set them as the node's agent has them",
                missing.join(" "),
            );
        }
    }
}

/// The socket of this node's agent.
fn socket() -> PathBuf {
    let settings = resolve(&BTreeMap::new(), &|name: &str| std::env::var_os(name));
    Path::new(settings.text("CNI_AGENT_RUN_DIR")).join(report::SOCKET)
}

fn may_exist(socket: &Path) -> bool {
    !std::fs::symlink_metadata(socket).is_err_and(|e| is_absence(&e))
}

fn asked(socket: &Path) -> Result<Value, String> {
    let at = |e: String| format!("{}: {e}", socket.display());
    let answer = weir_cni::http::get(socket, report::SETTINGS, PATIENCE);
    let answer = answer.map_err(|e| at(e.to_string()))?;
    if answer.status != 200 {
        return Err(at(format!("it answers {}", answer.status)));
    }
    serde_json::from_str(&answer.body)
        .map_err(|e| at(format!("its answer is not the expected JSON: {e}")))
}

fn value(settings: &Value, name: &str) -> Option<String> {
    let is_it = |s: &&Value| s.get("name").and_then(Value::as_str) == Some(name);
    let found = settings.as_array()?.iter().find(is_it)?;
    found.get("value")?.as_str().map(str::to_owned)
}
