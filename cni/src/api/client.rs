//! The client for the API server: one request at a time, each on its own connection.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::{Error, Reason};
use super::kubeconfig::{self, Access};
use super::server::Server;
use super::tls;
use crate::config::{beginning, said};
use crate::files;
use crate::http::{Response, read_response, shown};

/// Time limit of one request, including connecting and reading the answer.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Maximum body size. The API server stores objects of at most 1.5 MiB; as JSON they may be larger.
const BODY_LIMIT: u64 = 16 << 20;

/// Number of characters of an answer that an error shows, enough to recognise the server that sent it.
const SHOWN: usize = 200;

/// A client for the server of one kubeconfig.
pub struct Client {
    kubeconfig: PathBuf,
    /// The URL as written in the kubeconfig, for messages.
    url: String,
    target: Arc<Target>,
}

/// The data that a request needs, shared with the thread that performs it.
struct Target {
    server: Server,
    server_name: ServerName<'static>,
    /// `None` for plain HTTP to a server on loopback.
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
}

impl Client {
    /// Creates a client from the kubeconfig at `path`; does not connect yet.
    ///
    /// # Errors
    /// [`Reason::Kubeconfig`] if the file is missing, unreadable or not usable, [`Reason::Tls`] if its certificates are not
    /// usable.
    pub fn new(path: &Path) -> Result<Self, Error> {
        Self::of(path, kubeconfig::load(path)?)
    }

    /// As [`new`](Self::new), but verifies the server by the CA in the PEM file `ca`, even if the kubeconfig turns verification off.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Reason::Tls`] if the CA cannot be read.
    pub fn verifying(path: &Path, ca: &Path) -> Result<Self, Error> {
        let mut access = kubeconfig::load(path)?;
        // The server of a URL without TLS has no certificate.
        if Server::parse(&access.server).is_ok_and(|server| server.tls) {
            let authority = files::read(ca).map_err(|e| Error {
                kubeconfig: path.into(),
                server: access.server.clone(),
                object: String::new(),
                reason: Reason::Tls(format!("the CA {}: {e}", ca.display())),
            })?;
            access.authority = Some(authority);
        }
        Self::of(path, access)
    }

    fn of(path: &Path, access: Access) -> Result<Self, Error> {
        let failed = |reason: Reason| Error {
            kubeconfig: path.into(),
            server: access.server.clone(),
            object: String::new(),
            reason,
        };
        let Access {
            server: url,
            server_name,
            token,
            ..
        } = &access;
        let server = Server::parse(url).map_err(|e| failed(Reason::Kubeconfig(e)))?;
        let name = server_name.clone().unwrap_or_else(|| server.host.clone());
        let server_name = ServerName::try_from(name)
            .map_err(|e| failed(Reason::Kubeconfig(format!("the server's name: {e}"))))?;
        let tls = match server.tls {
            true => Some(Arc::new(
                tls::config(&access).map_err(|e| failed(Reason::Tls(e)))?,
            )),
            false => None,
        };
        let target = Target {
            server,
            server_name,
            tls,
            token: token.clone(),
        };
        Ok(Self {
            kubeconfig: path.into(),
            url: url.clone(),
            target: Arc::new(target),
        })
    }

