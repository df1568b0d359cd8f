//! The environment variables of the execution protocol, and the verbs that need them.

use super::call::Command;
use super::error::{CniError, code};

/// Whether a command requires a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
    Unused,
}
use Need::{Optional as O, Required as R, Unused as U};

type Validate = fn(&str) -> Result<(), CniError>;

/// One row: name, need in the order ADD CHECK DEL GC STATUS, and the check of a required value.
struct Variable(&'static str, [Need; 5], Option<Validate>);

/// Reference: CNI specification 1.1.0, section 2, "Parameters".
const TABLE: [Variable; 6] = [
    Variable(
        "CNI_CONTAINERID",
        [R, R, R, U, U],
        Some(validate_container_id),
    ),
    Variable("CNI_NETNS", [R, R, O, U, U], None),
    Variable("CNI_IFNAME", [R, R, R, U, U], Some(validate_interface_name)),
    Variable("CNI_ARGS", [O, O, O, U, U], None),
    Variable("CNI_PATH", [R, R, R, R, R], None),
    Variable("CNI_NETNS_OVERRIDE", [O, O, O, U, U], None),
];

/// The variables of one call; an absent or unused one is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`: path of the container's network namespace.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, not parsed.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// `CNI_NETNS_OVERRIDE` is `1` or `true` in any case.
    pub netns_override: bool,
}

impl Environment {
    /// Reads the variables that `command` may use. An empty variable counts as absent.
    ///
    /// # Errors
    /// Code 4: required variables are missing (the error names all of them), or one has a value that is not allowed.
    pub fn read(
        command: Command,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, CniError> {
        let mut env = Self::default();
        let mut missing = Vec::new();
        for Variable(name, needs, validate) in &TABLE {
            let need = need(command, needs);
            if need == Need::Unused {
                continue;
            }
            let value = lookup(name).unwrap_or_default();
            if need == Need::Required {
                if value.is_empty() {
                    missing.push(*name);
                } else if let Some(validate) = validate {
                    validate(&value)?;
                }
            }
            match *name {
                "CNI_CONTAINERID" => env.container_id = value,
                "CNI_NETNS" => env.netns = value,
                "CNI_IFNAME" => env.ifname = value,
                "CNI_ARGS" => env.args = value,
                "CNI_PATH" => env.path = value,
                _ => env.netns_override = value == "1" || value.eq_ignore_ascii_case("true"),
            }
        }
        if missing.is_empty() {
            return Ok(env);
        }
        let names = missing.join(",");
        Err(CniError::new(
            code::INVALID_ENVIRONMENT,
            format!("required env variables [{names}] missing"),
        ))
    }
}

fn need(command: Command, needs: &[Need; 5]) -> Need {
    let [add, check, del, gc, status] = *needs;
    match command {
        Command::Add => add,
        Command::Check => check,
        Command::Del => del,
        Command::Gc => gc,
        Command::Status => status,
        Command::Version => Need::Unused,
    }
}

/// Checks a text against `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
fn check_id(what: &str, text: &str, code: u32) -> Result<(), CniError> {
    let is_first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if is_first && text.bytes().all(rest) {
        return Ok(());
    }
    let msg = format!("{what} {text:?} has characters other than letters, digits, _ . -");
    Err(CniError::new(code, msg))
}

/// Checks that a container id has the form that the specification requires.
///
/// # Errors
/// Code 3 if it is empty, code 4 if a character is not allowed.
pub fn validate_container_id(text: &str) -> Result<(), CniError> {
    if text.is_empty() {
        let msg = "CNI_CONTAINERID is empty";
        return Err(CniError::new(code::UNKNOWN_CONTAINER, msg));
    }
    check_id("CNI_CONTAINERID", text, code::INVALID_ENVIRONMENT)
}

/// Checks that a network name has the form that the specification requires.
///
/// # Errors
/// Code 7 if it is empty or a character is not allowed.
pub fn validate_network_name(text: &str) -> Result<(), CniError> {
    if text.is_empty() {
        let msg = "missing network name: the network configuration needs a key \"name\"";
        return Err(CniError::new(code::INVALID_NETWORK_CONFIG, msg));
    }
    check_id("network name", text, code::INVALID_NETWORK_CONFIG)
}

/// Checks that the kernel would accept this as an interface name.
///
/// # Errors
/// Code 4: the name is not 1 to 15 bytes long, is `.` or `..`, or contains `/`, `:` or white space.
///
/// # References
/// `dev_valid_name()` in net/core/dev.c.
pub fn validate_interface_name(text: &str) -> Result<(), CniError> {
    let reason = if text.is_empty() {
        "is empty"
    } else if text.len() > 15 {
        "is longer than 15 bytes"
    } else if text == "." || text == ".." {
        "is a directory name"
    } else if text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        "has '/', ':' or white space in it"
    } else {
        return Ok(());
    };
    Err(CniError::new(
        code::INVALID_ENVIRONMENT,
        format!("CNI_IFNAME {text:?} {reason}; the kernel takes no such interface name"),
    ))
}
