//! A client's connection that fails if the client does not read its response.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::socket::Connection;

/// How long the writes of one response have waited for the client, in microseconds. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WriteWait(Arc<AtomicU64>);

impl WriteWait {
    /// A new response begins.
    pub fn restart(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Since when the client has been sending the head of a request. Clones share it.
#[derive(Clone, Debug)]
pub struct HeadWait(Arc<Mutex<Reading>>);

#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Waiting for a head, since then.
    Head(Instant),
    /// The head has arrived, and its answer has not begun.
    Nothing,
    /// Between two requests: the next byte begins a head.
    Between,
}

impl Default for HeadWait {
    /// A new connection is waiting for a head.
    fn default() -> HeadWait {
        HeadWait(Arc::new(Mutex::new(Reading::Head(Instant::now()))))
    }
}

impl HeadWait {
    fn state(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A head has arrived.
    pub fn arrived(&self) {
        *self.state() = Reading::Nothing;
    }

    /// The request is answered.
    pub fn answered(&self) {
        *self.state() = Reading::Between;
    }

    fn came(&self) {
        let mut state = self.state();
        if matches!(*state, Reading::Between) {
            *state = Reading::Head(Instant::now());
        }
    }

    fn since(&self) -> Option<Instant> {
        match *self.state() {
            Reading::Head(since) => Some(since),
            Reading::Nothing | Reading::Between => None,
        }
    }
}

/// A connection whose writes fail once the writes of one response have together waited too long for the client. The
/// time before an answer begins does not count.
#[derive(Debug)]
pub struct BoundedStream {
    stream: Connection,
    within: Duration,
    waited: WriteWait,
    blocked: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
    head: Option<SlowHead>,
}

/// When to give up on a head.
#[derive(Debug)]
struct SlowHead {
    wait: HeadWait,
    within: Duration,
    alarm: Pin<Box<Sleep>>,
}

impl BoundedStream {
    /// Lets the writes of one response wait for the client for at most `within`.
    pub fn new(
        stream: impl Into<Connection>,
        within: Duration,
        waited: WriteWait,
    ) -> BoundedStream {
        let stream = stream.into();
        let alarm = Box::pin(tokio::time::sleep(within));
        BoundedStream { stream, within, waited, blocked: None, alarm, head: None }
    }

    /// Lets the head of a request take at most `within`, however slowly it trickles in, and however long the
    /// connection was idle before it.
    #[must_use]
    pub fn with_head_within(mut self, within: Duration, wait: HeadWait) -> BoundedStream {
        let alarm = Box::pin(tokio::time::sleep(within));
        self.head = Some(SlowHead { wait, within, alarm });
        self
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
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(SlowHead { wait, within, alarm }) = &mut self.head else { return polled };
        if polled.is_ready() {
            if buffer.filled().len() > before {
                wait.came();
            }
            return polled;
        }
        let Some(since) = wait.since() else { return polled };
        if alarm.deadline() != since + *within {
            alarm.as_mut().reset(since + *within);
        }
        let late = |()| Err(Error::new(ErrorKind::TimedOut, "the head of a request took too long"));
        alarm.as_mut().poll(cx).map(late)
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
