//! Maps a process's environment and stdin to one handler call, and its result to stdout.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;

use serde_json::{Map, Value, json};

use super::call::{Call, Command};
use super::environment::{Environment, validate_network_name};
use super::error::{CniError, code};
use super::version::{IMPLEMENTED, SUPPORTED, Version, is_supported};
use crate::config::said;
use crate::json;

/// Maximum size of a network configuration, which normally has a few kilobytes.
const STDIN_LIMIT: u64 = 16 << 20;

/// Added to the message if the result of a successful ADD is lost.
const STAYS: &str = "; a redirection that ADD made stays until the namespace is deleted";

/// The plugin's name and version, for the about text.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Name of the binary.
    pub name: &'static str,
    /// Version of the product, not of the specification.
    pub version: &'static str,
}

/// The environment and streams of the process, as arguments.
pub struct Edge<'a> {
    /// `getenv(3)`.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// The network configuration.
    pub stdin: &'a mut dyn Read,
    /// Receives one JSON object, or nothing.
    pub stdout: &'a mut dyn Write,
    /// Receives the about text, and messages that cannot be returned to the caller.
    pub stderr: &'a mut dyn Write,
}

/// The verbs of a plugin. Every call has passed the protocol checks.
pub trait Handler {
    /// ADD. Returns the result to print.
    ///
    /// # Errors
    /// Printed as the error object; no partial change may remain.
    fn add(&mut self, call: &Call) -> Result<Value, CniError>;
    /// ADD succeeded and its result could not be written: the runtime takes it for failed. What ADD did stays, for a pod must
    /// not run without it: the runtime deletes the namespace, after DEL, or repeats ADD.
    fn result_lost(&mut self, _error: &io::Error) {}
    /// CHECK.
    ///
    /// # Errors
    /// The objects that are missing or differ.
    fn check(&mut self, call: &Call) -> Result<(), CniError>;
    /// DEL.
    ///
    /// # Errors
    /// The deletion failed; an absent object is not an error.
    fn del(&mut self, call: &Call) -> Result<(), CniError>;
    /// GC.
    ///
    /// # Errors
    /// Input without attachments, or objects that could not be removed.
    fn gc(&mut self, call: &Call) -> Result<(), CniError>;
    /// STATUS.
    ///
    /// # Errors
    /// Code 50 or 51 with the reason.
    fn status(&mut self, call: &Call) -> Result<(), CniError>;
}

/// Runs one CNI call and returns the exit status: 0, or 1 with an error object on stdout.
///
/// Without `CNI_COMMAND` a person has called the plugin: prints the about text to stderr and returns 0.
pub fn run(edge: Edge<'_>, about: About, handler: &mut dyn Handler) -> u8 {
    let Edge {
        lookup,
        stdin,
        stdout,
        stderr,
    } = edge;
    let command = lookup("CNI_COMMAND").unwrap_or_default();
    if command.is_empty() {
        // If stderr is closed, there is no other output.
        let _ = writeln!(
            stderr,
            "CNI plugin {} {}\nCNI protocol versions supported: {}",
            about.name,
            about.version,
            SUPPORTED.join(", ")
        );
        return 0;
    }
    let answer = answer(&command, lookup, stdin, handler);
    let is_added = command == Command::Add.as_str() && answer.is_ok();
    let written = match answer {
        Ok(text) => stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush())
            .map(|()| 0),
        Err(error) => error.write(stdout).map(|()| 1),
    };
    super::panic::answered();
    written.unwrap_or_else(|error| {
        // A caller that closed stdout still gets the exit status, and this line for its log.
        let _ = writeln!(
            stderr,
            "{}: cannot write the answer to stdout: {error}{}",
            about.name,
            if is_added { STAYS } else { "" }
        );
        if is_added {
            handler.result_lost(&error);
        }
        1
    })
}

/// Runs the call and returns the text for stdout.
fn answer(
    command: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    stdin: &mut dyn Read,
    handler: &mut dyn Handler,
) -> Result<String, CniError> {
    let command = Command::parse(command).ok_or_else(|| {
        CniError::new(
            code::INVALID_ENVIRONMENT,
            format!("unknown CNI_COMMAND: {command}"),
        )
    })?;
    if command == Command::Version {
        let versions = json!({"cniVersion": IMPLEMENTED, "supportedVersions": SUPPORTED});
        return Ok(format!("{versions}\n"));
    }
    let env = Environment::read(command, lookup)?;
    let config = read_config(command, stdin)?;
    let version = config_version(command, &config)?;
    refuse_own_netns(command, &env)?;
    let call = Call {
        command,
        env,
        config,
        version,
    };
    match command {
        Command::Add => return handler.add(&call).map(|result| super::print(&result)),
        Command::Check => handler.check(&call)?,
        Command::Del => handler.del(&call)?,
        Command::Gc => handler.gc(&call)?,
        Command::Status => handler.status(&call)?,
        Command::Version => {}
    }
    Ok(String::new())
}

