//! TLS by rustls, as tokio-postgres takes it, for those who ask for it by `sslmode=require`. The server's certificate is
//! always verified.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::config::PostgresConfig;
use crate::model::error::{Error, ErrorKind, Result};

/// What every connection of an engine shares; nothing if TLS was not asked for.
#[derive(Clone)]
pub(super) struct Tls(Option<TlsConnector>);

/// Reads the roots, which blocks for a few milliseconds.
pub(super) fn setup(config: &PostgresConfig) -> Result<Tls> {
    if !config.uses_tls() {
        return Ok(Tls(None));
    }
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(ca) => {
            let read =
                CertificateDer::pem_file_iter(ca).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let read = read.map_err(|_| {
                let reason = format!("cannot read certificates from {}", ca.display());
                Error::invalid(reason).next("name a PEM file that this user may read")
            })?;
            roots.add_parsable_certificates(read);
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let error = Error::invalid("there are no certificates to trust");
        return Err(error.next("install ca-certificates, or set sslrootcert to a PEM file"));
    }
    // Chosen explicitly: the process-wide default may be missing, or have been set by another crate.
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Tls(Some(TlsConnector::from(Arc::new(client)))))
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        // A host that no certificate can be for matters only if TLS is used.
        Ok(Connect { connector: self.0.clone(), host: ServerName::try_from(host.to_owned()).ok() })
    }
}

pub(super) struct Connect {
    connector: Option<TlsConnector>,
    host: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, plain: S) -> Self::Future {
        Box::pin(async move {
            let bad = || io::Error::other("TLS needs a host name");
            let (connector, host) = (self.connector.ok_or_else(bad)?, self.host.ok_or_else(bad)?);
            Ok(Encrypted(connector.connect(host, plain).await?))
        })
    }
}

pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, connection) = self.0.get_ref();
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let hash = certificate.and_then(|certificate| end_point(certificate));
        hash.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// The hash of a certificate by which a password is bound to its server (RFC 5929): with that of its signature, and
/// SHA-256 in place of older ones. `None` if the signature has none.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (parts, _) = der_value(certificate)?;
    let (_signed, rest) = der_value(parts)?;
    let (algorithm, _) = der_value(rest)?;
    let (algorithm, _) = der_value(algorithm)?;
    const RSA: &[u8] = &[42, 134, 72, 134, 247, 13, 1, 1];
    const ECDSA: &[u8] = &[42, 134, 72, 206, 61, 4, 3];
    const ECDSA_SHA1: &[u8] = &[42, 134, 72, 206, 61, 4, 1];
    let (last, family) = algorithm.split_last()?;
    match (family, last) {
        // MD5, SHA-1, SHA-256; in the order of the numbers.
        (RSA, 4 | 5 | 11) | (ECDSA, 2) => Some(Sha256::digest(certificate).to_vec()),
        _ if algorithm == ECDSA_SHA1 => Some(Sha256::digest(certificate).to_vec()),
        (RSA, 12) | (ECDSA, 3) => Some(Sha384::digest(certificate).to_vec()),
        (RSA, 13) | (ECDSA, 4) => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

/// The first value of some DER, and what comes after it.
fn der_value(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match usize::from(length) {
        short @ ..128 => (short, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long - 128)?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, add)?, rest)
        }
    };
    rest.split_at_checked(length)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
