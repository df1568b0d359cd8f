//! Queries the container runtime over CRI for its directories of CNI plugins and configurations, and for the network
//! namespaces of pods.
//!
//! ```text
//! call     one gRPC call over its socket: runtime.v1.RuntimeService/Status, verbose       -> bytes
//! message  StatusResponse.info                                                             -> texts by name
//! sandbox  a pod's sandbox among those of ListPodSandbox, and its PodSandboxStatus         -> path of its namespace
//! config   containerd's own configuration among them                                      -> Directories
//! place    a directory of the node as this process sees it, through a container's mounts  -> path, or a remedy
//! ```
//! CRI has no field for the directories. containerd (1.6 to 2.x) includes its configuration in a verbose status; with a
//! runtime that does not, the defaults stay.

pub mod call;
mod config;
mod message;
mod place;
pub mod sandbox;

use crate::settings::{Origin, Resolved};
use crate::thread::runtime;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_cni::protocol::is_kubernetes_name;

/// Setting that names the socket.
pub const SOCKET: &str = "WEIR_CRI_SOCKET";
/// Settings whose defaults the answer replaces.
const BIN_DIR: &str = "WEIR_MOUNTED_CNI_BIN_DIR";
const NET_DIR: &str = "MOUNTED_CNI_NET_DIR";
/// Setting whose empty text the mounted service account replaces.
const NAMESPACE: &str = "POD_NAMESPACE";

/// `runtime.v1.RuntimeService/Status` of k8s.io/cri-api.
const METHOD: &str = "/runtime.v1.RuntimeService/Status";
/// `StatusRequest{verbose: true}`: field 1, a varint.
const VERBOSE: [u8; 2] = [0x08, 0x01];
/// Time limit for the whole exchange, which delays the start of the agent.
const PATIENCE: Duration = Duration::from_secs(2);

/// The directories, as paths of the node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Directories {
    /// Directories of plugins, in search order.
    bin: Vec<String>,
    /// Directory of configurations.
    net: String,
}

/// Resolves the settings from these flags, the process's environment, the mounted service account, and the container runtime.
pub fn resolve(flags: &BTreeMap<&'static str, String>) -> Resolved {
    let mut resolved = crate::settings::resolve(flags, &|name: &str| std::env::var_os(name));
    if let Ok(machine) = nix::sys::utsname::uname() {
        resolved.fall_back("KUBERNETES_NODE_NAME", machine.nodename());
    }
    if let Some(namespace) = own_namespace(&resolved) {
        resolved.found(NAMESPACE, namespace, Origin::Account);
    }
    fill(&mut resolved);
    resolved
}

/// Reads the namespace of this pod where the kubelet mounts it, beside the token, if no setting has it.
fn own_namespace(resolved: &Resolved) -> Option<String> {
    if !resolved.text(NAMESPACE).is_empty() {
        return None;
    }
    let account = resolved.path("WEIR_SERVICE_ACCOUNT_DIR").ok()?;
    let text = weir_cni::files::read_text(&account.join("namespace")).ok()?;
    is_kubernetes_name(text.trim()).then(|| text.trim().to_owned())
}

/// Replaces defaults by the directories that the runtime reports. Values set by an operator stay, and if both are set the
/// runtime is not queried. An error becomes a note on the setting, and the default stays.
fn fill(resolved: &mut Resolved) {
    let socket = resolved.text(SOCKET).to_owned();
    let wanted = [BIN_DIR, NET_DIR].map(|name| resolved.is_default(name));
    if socket.is_empty() || wanted == [false, false] {
        return;
    }
    let answer = match ask(&socket) {
        Ok(answer) => answer,
        Err(why) => {
            let note = format!(
                "the container runtime is of no help: {why}; {NET_DIR} and {BIN_DIR} are as if it were not set"
            );
            return resolved.note(SOCKET, note);
        }
    };
    let root = resolved.text("WEIR_HOST_ROOT").to_owned();
    let net = [answer.net];
    let found = [
        (BIN_DIR, &answer.bin[..], "cniBinDir"),
        (NET_DIR, &net[..], "cniConfDir"),
    ];
    for ((name, dirs, value), wanted) in found.into_iter().zip(wanted) {
        if !wanted {
            continue;
        }
        match place::find(Path::new(&root), Path::new(resolved.text(name)), dirs) {
            Ok(path) => {
                let path = path.to_string_lossy().into_owned();
                resolved.found(name, path, Origin::Runtime);
            }
            Err(why) => resolved.note(name, place::remedy(&why, dirs, name, value)),
        }
    }
}

fn ask(socket: &str) -> Result<Directories, String> {
    let path = path_of(socket)?;
    let told = |why: String| format!("{}: {why}", path.display());
    let runtime = runtime::of_one_thread("pod").map_err(|e| told(e.to_string()))?;
    let call = call::unary(&path, METHOD, &VERBOSE);
    // The timer needs the Tokio runtime, so it is created inside.
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, call).await });
    let answer = answer.map_err(|_| told(format!("no answer within {PATIENCE:?}")))?;
    let info = answer.and_then(|bytes| message::info(&bytes).map_err(str::to_owned));
    config::directories(&info.map_err(told)?).map_err(told)
}

/// Parses a socket in the kubelet's form (`unix://...`) or a bare path.
fn path_of(socket: &str) -> Result<PathBuf, String> {
    let path = Path::new(socket.strip_prefix("unix://").unwrap_or(socket));
    match path.is_absolute() {
        true => Ok(path.to_owned()),
        false => Err(format!(
            "{socket:?} is not the path of a socket; give one like /run/containerd/containerd.sock"
        )),
    }
}
