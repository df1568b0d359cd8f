//! Looks up the pod and its namespace: at the node agent, which watches the node's pods, else at the API server.
//!
//! The plugin asks the agent first: it already knows the pod, even while the API server does not answer. If the
//! agent does not answer, or not with the pod, the plugin asks the API server.

use std::cell::Cell;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::POD_SOCKET;
use super::enrol::{Candidate, Plugin};
use crate::api;
use crate::config::beginning;
use crate::http::post;
use crate::json;
use crate::log::Level;
use crate::pod::{Namespace, Pod};

/// Path to which questions are posted.
pub const POD_PATH: &str = "/pod";

/// The request to the agent: the identity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodQuestion {
    /// `K8S_POD_NAMESPACE`
    pub namespace: String,
    /// `K8S_POD_NAME`
    pub name: String,
    /// `K8S_POD_UID`: another pod may have had the same name a moment ago.
    pub uid: String,
    /// `CNI_NETNS`, so that the agent need not search for the network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<NetnsOfPod>,
}

/// The network namespace that the container runtime gave the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsOfPod {
    /// Its path in the mount namespace of the runtime.
    pub path: PathBuf,
    /// `st_dev` of the file at that path.
    pub dev: u64,
    /// `st_ino` of the file at that path.
    pub ino: u64,
}

impl NetnsOfPod {
    /// Reads the identity of the file at `path`; `None` if that fails.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            dev: meta.dev(),
            ino: meta.ino(),
        })
    }
}

/// The agent's answer: objects in the form of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodAnswer {
    /// The pod, without the fields that no decision needs.
    #[serde(deserialize_with = "json::object")]
    pub pod: Pod,
    /// Its namespace, if the agent knows it.
    #[serde(default, deserialize_with = "json::optional")]
    pub namespace: Option<Namespace>,
}

/// True once the agent failed to answer properly: it is not asked again in this call.
#[derive(Debug, Default)]
pub(super) struct Patience(Cell<bool>);

impl Plugin<'_> {
    /// Reads the pod from the node agent or the API server.
    pub(super) fn read_pod(
        &self,
        candidate: &Candidate,
        until: Instant,
    ) -> Result<Pod, api::Error> {
        match self.ask_agent(candidate, until) {
            Some(answer) => Ok(answer.pod),
            None => pod_of_server(candidate, until),
        }
    }

    /// Reads the pod and its namespace.
    pub(super) fn read_pod_and_namespace(
        &self,
        candidate: &Candidate,
        until: Instant,
    ) -> Result<(Pod, Namespace), api::Error> {
        let (pod, namespace) = match self.ask_agent(candidate, until) {
            Some(answer) => (answer.pod, answer.namespace),
            None => (pod_of_server(candidate, until)?, None),
        };
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => namespace_of_server(candidate, until)?,
        };
        Ok((pod, namespace))
    }

    /// Sends `POST /pod` to the agent. `None`, with the reason in the log: the caller must ask the API server.
    fn ask_agent(&self, candidate: &Candidate, until: Instant) -> Option<PodAnswer> {
        let args = &candidate.args;
        if args.pod_uid.is_empty() || candidate.patience.0.get() {
            return None;
        }
        let question = PodQuestion {
            namespace: args.pod_namespace.clone(),
            name: args.pod_name.clone(),
            uid: args.pod_uid.clone(),
            netns: candidate.netns.clone(),
        };
        let socket = candidate.conf.run_file(POD_SOCKET);
        let body = serde_json::to_string(&question).ok()?;
        let left = until.saturating_duration_since(Instant::now());
        let limit = self.limits.look_up.min(left);
        let answer = post(&socket, POD_PATH, body, limit).map_err(|e| unheard(&e));
        let (level, why) = match answer.and_then(|response| read(&response, &question)) {
            Ok(answer) => {
                self.log.debug("the node agent knows the pod");
                return Some(answer);
            }
            Err(reason) => reason,
        };
        // Do not ask an agent again that did not answer in time or gave an invalid answer.
        candidate.patience.0.set(level == Level::Warn);
        let line = format!(
            "the node agent at {} {why}; the API server is asked instead",
            socket.display()
        );
        self.log.say(level, &line);
        None
    }
}

type Reason = (Level, String);

/// Classifies a failed request. A missing agent, or one that does not listen, is not a fault.
fn unheard(error: &Error) -> Reason {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            (Level::Info, format!("does not listen: {error}"))
        }
        _ => (Level::Warn, format!("gives no answer: {error}")),
    }
}

fn read(response: &crate::http::Response, question: &PodQuestion) -> Result<PodAnswer, Reason> {
    let said = beginning(response.body.trim(), 200);
    match response.status {
        200 => {}
        404 | 503 => return Err((Level::Info, format!("does not know the pod: {said}"))),
        status => return Err((Level::Warn, format!("answers status {status}: {said}"))),
    }
    let garbage = |what: String| (Level::Warn, format!("does not answer the question: {what}"));
    let mut answer: PodAnswer =
        json::from_str(&response.body).map_err(|e| garbage(e.to_string()))?;
    let metadata = &answer.pod.metadata;
    let named = metadata.namespace == question.namespace && metadata.name == question.name;
    if !(named && answer.pod.is_called(&question.uid)) {
        let (namespace, name, uid) = (&metadata.namespace, &metadata.name, &metadata.uid);
        return Err(garbage(format!(
            "it is about {namespace:?}/{name:?}, uid {uid:?}"
        )));
    }
    answer.namespace = answer
        .namespace
        .filter(|namespace| namespace.metadata.name == question.namespace);
    Ok(answer)
}

/// Reads the pod from the API server, and checks its identity.
///
/// Every field of a pod may be absent, so any JSON object reads as a pod without containers, which would be let through,
/// outside the mesh.
fn pod_of_server(candidate: &Candidate, until: Instant) -> Result<Pod, api::Error> {
    let args = &candidate.args;
    let (namespace, name) = (args.pod_namespace.as_str(), args.pod_name.as_str());
    let client = candidate.client()?;
    let pod: Pod = client.pod(namespace, name, candidate.limit(until))?;
    let found = (pod.metadata.namespace.as_str(), pod.metadata.name.as_str());
    let object = format!("pod {namespace}/{name}");
    if found != (namespace, name) {
        let what = format!("it is about {:?}/{:?}", found.0, found.1);
        return Err(client.garbage(&object, what));
    }
    // Some runtimes pass no UID; the name must suffice for these.
    if !args.pod_uid.is_empty() && !pod.is_called(&args.pod_uid) {
        let (known, asked) = (&pod.metadata.uid, &args.pod_uid);
        let what = format!(
            "the API server has one with the UID {known:?}, and the runtime starts {asked:?}"
        );
        return Err(client.failed(&object, api::Reason::OtherPod(what)));
    }
    Ok(pod)
}

fn namespace_of_server(candidate: &Candidate, until: Instant) -> Result<Namespace, api::Error> {
    let name = &candidate.args.pod_namespace;
    let client = candidate.client()?;
    let namespace: Namespace = client.namespace(name, candidate.limit(until))?;
    if namespace.metadata.name == *name {
        return Ok(namespace);
    }
    let what = format!("it is about {:?}", namespace.metadata.name);
    Err(client.garbage(&format!("namespace {name}"), what))
}
