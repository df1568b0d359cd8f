//! The kubeconfig that the node agent writes for the plugin.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::base64;
use super::error::{Error, Reason};
use super::server::scheme;
use crate::files;
use crate::json;

/// Checks that the kubeconfig exists and can be used, without contacting a server.
///
/// # Errors
/// [`Reason::Kubeconfig`] or [`Reason::Tls`] with the defect.
pub fn check(path: &Path) -> Result<(), Error> {
    super::client::Client::new(path).map(|_| ())
}

/// The used part of `v1.Config`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default, deserialize_with = "json::list")]
    clusters: Vec<Named<ClusterEntry>>,
    #[serde(default, deserialize_with = "json::list")]
    contexts: Vec<Named<ContextEntry>>,
    #[serde(default, deserialize_with = "json::list")]
    users: Vec<Named<UserEntry>>,
    current_context: Option<String>,
}

/// An entry of one of the lists: `name`, and the named value.
#[derive(Deserialize)]
struct Named<T: DeserializeOwned> {
    name: String,
    #[serde(
        alias = "cluster",
        alias = "context",
        alias = "user",
        deserialize_with = "json::object"
    )]
    entry: T,
}

fn find<T: DeserializeOwned>(list: Vec<Named<T>>, name: &str) -> Option<T> {
    let mut list = list.into_iter();
    list.find(|named| named.name == name)
        .map(|named| named.entry)
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    server: Option<String>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct ContextEntry {
    cluster: String,
    user: Option<String>,
}

/// A user. Fields that would run a program or are not supported are only checked for presence.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct UserEntry {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    #[serde(alias = "as")]
    username: Option<String>,
}

/// The current context, with the content of all files.
pub(super) struct Access {
    /// URL of the server.
    pub(super) server: String,
    /// CA certificates, PEM; `None` only if the server is not verified.
    pub(super) authority: Option<Vec<u8>>,
    /// The name in the server's certificate if it differs from that of the URL.
    pub(super) server_name: Option<String>,
    /// Certificate and key of the client, PEM.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub(super) token: Option<String>,
}

/// Reads the file and resolves its current context.
pub(super) fn load(path: &Path) -> Result<Access, Error> {
    let unusable = |reason: String| Error {
        kubeconfig: path.into(),
        server: String::new(),
        object: String::new(),
        reason: Reason::Kubeconfig(reason),
    };
    let text = files::read_text(path).map_err(|e| unusable(e.to_string()))?;
    // The parsers' messages quote the text around the error, which may be the token.
    let value: Value = serde_saphyr::from_str(&text).map_err(|e| {
        let place = e.location().map_or_else(String::new, |at| {
            format!(" from line {}, column {} on", at.line(), at.column())
        });
        unusable(format!("it is not YAML{place}"))
    })?;
    let config: Kubeconfig = json::from_value(&value).map_err(|e| {
        let place = match e.path.as_str() {
            "" => String::new(),
            path => format!(": {path} is of the wrong type, or lacks a field"),
        };
        unusable(format!("it is not a kubeconfig{place}"))
    })?;
    resolve(config, path.parent().unwrap_or(Path::new(""))).map_err(unusable)
}

fn resolve(config: Kubeconfig, dir: &Path) -> Result<Access, String> {
    let current = config.current_context.unwrap_or_default();
    let context = find(config.contexts, &current);
    let ContextEntry {
        cluster: wanted,
        user: user_name,
    } = context.ok_or_else(|| format!("it has no context {current:?}, the current one"))?;
    let cluster = find(config.clusters, &wanted);
    let cluster = cluster.ok_or_else(|| format!("it has no cluster {wanted:?}"))?;
    let user_name = user_name.unwrap_or_default();
    let user = find(config.users, &user_name).unwrap_or_default();
    let refused = [
        (
            user.exec.is_some() || user.auth_provider.is_some(),
            "credentials by exec or auth-provider, which runs a program",
        ),
        (
            user.username.is_some(),
            "a password or another user (username, as)",
        ),
        (cluster.proxy_url.is_some(), "a proxy"),
    ];
    if let Some((_, what)) = refused.iter().find(|(there, _)| *there) {
        return Err(format!(
            "it asks for {what}; only direct connections with a token or a client \
                            certificate are made"
        ));
    }
    let authority = content(
        dir,
        cluster.certificate_authority,
        cluster.certificate_authority_data,
    )?;
    // Without https there is no certificate to verify; the parser of the URL reports an unsupported scheme.
    let plain = cluster
        .server
        .as_ref()
        .is_some_and(|url| !scheme(url).is_some_and(|(tls, _)| tls));
    let authority = match (authority, cluster.insecure_skip_tls_verify || plain) {
        (Some(_), true) if !plain => {
            return Err(format!(
                "cluster {wanted:?} has a certificate authority and insecure-skip-tls-verify, of which only one can apply"
            ));
        }
        (_, true) => None,
        (Some(pem), false) => Some(pem),
        (None, false) => return Err(format!("cluster {wanted:?} has no certificate authority")),
    };
    let certificate = content(dir, user.client_certificate, user.client_certificate_data)?;
    let key = content(dir, user.client_key, user.client_key_data)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(format!("user {user_name:?} has half a client certificate")),
    };
    Ok(Access {
        server: cluster
            .server
            .ok_or_else(|| format!("cluster {wanted:?} has no server url"))?,
        authority,
        server_name: cluster.tls_server_name,
        identity,
        token: token(dir, user.token, user.token_file)?,
    })
}

/// Reads the token and checks it: it is sent in a header, which control characters would end.
fn token(
    dir: &Path,
    inline: Option<String>,
    file: Option<String>,
) -> Result<Option<String>, String> {
    let text = match (inline, file) {
        (Some(text), _) => text,
        (None, Some(file)) => {
            String::from_utf8(read(dir, &file)?).map_err(|_| format!("{file} is not text"))?
        }
        (None, None) => return Ok(None),
    };
    bearer(&text).map(|token| Some(token.to_owned()))
}

/// Returns a token without the surrounding white space, valid in a header.
///
/// # Errors
/// The text has characters that are not allowed in a token.
pub fn bearer(text: &str) -> Result<&str, String> {
    let token = text.trim();
    match token.bytes().any(|b| !b.is_ascii_graphic()) {
        true => Err("the token has characters that no token has".into()),
        false => Ok(token),
    }
}

/// Reads embedded data or a file. Embedded data takes precedence; a relative path is relative to the kubeconfig.
fn content(
    dir: &Path,
    file: Option<String>,
    data: Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    match (
        data.filter(|d| !d.is_empty()),
        file.filter(|f| !f.is_empty()),
    ) {
        (Some(data), _) => base64::decode(&data)
            .map(Some)
            .ok_or_else(|| "embedded data is not base64".to_owned()),
        (None, Some(file)) => read(dir, &file).map(Some),
        (None, None) => Ok(None),
    }
}

fn read(dir: &Path, file: &str) -> Result<Vec<u8>, String> {
    let path = dir.join(file);
    files::read(&path).map_err(|error| format!("{}: {error}", path.display()))
}
