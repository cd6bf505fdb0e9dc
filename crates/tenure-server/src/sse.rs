//! Streams of events (`text/event-stream`).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use hyper::header::{self, HeaderName, HeaderValue};
use tokio::sync::mpsc;

/// How many events wait for a reader before its stream ends; and how many writes of several events.
pub(crate) const MOST_UNREAD: usize = 256;
pub(crate) const MOST_UNREAD_CHUNKS: usize = 8;
/// How often a stream shows that it is alive.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(5);

/// The writing end of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Sends an event. Returns `false` if the reader is gone or too slow.
    pub(crate) fn send(&self, event: &str, id: Option<u64>, data: &str) -> bool {
        let mut text = String::new();
        write(&mut text, event, id, data);
        self.send_written(text)
    }

    /// Sends events that were written before; `false` as above.
    pub(crate) fn send_written(&self, text: String) -> bool {
        self.0.try_send(Bytes::from(text)).is_ok()
    }

    pub(crate) fn ping(&self) -> bool {
        self.send("ping", None, "{}")
    }

    /// Resolves when the reader is gone.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Writes an event. The data is JSON, which contains no line breaks of its own.
pub(crate) fn write(text: &mut String, event: &str, id: Option<u64>, data: &str) {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    text.extend(["event: ", event, "\n", &id, "data: ", data, "\n\n"]);
}

struct Events(mpsc::Receiver<Bytes>);

impl Stream for Events {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(Ok))
    }
}

/// A stream: the sender, and the response that carries it.
pub(crate) fn stream(most_unread: usize) -> (Sender, Response) {
    let (sender, receiver) = mpsc::channel(most_unread);
    let mut response = Response::new(Body::from_stream(Events(receiver)));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    (Sender(sender), response)
}
