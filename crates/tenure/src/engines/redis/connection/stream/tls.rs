//! TLS, set up once: the files are read and the roots loaded.
//!
//! The server's certificate is always verified; no option turns that off.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, RootCertStore,
};

use crate::engines::redis::config::{Address, Tls};
use crate::model::error::{Error, ErrorKind, Result};

pub(crate) type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// What every TLS connection of an engine shares.
#[derive(Clone)]
pub(crate) struct TlsSetup {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl TlsSetup {
    /// Reads the files and the system's roots, which blocks for a few milliseconds.
    pub(crate) fn new(tls: &Tls) -> Result<TlsSetup> {
        // Chosen explicitly: the process-wide default may be missing, or have been set by another crate.
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Internal, format!("TLS: {error}")))?
            .with_root_certificates(roots(tls.ca.as_deref())?);
        let config = match (&tls.cert, &tls.key) {
            (Some(cert), Some(key)) => {
                let (chain, private) = (certificates("cert", cert)?, private_key(key)?);
                builder.with_client_auth_cert(chain, private).map_err(|error| {
                    let reason = format!(
                        "cert {} and key {} cannot be used together: {error}",
                        cert.display(),
                        key.display()
                    );
                    Error::invalid(reason).next("the key must belong to the first certificate")
                })?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                let error = Error::invalid("cert and key are not both set");
                return Err(error.next("a client certificate needs both"));
            }
        };
        let server_name = match &tls.server_name {
            Some(name) => Some(parse_name("server_name", name)?),
            None => None,
        };
        Ok(TlsSetup { connector: TlsConnector::from(Arc::new(config)), server_name })
    }

    /// The name that the certificate must be valid for.
    pub(crate) fn name_for(&self, host: &str) -> Result<ServerName<'static>> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => parse_name("the host", host),
        }
    }

    /// Makes the TLS handshake over a connection.
    pub(crate) async fn connect(
        &self,
        name: ServerName<'static>,
        plain: TcpStream,
    ) -> io::Result<TlsStream> {
        self.connector.connect(name, plain).await
    }
}

fn parse_name(what: &str, name: &str) -> Result<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).map_err(|_| {
        let reason = format!("{what} {name:?} is not a valid name for a certificate");
        Error::invalid(reason).next("set server_name to the name in the server's certificate")
    })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(ca) = ca else {
        let found = rustls_native_certs::load_native_certs();
        // Systems ship some roots that do not parse: use the others.
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let error = Error::invalid("this system has no trusted certificates");
            return Err(error.next("install ca-certificates, or set ca to a PEM file"));
        }
        return Ok(roots);
    };
    for certificate in certificates("ca", ca)? {
        roots.add(certificate).map_err(|error| {
            let reason = format!("ca {} has an unusable certificate: {error}", ca.display());
            Error::invalid(reason).next("set ca to a PEM file with the roots to trust")
        })?;
    }
    Ok(roots)
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<_>);
    match read {
        Ok(certificates) if Vec::is_empty(&certificates) => {
            Err(bad_file(option, path, &pem::Error::NoItemsFound))
        }
        read => read.map_err(|error| bad_file(option, path, &error)),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| bad_file("key", path, &error))
}

/// Says what is wrong with a file without quoting it: it may be a private key.
fn bad_file(option: &str, path: &Path, error: &pem::Error) -> Error {
    let why = match error {
        pem::Error::Io(error) => super::cause(error),
        pem::Error::NoItemsFound if option == "key" => "it contains no private key".to_owned(),
        pem::Error::NoItemsFound => "it contains no certificate".to_owned(),
        _ => "it is not valid PEM".to_owned(),
    };
    let reason = format!("cannot use the {option} file {}: {why}", path.display());
    Error::invalid(reason)
        .next("name a PEM file that this user may read; encrypted keys are not supported")
}

/// Explains an error of TLS; `None` if it is not one.
pub(crate) fn explain(address: &Address, error: &io::Error) -> Option<Error> {
    let error = error.get_ref()?.downcast_ref::<TlsError>()?;
    Some(match error {
        TlsError::InvalidCertificate(why) => {
            let (why, next) = distrust(why);
            let reason = format!("the certificate of {address} is not trusted: {why}");
            Error::new(ErrorKind::Denied, reason).next(next)
        }
        TlsError::AlertReceived(alert) if is_about_us(*alert) => {
            let reason = format!("{address} refuses this client's certificate: {alert:?}");
            Error::new(ErrorKind::Denied, reason)
                .next("set cert and key to a certificate that the server trusts")
        }
        _ => {
            let reason = format!("TLS with {address} failed: {error}");
            Error::new(ErrorKind::Unavailable, reason)
                .next("is this the server's port for TLS, and does it want a client certificate?")
        }
    })
}

fn distrust(why: &CertificateError) -> (String, &'static str) {
    use CertificateError::*;
    match why {
        Expired | ExpiredContext { .. } => {
            ("it has expired".to_owned(), "renew it, or set this machine's clock")
        }
        NotValidYet | NotValidYetContext { .. } => {
            ("it is not valid yet".to_owned(), "set this machine's clock, or the server's")
        }
        UnknownIssuer => (
            "it is signed by an unknown authority".to_owned(),
            "set ca to a PEM file with the root that signed it",
        ),
        NotValidForName | NotValidForNameContext { .. } => {
            (why.to_string(), "connect by a name in it, or set server_name")
        }
        Revoked => ("it was revoked".to_owned(), "give the server another one"),
        _ => (why.to_string(), "give the server another one"),
    }
}

fn is_about_us(alert: AlertDescription) -> bool {
    use AlertDescription::*;
    matches!(
        alert,
        NoCertificate
            | BadCertificate
            | UnsupportedCertificate
            | CertificateRevoked
            | CertificateExpired
            | CertificateUnknown
            | CertificateRequired
            | UnknownCA
            | AccessDenied
    )
}
