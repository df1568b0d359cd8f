//! `/metrics`.

use super::http::{self, Answer, answer};
use crate::node::metrics::Metrics;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::net::TcpListener;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
/// What the text is; Prometheus reads it since 2.5.
const OPENMETRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// As for health.
pub(crate) fn bind(port: u16) -> std::io::Result<TcpListener> {
    super::health::bind(port)
}

pub(super) async fn serve(listener: TcpListener, metrics: Metrics) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
    let handler = move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = respond(request.uri().path(), &metrics);
        async move { answer }
    };
    http::serve(accept, LIMIT, handler).await;
}

fn respond(path: &str, metrics: &Metrics) -> Answer {
    if path != "/metrics" {
        return answer(StatusCode::NOT_FOUND, "ask /metrics\n");
    }
    let mut answer = answer(StatusCode::OK, metrics.text());
    answer.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
    answer
}
