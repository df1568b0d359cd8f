//! The running agent of this node, if any: its settings and its last log lines.

use super::files::{seen, tail};
use super::secrets::CUT;
use super::{Part, lines, messages};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_cni::plugin::LOG_FILE;
use weir_core::report::{self, Asking};
use weir_core::settings::{self, Resolved, Setting, SettingKind, TABLE, go_bool};

/// Time limit of one request.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of bytes taken from the end of a log file.
const TAIL: u64 = 256 << 10;

/// Settings with their origins, and the process they belong to.
pub(super) struct Running {
    /// The output of `--explain-settings --json`.
    settings: Value,
    /// The same with all values unredacted; not included in the report.
    texts: Value,
    /// Reason why they are not the settings of a running agent.
    silent: Option<String>,
    socket: PathBuf,
}

impl Running {
    /// Asks the agent whose run directory is in `own`. Without an answer, the settings of this process are used.
    pub(super) fn ask(own: &Resolved) -> Self {
        let own = settings::json(own);
        let socket = seen(text_of(&own, "CNI_AGENT_RUN_DIR")).join(report::SOCKET);
        let asked = get(&socket, report::SETTINGS).and_then(|text| {
            let answer = serde_json::from_str::<Value>(&text).ok();
            let list = answer.filter(Value::is_array);
            list.ok_or_else(|| format!("the answer of {} is not a JSON array", socket.display()))
        });
        let (mut settings, silent) = match asked {
            Ok(settings) => (settings, None),
            Err(why) => (own, Some(why)),
        };
        // The unredacted text, to locate directories.
        let texts = settings.clone();
        for setting in settings.as_array_mut().into_iter().flatten() {
            select(setting);
        }
        Self {
            settings,
            texts,
            silent,
            socket,
        }
    }

    /// Returns the value of a setting as text.
    pub(super) fn text(&self, name: &str) -> &str {
        text_of(&self.texts, name)
    }

    /// Returns a directory of the settings, mapped to this file system.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        seen(self.text(name))
    }

    /// Returns the settings and log lines as parts.
    pub(super) fn parts(&self) -> Vec<Part> {
        let source = match &self.silent {
            None => "those of the running agent".to_owned(),
            Some(why) => format!(
                "computed from the flags and the environment of this command; no running agent \
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
            Part::new("agent/status.json", self.status()),
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

    fn status(&self) -> Result<String, String> {
        let text = self.told(report::STATUS)?;
        let status = serde_json::from_str::<Value>(&text);
        let mut status =
            status.map_err(|e| format!("the agent's answer is not the expected JSON: {e}"))?;
        known_status("", &mut status);
        Ok(format!("{status:#}\n"))
    }

    fn log(&self) -> Result<String, String> {
        let told = self.told(report::LOG);
        told.map(|text| lines::known(&text)).map_err(|why| {
            format!(
                "{why}; the container runtime keeps the agent's stdout and stderr (kubectl logs)"
            )
        })
    }

    /// Returns the pods of the node that request redirection.
    pub(super) fn pods(&self) -> Result<Vec<Asking>, String> {
        let text = self.told(report::PODS)?;
        serde_json::from_str(&text)
            .map_err(|e| format!("the agent's answer is not the expected JSON: {e}"))
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

/// Keeps the value of a setting only if it is the default or has a closed format. A note may quote the value.
fn select(setting: &mut Value) {
    let field = |name: &str| {
        setting
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (name, value) = (field("name"), field("value"));
    let found = TABLE.iter().find(|s| match name.strip_prefix("--") {
        Some(flag) => s.env.is_empty() && s.flag == flag,
        None => !s.env.is_empty() && s.env == name,
    });
    let is_known = found.is_some_and(|s| value == s.default || is_closed(s, value));
    let note = setting.get("note").and_then(Value::as_str);
    let note = note.map(messages::known);
    if let Some(value) = setting.get_mut("value").filter(|_| !is_known) {
        *value = CUT.into();
    }
    if let (Some(known), Some(note)) = (note, setting.get_mut("note")) {
        *note = known.into();
    }
}

/// True if a value cannot be free text: a boolean, number, address, duration, log levels, a path below a
/// standard directory, or the name of a Kubernetes object.
fn is_closed(setting: &Setting, value: &str) -> bool {
    const NAMES: [&str; 3] = ["POD_NAMESPACE", "NODE_NAME", "REPAIR_NODE_NAME"];
    const LEVELS: [&str; 11] = [
        "all",
        "ambient",
        "cni-agent",
        "cni-plugin",
        "debug",
        "default",
        "error",
        "fatal",
        "info",
        "none",
        "warn",
    ];
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_level = |word: &str| LEVELS.contains(&word);
    let is_target = |t: &str| matches!(t, "stdout" | "stderr") || messages::is_known_path(t);
    value.is_empty()
        || match (setting.env, setting.flag) {
            ("", "log_output_level") => value.split([',', ':']).all(is_level),
            ("", "log_target") => value.split(',').map(str::trim).all(is_target),
            ("FORCE_IPTABLES_BINARY", _) => matches!(value, "legacy" | "nft"),
            ("KUBERNETES_SERVICE_PROTOCOL", _) => matches!(value, "http" | "https"),
            (env, _) if NAMES.contains(&env) => value.len() <= 253 && value.chars().all(of_name),
            _ => match setting.kind {
                SettingKind::Bool => go_bool(value).is_some(),
                SettingKind::Int => value.len() <= 6 && value.bytes().all(|b| b.is_ascii_digit()),
                SettingKind::Text | SettingKind::List => {
                    value.parse::<IpAddr>().is_ok()
                        || (!setting.env.contains("CONFIG") && messages::is_known_path(value))
                }
            },
        }
}

/// Removes outside text from the agent's status.
fn known_status(key: &str, value: &mut Value) {
    /// Keys whose values are weir's words, names of the node and of pods, or times.
    const PLAIN: [&str; 16] = [
        "cause",
        "engine",
        "job",
        "kernel",
        "lastPass",
        "mode",
        "name",
        "namespace",
        "node",
        "result",
        "started",
        "state",
        "time",
        "verdict",
        "verifiedAt",
        "version",
    ];
    match value {
        // Missing kernel features are the same on every node with that kernel.
        Value::Object(_) if key == "jobs" => {}
        Value::Object(fields) => fields.iter_mut().for_each(|(k, v)| known_status(k, v)),
        Value::Array(items) => items.iter_mut().for_each(|item| known_status(key, item)),
        Value::String(text) => {
            let of_word = |c: char| c.is_ascii_alphanumeric() || "-_.:+".contains(c);
            let is_plain = PLAIN.contains(&key) && text.chars().all(of_word);
            if !is_plain && !messages::is_known_path(text) {
                *text = messages::known(text);
            }
        }
        _ => {}
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

/// Looks up a setting by variable, or by flag if it has none.
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
