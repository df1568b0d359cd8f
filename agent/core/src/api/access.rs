//! Address and trust settings of the API server.

use crate::settings::{Resolved, SettingError};
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Address of the API server, and the files with which the two authenticate each other.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `http` or `https`; empty means `https`.
    pub protocol: String,
    /// A host name or an address, without brackets.
    pub host: String,
    /// A port number.
    pub port: String,
    /// PEM file; `None` selects `ca.crt` of the service account.
    pub ca_file: Option<PathBuf>,
    /// The plugin does not verify the server's certificate. The agent always does: the server gets its token, and its answer may
    /// end the installation.
    pub skip_tls_verify: bool,
    /// Directory with `token` and `ca.crt`; the kubelet renews both.
    pub service_account_dir: PathBuf,
}

impl Access {
    /// Reads the settings.
    ///
    /// # Errors
    /// A path that cannot be used.
    pub fn of(r: &Resolved) -> Result<Self, SettingError> {
        let text = |name: &'static str| r.text(name).to_owned();
        Ok(Self {
            protocol: text("KUBERNETES_SERVICE_PROTOCOL"),
            host: text("KUBERNETES_SERVICE_HOST"),
            port: text("KUBERNETES_SERVICE_PORT"),
            ca_file: Some(r.text("KUBE_CA_FILE"))
                .filter(|t| !t.is_empty())
                .map(PathBuf::from),
            skip_tls_verify: r.bool("SKIP_TLS_VERIFY"),
            service_account_dir: r.path("WEIR_SERVICE_ACCOUNT_DIR")?,
        })
    }

    /// Returns the path of the CA that signed the server's certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        let default = || self.service_account_dir.join("ca.crt");
        self.ca_file.clone().unwrap_or_else(default)
    }

    /// Returns the URL of the API server.
    ///
    /// # Errors
    /// Host, port or protocol is missing or not valid.
    pub fn url(&self) -> Result<String, String> {
        let missing = |name: &str| format!("{name} is not set; the kubelet sets it in every pod");
        let host = match self.host.as_str() {
            "" => return Err(missing("KUBERNETES_SERVICE_HOST")),
            host if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]"),
            host if host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) =>
            {
                host.into()
            }
            host => {
                return Err(format!(
                    "KUBERNETES_SERVICE_HOST is {host:?}, which is neither a name nor an address"
                ));
            }
        };
        let port = match self.port.as_str() {
            "" => return Err(missing("KUBERNETES_SERVICE_PORT")),
            port if port.parse::<u16>().is_ok_and(|p| p > 0) => port,
            port => {
                return Err(format!(
                    "KUBERNETES_SERVICE_PORT is {port:?}, which is not a port; give 1 to 65535"
                ));
            }
        };
        let protocol = match self.protocol.as_str() {
            "" => "https",
            word @ ("http" | "https") => word,
            other => {
                return Err(format!(
                    "KUBERNETES_SERVICE_PROTOCOL is {other:?}; it is https or http"
                ));
            }
        };
        Ok(format!("{protocol}://{host}:{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers() {
        let access = |host: &str, port: &str, protocol: &str| Access {
            protocol: protocol.into(),
            host: host.into(),
            port: port.into(),
            ..Access::default()
        };
        assert_eq!(
            access("fd00::1", "443", "").url().unwrap(),
            "https://[fd00::1]:443"
        );
        assert_eq!(
            access("api.local", "6443", "http").url().unwrap(),
            "http://api.local:6443"
        );
        for (host, port, protocol) in [
            ("", "1", ""),
            ("a", "", ""),
            ("a\nb", "1", ""),
            ("a", "x", ""),
            ("a", "0", ""),
            ("a", "1", "ftp"),
        ] {
            assert!(
                access(host, port, protocol).url().is_err(),
                "{host:?} {port:?}"
            );
        }
    }
}
