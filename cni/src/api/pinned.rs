//! Certificate authorities, and servers whose certificate is itself a trusted authority.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

/// Verifies as WebPKI does, with one addition: small API servers have one self-signed certificate that is both CA
/// and server certificate. WebPKI refuses it (`CaUsedAsEndEntity`); Go's library, and so kubectl, accepts it. Here it
/// is accepted when it equals one of `roots` byte for byte; name and validity are checked as for any other.
#[derive(Debug)]
pub(super) struct Pinned {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Vec<CertificateDer<'static>>,
}

impl Pinned {
    /// # Errors
    /// The part of the CA data that cannot be used.
    pub(super) fn new(
        roots: Result<Vec<CertificateDer<'static>>, String>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let bad = |reason: String| format!("the certificate authority: {reason}");
        let roots = roots.map_err(bad)?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|e| bad(e.to_string()))?;
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|e| bad(e.to_string()))?;
        Ok(Self { webpki, roots })
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // webpki checks the validity first, so a certificate refused with this error is valid now (tested).
            Err(e) if is_authority(&e) => {
                if !self.roots.iter().any(|root| root == end_entity) {
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
        self.webpki
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
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
