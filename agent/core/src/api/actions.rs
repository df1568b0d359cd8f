//! What is written to the API server.

use crate::api::connection::Connection;
use crate::journal::PodRef;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use kube::core::Status;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use weir_cni::log::timestamp;
use weir_cni::protocol::validate_kubernetes_name;

/// The API server refuses longer messages.
const MESSAGE: usize = 1024;
/// Requests at once: each may need a connection of its own, and a node's agent is one of thousands of clients.
const REQUESTS: usize = 8;

/// Attempts for one request while the API server asks for patience, as other clients of it have them.
const ATTEMPTS: u32 = 10;
/// Before the next of them, unless the API server says how long, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// No attempt begins after this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// For an event, behind which others wait, and for an annotation: nothing else is done for the pod meanwhile.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes in the name of an object (RFC 1123 subdomain).
const NAME: usize = 253;

/// Writes for the agent's service account.
pub struct Actions {
    connection: Connection,
    client: kube::Client,
    node: String,
    places: Semaphore,
}

impl Actions {
    /// Call it where a tokio runtime runs.
    pub fn new(connection: &Connection, node: &str) -> Self {
        Self {
            connection: connection.clone(),
            client: connection.client(),
            node: node.to_owned(),
            places: Semaphore::new(REQUESTS),
        }
    }

    /// Deletes this pod, and no other of its name; not if it changed since it was seen.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn delete(&self, pod: &PodRef) -> Result<(), String> {
        let preconditions = json!({"uid": &*pod.uid, "resourceVersion": &*pod.version});
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions,
        });
        self.send(("DELETE", &path(pod)?), "application/json", &body, PATIENCE)
            .await
            .map(drop)
    }

    /// Adds a label to this pod, and to no other of its name, by way of its status: the right to change pods is more than
    /// is needed.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn label(&self, pod: &PodRef, key: &str, value: &str) -> Result<(), String> {
        let body = json!({"metadata": {"uid": &*pod.uid, "labels": {key: value}}});
        let path = format!("{}/status", path(pod)?);
        let request = ("PATCH", path.as_str());
        self.send(request, "application/merge-patch+json", &body, PATIENCE)
            .await
            .map(drop)
    }

    /// Sets an annotation of the pod by way of its status, or removes it. A pod that is gone has none. Returns the version of the
    /// pod that has it; empty where the answer says none.
    ///
    /// # Errors
    /// What the API server answers; in that answer the annotation is not as it was written.
    pub async fn annotate(
        &self,
        pod: &PodRef,
        key: &str,
        value: Option<&str>,
    ) -> Result<String, String> {
        let body = json!({"metadata": {"uid": &*pod.uid, "annotations": {key: value}}});
        let path = format!("{}/status", path(pod)?);
        let request = ("PATCH", path.as_str());
        let kind = "application/merge-patch+json";
        let answer = self.send(request, kind, &body, SHORT_PATIENCE).await?;
        let metadata = answer.get("metadata");
        let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
        let found = annotations.and_then(|all| all.get(key)?.as_str());
        let is_pod = answer.get("kind").is_some_and(|kind| kind == "Pod");
        if is_pod && found != value {
            return Err(format!(
                "PATCH {path}: it is answered as done, and the annotation {key} of the pod in that answer is not as it was \
                 written; look for an admission webhook that changes pods"
            ));
        }
        let version = metadata.and_then(|metadata| metadata.get("resourceVersion")?.as_str());
        Ok(version.unwrap_or_default().to_owned())
    }

    /// `kubectl describe pod` shows it: an event of type Warning, from this component of the node.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn event(
        &self,
        pod: &PodRef,
        component: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), String> {
        path(pod)?;
        let time = SystemTime::now();
        let now = timestamp(time);
        // Events have whole seconds.
        let now = format!("{}Z", now.split('.').next().unwrap_or_default());
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let number = since.unwrap_or_default().as_nanos();
        let (namespace, name) = (&*pod.namespace, &*pod.name);
        let message: String = message.chars().take(MESSAGE).collect();
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": event_name(name, number), "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
                "uid": &*pod.uid, "resourceVersion": &*pod.version,
            },
            "type": "Warning", "reason": reason, "message": message,
            "source": {"component": component, "host": self.node},
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let request = ("POST", path.as_str());
        self.send(request, "application/json", &body, SHORT_PATIENCE)
            .await
            .map(drop)
    }

    async fn send(
        &self,
        (method, path): (&str, &str),
        content_type: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Value, String> {
        let failed = |e: String| format!("{method} {path}: {e}");
        let held = self.connection.held();
        if held >= limit {
            let seconds = held.as_secs();
            return Err(failed(format!(
                "it is not sent: the API server is too busy, and wants to be left alone for another {seconds} s (Retry-After)"
            )));
        }
        let begun = Instant::now();
        let mut attempt = 1;
        loop {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(CONTENT_TYPE, content_type)
                .body(body.to_string().into_bytes())
                .map_err(|e| failed(e.to_string()))?;
            // It is never closed.
            let place = self.places.acquire().await;
            let place = place.map_err(|e| failed(e.to_string()))?;
            let answer = self.client.request::<Value>(request).await;
            drop(place);
            let status = match answer {
                Ok(answer) => return Ok(answer),
                Err(kube::Error::Api(status)) => status,
                Err(e) => return Err(failed(e.to_string())),
            };
            let may_wait =
                |pause: &Duration| attempt < ATTEMPTS && begun.elapsed() + *pause < limit;
            match patience(&status, self.connection.held()).filter(may_wait) {
                Some(pause) => tokio::time::sleep(pause).await,
                None if status.message.is_empty() => return Err(failed(status.code.to_string())),
                None => return Err(failed(status.message.clone())),
            }
            attempt += 1;
        }
    }
}

