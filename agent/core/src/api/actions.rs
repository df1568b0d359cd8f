//! Writes to the API server: deletions, labels, annotations and events.

use crate::api::connection::Connection;
use crate::journal::PodRef;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use kube::core::Status;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;
use weir_cni::log::timestamp;
use weir_cni::protocol::is_kubernetes_name;

/// Maximum length of an event's message; the API server rejects longer ones.
const MESSAGE: usize = 1024;
/// Maximum number of concurrent requests: each may need its own connection, and there are thousands of node agents.
const REQUESTS: usize = 8;

/// Maximum number of attempts while the API server asks to retry later, as in other clients.
const ATTEMPTS: u32 = 10;
/// Pause before a retry: the default, if the API server gives it in the header alone, and the maximum of the one that it gives in the
/// body.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// No retry begins after this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same limit for an event, which delays the events behind it, and for an annotation, which delays all work on the pod.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length in bytes of an object's name (RFC 1123 subdomain).
const NAME: usize = 253;

/// The writes of the agent, with its service account.
pub struct Actions {
    connection: Connection,
    client: kube::Client,
    node: String,
    places: Semaphore,
}

impl Actions {
    /// Creates the client. Must be called within a Tokio runtime.
    pub fn new(connection: &Connection, node: &str) -> Self {
        Self {
            connection: connection.clone(),
            client: connection.client(),
            node: node.to_owned(),
            places: Semaphore::new(REQUESTS),
        }
    }

    /// Deletes this pod, but not another one of its name, and only if it has not changed since it was seen.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn delete(&self, pod: &PodRef) -> Result<(), String> {
        let preconditions = json!({"uid": &*pod.uid, "resourceVersion": &*pod.version});
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions,
        });
        self.send(("DELETE", &path(pod)?), "application/json", &body, PATIENCE)
            .await
            .map(drop)
    }

    /// Adds a label to this pod, but not to another one of its name. Patches the `status` subresource, since the right to patch
    /// pods grants more than is needed.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn label(&self, pod: &PodRef, key: &str, value: &str) -> Result<(), String> {
        let body = json!({"metadata": {"uid": &*pod.uid, "labels": {key: value}}});
        let path = format!("{}/status", path(pod)?);
        let request = ("PATCH", path.as_str());
        self.send(request, "application/merge-patch+json", &body, PATIENCE)
            .await
            .map(drop)
    }

    /// Sets or removes an annotation of the pod, but not of another one of its name, by patching its `status` subresource.
    /// Returns the resource version of the patched pod; empty if the answer has none.
    ///
    /// # Errors
    /// The error of the API server, or the annotation in its answer differs from the written value.
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

    /// Creates an event of type Warning from this component of the node, which `kubectl describe pod` shows.
    ///
    /// # Errors
    /// The error of the API server.
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
        // Timestamps of events have whole seconds.
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
            // The semaphore is never closed.
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

/// Returns the pause before a retry, at least that of the `Retry-After` header; `None` if the API server does not ask for one, as it
/// always does if it is busy: the caller then counts and logs a failure.
fn patience(status: &Status, held: Duration) -> Option<Duration> {
    let asked = status.details.as_ref().map(|d| d.retry_after_seconds);
    let asked = asked.filter(|seconds| *seconds > 0);
    let is_asked = asked.is_some() || !held.is_zero();
    let is_busy = matches!(status.code, 429 | 503 | 504) && is_asked;
    let asked = asked.map(|seconds| Duration::from_secs(seconds.into()));
    is_busy.then(|| asked.unwrap_or(PAUSE.0).min(PAUSE.1).max(held))
}

/// Returns `POD.NUMBER`, with the pod's name truncated to fit into an object's name.
fn event_name(pod: &str, number: u128) -> String {
    let number = format!("{number:x}");
    let room = NAME.saturating_sub(number.len() + 1);
    // Names of pods are ASCII; the truncated name must end in a letter or digit.
    let pod = pod.get(..room).unwrap_or(pod).trim_end_matches(['-', '.']);
    format!("{pod}.{number}")
}

/// Returns the API path of the pod.
fn path(pod: &PodRef) -> Result<String, String> {
    let (namespace, name) = (&*pod.namespace, &*pod.name);
    // Names are validated since they become part of a path.
    for (what, text) in [("metadata.namespace", namespace), ("metadata.name", name)] {
        if !is_kubernetes_name(text) {
            return Err(format!(
                "nothing is written to the pod: its {what} {text:?} is not a Kubernetes name (lower-case letters, digits, '-' \
                 and '.'); look for what answers as the API server"
            ));
        }
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
            assert!(is_kubernetes_name(&name), "{name}");
        }
    }

    /// The container runtime was blamed for it.
    #[test]
    fn names_that_would_change_the_path() {
        let pod = |namespace: &str, name: &str| PodRef {
            namespace: namespace.into(),
            name: name.into(),
            uid: "".into(),
            version: "".into(),
        };
        assert_eq!(
            path(&pod("shop", "web-0")).unwrap(),
            "/api/v1/namespaces/shop/pods/web-0"
        );
        for (pod, named) in [
            (pod("shop", "a/b"), "its metadata.name \"a/b\""),
            (pod("..", "web"), "its metadata.namespace \"..\""),
        ] {
            let why = path(&pod).unwrap_err();
            assert!(why.contains(named) && !why.contains("CNI_ARGS"), "{why}");
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
            (None, Some(3), Some(10))
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
