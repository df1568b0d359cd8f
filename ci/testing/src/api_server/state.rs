//! The state of the server, and its regular answers.

use super::fault::Answer;
use super::watch::Streaming;
use super::wire::{self, Asked};
use crate::pods;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufReader, Error, Read, Result, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

type Decide = Arc<dyn Fn(&Asked) -> Option<Answer> + Send + Sync>;

pub(super) struct State {
    pub(super) version: u64,
    /// The path of the list and the object, by the object's path.
    pub(super) objects: BTreeMap<String, (String, Value)>,
    /// Resource version, event type, path of the list, object.
    pub(super) events: Vec<(u64, &'static str, String, Value)>,
    pub(super) asked: Vec<Asked>,
    pub(super) streaming: Streaming,
    pub(super) token: String,
    /// The token in the answer to a TokenRequest.
    pub(super) granted: Option<String>,
    /// The CA certificate and the TLS configuration; `None`: plain HTTP.
    pub(super) tls: Option<(String, Arc<ServerConfig>)>,
    pub(super) fault: Decide,
    /// How often all watches were ended, and whether the last time with 410 Gone.
    pub(super) ended: (u32, bool),
    pub(super) stopped: bool,
}

impl State {
    /// Assigns the next resource version to the object and records an event for the watches of its list.
    pub(super) fn record(&mut self, kind: &'static str, list: String, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.events.push((self.version, kind, list, object.clone()));
        object
    }

    /// Creates the object, or replaces it. The caller notifies the watches.
    pub(super) fn put(&mut self, object: Value) {
        let (list, path) = place(&object);
        let kind = match self.objects.contains_key(&path) {
            true => "MODIFIED",
            false => "ADDED",
        };
        let object = self.record(kind, list.clone(), object);
        self.objects.insert(path, (list, object));
    }

