//! A stand-in for the API server on loopback, over TLS or plain HTTP: lists and watches pods and namespaces as the real
//! one does, and misbehaves on request, which the real one does not.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How streaming lists are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streaming {
    /// As Kubernetes 1.32 and later.
    Served,
    /// As 1.20: the parameters are invalid.
    Invalid,
    /// As 1.36 on etcd 3.4: an event, after all was well.
    ErrorEvent,
    /// The object of a refusal, in several lines, where events are expected.
    StatusObject,
    /// The watch begins and nothing comes that ends the list.
    Ignored,
}

/// What happens to one request instead of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Bytes that are no HTTP.
    Raw(Vec<u8>),
    /// A status, with a `Status` object.
    Status(u16),
    /// 200 with this body, and the end.
    Body(Vec<u8>),
    /// 200 with the beginning of a body, cut off within a chunk.
    Half(Vec<u8>),
    /// The beginning of an answer, byte by byte, for this long.
    Drip(Duration),
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// `Null` when there is none.
    pub(crate) body: Value,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Asked {
    fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.get("watch") == "true"
    }

    pub(crate) fn streams(&self) -> bool {
        self.get("sendInitialEvents") == "true"
    }

    pub(crate) fn is_for_pods(&self) -> bool {
        self.path == "/api/v1/pods"
    }
}

use weir_testing::certificates;

type Decide = Box<dyn Fn(&Asked) -> Option<Fault> + Send>;

struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    /// Version, kind of event, path of the list, object.
    events: Vec<(u64, &'static str, String, Value)>,
    asked: Vec<Asked>,
    streaming: Streaming,
    token: String,
    /// What a request for a token is answered with.
    granted: Option<String>,
    /// `None` is plain HTTP.
    tls: Option<Arc<ServerConfig>>,
    fault: Decide,
    /// How often all watches were ended, and whether with 410 Gone.
    ended: (u32, bool),
    stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Ends, with its connections, with this value.
pub(crate) struct ApiServer {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let state = State {
            version: 100,
            objects: BTreeMap::new(),
            events: Vec::new(),
            asked: Vec::new(),
            streaming: Streaming::Served,
            token: "token-1".into(),
            granted: None,
            tls: None,
            fault: Box::new(|_| None),
            ended: (0, false),
            stopped: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&of_thread);
                if shared.state().stopped {
                    // A process that another test starts has a copy of the socket until it executes its program.
                    let _ = socket2::SockRef::from(&listener).shutdown(Shutdown::Both);
                    return;
                }
                let stream = stream.unwrap();
                // Ends when the client goes, or with the server; a failed write is the former.
                std::thread::spawn(move || _ = shared.accept(stream));
            }
        });
        Self {
            port,
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn with(self, streaming: Streaming) -> Self {
        self.shared.state().streaming = streaming;
        self
    }

    /// From now on over TLS, with a new authority, whose certificate this is.
    pub(crate) fn encrypt(&self) -> String {
        let (ca_pem, config) = certificates::of_loopback();
        self.shared.state().tls = Some(Arc::new(config));
        ca_pem
    }

    /// What an agent needs to find it, on node `node1`.
    pub(crate) fn env(&self) -> [(String, String); 4] {
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

    /// Creates or changes a pod or, without a namespace, a namespace.
    pub(crate) fn put(&self, object: Value) {
        self.shared.put(object);
    }

    /// The annotations of a pod.
    pub(crate) fn annotations(&self, namespace: &str, name: &str) -> Value {
        let key = format!("/api/v1/pods {namespace}/{name}");
        let state = self.shared.state();
        state.objects[&key]["metadata"]["annotations"].clone()
    }

    pub(crate) fn remove(&self, object: &Value) {
        let mut state = self.shared.state();
        state.version += 1;
        let (list, key) = place(object);
        let mut object = state.objects.remove(&key).expect("it is there");
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let version = state.version;
        state.events.push((version, "DELETED", list, object));
        self.shared.changed.notify_all();
    }

    /// Asked for each request before it is answered.
    pub(crate) fn fault(&self, fault: impl Fn(&Asked) -> Option<Fault> + Send + 'static) {
        self.shared.state().fault = Box::new(fault);
    }

    /// Only this token is accepted from now on.
    pub(crate) fn accept(&self, token: &str) {
        self.shared.state().token = token.into();
    }

    /// Requests for a token of a service account get this one.
    pub(crate) fn grant(&self, token: &str) {
        self.shared.state().granted = Some(token.into());
    }

    /// Every watch that runs ends with 410 Gone, and the events until now are forgotten.
    pub(crate) fn gone(&self) {
        self.shared.state().events.clear();
        self.end_watches(true);
    }

    /// Every watch that runs ends, as after its time.
    pub(crate) fn end(&self) {
        self.end_watches(false);
    }

    fn end_watches(&self, gone: bool) {
        let mut state = self.shared.state();
        state.ended = (state.ended.0 + 1, gone);
        self.shared.changed.notify_all();
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.state().asked.clone()
    }

    /// Ends it, with its connections.
    pub(crate) fn stop(&mut self) {
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

/// Path of its list, and key.
fn place(object: &Value) -> (String, String) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    let of_kind = |list: &str, key: String| (list.to_owned(), format!("{list} {key}"));
    match metadata["namespace"].as_str() {
        Some(namespace) if object["kind"] == "DaemonSet" => {
            of_kind("/apis/apps/v1/daemonsets", format!("{namespace}/{name}"))
        }
        None if object["kind"] == "Node" => of_kind("/api/v1/nodes", name.to_owned()),
        Some(namespace) => (
            "/api/v1/pods".into(),
            format!("/api/v1/pods {namespace}/{name}"),
        ),
        None => (
            "/api/v1/namespaces".into(),
            format!("/api/v1/namespaces {name}"),
        ),
    }
}

fn on_node(object: &Value, asked: &Asked) -> bool {
    match asked.get("fieldSelector").strip_prefix("spec.nodeName=") {
        Some(node) => object["spec"]["nodeName"] == node,
        None => true,
    }
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "message": message, "reason": "Reason", "code": code})
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn put(&self, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let (list, key) = place(&object);
        let kind = match state.objects.insert(key, object.clone()) {
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        let version = state.version;
        state.events.push((version, kind, list, object));
        self.changed.notify_all();
    }

    /// A merge patch of annotations, which changes the object and is seen by watches. What is answered; `None`: there is no such pod.
    fn annotate(&self, asked: &Asked) -> Option<Value> {
        let words: Vec<&str> = asked.path.split('/').collect();
        let [
            "",
            "api",
            "v1",
            "namespaces",
            namespace,
            "pods",
            name,
            "status",
        ] = words[..]
        else {
            return Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}));
        };
        let key = format!("/api/v1/pods {namespace}/{name}");
        let mut object = self.state().objects.get(&key).cloned()?;
        let patch = &asked.body["metadata"]["annotations"];
        for (name, value) in patch.as_object().into_iter().flatten() {
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Value::Null => _ = annotations.remove(name),
                value => _ = annotations.insert(name.clone(), value.clone()),
            }
        }
        if patch.is_object() {
            self.put(object.clone());
        }
        object["kind"] = "Pod".into();
        Some(object)
    }

    fn accept(&self, stream: TcpStream) -> std::io::Result<()> {
        let Some(tls) = self.state().tls.clone() else {
            return self.serve(stream);
        };
        let session = ServerConnection::new(tls).map_err(std::io::Error::other)?;
        self.serve(StreamOwned::new(session, stream))
    }

    fn serve(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let Some(asked) = read(&mut stream) else {
            return Ok(());
        };
        let (fault, token, streaming) = {
            let mut state = self.state();
            state.asked.push(asked.clone());
            ((state.fault)(&asked), state.token.clone(), state.streaming)
        };
        if let Some(fault) = fault {
            return misbehave(&mut stream, fault);
        }
        let bearer = asked.headers.get("authorization");
        if bearer != Some(&format!("Bearer {token}")) {
            return answer(&mut stream, 401, &status(401, "Unauthorized"));
        }
        let granted = self.state().granted.clone();
        if let Some(token) = granted.filter(|_| asked.path.ends_with("/token")) {
            let status = json!({"token": token, "expirationTimestamp": "2026-12-01T00:00:00Z"});
            let made = json!({"kind": "TokenRequest", "status": status});
            return answer(&mut stream, 201, &made);
        }
        if asked.method == "PATCH" {
            let Some(object) = self.annotate(&asked) else {
                return answer(&mut stream, 404, &status(404, "not found"));
            };
            return answer(&mut stream, 200, &object);
        }
        if asked.method != "GET" {
            let done = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
            return answer(&mut stream, 200, &done);
        }
        if !asked.is_watch() {
            return self.object(&mut stream, &asked);
        }
        match (asked.streams(), streaming) {
            (true, Streaming::Invalid) => {
                let why = "sendInitialEvents is forbidden for watch";
                answer(&mut stream, 422, &status(422, why))
            }
            (true, Streaming::StatusObject) => {
                let text = serde_json::to_string_pretty(&status(400, "unknown")).unwrap();
                whole(&mut stream, 200, text.as_bytes())
            }
            (true, Streaming::ErrorEvent) => {
                begin(&mut stream)?;
                let why = "the required storage feature RequestWatchProgress is disabled";
                event(&mut stream, "ERROR", &status(500, why))?;
                end(&mut stream)
            }
            _ => self.watch(&mut stream, &asked, streaming),
        }
    }

    /// One object, or a page of a list.
    fn object(&self, stream: &mut impl Write, asked: &Asked) -> std::io::Result<()> {
        let (version, all) = {
            let state = self.state();
            let prefix = format!("{} ", asked.path);
            let all: Vec<Value> = state
                .objects
                .iter()
                .filter(|(key, object)| key.starts_with(&prefix) && on_node(object, asked))
                .map(|(_, object)| object.clone())
                .collect();
            let single = state.objects.iter().find(|(key, _)| {
                let (list, name) = key.split_once(' ').unwrap();
                let path = match name.split_once('/') {
                    Some((namespace, name)) => {
                        let (version, kind) = list.rsplit_once('/').unwrap();
                        format!("{version}/namespaces/{namespace}/{kind}/{name}")
                    }
                    None => format!("{list}/{name}"),
                };
                path == asked.path
            });
            if let Some((_, object)) = single {
                let object = object.clone();
                drop(state);
                return answer(stream, 200, &object);
            }
            (state.version, all)
        };
        if !matches!(asked.path.as_str(), "/api/v1/pods" | "/api/v1/namespaces") {
            return answer(stream, 404, &status(404, "not found"));
        }
        let from: usize = asked.get("continue").parse().unwrap_or(0);
        let limit: usize = asked.get("limit").parse().unwrap_or(usize::MAX);
        let to = from.saturating_add(limit).min(all.len());
        let next = if to < all.len() {
            to.to_string()
        } else {
            String::new()
        };
        let list = json!({"kind": "List", "apiVersion": "v1", "items": all[from..to],
                          "metadata": {"resourceVersion": version.to_string(), "continue": next}});
        answer(stream, 200, &list)
    }

    fn watch(
        &self,
        stream: &mut impl Write,
        asked: &Asked,
        streaming: Streaming,
    ) -> std::io::Result<()> {
        let ended = self.state().ended.0;
        begin(stream)?;
        let mut seen: u64 = asked.get("resourceVersion").parse().unwrap_or(0);
        if asked.streams() || seen == 0 {
            let (version, all) = {
                let state = self.state();
                (state.version, state.objects.clone())
            };
            let prefix = format!("{} ", asked.path);
            for (key, object) in &all {
                if key.starts_with(&prefix) && on_node(object, asked) {
                    event(stream, "ADDED", object)?;
                }
            }
            if asked.streams() && streaming == Streaming::Served {
                let mark = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": version.to_string(), "annotations": mark});
                let bookmark = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                event(stream, "BOOKMARK", &bookmark)?;
            }
            seen = version;
        }
        loop {
            let state = self.state();
            if state.stopped {
                return Ok(());
            }
            if state.ended.0 != ended {
                let gone = state.ended.1;
                drop(state);
                if gone {
                    event(stream, "ERROR", &status(410, "too old resource version"))?;
                }
                return end(stream);
            }
            let of_us = |e: &&(u64, &str, String, Value)| {
                e.0 > seen && e.2 == asked.path && on_node(&e.3, asked)
            };
            let new: Vec<_> = state.events.iter().filter(of_us).cloned().collect();
            if new.is_empty() {
                drop(self.changed.wait(state).unwrap());
                continue;
            }
            drop(state);
            for (version, kind, _, object) in new {
                event(stream, kind, &object)?;
                seen = version;
            }
        }
    }
}

