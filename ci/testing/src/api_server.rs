//! A fake API server: TLS with its own CA, HTTP/1.1, and the answers that a
//! test defines.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::certificates;
use std::path::Path;

/// An answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Status and body.
    Body(u16, String),
    /// Bytes that are not HTTP.
    Garbage,
    /// Never answers.
    Hang,
}

/// Chooses the answer from the path and the number of the request.
pub type Script = Box<dyn Fn(&str, usize) -> Answer + Send + Sync>;

/// A running server; dropping it stops the server.
pub struct ApiServer {
    pub port: u16,
    /// The CA certificate.
    pub ca_pem: String,
    requests: Arc<Mutex<Vec<String>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    pub fn start(script: Script) -> Self {
        let (ca_pem, acceptor) = certificates();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("nonblocking");
        let port = listener.local_addr().expect("address").port();
        let seen = requests.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async move {
                let listener = TcpListener::from_std(listener).expect("listener");
                let script = Arc::new(script);
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        let (script, seen) = (script.clone(), seen.clone());
                        tokio::spawn(serve(stream, acceptor.clone(), script, seen));
                    }
                };
                tokio::select! { () = accept => {}, _ = stopped => {} }
            });
        });
        Self {
            port,
            ca_pem,
            requests,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Gives the same answer to every request.
    pub fn always(answer: Answer) -> Self {
        Self::start(Box::new(move |_, _| answer.clone()))
    }

    /// Serves this pod, and a namespace with these labels.
    pub fn with_pod(pod: serde_json::Value, namespace: serde_json::Value) -> Self {
        Self::start(Box::new(move |path, _| {
            let object = if path.contains("/pods/") {
                &pod
            } else {
                &namespace
            };
            Answer::Body(200, object.to_string())
        }))
    }

    /// All request heads so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("requests").clone()
    }

    /// The kubeconfig that the agent would write for this server, in the form
    /// that it has on a node: CA embedded, token in clear text.
    pub fn write_kubeconfig(&self, dir: impl AsRef<Path>) {
        write_kubeconfig(dir, self.port, &self.ca_pem);
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn write_kubeconfig(dir: impl AsRef<Path>, port: u16, ca_pem: &str) {
    let ca = base64(ca_pem.as_bytes());
    let text = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    \
         server: https://127.0.0.1:{port}\n  name: local\ncontexts:\n- context:\n    \
         cluster: local\n    user: istio-cni\n  name: istio-cni-context\n\
         current-context: istio-cni-context\nkind: Config\nusers:\n- name: istio-cni\n  user:\n    \
         token: the-token\n"
    );
    // As weir_cni::plugin::KUBECONFIG has it.
    std::fs::write(dir.as_ref().join("istio-cni-kubeconfig"), text).expect("written");
}

/// A CA that signed no certificate in use.
pub fn other_ca() -> String {
    certificates().0
}

fn certificates() -> (String, TlsAcceptor) {
    let (ca_pem, config) = certificates::of_loopback();
    (ca_pem, TlsAcceptor::from(Arc::new(config)))
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    // Like a server in Go: small writes are sent at once.
    stream.set_nodelay(true).expect("a socket");
    // A client that does not trust the server closes the connection here.
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut body = vec![0; content_length(&head)];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        let path = head
            .split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        let number = {
            let mut seen = seen.lock().expect("requests");
            seen.push(head);
            seen.len()
        };
        let text = match script(&path, number) {
            Answer::Body(status, body) => format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ),
            Answer::Garbage => "220 mail.example.org ESMTP\r\n\r\n".to_owned(),
            Answer::Hang => return std::future::pending().await,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Of a request's body.
fn content_length(head: &str) -> usize {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths
        .next()
        .map_or(0, |(_, n)| n.trim().parse().expect("a length"))
}

/// RFC 4648 with padding.
fn base64(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |acc, b| acc << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for n in 0..4 {
            let letter = char::from(letters[(bits >> (18 - 6 * n) & 63) as usize]);
            out.push(if n > chunk.len() { '=' } else { letter });
        }
    }
    out
}