fn read_config(command: Command, stdin: &mut dyn Read) -> Result<Map<String, Value>, CniError> {
    let mut bytes = Vec::new();
    stdin
        .take(STDIN_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            CniError::new(
                code::IO_FAILURE,
                format!("cannot read the configuration on stdin: {error}"),
            )
        })?;
    if bytes.len() as u64 > STDIN_LIMIT {
        return Err(CniError::new(
            code::DECODING_FAILURE,
            format!(
                "the network configuration on stdin has more than {} MiB; look at what the runtime puts into it, a \
                 prevResult or a runtimeConfig",
                STDIN_LIMIT >> 20
            ),
        ));
    }
    let undecodable = |reason: String| {
        CniError::new(
            code::DECODING_FAILURE,
            format!("the network configuration on stdin is not readable: {reason}"),
        )
    };
    let mut config: Map<String, Value> =
        serde_json::from_slice(&bytes).map_err(|error| undecodable(said(&error)))?;
    json::any_case::rename(&mut config, &KEYS);
    let name = text(&config, "name").map_err(undecodable)?;
    text(&config, "type").map_err(undecodable)?;
    // DEL needs none of them, and the pods of a node must be deletable with every configuration that a runtime loads.
    let wrong = json::no_object(&config, &OBJECTS).filter(|_| command != Command::Del);
    if let Some(key) = wrong {
        return Err(undecodable(format!("{key:?} must be an object")));
    }
    validate_network_name(name)?;
    Ok(config)
}

/// The text of a member; empty if it is absent or `null`.
fn text<'a>(config: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{key:?} must be a string")),
    }
}

/// Keys that this module and the verbs read. The reference library accepts them in any case.
const KEYS: [&str; 8] = [
    "cniVersion",
    "name",
    "type",
    "capabilities",
    "ipam",
    "dns",
    "prevResult",
    "cni.dev/valid-attachments",
];

/// Keys whose values are objects by the specification.
const OBJECTS: [&str; 5] = ["ipam", "dns", "capabilities", "runtimeConfig", "args"];

fn config_version(command: Command, config: &Map<String, Value>) -> Result<String, CniError> {
    let text = text(config, "cniVersion").map_err(|reason| {
        let msg = format!("the network configuration's {reason}");
        CniError::new(code::DECODING_FAILURE, msg)
    })?;
    let text = if text.is_empty() { "0.1.0" } else { text };
    let Some(version) = Version::parse(text).filter(|_| is_supported(text)) else {
        return Err(
            CniError::new(code::INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(
                format!(
                    "config is {text:?}, plugin supports [{}]",
                    SUPPORTED.join(", ")
                ),
            ),
        );
    };
    let least = match command {
        Command::Check => Version::V0_4_0,
        Command::Gc | Command::Status => Version::V1_1_0,
        _ => return Ok(text.to_owned()),
    };
    if version < least {
        return Err(CniError::new(
            code::INCOMPATIBLE_VERSION,
            format!("config version {text} does not allow {}", command.as_str()),
        )
        .with_details(format!(
            "{} needs cniVersion {least} or newer",
            command.as_str()
        )));
    }
    Ok(text.to_owned())
}

/// Refuses ADD and DEL for the network namespace in which the plugin runs, which is the node's. The check precedes any
/// change, so that no rule is ever written there, and stdout receives only one object. A path that cannot be opened is
/// left to the handler.
fn refuse_own_netns(command: Command, env: &Environment) -> Result<(), CniError> {
    if env.netns_override || env.netns.is_empty() || !matches!(command, Command::Add | Command::Del)
    {
        return Ok(());
    }
    let identity = |path: &str| std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let own = identity("/proc/thread-self/ns/net");
    if own.is_none() || own != identity(&env.netns) {
        return Ok(());
    }
    Err(CniError::new(
        code::INVALID_NETNS,
        format!(
            "CNI_NETNS {:?} is the network namespace the plugin itself runs in; the runtime must \
             pass the container's (with CNI_NETNS_OVERRIDE=1 only a pod that asks for no redirection can be there)",
            env.netns
        ),
    ))
}
