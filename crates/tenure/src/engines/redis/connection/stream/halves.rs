//! The two directions of a connection: one task reads, any caller may write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::{tcp, unix};

use super::{Stream, TlsStream};

pub(crate) enum Reader {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(ReadHalf<TlsStream>),
}

pub(crate) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(WriteHalf<TlsStream>),
}

pub(crate) fn split(stream: Stream) -> (Reader, Writer) {
    match stream {
        Stream::Tcp(tcp) => {
            let (read, write) = tcp.into_split();
            (Reader::Tcp(read), Writer::Tcp(write))
        }
        Stream::Unix(unix) => {
            let (read, write) = unix.into_split();
            (Reader::Unix(read), Writer::Unix(write))
        }
        Stream::Tls(tls) => {
            let (read, write) = tokio::io::split(*tls);
            (Reader::Tls(read), Writer::Tls(write))
        }
    }
}

impl Reader {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Reader::Tcp(read) => Pin::new(read).poll_read(cx, into),
            Reader::Unix(read) => Pin::new(read).poll_read(cx, into),
            Reader::Tls(read) => Pin::new(read).poll_read(cx, into),
        }
    }
}

impl Writer {
    /// Writes as much as the socket takes at once, from any thread. With TLS the reading task does all writing.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Tcp(write) => write.try_write(bytes),
            Writer::Unix(write) => write.try_write(bytes),
            Writer::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Writer::Tcp(write) => Pin::new(write).poll_write(cx, bytes),
            Writer::Unix(write) => Pin::new(write).poll_write(cx, bytes),
            Writer::Tls(write) => Pin::new(write).poll_write(cx, bytes),
        }
    }

    /// Flushes what TLS has buffered. Plain sockets have nothing to flush.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Writer::Tcp(_) | Writer::Unix(_) => Poll::Ready(Ok(())),
            Writer::Tls(write) => Pin::new(write).poll_flush(cx),
        }
    }
}
