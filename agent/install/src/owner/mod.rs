//! Determines why the agent received SIGTERM: an upgrade or a reboot of the node, after which another agent follows, or the end of
//! the mesh on this node.
//!
//! The kubelet sends the same SIGTERM in all of these cases. If the installation were removed each time, every pod that
//! starts before the next agent is ready would start outside of the mesh, and would stay there if no agent follows. So the
//! API server is asked, as by `install-cni` in ambient mode, whether the DaemonSet of the agent's pod continues on this node.
//! Without an answer the installation stays: left without need, it is an obstacle until `weir uninstall`; removed without
//! need, it lets pods start outside of the mesh.

mod affinity;
mod known;

use super::desired::Desired;
use known::{Known, Memory};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_cni::api::{Client, Error, Reason};
use weir_cni::json;
use weir_cni::protocol::is_kubernetes_name;
use weir_core::journal::cut;
use weir_core::pods::Pods;
use weir_core::settings::Resolved;

/// Time limit for one request.
const REQUEST: Duration = Duration::from_secs(2);
/// Time limit for all attempts. The kubelet waits 30 seconds before it kills the agent, and an uninstallation removes the
/// DaemonSet, the rights and the service account within a few.
const LIMIT: Duration = Duration::from_secs(5);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of rejections after which the token's service account counts as deleted; a starting server may reject it once.
const REFUSALS: u32 = 3;
/// Validity in seconds of the token with which the plugin works until the next agent: a long weekend, and three days for a
/// node that returns after it. An API server may shorten it.
const VALID: u32 = 7 * 24 * 3600;

/// File in `agent/deploy` with the rights that only an upgrade needs.
const UPGRADE: &str = "upgrade-rbac.yaml";

/// The decision about the installation, with its reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Another agent follows, or that is unknown. With the service account of both agents, if known.
    Stays {
        why: String,
        service_account: Option<String>,
    },
    /// No agent follows this one.
    Goes { why: String },
}

/// The owner of the agent's pod.
#[derive(Clone)]
pub struct Owner {
    namespace: String,
    pod: String,
    node: String,
    kubeconfig: PathBuf,
    /// The CA of the API server: the plugin's kubeconfig may turn verification off, and an answer here removes the installation.
    ca: PathBuf,
    /// The installation is always removed, without asking the API server.
    always_removes: bool,
    /// The names in upstream's manifests, used if there is no pod that names its owner; `None` without ambient mode,
    /// in which upstream does not ask.
    usual: Option<Known>,
    /// The store of the watch, to check this agent's own pod.
    pods: Option<Pods>,
    /// What was learned about the pod while it existed.
    memory: Arc<Memory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    name: String,
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
    #[serde(default)]
    kind: String,
    #[serde(deserialize_with = "json::object")]
    metadata: Meta,
    #[serde(default)]
    spec: Value,
}

impl Object {
    fn text(&self, pointer: &str) -> Option<&str> {
        self.spec.pointer(pointer).and_then(Value::as_str)
    }

    /// Requests an object; `None` if there is none. An answer about another object is an error: it comes from a server that is
    /// no API server.
    fn get(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Option<Self>> {
        let failed = |error| Unanswered {
            kind: Some(kind),
            error,
        };
        let what = kind.object(namespace, name);
        let found: Self = match client.object(&kind.path(namespace, name), &what, REQUEST) {
            Err(e) if matches!(e.reason, Reason::NotFound(_)) => return Ok(None),
            answer => answer.map_err(failed)?,
        };
        let is = |said: &str, wanted: &str| said.is_empty() || said == wanted;
        match is(&found.kind, kind.name()) && is(&found.metadata.name, name) {
            true => Ok(Some(found)),
            false => {
                let about = cut(&format!("{} {}", found.kind, found.metadata.name));
                Err(failed(
                    client.garbage(&what, format!("it is about {about:?}")),
                ))
            }
        }
    }
}

/// The kind of a requested object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pod,
    DaemonSet,
    Node,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::DaemonSet => "DaemonSet",
            Self::Node => "Node",
        }
    }

    /// The object in an error text. A node has no namespace.
    fn object(self, namespace: &str, name: &str) -> String {
        match self {
            Self::Pod => format!("pod {namespace}/{name}"),
            Self::DaemonSet => format!("DaemonSet {namespace}/{name}"),
            Self::Node => format!("node {name}"),
        }
    }

    fn path(self, namespace: &str, name: &str) -> String {
        match self {
            Self::Pod => format!("/api/v1/namespaces/{namespace}/pods/{name}"),
            Self::DaemonSet => format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"),
            Self::Node => format!("/api/v1/nodes/{name}"),
        }
    }

    /// The RBAC rule that a request needs, and the file of `agent/deploy` that grants it.
    fn rule(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod => ("get on pods", "weir.yaml"),
            Self::DaemonSet => ("get on daemonsets in apps", UPGRADE),
            Self::Node => ("get on nodes", "weir.yaml"),
        }
    }
}

/// A failed request.
#[derive(Debug)]
struct Unanswered {
    /// The kind of the requested object; `None` if no request was sent.
    kind: Option<Kind>,
    error: Error,
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self { kind: None, error }
    }
}

type Result<T, E = Unanswered> = std::result::Result<T, E>;

