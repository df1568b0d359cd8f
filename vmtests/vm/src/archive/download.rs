//! Downloads over HTTP, and copies of `file:` URLs: one request per file, hashed while it is read.
use crate::digest::Hasher;
use crate::program::bar;
use crate::{At, Error, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// The CA certificates of the system, at the path that Debian and its derivatives use.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The upper bound of a download in bytes; every kernel package is smaller.
const LIMIT: u64 = 2 << 30;

const REMEDY: &str = "Check the network, or use another mirror with --archive URL. What is in the cache \
                      works without one";

/// An HTTP client. It takes proxies from the usual variables (http_proxy, https_proxy, no_proxy).
#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
}

impl Client {
    pub(crate) fn new() -> Result<Self> {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(certificates())))
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .user_agent("weir-vm")
            .build();
        Ok(Self {
            agent: config.into(),
        })
    }

    /// Downloads `url` into the new file `to` and returns its SHA-256; `None` if the URL does not exist. If `size` is
    /// given, a file of another size is an error.
    pub(crate) fn file(&self, url: &str, to: &Path, size: Option<u64>) -> Result<Option<String>> {
        let mut expected = size;
        let mut body: Box<dyn Read> = if let Some(path) = url.strip_prefix("file:") {
            let path = Path::new("/").join(path.trim_start_matches('/'));
            match File::open(&path).if_there(&path)? {
                Some(file) => Box::new(file),
                None => return Ok(None),
            }
        } else {
            // Some servers decode a plus sign in a path as a space.
            let response = self.agent.get(url.replace('+', "%2B")).call();
            let response = response.map_err(|e| Error::new(url, e, REMEDY))?;
            match response.status().as_u16() {
                200 => {}
                404 | 410 => return Ok(None),
                status => {
                    let reason = format!("the server says {status}");
                    return Err(Error::new(url, reason, REMEDY));
                }
            }
            let body = response.into_body();
            expected = size.or(body.content_length());
            Box::new(body.into_with_config().limit(LIMIT).reader())
        };
        let mut file = File::create(to).at(to)?;
        let bar = bar(format!("fetching {}", name(url)), expected.unwrap_or(0));
        let mut hasher = Hasher::default();
        let mut done = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let cut =
                |e: std::io::Error| Error::new(url, format!("after {done} bytes: {e}"), REMEDY);
            let read = body.read(&mut buffer).map_err(cut)?;
            let Some(bytes) = buffer.get(..read).filter(|b| !b.is_empty()) else {
                break;
            };
            done += read as u64;
            hasher.update(bytes);
            file.write_all(bytes).at(to)?;
            bar.set_position(done);
        }
        match expected {
            Some(expected) if expected != done => {
                let reason = format!("it has {done} of {expected} bytes");
                Err(Error::new(url, reason, REMEDY))
            }
            _ => Ok(Some(hasher.hex())),
        }
    }
}

/// The system's CA certificates. An empty list is no error: most archives use plain HTTP, and with HTTPS the TLS
/// handshake reports the failure.
fn certificates() -> Vec<Certificate<'static>> {
    let pem = std::fs::read(CERTIFICATES).unwrap_or_default();
    let items = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    items.collect()
}

fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}
