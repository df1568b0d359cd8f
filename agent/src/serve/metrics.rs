//! `/metrics`, and the state of this agent and its node: `/` as HTML, `/status.json` as JSON.

use super::http::{self, Answer, Shared, answer};
use hyper::StatusCode;
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use weir_show::metrics::Metrics;
use weir_show::status::{Facts, POLICY, Status, html};

const LIMIT: Duration = Duration::from_secs(10);
/// For clients that accept it, as Prometheus does since 2.5.
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// For all other clients.
const CLASSIC: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    metrics: Metrics,
    status: Status,
) {
    let handler = move |request: hyper::Request<hyper::body::Incoming>| {
        let accepted = request.headers().get_all(ACCEPT).iter();
        let openmetrics = accepted
            .filter_map(|a| a.to_str().ok())
            .any(|a| a.contains("application/openmetrics-text"));
        let answer = respond(request.uri().path(), openmetrics, &metrics, &status);
        async move { answer }
    };
    http::serve_port(listener, shared, LIMIT, handler).await;
}

fn respond(path: &str, openmetrics: bool, metrics: &Metrics, status: &Status) -> Answer {
    let (text, kind) = match path {
        "/metrics" if openmetrics => (metrics.text(), OPENMETRICS),
        "/metrics" => (metrics.classic_text(), CLASSIC),
        "/" => (html(&Facts::of(status)), HTML),
        "/status.json" | "/debug" => (Facts::of(status).json(), JSON),
        _ => {
            let text = "ask / for a page about this node, /status.json for the same as JSON, or /metrics\n";
            return answer(StatusCode::NOT_FOUND, text);
        }
    };
    let mut answer = answer(StatusCode::OK, text);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
