//! Pods as the API server returns them.

use serde_json::{Value, json};

/// A pod with an injected sidecar.
pub fn sidecar(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": "5c7f9b1e-0000-4000-8000-000000000001",
            "labels": {"app": name},
            "annotations": {"sidecar.istio.io/status": "{}"}
        },
        "spec": {
            "containers": [
                {"name": "app", "image": "app"},
                {"name": "istio-proxy", "args": ["proxy", "sidecar"], "image": "proxyv2",
                 "securityContext": {"runAsUser": 1337, "runAsGroup": 1337}}
            ]
        }
    })
}

/// A pod without a sidecar.
pub fn plain(namespace: &str, name: &str, labels: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "app"}]}
    })
}

pub fn namespace(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

/// The answer of the API server when it refuses a request.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "message": message, "reason": reason, "code": code})
}