/// How long to wait before the same is asked for again, at least as long as the header of the answer says; `None`: it is refused.
fn patience(status: &Status, held: Duration) -> Option<Duration> {
    let asked = status.details.as_ref().map(|d| d.retry_after_seconds);
    let asked = asked.filter(|seconds| *seconds > 0);
    let is_asked = asked.is_some() || !held.is_zero();
    let is_busy = status.code == 429 || (matches!(status.code, 503 | 504) && is_asked);
    let asked = asked.map(|seconds| Duration::from_secs(seconds.into()));
    is_busy.then(|| asked.unwrap_or(PAUSE.0).min(PAUSE.1).max(held))
}

/// `POD.NUMBER`, with as much of the pod's name as an object's name has room for.
fn event_name(pod: &str, number: u128) -> String {
    let number = format!("{number:x}");
    let room = NAME.saturating_sub(number.len() + 1);
    // Names of pods are ASCII; a part of one ends in a letter or digit.
    let pod = pod.get(..room).unwrap_or(pod).trim_end_matches(['-', '.']);
    format!("{pod}.{number}")
}

/// The pod's own path.
fn path(pod: &PodRef) -> Result<String, String> {
    let (namespace, name) = (&*pod.namespace, &*pod.name);
    // It goes into a path.
    for (what, text) in [("metadata.namespace", namespace), ("metadata.name", name)] {
        validate_kubernetes_name(what, text).map_err(|e| e.to_string())?;
    }
    Ok(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_about_pods_with_long_names_have_names() {
        let number = 0x1234_5678_9abc_def0;
        assert_eq!(event_name("web-0", number), "web-0.123456789abcdef0");
        for pod in [
            "x".repeat(253),
            format!("{}-.{}", "x".repeat(234), "y".repeat(17)),
        ] {
            let name = event_name(&pod, number);
            assert!(name.len() <= 253, "{name}");
            validate_kubernetes_name("metadata.name", &name).unwrap();
        }
    }

    #[test]
    fn what_the_api_server_asks_to_be_repeated() {
        let held = |code: u16, seconds: u32, held: u64| {
            let details = json!({"retryAfterSeconds": seconds});
            let status = json!({"code": code, "details": details});
            let status: Status = serde_json::from_value(status).unwrap();
            patience(&status, Duration::from_secs(held)).map(|pause| pause.as_secs())
        };
        let wait = |code: u16, seconds: u32| held(code, seconds, 0);
        assert_eq!(
            (wait(429, 0), wait(429, 3), wait(429, 900)),
            (Some(1), Some(3), Some(10))
        );
        assert_eq!(
            (wait(503, 2), wait(503, 0), wait(409, 2)),
            (Some(2), None, None)
        );
        assert_eq!(
            (held(429, 3, 30), held(503, 0, 5), held(409, 0, 5)),
            (Some(30), Some(5), None)
        );
    }
}
