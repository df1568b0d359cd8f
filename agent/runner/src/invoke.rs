//! Calls one plugin with one command: its input, and parsing its answer.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::attachment::Attachment;
use super::error::{Error, Result};
use super::exec::{Output, run};
use super::list::{NetworkList, PluginConfig};
use weir_cni::json;
use weir_cni::protocol::{CniError, Command, IMPLEMENTED};

/// The directories of plugins, and the deadline of a chain.
#[derive(Debug, Clone)]
pub(crate) struct Invoker {
    pub(crate) bin_dirs: Vec<PathBuf>,
    pub(crate) limit: Duration,
}

impl Invoker {
    /// Calls one plugin and returns its stdout as JSON; `Null` when that is empty.
    pub(crate) fn call(
        &self,
        command: Command,
        kind: &str,
        config: &Value,
        attachment: Option<&Attachment>,
        deadline: Instant,
    ) -> Result<Value> {
        let program = self.find(kind)?;
        let env = self.environment(command, attachment)?;
        let output = run(&program, &env, config.to_string().as_bytes(), deadline)
            .map_err(|error| Error::Exec { program, error })?;
        let Some(output) = output else {
            let (plugin, command) = (kind.to_owned(), command.as_str());
            return Err(Error::Timeout {
                plugin,
                command,
                limit: self.limit,
            });
        };
        answer(command, kind, output)
    }

    /// Finds the program of a plugin.
    pub(crate) fn find(&self, kind: &str) -> Result<PathBuf> {
        self.bin_dirs
            .iter()
            .map(|dir| dir.join(kind))
            .find(|path| path.is_file())
            .ok_or_else(|| Error::PluginNotFound {
                plugin: kind.to_owned(),
                dirs: self.bin_dirs.clone(),
            })
    }

    fn environment(
        &self,
        command: Command,
        attachment: Option<&Attachment>,
    ) -> Result<Vec<(&'static str, String)>> {
        let path: OsString = std::env::join_paths(&self.bin_dirs)
            .map_err(|error| Error::NotPossible(format!("a plugin directory: {error}")))?;
        let mut env = vec![
            ("CNI_COMMAND", command.as_str().to_owned()),
            ("CNI_PATH", path.to_string_lossy().into_owned()),
        ];
        if let Some(attachment) = attachment {
            env.push(("CNI_CONTAINERID", attachment.container_id.clone()));
            env.push(("CNI_NETNS", attachment.netns.clone()));
            env.push(("CNI_IFNAME", attachment.ifname.clone()));
            env.push(("CNI_ARGS", attachment.args_text()));
        }
        Ok(env)
    }

    /// The versions that a plugin supports.
    pub(crate) fn versions(&self, kind: &str, deadline: Instant) -> Result<Vec<String>> {
        let config = serde_json::json!({ "cniVersion": IMPLEMENTED });
        let value = self.call(Command::Version, kind, &config, None, deadline)?;
        let list = value.get("supportedVersions").and_then(Value::as_array);
        let versions = list.into_iter().flatten().filter_map(Value::as_str);
        Ok(versions.map(str::to_owned).collect())
    }
}

/// The configuration that a plugin of the chain gets on stdin.
///
/// Reference: CNI specification 1.1.0, section 3, "Deriving execution
/// configuration from plugin configuration".
pub(crate) fn derive(
    list: &NetworkList,
    plugin: &PluginConfig,
    previous: Option<&Value>,
    capability_args: &Map<String, Value>,
) -> Value {
    let mut config = plugin.config.clone();
    config.insert("name".into(), list.name.clone().into());
    config.insert("cniVersion".into(), list.cni_version.clone().into());
    if let Some(previous) = previous {
        config.insert("prevResult".into(), previous.clone());
    }
    let mut runtime_config = Map::new();
    if let Some(Value::Object(capabilities)) = config.remove("capabilities") {
        for (name, wanted) in &capabilities {
            if let (Value::Bool(true), Some(value)) = (wanted, capability_args.get(name)) {
                runtime_config.insert(name.clone(), value.clone());
            }
        }
    }
    if !runtime_config.is_empty() {
        config.insert("runtimeConfig".into(), runtime_config.into());
    }
    config.into()
}

fn answer(command: Command, kind: &str, output: Output) -> Result<Value> {
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let (plugin, command_text) = (kind.to_owned(), command.as_str());
    let text = String::from_utf8_lossy(&stdout);
    let no_answer = |reason: String, stderr: String| Error::Answer {
        plugin: kind.to_owned(),
        command: command_text,
        reason,
        stderr,
    };
    if status != 0 {
        return Err(match json::from_str::<CniError>(&text) {
            Ok(error) => Error::Plugin {
                plugin,
                command: command_text,
                error,
                stderr,
            },
            Err(_) => no_answer(
                format!("exit status {status}, with {text:?} on stdout instead of an error object"),
                stderr,
            ),
        });
    }
    if text.trim().is_empty() {
        return match command {
            Command::Add | Command::Version => Err(no_answer(
                "stdout is empty; it must contain the result".into(),
                stderr,
            )),
            _ => Ok(Value::Null),
        };
    }
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(no_answer(
            "stdout contains JSON that is not an object".into(),
            stderr,
        )),
        // Some plugins print a message to stdout although the command has no result.
        Err(_) if !matches!(command, Command::Add | Command::Version) => Ok(Value::Null),
        Err(error) => Err(no_answer(format!("stdout is not JSON: {error}"), stderr)),
    }
}
