//! The agent of this node, if one runs: its settings and its last lines.

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

/// For one question.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a log file that are taken.
const TAIL: u64 = 256 << 10;

/// Settings with their origins, and who has them.
pub(super) struct Running {
    /// As `--explain-settings --json` prints them.
    settings: Value,
    /// The same with every value as it is, which stays here.
    texts: Value,
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
        // The text as it is, for what has to be found.
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

    /// The text of a setting.
    pub(super) fn text(&self, name: &str) -> &str {
        text_of(&self.texts, name)
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
        let mut status = status.map_err(|e| format!("the agent answers something else: {e}"))?;
        known_status("", &mut status);
        Ok(format!("{status:#}\n"))
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

/// Leaves the value of a setting where it is the default or of a closed form. A note may quote it.
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

/// Whether a value cannot be free text: a switch, a number, an address, a duration, levels of the log, a path in a
/// directory of the system, or a name that every object of Kubernetes here has.
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

/// Of what the agent says about itself all but the words of others in it.
fn known_status(key: &str, value: &mut Value) {
    /// Values that are words of ours, names of the node and of pods, times.
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
        // What a kernel lacks is the same on every node that runs it.
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
