//! One GET at a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::core::params::GetParams;
use kube::core::request::Request;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::error::{Error, Reason, chain, classify};
use super::kubeconfig;

/// Limit of one request, connecting and reading the answer included.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// A client for the server of one kubeconfig, with the runtime it needs: one
/// thread, the caller's.
pub struct Client {
    kubeconfig: PathBuf,
    server: String,
    /// `None` only while dropped.
    runtime: Option<Runtime>,
    client: kube::Client,
}

impl Drop for Client {
    /// Does not wait for a name lookup that nobody needs any more.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    /// Makes a client from the kubeconfig at `path`; no server is asked yet.
    ///
    /// # Errors
    /// [`Reason::Kubeconfig`] when the file is missing, unreadable or not
    /// usable, [`Reason::Tls`] when its certificates are not.
    pub fn new(path: &Path) -> Result<Self, Error> {
        let runtime = runtime(path)?;
        let (server, client) = runtime.block_on(async {
            let mut config = kubeconfig::load(path).await?;
            // One attempt is one request: the caller counts and paces them.
            config.default_retry = false;
            config.connect_timeout = Some(REQUEST_LIMIT);
            config.read_timeout = Some(REQUEST_LIMIT);
            let server = config.cluster_url.to_string();
            let client = kube::Client::try_from(config).map_err(|error| Error {
                kubeconfig: path.into(),
                server: server.clone(),
                object: String::new(),
                reason: Reason::Tls(chain(&error)),
            })?;
            Ok::<_, Error>((server, client))
        })?;
        Ok(Self {
            kubeconfig: path.into(),
            server,
            runtime: Some(runtime),
            client,
        })
    }

    /// `kubectl get pod -n NAMESPACE NAME`, `GET /api/v1/namespaces/{ns}/pods/{name}`.
    ///
    /// # Errors
    /// See [`Reason`]; after `limit` [`Reason::Slow`].
    pub fn pod<T: DeserializeOwned>(
        &self,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<T, Error> {
        let object = format!("pod {namespace}/{name}");
        self.get(
            &format!("/api/v1/namespaces/{namespace}/pods"),
            name,
            object,
            limit,
        )
    }

    /// `kubectl get namespace NAME`, `GET /api/v1/namespaces/{name}`.
    ///
    /// # Errors
    /// See [`Reason`]; after `limit` [`Reason::Slow`].
    pub fn namespace<T: DeserializeOwned>(&self, name: &str, limit: Duration) -> Result<T, Error> {
        self.get(
            "/api/v1/namespaces",
            name,
            format!("namespace {name}"),
            limit,
        )
    }

    /// [`Reason::Garbage`] for an answer that could be read and is not about
    /// `object`; `what` says what it is.
    #[must_use]
    pub fn garbage(&self, object: String, what: String) -> Error {
        Error {
            kubeconfig: self.kubeconfig.clone(),
            server: self.server.clone(),
            object,
            reason: Reason::Garbage(what),
        }
    }

    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        object: String,
        limit: Duration,
    ) -> Result<T, Error> {
        let failed = |reason: Reason| Error {
            kubeconfig: self.kubeconfig.clone(),
            server: self.server.clone(),
            object: object.clone(),
            reason,
        };
        let mut request = Request::new(path)
            .get(name, &GetParams::default())
            .map_err(|error| failed(Reason::Other(chain(&error))))?;
        let agent = concat!("weir-cni/", env!("CARGO_PKG_VERSION"));
        if let Ok(agent) = agent.parse() {
            request.headers_mut().insert("user-agent", agent);
        }
        let asked = self.client.request_text(request);
        let Some(runtime) = &self.runtime else {
            return Err(failed(Reason::Other("the client is closed".into())));
        };
        let text = runtime
            .block_on(async { tokio::time::timeout(limit, asked).await })
            .map_err(|_| failed(Reason::Slow(format!("no answer within {limit:?}"))))?
            .map_err(|error| failed(reason(&error)))?;
        serde_json::from_str(&text).map_err(|error| {
            failed(Reason::Garbage(format!(
                "{error}; it begins with {:?}",
                beginning(&text)
            )))
        })
    }
}

fn reason(error: &kube::Error) -> Reason {
    match error {
        kube::Error::Api(status) => {
            let text = beginning(&status.message).to_owned();
            match status.code {
                401 => Reason::Unauthorized(text),
                403 => Reason::Forbidden(text),
                404 => Reason::NotFound(text),
                code => Reason::Status(code, text),
            }
        }
        kube::Error::FromUtf8(error) => Reason::Garbage(chain(error)),
        error => classify(error),
    }
}

/// Enough of an answer to recognise who gave it.
fn beginning(text: &str) -> &str {
    text.char_indices()
        .nth(200)
        .and_then(|(end, _)| text.get(..end))
        .unwrap_or(text)
}

/// A runtime on the caller's thread: it costs 0.03 ms, and a thread of its own
/// would keep the node's network namespace when the plugin's switches.
pub(super) fn runtime(kubeconfig: &Path) -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error {
            kubeconfig: kubeconfig.into(),
            server: String::new(),
            object: String::new(),
            reason: Reason::Other(format!("cannot start the client's event loop: {error}")),
        })
}
