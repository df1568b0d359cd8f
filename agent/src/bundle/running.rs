//! The agent of this node, if one runs: its settings and its last lines.

use super::files::{seen, tail};
use super::secrets::CUT;
use super::{Part, lines};
use crate::node::serve::report::{self, Asking};
use crate::node::settings::{self, Resolved, TABLE};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_cni::plugin::LOG_FILE;

/// For one question.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a log file that are taken.
const TAIL: u64 = 256 << 10;

/// Settings with their origins, and who has them.
pub(super) struct Running {
    /// As `--explain-settings --json` prints them.
    settings: Value,
    /// Why they are not those of a running agent.
    silent: Option<String>,
    socket: PathBuf,
}

impl Running {
    /// Asks the agent whose run directory `own` names; without an answer they are those of this process.
    pub(super) fn ask(own: &Resolved) -> Self {
        let own = settings::json(own);
        let socket = seen(text_of(&own, "CNI_AGENT_RUN_DIR")).join(report::SOCKET);
        let asked = get(&socket, report::SETTINGS).and_then(|text| {
            let answer = serde_json::from_str::<Value>(&text).ok();
            let list = answer.filter(Value::is_array);
            list.ok_or_else(|| format!("{} answers something else", socket.display()))
        });
        let (mut settings, silent) = match asked {
            Ok(settings) => (settings, None),
            Err(why) => (own, Some(why)),
        };
        for setting in settings.as_array_mut().into_iter().flatten() {
            let name = setting.get("name").and_then(Value::as_str);
            let is_secret = TABLE
                .iter()
                .any(|s| Some(s.env) == name && s.may_hold_a_secret());
            if let Some(value) = setting.get_mut("value")
                && is_secret
                && value != ""
            {
                *value = CUT.into();
            }
        }
        Self {
            settings,
            silent,
            socket,
        }
    }

    /// The text of a setting.
    pub(super) fn text(&self, name: &str) -> &str {
        text_of(&self.settings, name)
    }

    /// A directory of the settings as it is seen here.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        seen(self.text(name))
    }

    /// Settings and lines as parts.
    pub(super) fn parts(&self) -> Vec<Part> {
        let source = match &self.silent {
            None => "those of the running agent".to_owned(),
            Some(why) => format!(
                "those that an agent with the flags and the environment of this command would have; no running agent \
                 could be asked: {why}"
            ),
        };
        let text = format!("# {source}\n{}", settings::text_of(&self.settings));
        let json = json!({ "source": source, "settings": self.settings });
        let plugin = self.dir("CNI_AGENT_RUN_DIR").join(LOG_FILE);
        let mut parts = vec![
            Part::new("agent/settings.txt", Ok(text)),
            Part::new("agent/settings.json", Ok(format!("{json:#}\n"))),
            Part::new("agent/log.txt", self.log()),
            Part::new("agent/status.json", self.told(report::STATUS)),
            Part::new("agent/metrics.txt", self.told(report::METRICS)),
            Part::new(
                "cni/plugin-log.txt",
                tail(&plugin, TAIL).map(|text| lines::known(&text)),
            ),
        ];
        for (n, file) in self.log_files().enumerate() {
            parts.push(Part::new(
                format!("agent/log-file-{}.txt", n + 1),
                tail(Path::new(file), TAIL).map(|text| lines::known(&text)),
            ));
        }
        parts
    }

    fn log(&self) -> Result<String, String> {
        let told = self.told(report::LOG);
        told.map(|text| lines::known(&text)).map_err(|why| {
            format!(
                "{why}; what an agent wrote to stdout or stderr is kept by the container runtime (kubectl logs)"
            )
        })
    }

    /// The pods of the node that ask for redirection.
    pub(super) fn pods(&self) -> Result<Vec<Asking>, String> {
        let text = self.told(report::PODS)?;
        serde_json::from_str(&text).map_err(|e| format!("the agent answers something else: {e}"))
    }

    fn told(&self, path: &str) -> Result<String, String> {
        match &self.silent {
            None => get(&self.socket, path),
            Some(why) => Err(format!("no running agent could be asked: {why}")),
        }
    }

    fn log_files(&self) -> impl Iterator<Item = &str> {
        let targets = self.text("log_target").split(',').map(str::trim);
        targets.filter(|t| t.starts_with('/'))
    }
}

fn get(socket: &Path, path: &str) -> Result<String, String> {
    match weir_cni::http::get(socket, path, PATIENCE) {
        Ok(answer) if answer.status == 200 => Ok(answer.body),
        Ok(answer) => Err(format!(
            "{} answers {}: {}",
            socket.display(),
            answer.status,
            answer.body.trim()
        )),
        Err(e) => Err(format!("{}: {e}", socket.display())),
    }
}

/// By variable, or by flag where there is none.
fn text_of<'a>(settings: &'a Value, name: &str) -> &'a str {
    let flag = format!("--{name}");
    let named = |s: &&Value| {
        let found = s.get("name").and_then(Value::as_str);
        found == Some(name) || found == Some(flag.as_str())
    };
    let found = settings.as_array().into_iter().flatten().find(named);
    let value = found.and_then(|s| s.get("value")).and_then(Value::as_str);
    value.unwrap_or_default()
}