    /// The objects of a list that match the request.
    pub(super) fn listed(&self, asked: &Asked) -> Vec<Value> {
        let all = self.objects.values();
        let of_list = all.filter(|(list, object)| *list == asked.path && on_node(object, asked));
        of_list.map(|(_, object)| object.clone()).collect()
    }
}

pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

impl Default for Shared {
    fn default() -> Self {
        let state = State {
            version: 100,
            objects: BTreeMap::new(),
            events: Vec::new(),
            asked: Vec::new(),
            streaming: Streaming::Served,
            token: "token-1".into(),
            granted: None,
            tls: None,
            fault: Arc::new(|_| None),
            ended: (0, false),
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }
}

/// The path of the object's list, and the path of the object.
pub(super) fn place(object: &Value) -> (String, String) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let namespace = object["metadata"]["namespace"].as_str();
    let (group, kind) = match object["kind"].as_str() {
        Some("DaemonSet") => ("/apis/apps/v1", "daemonsets"),
        Some("Node") => ("/api/v1", "nodes"),
        _ if namespace.is_some() => ("/api/v1", "pods"),
        _ => ("/api/v1", "namespaces"),
    };
    let within = namespace.map_or_else(String::new, |n| format!("/namespaces/{n}"));
    let own = format!("{group}{within}/{kind}/{name}");
    (format!("{group}/{kind}"), own)
}

pub(super) fn on_node(object: &Value, asked: &Asked) -> bool {
    match asked.get("fieldSelector").strip_prefix("spec.nodeName=") {
        Some(node) => object["spec"]["nodeName"] == node,
        None => true,
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn put(&self, object: Value) {
        self.state().put(object);
        self.changed.notify_all();
    }

    pub(super) fn accept(&self, stream: TcpStream) -> Result<()> {
        // As in servers written in Go, small writes are sent immediately.
        stream.set_nodelay(true)?;
        let Some((_, tls)) = self.state().tls.clone() else {
            return self.serve(stream);
        };
        let session = ServerConnection::new(tls).map_err(Error::other)?;
        self.serve(StreamOwned::new(session, stream))
    }

    /// Serves a connection. It stays open only after [`Answer::Body`]; after every other answer it is closed.
    fn serve(&self, stream: impl Read + Write) -> Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(mut asked) = wire::read(&mut stream) {
            let fault = {
                let mut state = self.state();
                if state.stopped {
                    break;
                }
                asked.number = state.asked.len() + 1;
                state.asked.push(asked.clone());
                state.fault.clone()
            };
            let stream = stream.get_mut();
            match fault(&asked) {
                Some(body @ Answer::Body(..)) => body.give(stream)?,
                Some(Answer::Hang) => {
                    let going = |state: &mut State| !state.stopped;
                    drop(self.changed.wait_while(self.state(), going).unwrap());
                    break;
                }
                Some(answer) => return answer.give(stream),
                None => return self.answer(stream, &asked),
            }
        }
        Ok(())
    }

    fn answer(&self, stream: &mut impl Write, asked: &Asked) -> Result<()> {
        let (token, granted) = {
            let state = self.state();
            (state.token.clone(), state.granted.clone())
        };
        let bearer = asked.headers.get("authorization");
        let (code, object) = match (asked.method.as_str(), granted) {
            _ if bearer != Some(&format!("Bearer {token}")) => refusal(401, "Unauthorized"),
            (_, Some(token)) if asked.path.ends_with("/token") => {
                let status = json!({"token": token, "expirationTimestamp": "2026-12-01T00:00:00Z"});
                (201, json!({"kind": "TokenRequest", "status": status}))
            }
            ("GET", _) if asked.is_watch() => return self.watch(stream, asked),
            ("GET", _) => self.object(asked),
            ("PATCH", _) => self.annotate(asked),
            _ => success(),
        };
        wire::whole(stream, code, &object.to_string())
    }

    /// One object, or a page of a list.
    fn object(&self, asked: &Asked) -> (u16, Value) {
        let state = self.state();
        if let Some((_, object)) = state.objects.get(&asked.path) {
            return (200, object.clone());
        }
        if !matches!(asked.path.as_str(), "/api/v1/pods" | "/api/v1/namespaces") {
            return refusal(404, "not found");
        }
        let (version, all) = (state.version.to_string(), state.listed(asked));
        let from: usize = asked.get("continue").parse().unwrap_or(0);
        let limit: usize = asked.get("limit").parse().unwrap_or(usize::MAX);
        let to = from.saturating_add(limit).min(all.len());
        let next = match to < all.len() {
            true => to.to_string(),
            false => String::new(),
        };
        let metadata = json!({"resourceVersion": version, "continue": next});
        let items = &all[from..to];
        let kind = match asked.is_for_pods() {
            true => "PodList",
            false => "PartialObjectMetadataList",
        };
        let list = json!({"kind": kind, "apiVersion": "v1", "items": items, "metadata": metadata});
        (200, list)
    }

    /// Applies a merge patch to a pod's annotations; watches see the modified object.
    fn annotate(&self, asked: &Asked) -> (u16, Value) {
        let pod = asked.path.strip_suffix("/status");
        let Some(path) = pod.filter(|path| path.contains("/pods/")) else {
            return success();
        };
        // Nobody changes or deletes the pod between reading and writing it.
        let mut state = self.state();
        let Some((_, mut object)) = state.objects.get(path).cloned() else {
            return refusal(404, "not found");
        };
        let patch = &asked.body["metadata"]["annotations"];
        for (name, value) in patch.as_object().into_iter().flatten() {
            let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
            match value {
                Value::Null => _ = annotations.remove(name),
                value => _ = annotations.insert(name.clone(), value.clone()),
            }
        }
        if patch.is_object() {
            state.put(object.clone());
            self.changed.notify_all();
        }
        object["kind"] = "Pod".into();
        (200, object)
    }
}

pub(super) fn refusal(code: u16, why: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Reason" };
    (code, pods::status(code, reason, why))
}

fn success() -> (u16, Value) {
    (
        200,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
    )
}
