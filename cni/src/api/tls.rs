//! TLS client configuration: trusted authorities and the client's certificate.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, ConfigBuilder, Error};

use super::kubeconfig::Access;
use super::verifier::Verifier;

/// Creates a client configuration for TLS 1.2 and 1.3, without a client certificate. `authority` is PEM; `None`
/// accepts any server certificate.
///
/// # Errors
/// The part of the CA data that cannot be used.
pub fn client_config(authority: Option<&[u8]>) -> Result<ClientConfig, String> {
    Ok(believing(authority)?.with_no_client_auth())
}

fn believing(
    authority: Option<&[u8]>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = match authority {
        Some(pem) => Verifier::of(certificates(pem), provider)?,
        None => Verifier::of_any(provider),
    };
    let builder = builder.dangerous();
    Ok(builder.with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Creates the TLS client configuration for a kubeconfig; the error names the part that cannot be used.
pub(super) fn config(access: &Access) -> Result<ClientConfig, String> {
    let builder = believing(access.authority.as_deref())?;
    let Some((certificate, key)) = &access.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("the client's key: {e}"))?;
    let chain = certificates(certificate).map_err(|e| format!("the client's certificate: {e}"))?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|e| format!("the client's certificate: {e}"))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("it holds no certificate in PEM form".into()),
        Ok(found) => Ok(found),
        Err(error) => Err(error.to_string()),
    }
}

/// Formats an error of the TLS library, whose own messages contain names of enum variants.
pub(super) fn words(error: &Error) -> String {
    let Error::InvalidCertificate(reason) = error else {
        return match error {
            Error::InvalidMessage(_) => "what answers does not speak TLS".into(),
            Error::AlertReceived(alert) => match alert.as_str() {
                Some(alert) => format!("the server ends it with alert {alert}"),
                None => "the server ends it with an alert that is unknown".into(),
            },
            other => other.to_string(),
        };
    };
    match reason {
        CertificateError::UnknownIssuer => {
            "the server's certificate is signed by none of the certificate authorities".into()
        }
        CertificateError::BadSignature => {
            "the signature of the server's certificate is not that of the certificate authority"
                .into()
        }
        CertificateError::BadEncoding => "the server's certificate cannot be read".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired, or the clock of this node is wrong".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet, or the clock of this node is wrong".into()
        }
        CertificateError::NotValidForName => {
            "the server's certificate is not for the name or address in the kubeconfig".into()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not one for servers".into()
        }
        other @ CertificateError::NotValidForNameContext { .. } => {
            format!("the server's {other}")
        }
        _ => "the server's certificate is refused".into(),
    }
}
