//! Which transactions are on their way, since when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// All that have arrived and have no outcome yet. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Passing(Arc<Inner>);

#[derive(Default)]
struct Inner {
    arrivals: Mutex<Arrivals>,
    none_left: Notify,
}

#[derive(Default)]
struct Arrivals {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

impl Passing {
    /// One more, until what this returns is dropped.
    pub(crate) fn enter(&self) -> Passes {
        let mut arrivals = self.0.arrivals();
        let number = arrivals.next;
        arrivals.next += 1;
        arrivals.since.insert(number, Instant::now());
        Passes { number, of: self.0.clone() }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.arrivals().since.len()
    }

    /// For how long the oldest of them has been on its way.
    pub(crate) fn oldest(&self) -> Duration {
        self.0.arrivals().since.values().next().map(Instant::elapsed).unwrap_or_default()
    }

    /// Waits until there are none.
    pub(crate) async fn none_left(&self) {
        loop {
            let told = self.0.none_left.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.count() == 0 {
                return;
            }
            told.await;
        }
    }
}

impl Inner {
    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is on its way.
pub(crate) struct Passes {
    number: u64,
    of: Arc<Inner>,
}

impl Drop for Passes {
    fn drop(&mut self) {
        let mut arrivals = self.of.arrivals();
        arrivals.since.remove(&self.number);
        if arrivals.since.is_empty() {
            self.of.none_left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_comes_when_the_last_has_left() {
        let passing = Passing::default();
        passing.none_left().await;
        let (one, two) = (passing.enter(), passing.enter());
        assert_eq!(passing.count(), 2);
        let waiting = tokio::spawn({
            let passing = passing.clone();
            async move { passing.none_left().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && passing.oldest() > Duration::ZERO);
        drop(two);
        waiting.await.unwrap();
        assert_eq!((passing.count(), passing.oldest()), (0, Duration::ZERO));
    }
}