    /// Reads a pod: `kubectl get pod -n NAMESPACE NAME`, `GET /api/v1/namespaces/{ns}/pods/{name}`.
    ///
    /// # Errors
    /// See [`Reason`]; after `limit` [`Reason::Slow`].
    pub fn pod<T: DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<T, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        self.object(&path, &format!("pod {namespace}/{name}"), limit)
    }

    /// Reads a namespace: `kubectl get namespace NAME`, `GET /api/v1/namespaces/{name}`.
    ///
    /// # Errors
    /// See [`Reason`]; after `limit` [`Reason::Slow`].
    pub fn namespace<T: DeserializeOwned>(&self, name: &str, limit: Duration) -> Result<T, Error> {
        self.object(
            &format!("/api/v1/namespaces/{name}"),
            &format!("namespace {name}"),
            limit,
        )
    }

    /// Reads the object at a path: `kubectl get --raw PATH`. `object` describes it in errors.
    ///
    /// # Errors
    /// See [`Reason`]; after `limit` [`Reason::Slow`].
    pub fn object<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &str,
        limit: Duration,
    ) -> Result<T, Error> {
        let (method, path, body) = ("GET", path.to_owned(), String::new());
        self.exchange(Request { method, path, body }, object, limit)
    }

    /// Creates an object: `kubectl create --raw PATH -f BODY`, `POST PATH` with an object as JSON.
    ///
    /// # Errors
    /// As [`object`](Self::object).
    pub fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<T, Error> {
        let (method, path, body) = ("POST", path.to_owned(), body.to_string());
        self.exchange(Request { method, path, body }, object, limit)
    }

    /// Creates a [`Reason::Garbage`] error for a readable answer that is not about `object`; `what` describes the answer.
    #[must_use]
    pub fn garbage(&self, object: &str, what: String) -> Error {
        self.failed(object, Reason::Garbage(what))
    }

    /// Creates the error for a failed request about `object`.
    #[must_use]
    pub fn failed(&self, object: &str, reason: Reason) -> Error {
        Error {
            kubeconfig: self.kubeconfig.clone(),
            server: self.url.clone(),
            object: object.to_owned(),
            reason,
        }
    }

    /// Performs a request on a separate thread, because a name lookup has no timeout, and a server that sends single bytes
    /// would reset any read timeout. After the limit the thread is abandoned; it ends with the process.
    fn exchange<T: DeserializeOwned>(
        &self,
        request: Request,
        object: &str,
        limit: Duration,
    ) -> Result<T, Error> {
        let failed = |reason| self.failed(object, reason);
        let (done, answer) = mpsc::channel();
        let target = self.target.clone();
        let thread = std::thread::Builder::new()
            .name("api-request".into())
            .spawn(move || {
                // The receiver no longer exists if the limit has passed.
                let _ = done.send(target.exchange(&request, limit));
            });
        thread.map_err(|e| failed(Reason::Other(format!("cannot start a thread: {e}"))))?;
        let slow = |_| failed(Reason::Slow(format!("no answer within {}", shown(limit))));
        let response = answer.recv_timeout(limit).map_err(slow)?.map_err(failed)?;
        if !matches!(response.status, 200 | 201) {
            return Err(failed(refusal(&response)));
        }
        crate::json::from_str(&response.body).map_err(|error| {
            let error = said(&error);
            if serde_json::from_str::<Map<String, Value>>(&response.body).is_ok() {
                return failed(Reason::Misfit(error));
            }
            let beginning = beginning(&response.body, SHOWN);
            failed(Reason::Garbage(format!(
                "{error}; it begins with {beginning:?}"
            )))
        })
    }
}

/// One request.
struct Request {
    method: &'static str,
    path: String,
    /// JSON text; empty for no body.
    body: String,
}

impl Target {
    fn exchange(&self, request: &Request, limit: Duration) -> Result<Response, Reason> {
        let mut stream = self
            .server
            .connect(limit)
            .map_err(|error| match error.kind() {
                ErrorKind::TimedOut => {
                    Reason::Slow(format!("no connection within {}", shown(limit)))
                }
                // The server reset the connection before connect(2) returned.
                ErrorKind::ConnectionReset => {
                    Reason::of_transfer(&error, "before a request was sent")
                }
                _ => Reason::Unreachable(error.to_string()),
            })?;
        stream.set_read_timeout(Some(limit)).map_err(transfer)?;
        stream.set_write_timeout(Some(limit)).map_err(transfer)?;
        let text = self.text(request);
        let Some(tls) = self.tls.clone() else {
            stream.write_all(text.as_bytes()).map_err(transfer)?;
            return read_response(stream, BODY_LIMIT).map_err(transfer);
        };
        let mut session = ClientConnection::new(tls, self.server_name.clone())
            .map_err(|error| Reason::Tls(tls::words(&error)))?;
        // The handshake is a separate step, so that its failures can be distinguished, and the token is sent only to an
        // authenticated server.
        while session.is_handshaking() {
            session
                .complete_io(&mut stream)
                .map_err(|error| Reason::of_handshake(&error))?;
        }
        let mut stream = StreamOwned::new(session, stream);
        stream.write_all(text.as_bytes()).map_err(transfer)?;
        read_response(stream, BODY_LIMIT).map_err(transfer)
    }

    fn text(&self, request: &Request) -> String {
        let Request { method, path, body } = request;
        let Server {
            authority, base, ..
        } = &self.server;
        let (agent, version) = (crate::called_as(), env!("CARGO_PKG_VERSION"));
        let mut text = format!(
            "{method} {base}{path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {agent}/{version}\r\n\
             Accept: application/json\r\nConnection: close\r\n"
        );
        if let Some(token) = &self.token {
            text.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if !body.is_empty() {
            let length = body.len();
            text.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {length}\r\n"
            ));
        }
        text.push_str("\r\n");
        text.push_str(body);
        text
    }
}

/// The reason of a failure after the handshake. With TLS 1.3 the server refuses a client's certificate only now.
fn transfer(error: std::io::Error) -> Reason {
    Reason::of_transfer(&error, "after the request was sent")
}

/// The reason of a refused request, with the message of a `metav1.Status` or the beginning of any other answer.
fn refusal(response: &Response) -> Reason {
    let status: Option<Value> = serde_json::from_str(&response.body).ok();
    let message = status
        .as_ref()
        .and_then(|s| s.get("message"))
        .and_then(Value::as_str);
    let text = beginning(message.unwrap_or(response.body.trim()), SHOWN).to_owned();
    match response.status {
        401 => Reason::Unauthorized(text),
        403 => Reason::Forbidden(text),
        // Also without a `Status`, as in client-go.
        404 => Reason::NotFound(text),
        status => Reason::Status(status, text),
    }
}
