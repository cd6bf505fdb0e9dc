//! TLS for clients: the server's certificate, and which client certificates are required.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The server's certificate, and whether clients need one.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    asks_clients: bool,
}

impl Tls {
    /// Uses the certificate chain and the key in these PEM files. With `client_ca`, clients must present a
    /// certificate from one of the authorities in that file.
    ///
    /// # Errors
    /// If a file cannot be read or used. Never quotes its contents.
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

    /// Whether clients must present a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// The server's side of a handshake.
    #[must_use]
    pub fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
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
