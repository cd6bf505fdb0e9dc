//! A client's connection that fails if the client does not read its response.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long the writes of one response have waited for the client, in microseconds. Clones share it.
#[derive(Clone, Default)]
pub(super) struct WriteWait(Arc<AtomicU64>);

impl WriteWait {
    /// A new response begins.
    pub(super) fn restart(&self) {
        self.0.store(0, Relaxed);
    }
}

/// A connection whose writes fail when those of one response together have waited too long for the client. The time
/// that a slow node takes does not count.
pub(super) struct BoundedStream {
    stream: TcpStream,
    within: Duration,
    waited: WriteWait,
    blocked: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

impl BoundedStream {
    pub(super) fn new(stream: TcpStream, within: Duration, waited: WriteWait) -> BoundedStream {
        let alarm = Box::pin(tokio::time::sleep(within));
        BoundedStream { stream, within, waited, blocked: None, alarm }
    }

    fn bound<T>(&mut self, cx: &mut Context<'_>, polled: Poll<Result<T>>) -> Poll<Result<T>> {
        if polled.is_ready() {
            if let Some(since) = self.blocked.take() {
                self.waited.0.fetch_add(since.elapsed().as_micros() as u64, Relaxed);
            }
            return polled;
        }
        if self.blocked.is_none() {
            let now = Instant::now();
            let waited = Duration::from_micros(self.waited.0.load(Relaxed));
            self.blocked = Some(now);
            self.alarm.as_mut().reset(now + self.within.saturating_sub(waited));
        }
        let late = |()| Err(Error::new(ErrorKind::TimedOut, "the client does not read its answer"));
        self.alarm.as_mut().poll(cx).map(late)
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bound(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bound(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
