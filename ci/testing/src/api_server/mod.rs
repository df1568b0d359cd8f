//! A fake API server on loopback, over TLS or plain HTTP: it lists and watches objects as the real one does, and
//! misbehaves on request.
//!
//! - [`ApiServer::start`]: serves the objects given to [`put`](ApiServer::put); [`ApiServer::fault`] replaces its answers
//! - [`ApiServer::scripted`], [`always`](ApiServer::always), [`with_pod`](ApiServer::with_pod): only what a test defines, over TLS

mod fault;
mod state;
mod watch;
mod wire;

pub use fault::Answer;
pub use watch::Streaming;
pub use wire::Asked;

use crate::{certificates, sockets};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ServerConfig;
use serde_json::{Value, json};
use socket2::Socket;
use state::{Shared, place};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A running server; dropping it closes its connections.
pub struct ApiServer {
    pub port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// No other server gets the port when this one is stopped.
    _kept: Socket,
}

impl ApiServer {
    /// Starts a server without objects, over plain HTTP, that accepts the token `token-1`.
    pub fn start() -> Self {
        let (listener, kept) = sockets::listening();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&of_thread);
                if shared.state().stopped {
                    // A child of another test has a copy of the socket until it calls execve(2); shutdown(2) affects the copy, too.
                    let _ = socket2::SockRef::from(&listener).shutdown(Shutdown::Both);
                    return;
                }
                let stream = stream.unwrap();
                // The thread ends when the client disconnects or the server stops; a failed write means the former.
                std::thread::spawn(move || _ = shared.accept(stream));
            }
        });
        Self {
            port,
            shared,
            thread: Some(thread),
            _kept: kept,
        }
    }

    /// Starts a server over TLS that answers every request with the result of `script`.
    pub fn scripted(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let server = Self::start();
        server.encrypt();
        server.fault(move |asked| Some(script(asked)));
        server
    }

    /// Starts a server that gives the same answer to every request.
    pub fn always(answer: Answer) -> Self {
        Self::scripted(move |_| answer.clone())
    }

    /// Starts a server that returns this pod, whatever name is requested, and a namespace.
    pub fn with_pod(pod: Value, namespace: Value) -> Self {
        Self::scripted(move |asked| {
            let object = match asked.path.contains("/pods/") {
                true => &pod,
                false => &namespace,
            };
            Answer::Body(200, object.to_string())
        })
    }

    pub fn with(self, streaming: Streaming) -> Self {
        self.shared.state().streaming = streaming;
        self
    }

    /// Switches to TLS with a new CA; returns the CA's certificate.
    pub fn encrypt(&self) -> String {
        self.encrypt_with(certificates::of_loopback())
    }

    /// Switches to TLS with this CA.
    pub fn encrypt_with(&self, (ca_pem, config): (String, ServerConfig)) -> String {
        self.shared.state().tls = Some((ca_pem.clone(), Arc::new(config)));
        ca_pem
    }

    /// The certificate of the CA; empty with plain HTTP.
    pub fn ca_pem(&self) -> String {
        let state = self.shared.state();
        let ca_pem = state.tls.as_ref().map(|(ca_pem, _)| ca_pem.clone());
        ca_pem.unwrap_or_default()
    }

    /// The environment variables with which an agent on node `node1` finds the server.
    pub fn env(&self) -> [(String, String); 4] {
        let protocol = match self.shared.state().tls {
            Some(_) => "https",
            None => "http",
        };
        [
            ("KUBERNETES_SERVICE_PROTOCOL".into(), protocol.into()),
            ("KUBERNETES_SERVICE_HOST".into(), "127.0.0.1".into()),
            ("KUBERNETES_SERVICE_PORT".into(), self.port.to_string()),
            ("NODE_NAME".into(), "node1".into()),
        ]
    }

    /// Writes the kubeconfig that the agent would write for this server, in its form
    /// on a node: CA embedded, token in clear text.
    pub fn write_kubeconfig(&self, dir: impl AsRef<Path>) {
        write_kubeconfig(dir, self.port, &self.ca_pem());
    }

    /// Creates or modifies a pod, a DaemonSet, a node or a namespace.
    pub fn put(&self, object: Value) {
        self.shared.put(object);
    }

    /// Returns the annotations of a pod.
    pub fn annotations(&self, namespace: &str, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let state = self.shared.state();
        let (_, object) = &state.objects[&path];
        object["metadata"]["annotations"].clone()
    }

    pub fn remove(&self, object: &Value) {
        let (_, path) = place(object);
        let mut state = self.shared.state();
        let (list, object) = state.objects.remove(&path).expect("it is there");
        state.record("DELETED", list, object);
        self.shared.changed.notify_all();
    }

    /// Sets a function that is called for each request and may replace its answer.
    pub fn fault(&self, fault: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) {
        self.shared.state().fault = Arc::new(fault);
    }

    /// Accepts only this token from now on.
    pub fn accept(&self, token: &str) {
        self.shared.state().token = token.into();
    }

    /// Sets the token that TokenRequests for service accounts get.
    pub fn grant(&self, token: &str) {
        self.shared.state().granted = Some(token.into());
    }

    /// Ends every running watch with 410 Gone, and deletes the recorded events: no watch resumes before them.
    pub fn gone(&self) {
        let mut state = self.shared.state();
        state.version += 1;
        state.events.clear();
        drop(state);
        self.end_watches(true);
    }

    /// Ends every running watch, as after its timeout.
    pub fn end(&self) {
        self.end_watches(false);
    }

    fn end_watches(&self, gone: bool) {
        let mut state = self.shared.state();
        state.ended = (state.ended.0 + 1, gone);
        self.shared.changed.notify_all();
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.state().asked.clone()
    }

    /// Stops the server and closes its connections.
    pub fn stop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn write_kubeconfig(dir: impl AsRef<Path>, port: u16, ca_pem: &str) {
    let ca = STANDARD.encode(ca_pem);
    let text = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    \
         server: https://127.0.0.1:{port}\n  name: local\ncontexts:\n- context:\n    \
         cluster: local\n    user: istio-cni\n  name: istio-cni-context\n\
         current-context: istio-cni-context\nkind: Config\nusers:\n- name: istio-cni\n  user:\n    \
         token: the-token\n"
    );
    // The file name of weir_cni::plugin::KUBECONFIG.
    std::fs::write(dir.as_ref().join("istio-cni-kubeconfig"), text).expect("written");
}

/// The certificate of a CA that has signed no certificate in use.
pub fn other_ca() -> String {
    certificates::of_loopback().0
}

/// A pod on `node1`; its UID distinguishes it from other pods of the same name.
pub fn pod(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
           "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": {"app": name},
                        "annotations": {}},
           "spec": {"nodeName": "node1", "containers": [{"name": "app", "image": "app"}]},
           "status": {"phase": "Pending"}})
}

pub fn namespace(name: &str) -> Value {
    json!({"kind": "Namespace", "apiVersion": "v1",
           "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
}
