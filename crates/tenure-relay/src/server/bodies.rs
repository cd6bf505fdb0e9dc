//! Limits on request bodies: the size of one, the time it may take, and the size of all together.
//!
//! The first [`OF_EACH`] bytes of each body are limited by the number of connections. The rest counts against a limit
//! that all bodies share, as it arrives: a body that was announced and not sent takes nothing, and short requests are
//! served while long ones are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::refusal::Refusal;

/// Bytes of each body that do not count against the shared limit.
const OF_EACH: usize = 64 << 10;

/// How long the rest of a refused body is read and dropped.
const THROWN_AWAY_FOR: Duration = Duration::from_secs(2);

/// The shared limit.
pub(super) struct Bodies {
    left: Arc<AtomicUsize>,
    /// The most bytes of one body.
    most: usize,
    within: Duration,
}

/// A body, which counts against the shared limit until it is dropped.
pub(super) struct Body {
    pub(super) bytes: Bytes,
    _room: Room,
}

impl Bodies {
    pub(super) fn new(room: usize, most: usize, within: Duration) -> Bodies {
        Bodies { left: Arc::new(AtomicUsize::new(room)), most, within }
    }

    /// Reads a whole body.
    pub(super) async fn read(&self, body: Incoming) -> Result<Body, Refusal> {
        let read = tokio::time::timeout(self.within, self.read_on(body)).await;
        read.unwrap_or(Err(Refusal::InvalidRequest("the body took too long")))
    }

    async fn read_on(&self, mut body: Incoming) -> Result<Body, Refusal> {
        let read = self.collect(&mut body).await;
        if read.is_err() {
            // A client that is still sending does not read the answer yet, so read on for a while.
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
                return Err(Refusal::Busy("long requests have reached their common limit"));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Body { bytes: bytes.into(), _room: room })
    }
}

/// One body's part of the shared limit.
struct Room {
    of: Arc<AtomicUsize>,
    taken: usize,
}

impl Room {
    /// Grows to this size; false if the limit does not allow it.
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
