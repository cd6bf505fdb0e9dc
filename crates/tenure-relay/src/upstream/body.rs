//! A node's answer, streamed to the client with limits on its size and on its pauses.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

/// The body of a forwarded answer.
pub(crate) struct Bounded {
    body: Incoming,
    left: usize,
    within: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl Bounded {
    /// At most this many bytes, with at most this long between two parts.
    pub(super) fn new(body: Incoming, most: usize, within: Duration) -> Bounded {
        Bounded { body, left: most, within, deadline: Box::pin(tokio::time::sleep(within)) }
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        let this = &mut *self;
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(_))) => {
                return Poll::Ready(Some(Err("the node's answer broke off".into())));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {
                let late = || Some(Err("the node's answer came to a halt".to_owned()));
                return this.deadline.as_mut().poll(cx).map(|()| late());
            }
        };
        let length = frame.data_ref().map_or(0, Buf::remaining);
        let Some(left) = this.left.checked_sub(length) else {
            return Poll::Ready(Some(Err("the node's answer is too long".into())));
        };
        this.left = left;
        this.deadline.as_mut().reset(Instant::now() + this.within);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
