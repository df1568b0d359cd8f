//! Verifies the certificate of an API server.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// Verifies as WebPKI does, with one addition: some small API servers have one self-signed certificate that is both CA
/// and server certificate. WebPKI refuses it (`CaUsedAsEndEntity`); Go's library, and so kubectl, accepts it. This
/// verifier accepts it if it equals one of the trusted ones byte for byte; name and validity are checked as usual.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    trusted: Option<(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>)>,
}

impl Verifier {
    /// Accepts any certificate, for `insecure-skip-tls-verify: true` in the kubeconfig. The handshake's signatures are
    /// still checked.
    pub(super) fn of_any(provider: Arc<CryptoProvider>) -> Self {
        let trusted = None;
        Self { provider, trusted }
    }

    /// Creates a verifier that trusts these CA certificates.
    ///
    /// # Errors
    /// The part of the CA data that cannot be used.
    pub(super) fn of(
        roots: Result<Vec<CertificateDer<'static>>, String>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let bad = |reason: String| format!("the certificate authority: {reason}");
        let roots = roots.map_err(bad)?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|e| bad(e.to_string()))?;
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(|e| bad(e.to_string()))?;
        let trusted = Some((webpki, roots));
        Ok(Self { provider, trusted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some((webpki, roots)) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // webpki checks the validity period first, so a certificate refused with this error is currently valid (tested).
            Err(e) if is_authority(&e) => {
                if !roots.iter().any(|root| root == end_entity) {
                    return Err(CertificateError::UnknownIssuer.into());
                }
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// True if a certificate was refused because it is a CA certificate.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(reason))) = error else {
        return false;
    };
    let reason = reason.downcast_ref::<webpki::Error>();
    matches!(reason, Some(webpki::Error::CaUsedAsEndEntity))
}
