//! What a signal to end means: an upgrade or a restart of the node, after which another agent comes, or the end of the
//! mesh on this node.
//!
//! The kubelet sends the same SIGTERM in all of these cases. If the installation went each time, every pod that starts
//! before the next agent is ready would start outside of the mesh, and would stay there if none comes. So the API
//! server is asked, as `install-cni` asks it in ambient mode, whether the DaemonSet of the agent's pod goes on here.
//! An answer that cannot be had counts as yes: what stays without need is in the way until `weir uninstall`, what goes
//! without need lets pods out of the mesh.

mod affinity;
mod known;

use known::{Known, Memory};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::api::{Client, Error, Reason};
use weir_cni::json;
use weir_cni::protocol::validate_kubernetes_name;
use weir_core::pods::Pods;
use weir_core::settings::Resolved;

/// One request.
const REQUEST: Duration = Duration::from_secs(2);
/// All of them. The kubelet waits 30 seconds before it kills, and an uninstallation takes away the DaemonSet, the
/// rights and the service account within a few.
const LIMIT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// A token that is refused so often belongs to no service account: a server that starts may refuse it once.
const REFUSALS: u32 = 3;
/// Seconds for which a token is good that the plugin works with until another agent comes: a long weekend, and three
/// days for a node that comes back from it. An API server may shorten it.
const VALID: u32 = 7 * 24 * 3600;

/// In `agent/deploy`: the rights that only an upgrade needs.
const UPGRADE: &str = "upgrade-rbac.yaml";

/// What becomes of the installation, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Another agent comes, or nobody knows. The service account that both have, where it is known.
    Stays {
        why: String,
        service_account: Option<String>,
    },
    /// No agent comes after this one.
    Goes { why: String },
}

/// Whom this agent belongs to.
#[derive(Clone)]
pub struct Owner {
    namespace: String,
    pod: String,
    node: String,
    kubeconfig: PathBuf,
    /// The installation is to go whatever the API server says.
    always_removes: bool,
    /// What upstream's manifests call the DaemonSet, asked for where no pod says which it is; `None`: without ambient mode,
    /// where upstream does not ask.
    usual: Option<Known>,
    /// What the watch sees, for a look at this agent's own pod.
    pods: Option<Pods>,
    /// What was learned about the pod while there was one.
    memory: Arc<Memory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default, deserialize_with = "json::list")]
    owner_references: Vec<OwnerReference>,
    #[serde(default)]
    labels: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(deserialize_with = "json::object")]
    metadata: Meta,
    #[serde(default)]
    spec: Value,
}

impl Object {
    fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer).and_then(Value::as_str)
    }
}

impl Owner {
    /// `node` is the node whose pods are watched.
    pub fn new(r: &Resolved, node: &str, kubeconfig: &Path, pods: Option<Pods>) -> Self {
        Self {
            namespace: r.text("POD_NAMESPACE").to_owned(),
            pod: r.text("POD_NAME").to_owned(),
            node: node.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            always_removes: r.bool("AMBIENT_DISABLE_SAFE_UPGRADE"),
            usual: r.bool("AMBIENT_ENABLED").then(Known::usual),
            pods,
            memory: Arc::default(),
        }
    }

    /// Whether the agent runs in a pod, as far as it was told.
    pub(crate) fn is_a_pod(&self) -> bool {
        !self.pod.is_empty() && !self.namespace.is_empty()
    }

    /// Whether there is a DaemonSet to ask for.
    pub(crate) fn can_ask(&self) -> bool {
        self.is_a_pod() || (self.usual.is_some() && !self.namespace.is_empty())
    }

