//! What is written to the API server.

use crate::api::connection::Connection;
use crate::journal::PodRef;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::time::SystemTime;
use tokio::sync::Semaphore;
use weir_cni::log::timestamp;
use weir_cni::protocol::validate_kubernetes_name;

/// The API server refuses longer messages.
const MESSAGE: usize = 1024;
/// Requests at once: each may need a connection of its own, and a node's agent is one of thousands of clients.
const REQUESTS: usize = 8;
/// Bytes in the name of an object (RFC 1123 subdomain).
const NAME: usize = 253;

/// Writes for the agent's service account.
pub struct Actions {
    client: kube::Client,
    node: String,
    places: Semaphore,
}

impl Actions {
    /// Call it where a tokio runtime runs.
    pub fn new(connection: &Connection, node: &str) -> Self {
        Self {
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
        self.send("DELETE", &path(pod)?, "application/json", &body)
            .await
    }

    /// Adds a label to this pod, and to no other of its name, by way of its status: the right to change pods is more than
    /// is needed.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn label(&self, pod: &PodRef, key: &str, value: &str) -> Result<(), String> {
        let body = json!({"metadata": {"uid": &*pod.uid, "labels": {key: value}}});
        let path = format!("{}/status", path(pod)?);
        self.send("PATCH", &path, "application/merge-patch+json", &body)
            .await
    }

    /// Sets an annotation of the pod by way of its status, or removes it. A pod that is gone has none.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn annotate(
        &self,
        pod: &PodRef,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), String> {
        let body = json!({"metadata": {"uid": &*pod.uid, "annotations": {key: value}}});
        let path = format!("{}/status", path(pod)?);
        self.send("PATCH", &path, "application/merge-patch+json", &body)
            .await
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
        self.send("POST", &path, "application/json", &body).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(), String> {
        let failed = |e: String| format!("{method} {path}: {e}");
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content_type)
            .body(body.to_string().into_bytes())
            .map_err(|e| failed(e.to_string()))?;
        // It is never closed.
        let _place = self
            .places
            .acquire()
            .await
            .map_err(|e| failed(e.to_string()))?;
        let answer = self.client.request::<Value>(request).await;
        answer.map(|_| ()).map_err(|e| failed(e.to_string()))
    }
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
}
