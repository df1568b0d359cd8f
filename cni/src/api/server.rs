//! The URL of the API server.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A URL `https://HOST[:PORT][/PATH]`, or `http://` with a loopback address: to any other address the token would be sent
/// in clear text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// True if the connection is encrypted.
    pub tls: bool,
    /// Host, IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `HOST[:PORT]` as written.
    pub authority: String,
    /// Prefix of every path; empty or with a leading slash.
    pub base: String,
}

/// Splits a URL: true for `https`, in any case, false for `http`, and what follows; `None` for other schemes.
pub(super) fn scheme(url: &str) -> Option<(bool, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let tls = scheme.eq_ignore_ascii_case("https");
    (tls || scheme.eq_ignore_ascii_case("http")).then_some((tls, rest))
}

impl Server {
    /// Parses a URL.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn parse(url: &str) -> Result<Self, String> {
        // Before `@` are a user and a password.
        let shown = match url.rsplit_once('@') {
            Some((_, rest)) => format!("(left out)@{rest}"),
            None => url.to_owned(),
        };
        let bad = |reason: &str| Err(format!("server url {shown:?} {reason}"));
        let Some((tls, rest)) = scheme(url) else {
            return bad("does not begin with https://, or with http:// and a loopback address");
        };
        let (authority, base) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let odd = |b: u8| !b.is_ascii_graphic() || matches!(b, b'@' | b'?' | b'#');
        if url.bytes().any(odd) {
            return bad("has characters that do not belong there");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
                None => return bad("has no closing bracket"),
            },
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port = match port {
            "" if tls => 443,
            "" => 80,
            port => match port.parse() {
                Ok(port) => port,
                Err(_) => return bad("has no valid port"),
            },
        };
        if host.is_empty() {
            return bad("has no host");
        }
        let loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if !tls && !loopback {
            return bad("is plain HTTP to something else than a loopback address; use https://");
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// Connects to the first of its addresses that answers within `limit`.
    pub(super) fn connect(&self, limit: Duration) -> std::io::Result<TcpStream> {
        let deadline = Instant::now() + limit;
        let addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        let mut last = std::io::Error::other(format!("{} has no address", self.host));
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    // The request follows the end of the handshake at once. Without this option the kernel would delay it until the
                    // peer acknowledges the handshake, and the peer delays the acknowledgement by some 40 ms.
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_sent_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let connect = Server::parse(&url).unwrap().connect(Duration::from_secs(5));
        assert!(connect.unwrap().nodelay().unwrap());
    }

    #[test]
    fn urls() {
        let parse = |url| {
            let Server {
                host,
                port,
                authority,
                base,
                tls,
            } = Server::parse(url).unwrap();
            assert_eq!(tls, url.starts_with("https"));
            (host, port, authority, base)
        };
        let is = |h: &str, p, a: &str, b: &str| (h.to_owned(), p, a.to_owned(), b.to_owned());
        assert_eq!(
            parse("https://10.96.0.1:443"),
            is("10.96.0.1", 443, "10.96.0.1:443", "")
        );
        assert_eq!(
            parse("https://[fd00::1]:6443/"),
            is("fd00::1", 6443, "[fd00::1]:6443", "")
        );
        assert_eq!(
            parse("https://[fd00::1]"),
            is("fd00::1", 443, "[fd00::1]", "")
        );
        assert_eq!(
            parse("https://api/k8s/c/x/"),
            is("api", 443, "api", "/k8s/c/x")
        );
        let local = is("127.0.0.1", 8080, "127.0.0.1:8080", "");
        assert_eq!(parse("http://127.0.0.1:8080"), local);
        // RFC 3986 section 3.1.
        assert!(Server::parse("HTTPS://a").unwrap().tls);
        assert!(!Server::parse("Http://127.0.0.1").unwrap().tls);
    }

    #[test]
    fn errors_name_the_remedy_and_no_password() {
        let said = |url| Server::parse(url).unwrap_err();
        for url in ["https://u:p@ss@10.96.0.1", "ftp://u:p@ss@10.96.0.1"] {
            let error = said(url);
            assert!(error.contains("\"(left out)@10.96.0.1\""), "{error}");
            assert!(!error.contains("p@ss"), "{error}");
        }
        let error = said("ftp://a");
        assert!(
            error.contains("https://, or with http:// and a loopback"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_server() {
        for url in [
            "",
            "http://a",
            "http://10.96.0.1:443",
            "http://localhost",
            "https://",
            "https://:443",
            "https://[fd00::1",
            "https://a:b",
            "https://a:70000",
            "https://u:p@a",
            "https://a/?x",
            "https://a b",
            "https://a/\r\nX: y",
        ] {
            assert!(Server::parse(url).is_err(), "{url}");
        }
    }
}