    /// Whether the installation stays. Takes at most [`LIMIT`] and one [`REQUEST`] each for two more objects.
    pub(crate) fn verdict(&self) -> Verdict {
        let goes = |why: &str| Verdict::Goes { why: why.into() };
        if self.always_removes {
            return goes("AMBIENT_DISABLE_SAFE_UPGRADE is true");
        }
        if !self.can_ask() {
            return goes("POD_NAME and POD_NAMESPACE name no pod that a DaemonSet owns");
        }
        let end = Instant::now() + LIMIT;
        let mut refused = 0;
        loop {
            let error = match self.ask() {
                Ok(verdict) => return verdict,
                Err(error) => error,
            };
            if matches!(error.reason, Reason::Unauthorized(_)) {
                refused += 1;
            }
            if refused == REFUSALS && self.pod_went() {
                // The token ends with the pod that it is bound to, and says nothing about the service account then.
                return Verdict::Stays {
                    why: format!(
                        "the API server refuses the token of pod {}/{}, which is gone; without another agent, run \
                         weir uninstall",
                        self.namespace, self.pod
                    ),
                    service_account: None,
                };
            }
            if refused == REFUSALS {
                return goes(
                    "the API server refuses the token of the service account, which is gone then",
                );
            }
            if Instant::now() + PAUSE > end {
                return Verdict::Stays {
                    why: unanswered(&error),
                    service_account: None,
                };
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&self) -> Result<Verdict, Error> {
        let goes = |why: String| Ok(Verdict::Goes { why });
        let client = Client::new(&self.kubeconfig)?;
        let namespace = &self.namespace;
        if let Some(why) = no_name(namespace) {
            return goes(why);
        }
        let known = match self.is_a_pod() {
            true => self.known(&client)?,
            false => self.usual.clone().ok_or_else(|| "there is no pod".into()),
        };
        let known = match known {
            Ok(known) => known,
            Err(why) => return goes(why),
        };
        // One of the same name that was made anew goes on as well: its pod comes to this node.
        let name = &known.daemon_set;
        let what = format!("DaemonSet {namespace}/{name}");
        let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}");
        let daemon_set = match found(client.object::<Object>(&path, &what, REQUEST))? {
            Some(set) if set.metadata.deletion_timestamp.is_none() => set,
            Some(_) => return goes(format!("{what} is being deleted")),
            None => return goes(format!("{what} is gone")),
        };
        let node_name = known.node.as_ref().unwrap_or(&self.node);
        if affinity::is_needed(&daemon_set.spec) {
            let path = format!("/api/v1/nodes/{node_name}");
            let node = client.object::<Object>(&path, &format!("node {node_name}"), REQUEST)?;
            if !affinity::matches(&daemon_set.spec, node_name, &node.metadata.labels) {
                return goes(format!("{what} is no longer for node {node_name}"));
            }
        }
        Ok(Verdict::Stays {
            why: format!("{what} goes on, and its next pod on this node takes over"),
            service_account: known.service_account,
        })
    }

    /// Whom the pod that POD_NAME says belongs to; the inner error is why to nobody.
    fn known(&self, client: &Client) -> Result<Result<Known, String>, Error> {
        let (namespace, name) = (&self.namespace, &self.pod);
        if let Some(why) = no_name(name) {
            return Ok(Err(why));
        }
        let what = format!("pod {namespace}/{name}");
        Ok(
            match found(client.pod::<Object>(namespace, name, REQUEST))? {
                Some(pod) => {
                    Known::of(&pod).ok_or_else(|| format!("{what} belongs to no DaemonSet"))
                }
                // The object went before it could be asked for.
                None => (self.memory.get().or_else(|| self.usual.clone()))
                    .ok_or_else(|| format!("there is no {what}, whose name POD_NAME says")),
            },
        )
    }

    /// `kubectl create token SERVICE_ACCOUNT`: one that is good when this agent's pod, to which the mounted token is
    /// bound, is gone. The token and the time until which it is good.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn token(&self, service_account: &str) -> Result<(String, String), String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            token: String,
            #[serde(default)]
            expiration_timestamp: String,
        }
        #[derive(Deserialize)]
        struct TokenRequest {
            #[serde(deserialize_with = "json::object")]
            status: Status,
        }
        if let Some(why) = no_name(service_account) {
            return Err(why);
        }
        let namespace = &self.namespace;
        let path =
            format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
        let what = format!("a token of service account {namespace}/{service_account}");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": VALID},
        });
        let client = Client::new(&self.kubeconfig).map_err(|e| e.reason.cause())?;
        let made = client.create::<TokenRequest>(&path, &what, &body, REQUEST);
        match made.map(|made| made.status) {
            Ok(status) if !status.token.is_empty() => {
                Ok((status.token, status.expiration_timestamp))
            }
            Ok(_) => Err("the API server answers without a token".into()),
            Err(e) => Err(format!(
                "{}{}",
                e.reason.cause(),
                remedy(&e, "create on its serviceaccounts/token", UPGRADE)
            )),
        }
    }
}

/// An object that is not there is an answer.
fn found(answer: Result<Object, Error>) -> Result<Option<Object>, Error> {
    match answer {
        Err(e) if matches!(e.reason, Reason::NotFound(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// Names go into paths. `None`: it is one.
fn no_name(text: &str) -> Option<String> {
    let valid = validate_kubernetes_name("the name", text).is_ok();
    (!valid).then(|| format!("{text:?} is no name of a Kubernetes object"))
}

/// A right is missing only where the server says so: one that is away grants nothing and refuses nothing.
fn remedy(error: &Error, right: &str, file: &str) -> String {
    match error.reason {
        Reason::Forbidden(_) => {
            format!("; the service account needs {right}, as agent/deploy/{file} grants")
        }
        _ => String::new(),
    }
}

fn unanswered(error: &Error) -> String {
    let (right, file) = match error.object.split_whitespace().next() {
        Some("pod") => ("get on pods", "weir.yaml"),
        Some("node") => ("get on nodes", "weir.yaml"),
        _ => ("get on daemonsets in apps", UPGRADE),
    };
    format!(
        "whether another agent comes cannot be found out: {}{}; without one, run weir uninstall",
        error.reason.cause(),
        remedy(error, right, file)
    )
}
