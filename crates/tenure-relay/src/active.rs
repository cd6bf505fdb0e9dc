//! The transactions that this relay is processing, and since when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// All transactions that have arrived and have no outcome yet. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Active(Arc<Inner>);

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

impl Active {
    /// Adds one until the guard is dropped.
    pub(crate) fn enter(&self) -> ActiveGuard {
        let mut arrivals = self.0.arrivals();
        let number = arrivals.next;
        arrivals.next += 1;
        arrivals.since.insert(number, Instant::now());
        ActiveGuard { number, of: self.0.clone() }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.arrivals().since.len()
    }

    /// The age of the oldest.
    pub(crate) fn oldest(&self) -> Duration {
        self.0.arrivals().since.values().next().map(Instant::elapsed).unwrap_or_default()
    }

    /// Waits until there are none left.
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

/// One transaction that is being processed.
pub(crate) struct ActiveGuard {
    number: u64,
    of: Arc<Inner>,
}

impl Drop for ActiveGuard {
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
        let active = Active::default();
        active.none_left().await;
        let (one, two) = (active.enter(), active.enter());
        assert_eq!(active.count(), 2);
        let waiting = tokio::spawn({
            let active = active.clone();
            async move { active.none_left().await }
        });
        drop(one);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && active.oldest() > Duration::ZERO);
        drop(two);
        waiting.await.unwrap();
        assert_eq!((active.count(), active.oldest()), (0, Duration::ZERO));
    }
}
