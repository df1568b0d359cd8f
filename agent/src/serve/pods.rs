//! The socket where the plugin queries a pod that is about to start.

use super::http::{Answer, answer};
use super::peer;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;
use weir_cni::json;
use weir_cni::plugin::{POD_PATH, PodAnswer, PodQuestion};
use weir_cni::pod::{Namespace, NamespaceMetadata};
use weir_core::journal::Journal;
use weir_core::journal::serve::{Event, Lookup};
use weir_core::pods::{PodView, Pods};
use weir_core::sandboxes::Sandboxes;

/// Maximum time that a query waits for a pod that was not seen yet: the API server notifies the kubelet and this agent
/// at the same time, and the kubelet may be faster. The plugin gives up after twice that time.
const WAIT: Duration = Duration::from_secs(1);
/// Time limit of a connection.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of a query in bytes: three names and a path.
const BODY: usize = 8 << 10;

pub(super) async fn serve(
    listener: UnixListener,
    (pods, sandboxes): (Pods, Sandboxes),
    journal: Journal,
) {
    let counts = journal.clone();
    let refused = || {
        let result = Lookup::Refused;
        counts.record(Event::PodLookup { result });
    };
    // Only the container runtime of this node may read facts of pods.
    let does = ("asks for pods", &counts);
    let handler = move |request: Request<Incoming>| {
        let (pods, sandboxes, journal) = (pods.clone(), sandboxes.clone(), journal.clone());
        async move {
            let (result, answer) = respond(request, &pods, &sandboxes).await;
            journal.record(Event::PodLookup { result });
            answer
        }
    };
    peer::serve(listener, does, refused, LIMIT, handler).await;
}

async fn respond(
    request: Request<Incoming>,
    pods: &Pods,
    sandboxes: &Sandboxes,
) -> (Lookup, Answer) {
    if request.uri().path() != POD_PATH {
        let text = format!("post a question to {POD_PATH}\n");
        return (Lookup::Malformed, answer(StatusCode::NOT_FOUND, text));
    }
    let body = Limited::new(request.into_body(), BODY).collect().await;
    let question = match body {
        Ok(body) => json::from_slice(&body.to_bytes()).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    let question: PodQuestion = match question {
        Ok(question) => question,
        Err(e) => {
            let text = format!("the question cannot be read: {e}\n");
            return (Lookup::Malformed, answer(StatusCode::BAD_REQUEST, text));
        }
    };
    match wait(pods, &question).await {
        Some(view) => {
            if let Some(netns) = question.netns {
                sandboxes.announce(view.uid(), netns);
            }
            known(&view, pods)
        }
        None if !pods.synced() => {
            let text = "the API server has not listed the pods of this node yet\n";
            (
                Lookup::Unsynced,
                answer(StatusCode::SERVICE_UNAVAILABLE, text),
            )
        }
        None => {
            let text = "no pod of this name and uid on this node\n";
            (Lookup::Unknown, answer(StatusCode::NOT_FOUND, text))
        }
    }
}

/// Returns the pod, waiting for it to appear if necessary.
async fn wait(pods: &Pods, question: &PodQuestion) -> Option<Arc<PodView>> {
    let mut changes = pods.subscribe();
    let seen = async {
        loop {
            changes.borrow_and_update();
            let view = pods.get(&question.namespace, &question.name);
            if let Some(view) = view.filter(|v| v.pod.is_called(&question.uid)) {
                return Some(view);
            }
            changes.changed().await.ok()?;
        }
    };
    tokio::time::timeout(WAIT, seen).await.ok()?
}

fn known(view: &PodView, pods: &Pods) -> (Lookup, Answer) {
    let namespace = pods.namespace(view.namespace()).map(|seen| Namespace {
        metadata: NamespaceMetadata {
            name: seen.name.clone(),
            labels: Some(seen.labels.clone()),
        },
    });
    let pod = view.pod.clone();
    match serde_json::to_vec(&PodAnswer { pod, namespace }) {
        Ok(text) => (Lookup::Known, answer(StatusCode::OK, text)),
        Err(e) => {
            let text = format!("the answer cannot be written: {e}\n");
            (
                Lookup::Malformed,
                answer(StatusCode::INTERNAL_SERVER_ERROR, text),
            )
        }
    }
}
