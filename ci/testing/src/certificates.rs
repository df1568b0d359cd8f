//! A certificate for 127.0.0.1, and the CA that signed only this certificate.

use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;

/// The CA certificate as PEM, and the TLS server configuration.
pub fn of_loopback() -> (String, ServerConfig) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("key")).expect("CA");
    let key = KeyPair::generate().expect("key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &ca).expect("certificate");
    (ca.pem(), server(&certificate, &key))
}

/// The TLS server configuration with this certificate.
pub fn server(certificate: &Certificate, key: &KeyPair) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("key");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("certificate and key")
}