fn read(stream: &mut impl Read) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, uri) = (words.next()?, words.next()?);
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_lowercase(), value.to_owned()))
    };
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let length = headers.get("content-length").map_or("0", String::as_str);
    let mut body = vec![0; length.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.replace("%3D", "=")))
    };
    Some(Asked {
        method,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        headers,
    })
}

fn whole(stream: &mut impl Write, code: u16, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(body)
}

fn answer(stream: &mut impl Write, code: u16, body: &Value) -> std::io::Result<()> {
    whole(stream, code, body.to_string().as_bytes())
}

fn begin(stream: &mut impl Write) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
}

fn chunk(stream: &mut impl Write, data: &[u8]) -> std::io::Result<()> {
    write!(stream, "{:x}\r\n", data.len())?;
    stream.write_all(data)?;
    stream.write_all(b"\r\n")
}

fn event(stream: &mut impl Write, kind: &str, object: &Value) -> std::io::Result<()> {
    let line = format!("{}\n", json!({"type": kind, "object": object}));
    chunk(stream, line.as_bytes())
}

fn end(stream: &mut impl Write) -> std::io::Result<()> {
    stream.write_all(b"0\r\n\r\n")
}

fn misbehave(stream: &mut impl Write, fault: Fault) -> std::io::Result<()> {
    match fault {
        Fault::Raw(bytes) => stream.write_all(&bytes),
        Fault::Status(code) => answer(stream, code, &status(code, "not now")),
        Fault::Body(bytes) => {
            begin(stream)?;
            chunk(stream, &bytes)?;
            end(stream)
        }
        Fault::Half(bytes) => {
            begin(stream)?;
            write!(stream, "{:x}\r\n", bytes.len() + 100)?;
            stream.write_all(&bytes)
        }
        Fault::Drip(time) => {
            begin(stream)?;
            let end = std::time::Instant::now() + time;
            while std::time::Instant::now() < end {
                chunk(stream, b"{")?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
    }
}

/// A pod of `node1` whose UID tells it from others of its name.
pub(crate) fn pod(namespace: &str, name: &str, uid: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
           "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": {"app": name},
                        "annotations": {}},
           "spec": {"nodeName": "node1", "containers": [{"name": "app", "image": "app"}]},
           "status": {"phase": "Pending"}})
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"kind": "Namespace", "apiVersion": "v1",
           "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
}
