//! `/healthz` and `/readyz`.

use super::Ready;
use super::http::{self, Answer, Shared, answer};
use hyper::StatusCode;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use weir_show::status::Status;

const LIMIT: Duration = Duration::from_secs(5);
/// Length of the accept queue: probes share it with clients that reconnect repeatedly. The
/// kernel limits it to `net.core.somaxconn`, whose default is 4096 since 5.4.
const BACKLOG: i32 = 4096;

/// Listens on all addresses, IPv6 and IPv4 if the node has both.
pub(crate) fn bind(port: u16) -> std::io::Result<TcpListener> {
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    // The first fails on nodes without IPv6.
    let listener = listen(any6).or_else(|_| listen(any4))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), None)?;
    if address.is_ipv6() {
        // Otherwise /proc/sys/net/ipv6/bindv6only decides, and a kubelet may connect over IPv4.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

pub(super) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    ready: Ready,
    status: Status,
) {
    let handler = move |request: hyper::Request<hyper::body::Incoming>| {
        let answer = respond(request.uri().path(), &ready, &status);
        async move { answer }
    };
    http::serve_port(listener, shared, LIMIT, handler).await;
}

fn respond(path: &str, ready: &Ready, status: &Status) -> Answer {
    match path {
        "/healthz" => answer(StatusCode::OK, "ok\n"),
        "/readyz" => {
            let mut missing = status.missing();
            if !ready.get() {
                missing.push(("plugin installed", status.not_installed()));
            }
            let lines = missing
                .iter()
                .map(|(guard, why)| format!("{guard}: {why}\n"));
            match missing.is_empty() {
                true => answer(StatusCode::OK, "ok\n"),
                false => answer(StatusCode::SERVICE_UNAVAILABLE, lines.collect::<String>()),
            }
        }
        _ => answer(StatusCode::NOT_FOUND, "ask /healthz or /readyz\n"),
    }
}
