//! A substitute for the API server: serves one pod, on loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Timeout of a connection; the plugin is faster.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(super) struct PodServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PodServer {
    /// Answers `GET /api/v1/namespaces/NAMESPACE/pods/NAME` with this pod.
    ///
    /// # Errors
    /// No port is free on loopback, or loopback is down.
    pub(super) fn start(path: String, pod: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().spawn(move || {
            for stream in listener.incoming().flatten() {
                if told.load(Ordering::Acquire) {
                    return;
                }
                // A client that disconnects is no error.
                let _ = answer(&stream, &path, &pod);
            }
        })?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// The address it listens on.
    #[must_use]
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PodServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes `accept`.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: &TcpStream, path: &str, pod: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let asked = request.split(' ').nth(1).and_then(|p| p.split('?').next());
    let (status, body) = if asked == Some(path) {
        ("200 OK", pod)
    } else {
        (
            "404 Not Found",
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#,
        )
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
