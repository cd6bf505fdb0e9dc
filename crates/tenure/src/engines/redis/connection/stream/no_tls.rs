//! Replaces `tls.rs` in a build without the feature `tls`. It has the same items, but no value of them can
//! exist, so no other code depends on the feature.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::engines::redis::config::{Address, Tls};
use crate::model::error::{Error, ErrorKind, Result};

#[derive(Clone)]
pub(crate) enum TlsSetup {}

impl TlsSetup {
    /// Fails, and names the missing feature.
    pub(crate) fn new(_: &Tls) -> Result<TlsSetup> {
        let reason = "this program was built without the feature \"tls\" of the crate tenure";
        Err(Error::new(ErrorKind::Unsupported, reason).next("add the feature, or leave TLS out"))
    }

    pub(crate) fn name_for(&self, _: &str) -> Result<String> {
        match *self {}
    }

    pub(crate) async fn connect(&self, _: String, _: TcpStream) -> io::Result<TlsStream> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum TlsStream {}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match *self {}
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }
}

/// Without TLS there are no TLS errors.
pub(crate) fn explain(_: &Address, _: &io::Error) -> Option<Error> {
    None
}
