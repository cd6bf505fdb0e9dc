//! TLS for those who ask: the relay's certificate, and whose certificates clients must show.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// How the relay shows who it is, and whether clients must.
#[derive(Clone)]
pub struct Tls {
    pub(super) acceptor: TlsAcceptor,
    pub(super) asks_clients: bool,
}

impl Tls {
    /// With the certificate chain and the key of these PEM files. With `client_ca`, nobody is let in who
    /// does not show a certificate of one of the authorities there.
    ///
    /// # Errors
    /// If a file cannot be read, or what is in it cannot be used; never what is in it.
    pub fn from_files(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Tls, String> {
        let chain = certificates(cert)?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("{}: no private key can be read: {error}", key.display()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut authorities = RootCertStore::empty();
                for authority in certificates(path)? {
                    authorities
                        .add(authority)
                        .map_err(|error| format!("{}: {error}", path.display()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities.into(), provider);
                let verifier =
                    verifier.build().map_err(|error| format!("{}: {error}", path.display()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| format!("{}: {error}", cert.display()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Tls { acceptor, asks_clients: client_ca.is_some() })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("asks_clients", &self.asks_clients).finish_non_exhaustive()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(|found| found.collect());
    let certificates: Vec<_> = read.map_err(|error| format!("{}: {error}", path.display()))?;
    match certificates.is_empty() {
        true => Err(format!("{}: there is no certificate in it", path.display())),
        false => Ok(certificates),
    }
}
