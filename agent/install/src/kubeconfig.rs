//! The kubeconfig by which the plugin accesses the API server.

use super::files::{read_bytes, read_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_core::api::access::Access;

/// Returns the text of the kubeconfig, and the same text with the token redacted.
///
/// # Errors
/// Host or port is missing or invalid, or the token or the CA cannot be read.
pub fn kubeconfig(access: &Access) -> Result<(String, String), String> {
    access.url()?;
    let path = access.service_account_dir.join("token");
    let token = read_text(&path).map_err(|e| {
        format!(
            "cannot read the token {}: {e}; the pod needs its service account mounted",
            path.display()
        )
    })?;
    if token.trim().is_empty() {
        return Err(format!(
            "the token {} is empty; the kubelet writes it where the pod has its service account mounted",
            path.display()
        ));
    }
    with_token(access, &token)
}

/// As [`kubeconfig`], with another token than the mounted one.
///
/// # Errors
/// Host or port is missing or invalid, or the CA cannot be read.
pub(super) fn with_token(access: &Access, token: &str) -> Result<(String, String), String> {
    let server = access.url()?;
    let trust = if access.skip_tls_verify {
        "insecure-skip-tls-verify: true".to_owned()
    } else {
        let path = access.ca();
        let pem = read_bytes(&path).map_err(|e| {
            format!(
                "cannot read the CA {}: {e}; KUBE_CA_FILE names another one",
                path.display()
            )
        })?;
        if pem.trim_ascii().is_empty() {
            return Err(format!(
                "the CA {} is empty; put the API server's CA there, or name another file by KUBE_CA_FILE",
                path.display()
            ));
        }
        format!("certificate-authority-data: {}", STANDARD.encode(&pem))
    };
    let text = |token: &str| {
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    {trust}\n    server: {server}\n  name: local\n\
             contexts:\n- context:\n    cluster: local\n    user: istio-cni\n  name: istio-cni-context\n\
             current-context: istio-cni-context\nkind: Config\n\
             users:\n- name: istio-cni\n  user:\n    token: {token}\n"
        )
    };
    Ok((text(&scalar(token)), text("REDACTED")))
}

/// Encodes a token for YAML: plain if it looks like a token, else quoted as JSON, which is also YAML.
fn scalar(token: &str) -> String {
    let plain = token.starts_with(|c: char| c.is_ascii_alphabetic())
        && token
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    let word = token.to_ascii_lowercase();
    let reserved =
        ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&word.as_str());
    match plain && !reserved {
        true => token.to_owned(),
        false => serde_json::Value::from(token).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_is_named() {
        let dir = std::env::temp_dir().join(format!("weir-empty-account-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let access = Access {
            host: "10.0.0.1".into(),
            port: "443".into(),
            service_account_dir: dir.clone(),
            ..Access::default()
        };
        let made = |token: &str, ca: &str| {
            std::fs::write(dir.join("token"), token).unwrap();
            std::fs::write(dir.join("ca.crt"), ca).unwrap();
            kubeconfig(&access).map(drop)
        };
        made("t", "pem").unwrap();
        for (token, ca, file, remedy) in [
            ("", "pem", "token", "service account"),
            ("\n", "pem", "token", "service account"),
            ("t", "", "ca.crt", "KUBE_CA_FILE"),
            ("t", " \n", "ca.crt", "KUBE_CA_FILE"),
        ] {
            let why = made(token, ca).unwrap_err();
            let path = dir.join(file).display().to_string();
            assert!(why.contains(&path) && why.contains("is empty"), "{why}");
            assert!(why.contains(remedy), "{why}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn tokens() {
        assert_eq!(scalar("eyJ.a-b_c"), "eyJ.a-b_c");
        for odd in ["", "True", "12", "a\n", "a: b", "- a", "#"] {
            assert!(scalar(odd).starts_with('"'), "{odd:?}");
        }
    }
}
