//! The bodies of requests: how long one may be, how long it may take, and how much all may be together.
//!
//! The first [`OF_EACH`] bytes of a body are bounded by the number of connections. What goes beyond
//! comes out of a room that all share, byte by byte as it arrives: whoever announces much and sends
//! nothing takes nothing, and short requests pass while long ones are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::refusal::Refusal;

/// So many bytes of every body are taken without a look at the others.
const OF_EACH: usize = 64 << 10;

/// How long the rest of a body that was refused is read on.
const THROWN_AWAY_FOR: Duration = Duration::from_secs(2);

/// The room that all long bodies share.
pub(super) struct Bodies {
    left: Arc<AtomicUsize>,
    /// The most bytes of one.
    most: usize,
    within: Duration,
}

/// A body, and its room until it is dropped.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    _room: Room,
}

impl Bodies {
    pub(super) fn new(room: usize, most: usize, within: Duration) -> Bodies {
        Bodies { left: Arc::new(AtomicUsize::new(room)), most, within }
    }

    /// Reads all of it.
    pub(super) async fn read(&self, body: Incoming) -> Result<Body, Refusal> {
        let read = tokio::time::timeout(self.within, self.read_on(body)).await;
        read.unwrap_or(Err(Refusal::InvalidRequest("the body took too long")))
    }

    async fn read_on(&self, mut body: Incoming) -> Result<Body, Refusal> {
        let read = self.collect(&mut body).await;
        if read.is_err() {
            // Whoever still sends does not read the answer: what is left is thrown away for a while.
            let rest = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(THROWN_AWAY_FOR, rest).await;
        }
        read
    }

    async fn collect(&self, body: &mut Incoming) -> Result<Body, Refusal> {
        let too_large = || Refusal::BodyTooLarge { limit: self.most };
        if body.size_hint().lower() > self.most as u64 {
            return Err(too_large());
        }
        let mut room = Room { of: self.left.clone(), taken: 0 };
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::InvalidRequest("the body broke off"))?;
            let Ok(data) = frame.into_data() else { continue };
            let length = bytes.len() + data.len();
            if length > self.most {
                return Err(too_large());
            }
            if !room.reach(length.saturating_sub(OF_EACH)) {
                return Err(Refusal::Busy("long requests take all the room there is for them"));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Body { bytes: bytes.into(), _room: room })
    }
}

/// What one body has of the room.
struct Room {
    of: Arc<AtomicUsize>,
    taken: usize,
}

impl Room {
    /// Takes what is missing to so much; whether there was enough.
    fn reach(&mut self, size: usize) -> bool {
        let more = size.saturating_sub(self.taken);
        let taken = self.of.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(more)).is_ok();
        if taken {
            self.taken += more;
        }
        taken
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_add(self.taken, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_as_it_is_needed_and_given_back() {
        let left = Arc::new(AtomicUsize::new(100));
        let room = || Room { of: left.clone(), taken: 0 };
        let (mut one, mut two) = (room(), room());
        assert!(one.reach(0) && one.reach(60) && one.reach(60) && two.reach(40));
        assert!(!two.reach(41) && !one.reach(61));
        drop(one);
        assert!(two.reach(100) && !two.reach(101));
        drop(two);
        assert_eq!(left.load(SeqCst), 100);
    }
}
