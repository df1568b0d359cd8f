//! Queries the container runtime for the network namespace of a pod's sandbox.
//!
//! CRI has no field for it. containerd and CRI-O include it in a verbose `PodSandboxStatus`: `info["info"]` is JSON with the
//! configuration of the sandbox's container (`runtimeSpec`, of the OCI runtime specification), which has the path of its
//! network namespace on the node.

use super::{call, message, path_of};
use crate::thread::{not_started, runtime};
use hyper::body::Bytes;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_cni::json;

/// Methods of `runtime.v1.RuntimeService` of k8s.io/cri-api.
const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
/// Time limit for all calls about one pod.
const PATIENCE: Duration = Duration::from_secs(1);
/// A runtime that took longer than this is not queried for [`PAUSE`]: each pod would wait for it. Usually an answer takes
/// one or two milliseconds.
const SLOW: Duration = Duration::from_millis(250);
const PAUSE: Duration = Duration::from_secs(10);

/// A container runtime, queried for the network namespaces of pods.
#[derive(Debug)]
pub struct Runtime {
    socket: PathBuf,
    /// The time of the last slow answer, and the reason why the runtime is not queried now.
    slow: Mutex<Option<(Instant, String)>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Info {
    #[serde(deserialize_with = "json::object")]
    runtime_spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "json::object")]
    linux: Linux,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Linux {
    namespaces: Option<Vec<Namespace>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Namespace {
    r#type: String,
    path: String,
}

impl Runtime {
    /// The runtime that listens on this socket, given in the kubelet's form (`unix://...`) or as a bare path.
    ///
    /// # Errors
    /// It is not an absolute path.
    pub fn at(socket: &str) -> Result<Self, String> {
        Ok(Self {
            socket: path_of(socket)?,
            slow: Mutex::default(),
        })
    }

    /// Returns the path of a pod's network namespace on the node, by the UID that the kubelet uses. `Ok(None)` if the runtime
    /// knows no ready sandbox of that pod.
    ///
    /// # Errors
    /// The runtime cannot be queried, does not answer within a second, or was slow a short time ago; it does not report the
    /// namespace as containerd and CRI-O do; it has several ready sandboxes of the pod.
    pub(in crate::sandboxes) fn netns(&self, uid: &str) -> Result<Option<PathBuf>, String> {
        let told = |why: String| format!("container runtime {}: {why}", self.socket.display());
        // One query at a time: after the first one times out, the others do not wait.
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, why)) = slow.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
            return Err(told(why.clone()));
        }
        let begun = Instant::now();
        let info = on_a_thread(self.ask(uid));
        let took = begun.elapsed();
        *slow = (took > SLOW).then(|| (Instant::now(), format!("it took {took:.1?} to answer")));
        drop(slow);
        let info = info.map_err(told)?;
        info.map(|info| path(&info).map_err(told)).transpose()
    }

    /// Returns the verbose status of the pod's only ready sandbox.
    async fn ask(&self, uid: &str) -> Result<Option<Bytes>, String> {
        let questions = async {
            let list = call::unary(&self.socket, LIST, &message::list_request(uid)).await?;
            match &message::ready(&list, uid)?[..] {
                [] => Ok(None),
                [id] => {
                    let request = message::status_request(id);
                    call::unary(&self.socket, STATUS, &request).await.map(Some)
                }
                several => Err(format!(
                    "it has {} ready sandboxes of the pod",
                    several.len()
                )),
            }
        };
        let answer = tokio::time::timeout(PATIENCE, questions).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
    }
}

/// Runs a query on its own thread: the caller may be on a Tokio runtime, which must not block on another one.
fn on_a_thread<T: Send>(
    question: impl Future<Output = Result<T, String>> + Send,
) -> Result<T, String> {
    let failed = |e| not_started("pod", &e).to_string();
    let wait = || {
        let runtime = runtime::of_one_thread("pod").map_err(failed)?;
        runtime.block_on(question)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("pod".into());
        let thread = thread.spawn_scoped(scope, wait).map_err(failed)?;
        thread
            .join()
            .unwrap_or_else(|_| Err("the thread that asked it ended".to_owned()))
    })
}

/// Returns the path of the network namespace in a verbose `PodSandboxStatusResponse`.
fn path(answer: &[u8]) -> Result<PathBuf, String> {
    let info = message::info(answer)?;
    let text = info
        .get("info")
        .ok_or("it does not tell the network namespace of a sandbox as containerd and CRI-O do")?;
    let info: Info = json::from_str(text)
        .map_err(|e| format!("what it tells of a sandbox cannot be read: {e}"))?;
    let namespaces = info.runtime_spec.linux.namespaces.unwrap_or_default();
    let network = namespaces.into_iter().find(|n| n.r#type == "network");
    let path = network.map(|n| n.path).unwrap_or_default();
    // The path is joined to the root of the node.
    let is_plain = path.starts_with('/') && path.split('/').all(|part| part != "..");
    match is_plain && Path::new(&path).file_name().is_some() {
        true => Ok(path.into()),
        false => Err(format!(
            "the sandbox has no network namespace with a path: {path:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A verbose answer; `info` is below 128 bytes.
    fn answer(info: &str) -> Vec<u8> {
        let n = u8::try_from(info.len()).unwrap();
        let head = [&[0x12, n + 8, 0x0a, 4][..], b"info", &[0x12, n]].concat();
        [&head, info.as_bytes()].concat()
    }

    #[test]
    fn the_path_of_the_network_namespace() {
        let spec = |namespaces: &str| {
            path(&answer(&format!(
                r#"{{"pid":7,"runtimeSpec":{{"linux":{{"namespaces":{namespaces}}}}}}}"#
            )))
        };
        let good = r#"[{"type":"pid"},{"type":"network","path":"/run/netns/a"}]"#;
        assert_eq!(spec(good), Ok("/run/netns/a".into()));
        for bad in [
            "null",
            "[]",
            r#"[{"type":"network"}]"#,
            r#"[{"type":"network","path":"../a"}]"#,
            r#"[{"type":"network","path":"/a/../b"}]"#,
            r#"[{"type":"network","path":"/"}]"#,
        ] {
            let why = spec(bad).unwrap_err();
            assert!(why.contains("no network namespace"), "{bad}: {why}");
        }
        let why = path(&answer("[]")).unwrap_err();
        assert!(why.contains("cannot be read"), "{why}");
        let why = path(&[]).unwrap_err();
        assert!(why.contains("does not tell"), "{why}");
    }
}