impl Owner {
    /// Creates the owner from the settings. `node` is the node whose pods are watched.
    pub fn new(r: &Resolved, node: &str, desired: &Desired, pods: Option<Pods>) -> Self {
        Self {
            namespace: r.text("POD_NAMESPACE").to_owned(),
            pod: r.text("POD_NAME").to_owned(),
            node: node.to_owned(),
            kubeconfig: desired.kubeconfig.clone(),
            ca: desired.access.ca(),
            always_removes: r.bool("AMBIENT_DISABLE_SAFE_UPGRADE"),
            usual: r.bool("AMBIENT_ENABLED").then(Known::usual),
            pods,
            memory: Arc::default(),
        }
    }

    /// Returns true if the settings name the agent's pod.
    pub(crate) fn is_a_pod(&self) -> bool {
        !self.pod.is_empty() && !self.namespace.is_empty()
    }

    /// Returns true if there is a DaemonSet to query.
    pub(crate) fn can_ask(&self) -> bool {
        self.is_a_pod() || (self.usual.is_some() && !self.namespace.is_empty())
    }

    fn client(&self) -> Result<Client, Error> {
        Client::verifying(&self.kubeconfig, &self.ca)
    }

    /// Decides whether the installation stays. Takes at most [`LIMIT`], and one [`REQUEST`] each for two more objects.
    pub(crate) fn verdict(&self) -> Verdict {
        let goes = |why: &str| Verdict::Goes { why: why.into() };
        // If another agent follows, it is of the same DaemonSet.
        let stays = |why: String| Verdict::Stays {
            why,
            service_account: self.memory.get().and_then(|known| known.service_account),
        };
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
            if matches!(error.error.reason, Reason::Unauthorized(_)) {
                refused += 1;
            }
            if refused == REFUSALS && self.pod_went() {
                // The token ends with the pod to which it is bound, so its rejection says nothing about the service account.
                return stays(format!(
                    "the API server rejects the token of pod {}/{}, which is gone; if no agent follows, run weir \
                     uninstall",
                    self.namespace, self.pod
                ));
            }
            if refused == REFUSALS {
                return goes("the API server rejects the token, so its service account is gone");
            }
            if Instant::now() + PAUSE > end {
                return stays(error.to_string());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn ask(&self) -> Result<Verdict> {
        let goes = |why: String| Ok(Verdict::Goes { why });
        let client = self.client()?;
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
        // A recreated DaemonSet of the same name continues as well: its pod will run on this node.
        let name = &known.daemon_set;
        let what = Kind::DaemonSet.object(namespace, name);
        let daemon_set = match Object::get(&client, Kind::DaemonSet, namespace, name)? {
            Some(set) if set.metadata.deletion_timestamp.is_none() => set,
            Some(_) => return goes(format!("{what} is being deleted")),
            None => return goes(format!("{what} is gone")),
        };
        let node_name = known.node.as_ref().unwrap_or(&self.node);
        if affinity::is_needed(&daemon_set.spec) {
            let of_node = Kind::Node.object(namespace, node_name);
            let node = Object::get(&client, Kind::Node, namespace, node_name)?
                .ok_or_else(|| client.failed(&of_node, Reason::NotFound("it is gone".into())))?;
            if !affinity::matches(&daemon_set.spec, node_name, &node.metadata.labels) {
                return goes(format!("{what} no longer selects {of_node}"));
            }
        }
        Ok(Verdict::Stays {
            why: format!("{what} continues, and its next pod on this node takes over"),
            service_account: known.service_account,
        })
    }

    /// Returns the owner of the pod that POD_NAME names. The inner error is the reason why it has none.
    fn known(&self, client: &Client) -> Result<Result<Known, String>> {
        let (namespace, name) = (&self.namespace, &self.pod);
        if let Some(why) = no_name(name) {
            return Ok(Err(why));
        }
        let what = Kind::Pod.object(namespace, name);
        Ok(match self.pod(client)? {
            Some(pod) => Known::of(&pod).ok_or_else(|| format!("{what} belongs to no DaemonSet")),
            // The object was removed before the query.
            None => (self.memory.get().or_else(|| self.usual.clone()))
                .ok_or_else(|| format!("{what}, which POD_NAME names, does not exist")),
        })
    }

    /// Asks for the pod that POD_NAME names.
    fn pod(&self, client: &Client) -> Result<Option<Object>> {
        Object::get(client, Kind::Pod, &self.namespace, &self.pod)
    }

    /// As `kubectl create token SERVICE_ACCOUNT`: creates a token that stays valid after this agent's pod, to which the mounted
    /// token is bound. Returns the token and its expiration time.
    ///
    /// # Errors
    /// A text with the reason.
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
        let client = self.client().map_err(|e| e.reason.cause())?;
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

/// Checks a name, since it becomes part of a path. `None` if it is valid.
fn no_name(text: &str) -> Option<String> {
    (!is_kubernetes_name(text)).then(|| format!("{text:?} is not a name of a Kubernetes object"))
}

/// Returns the remedy for a missing right. Only an answer of the server shows that a right is missing.
fn remedy(error: &Error, right: &str, file: &str) -> String {
    match error.reason {
        Reason::Forbidden(_) => {
            format!("; the service account needs {right}, as agent/deploy/{file} grants")
        }
        _ => String::new(),
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = self.kind.map(|kind| {
            let (right, file) = kind.rule();
            remedy(&self.error, right, file)
        });
        write!(
            f,
            "it is unknown whether another agent follows on this node: {}{}; if none follows, run weir uninstall",
            self.error.reason.cause(),
            remedy.unwrap_or_default()
        )
    }
}
