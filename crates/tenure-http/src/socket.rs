//! Where a server listens and where its connections come from: an address, or a unix socket for clients on this machine.

use std::fmt;
use std::fs::{self, Metadata, Permissions};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};

use crate::listener::network_of;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address.
    Address(SocketAddr),
    /// A unix socket.
    Socket {
        /// Its path.
        path: PathBuf,
        /// Who may connect: the permissions of the file.
        mode: u32,
    },
}

impl Listen {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Listen::Address(address) => address.ip().is_loopback(),
            Listen::Socket { .. } => true,
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen::Address(address)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Address(address) => address.fmt(f),
            Listen::Socket { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens. The file of a unix socket is removed when it is dropped.
#[derive(Debug)]
pub struct Bound {
    socket: ListeningSocket,
    /// Removed when this is dropped.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The file of a unix socket, and what tells it from another file at the same path.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Bound {
    /// Listens. A unix socket whose server is gone is replaced.
    ///
    /// # Errors
    /// If the address cannot be bound, if another server listens at it, or if something else is at that path.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn new(listen: &Listen) -> Result<Bound> {
        match listen {
            Listen::Address(address) => TcpListener::bind(address).await.map(Bound::from),
            Listen::Socket { path, mode } => {
                remove_stale(path).await?;
                bind(path, *mode)
            }
        }
    }

    /// The address; an error for a unix socket.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.local_addr(),
            ListeningSocket::Unix(_) => Err(ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) async fn accept(&self) -> Result<(Connection, PeerAddress)> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                Ok((Connection::Tcp(stream), PeerAddress::Network(from.ip())))
            }
            ListeningSocket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                Ok((Connection::Unix(stream), PeerAddress::User(user)))
            }
        }
    }
}

impl From<TcpListener> for Bound {
    fn from(listener: TcpListener) -> Bound {
        Bound { socket: ListeningSocket::Tcp(listener), _file: None }
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The next server may have its own at this path by now.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| id_of(&found) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn id_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Removes a socket that nobody listens on any more, such as a killed server leaves behind.
async fn remove_stale(path: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let what = "there is a file at this path that is not a socket";
        return Err(Error::new(ErrorKind::AlreadyExists, what));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another server listens there")),
        Err(error) => {
            let what =
                format!("there is a socket at this path, perhaps of another server: {error}");
            Err(Error::new(error.kind(), what))
        }
    }
}

fn bind(path: &Path, mode: u32) -> Result<Bound> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), id: id_of(&fs::symlink_metadata(path)?) };
    // Before it listens: until then nobody can connect, whatever the permissions are.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    let socket = ListeningSocket::Unix(socket.listen(BACKLOG)?);
    Ok(Bound { socket, _file: Some(file) })
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// This address.
    Network(IpAddr),
    /// This user of this machine, over a unix socket.
    User(Option<u32>),
}

impl PeerAddress {
    /// What counts as one client: see [`network_of`]. All users of a unix socket are one.
    #[must_use]
    pub fn network(&self) -> IpAddr {
        match self {
            PeerAddress::Network(address) => network_of(*address),
            PeerAddress::User(_) => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Network(address) => address.to_canonical().fmt(f),
            PeerAddress::User(Some(uid)) => write!(f, "uid:{uid}"),
            PeerAddress::User(None) => f.write_str("unix"),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub enum Connection {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl Connection {
    /// Has written data sent at once. If that fails, the server is only slower.
    pub fn set_nodelay(&self) {
        if let Connection::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
        }
    }
}

impl From<TcpStream> for Connection {
    fn from(stream: TcpStream) -> Connection {
        Connection::Tcp(stream)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        match self.get_mut() {
            Connection::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Connection::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        match self.get_mut() {
            Connection::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Connection::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        match self.get_mut() {
            Connection::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Connection::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    // Neither kind buffers.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.get_mut() {
            Connection::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Connection::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> Listen {
        let file = format!("tenure-http-{name}-{}.sock", std::process::id());
        Listen::Socket { path: std::env::temp_dir().join(file), mode: 0o640 }
    }

    fn path(listen: &Listen) -> &Path {
        let Listen::Socket { path, .. } = listen else { panic!("not a socket") };
        path
    }

    #[tokio::test]
    async fn a_unix_socket_has_the_requested_permissions_and_is_removed_with_its_server() {
        let listen = at("mode");
        let bound = Bound::new(&listen).await.unwrap();
        assert_eq!(fs::metadata(path(&listen)).unwrap().mode() & 0o777, 0o640);
        let (client, accepted) = tokio::join!(UnixStream::connect(path(&listen)), bound.accept());
        let own = client.unwrap().peer_cred().unwrap().uid();
        assert_eq!(accepted.unwrap().1, PeerAddress::User(Some(own)));
        drop(bound);
        assert!(!path(&listen).exists());
    }

    #[tokio::test]
    async fn a_socket_whose_server_is_gone_is_replaced_and_one_in_use_is_not() {
        let listen = at("stale");
        // As after a kill: the socket is closed, and its file is still there.
        drop(std::os::unix::net::UnixListener::bind(path(&listen)).unwrap());
        assert!(path(&listen).exists());
        let bound = Bound::new(&listen).await.unwrap();
        let error = Bound::new(&listen).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(UnixStream::connect(path(&listen)).await.unwrap());
        drop(bound);
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_left_alone() {
        let listen = at("file");
        fs::write(path(&listen), "mine").unwrap();
        let error = Bound::new(&listen).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(path(&listen)).unwrap(), "mine");
        fs::remove_file(path(&listen)).unwrap();
    }

    /// A server that drains must not remove the socket of the server that has replaced it.
    #[tokio::test]
    async fn the_socket_of_the_next_server_is_left_alone() {
        let listen = at("next");
        let first = Bound::new(&listen).await.unwrap();
        fs::remove_file(path(&listen)).unwrap();
        let next = Bound::new(&listen).await.unwrap();
        drop(first);
        drop(UnixStream::connect(path(&listen)).await.unwrap());
        drop(next);
        assert!(!path(&listen).exists());
    }
}
