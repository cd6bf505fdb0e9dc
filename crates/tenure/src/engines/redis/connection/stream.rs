//! A connected socket: TCP, a Unix socket, or TLS over TCP.
//!
//! Makes connections and explains why they fail. It has no time-outs: the caller knows how long connecting
//! may take.

#[cfg(not(feature = "tls"))]
#[path = "stream/no_tls.rs"]
mod tls;
#[cfg(feature = "tls")]
mod tls;

pub(super) mod halves;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream, lookup_host};

use crate::engines::redis::config::Address;
use crate::model::error::{Error, ErrorKind, Result};

pub(crate) use tls::{TlsSetup, TlsStream};

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Connects. With `tls` it uses TLS or fails; it never falls back to plain text.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    pub(crate) async fn connect(address: &Address, tls: Option<&TlsSetup>) -> Result<Stream> {
        match (address, tls) {
            (Address::Tcp { host, port }, None) => {
                Ok(Stream::Tcp(connect_tcp(address, host, *port).await?))
            }
            (Address::Tcp { host, port }, Some(tls)) => {
                // Before connecting: an invalid name is not the server's fault.
                let name = tls.name_for(host)?;
                let plain = connect_tcp(address, host, *port).await?;
                let encrypted = tls.connect(name, plain).await;
                let encrypted = encrypted.map_err(|error| explain(address, &error))?;
                Ok(Stream::Tls(Box::new(encrypted)))
            }
            (Address::Unix(path), None) => match UnixStream::connect(path).await {
                Ok(unix) => Ok(Stream::Unix(unix)),
                Err(error) => Err(explain_unix(address, &error)),
            },
            (Address::Unix(_), Some(_)) => {
                let reason = "TLS is not supported over a Unix socket";
                Err(Error::invalid(reason).next("leave TLS out, or name a host"))
            }
        }
    }
}

/// Explains why a connection cannot be made or has ended. A server that uses TLS refuses the client's
/// certificate only after the handshake, so errors from reading and writing are passed here as well.
pub(crate) fn explain(address: &Address, error: &io::Error) -> Error {
    if let Some(error) = tls::explain(address, error) {
        return error;
    }
    let reason = format!("the connection to {address} failed: {}", cause(error));
    Error::new(ErrorKind::Unavailable, reason).next("is the server up, and reachable from here?")
}

/// Tries every address of the host, because `localhost` may resolve to IPv6 first while the server listens on IPv4.
async fn connect_tcp(address: &Address, host: &str, port: u16) -> Result<TcpStream> {
    let unknown = |why: &str| {
        let reason = format!("cannot resolve the host of {address}: {why}");
        Error::new(ErrorKind::Unavailable, reason)
            .next("check the name, and the DNS of this machine")
    };
    let found = lookup_host((host, port)).await.map_err(|error| unknown(&cause(&error)))?;
    let mut failure = None;
    for socket_address in found {
        match connect_to(socket_address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => Err(explain(address, &error)),
        None => Err(unknown("it has no address")),
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Commands are small and someone waits for each: Nagle's delay would be a good part of every claim.
    socket.set_nodelay(true)?;
    // Detects a vanished peer on a connection that only waits for pushes.
    socket.set_keepalive(true)?;
    socket.connect(address).await
}

fn explain_unix(address: &Address, error: &io::Error) -> Error {
    let reason = format!("the connection to {address} failed: {}", cause(error));
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::new(ErrorKind::Denied, reason)
            .next("may this user write to the socket? see unixsocketperm"),
        _ => Error::new(ErrorKind::Unavailable, reason)
            .next("is the server up, and is this its unixsocket?"),
    }
}

/// The operating system's description of the error, without its number.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_read(cx, into),
            Stream::Unix(unix) => Pin::new(unix).poll_read(cx, into),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Unix(unix) => Pin::new(unix).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests;
