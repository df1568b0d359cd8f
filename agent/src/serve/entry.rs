//! The socket where the plugin hands over a pod of ambient mode that is about to start.

use super::http::{Answer, answer};
use super::peer;
use crate::ambient::{CheckError, Entry, HandedOver};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::os::unix::net::UnixListener;
use std::time::Duration;
use weir_core::journal::Journal;
use weir_core::journal::ambient::Event;

/// The path for CNI ADD.
const PATH: &str = "/cmdadd";
/// The path for CNI CHECK, which tests that a pod is enrolled. Istio's agent has no such path.
const CHECK: &str = weir_cni::plugin::CHECK_PATH;
/// Time limit of a connection: the plugin gives up after 5 s.
const LIMIT: Duration = Duration::from_secs(6);
/// Maximum size of the body in bytes: names, a path, and addresses.
const BODY: usize = 64 << 10;

pub(super) async fn serve(listener: UnixListener, entry: Entry, journal: Journal) {
    // A client that may name the network namespace of a pod could have any namespace captured.
    let does = ("hands pods over", &journal.clone());
    let handler = move |request: Request<Incoming>| {
        let (entry, journal) = (entry.clone(), journal.clone());
        async move { respond(request, &entry, &journal).await }
    };
    peer::serve(listener, does, || {}, LIMIT, handler).await;
}

async fn respond(request: Request<Incoming>, entry: &Entry, journal: &Journal) -> Answer {
    // As upstream: any method is accepted, and the query string is ignored.
    let checks = request.uri().path() == CHECK;
    if request.uri().path() != PATH && !checks {
        let text = format!("post a pod to {PATH}, or to {CHECK}\n");
        return answer(StatusCode::NOT_FOUND, text);
    }
    let body = Limited::new(request.into_body(), BODY).collect().await;
    let read = match body {
        Ok(body) => HandedOver::read(&body.to_bytes()),
        Err(e) => Err(e.to_string()),
    };
    let read = read.map_err(|why| format!("the body cannot be read: {why}"));
    // CHECK does not hand over a pod.
    if checks {
        let (status, why) = match &read {
            Ok((pod, _)) => match entry.check(pod).await {
                Ok(()) => return answer(StatusCode::OK, ""),
                Err(CheckError::Differs(why)) => (StatusCode::INTERNAL_SERVER_ERROR, why),
                // The plugin does not report this as a difference.
                Err(CheckError::Unknown(why)) => (StatusCode::SERVICE_UNAVAILABLE, why),
            },
            Err(why) => (StatusCode::BAD_REQUEST, why.clone()),
        };
        return answer(status, format!("{why}\n"));
    }
    let (pod, status, why) = match read {
        Err(why) => (
            "of an unknown name".to_owned(),
            StatusCode::BAD_REQUEST,
            Some(why),
        ),
        Ok((pod, addresses)) => match entry.enrol(&pod, addresses).await {
            Ok(but) => (pod.name(), StatusCode::OK, but),
            Err(why) => (pod.name(), StatusCode::INTERNAL_SERVER_ERROR, Some(why)),
        },
    };
    let text = why.as_ref().filter(|_| status != StatusCode::OK);
    let text = text.map(|why| format!("{why}\n"));
    journal.record(Event::HandedOver {
        status: status.as_u16(),
        pod,
        why,
    });
    answer(status, text.unwrap_or_default())
}
