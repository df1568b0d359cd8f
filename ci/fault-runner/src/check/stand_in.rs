//! Fakes of the node agent's sockets and of the API server.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use weir_cni::plugin::{EVENT_SOCKET, KUBECONFIG, LOG_SOCKET, POD_SOCKET};

use weir_testing::api_server::{Answer, ApiServer, Asked};
use weir_testing::pods;

/// The timeout of a connection; the kernel closes those of killed clients.
const PATIENCE: Duration = Duration::from_secs(5);

const SOCKETS: [&str; 3] = [POD_SOCKET, LOG_SOCKET, EVENT_SOCKET];

/// The servers for the plugin. The sockets are served until the process ends.
pub(crate) struct Servers {
    /// The directory of the kubeconfig and the sockets.
    dir: PathBuf,
    _api: ApiServer,
    /// The namespaces of the pods that were handed over.
    enrolled: Arc<Mutex<HashSet<String>>>,
}

impl Servers {
    /// Starts the servers.
    ///
    /// # Errors
    /// The sockets cannot be created.
    pub(crate) fn start(dir: &Path) -> Result<Self, String> {
        let answer = |asked: &Asked| {
            let name = asked.path.rsplit('/').next().unwrap_or_default();
            match asked.path.contains("/pods/") {
                true => Answer::Body(200, pod(name).to_string()),
                false => Answer::Body(200, namespace().to_string()),
            }
        };
        let api = ApiServer::scripted(answer);
        api.write_kubeconfig(dir);
        let enrolled = Arc::new(Mutex::new(HashSet::new()));
        for socket in SOCKETS {
            let enrolled = Arc::clone(&enrolled);
            let listener = UnixListener::bind(dir.join(socket)).map_err(|e| e.to_string())?;
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Errors of a connection are ignored: the client may have a fault.
                    let enrolled = Arc::clone(&enrolled);
                    std::thread::spawn(move || serve(stream, &enrolled));
                }
            });
        }
        Ok(Self {
            dir: dir.to_owned(),
            _api: api,
            enrolled,
        })
    }

    pub(crate) fn is_enrolled(&self, netns: &Path) -> bool {
        of(&self.enrolled).contains(&*netns.to_string_lossy())
    }

    /// Forgets a namespace: a new one may have the path of one that was deleted.
    pub(crate) fn forget(&self, netns: &Path) {
        of(&self.enrolled).remove(&*netns.to_string_lossy());
    }

    /// Fills a run directory; without the agent's sockets the plugin asks the API server.
    ///
    /// # Errors
    /// The links cannot be created.
    pub(crate) fn run_dir(&self, run: &Path, with_agent: bool) -> Result<(), String> {
        let sockets = SOCKETS.into_iter().filter(|_| with_agent);
        for name in sockets.chain([KUBECONFIG]) {
            std::os::unix::fs::symlink(self.dir.join(name), run.join(name))
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// The labels of pods in ambient mode.
pub(crate) fn ambient() -> Value {
    json!({ "istio.io/dataplane-mode": "ambient" })
}

/// The pod of this name: names with `tproxy` select TPROXY, names with `ambient` ambient mode.
pub(crate) fn pod(name: &str) -> Value {
    if name.contains("ambient") {
        let mut pod = pods::plain("shop", name, ambient());
        pod["metadata"]["uid"] = "5c7f9b1e-0000-4000-8000-000000000002".into();
        return pod;
    }
    let mut pod = pods::sidecar("shop", name);
    if name.contains("tproxy") {
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["sidecar.istio.io/interceptionMode"] = "TPROXY".into();
    }
    pod
}

fn namespace() -> Value {
    json!({ "metadata": { "name": "shop" } })
}

fn of(enrolled: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    enrolled.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one request.
fn serve(mut stream: UnixStream, enrolled: &Mutex<HashSet<String>>) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let body = loop {
        let read = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("Content-Length: "));
        let length: usize = length.and_then(|l| l.parse().ok())?;
        if body.len() >= length {
            break body.to_owned();
        }
    };
    let question: Value = serde_json::from_str(&body).ok()?;
    if let Some(netns) = question["Netns"].as_str() {
        of(enrolled).insert(netns.to_owned());
    }
    let answer = match question["name"].as_str() {
        Some(name) => json!({ "pod": pod(name), "namespace": namespace() }).to_string(),
        None => String::new(),
    };
    let length = answer.len();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
    stream.write_all(text.as_bytes()).ok()
}
