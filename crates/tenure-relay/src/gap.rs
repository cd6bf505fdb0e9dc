//! Transactions that came too early: where they wait until their nonce is next.
//!
//! They are not in the lane, so that those before them can pass. A transaction that this relay has sent
//! tells the next one at once; what other relays have sent is seen by asking the node, which one of a
//! sender's transactions does for all.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alloy_primitives::Address;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The first pause before the node is asked, and the longest.
const FIRST_ASK: Duration = Duration::from_millis(5);
const LAST_ASK: Duration = Duration::from_millis(25);
const ASKING: usize = 8;

pub(crate) struct Gaps {
    early: Mutex<HashMap<Address, Early>>,
    /// However many senders there are, so many ask at a time.
    asking: Semaphore,
}

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps { early: Mutex::default(), asking: Semaphore::new(ASKING) }
    }
}

/// Those of one sender.
struct Early {
    /// Nonces, and how many transactions wait with each.
    nonces: BTreeMap<u64, usize>,
    /// What the sender's next nonce is, as far as it is known here. It is sent again when someone
    /// leaves, so that another of them becomes the one who asks.
    next: Arc<watch::Sender<u64>>,
}

/// How long a transaction that came too early waits: a window that begins anew whenever the sender's
/// next nonce rises. While the line moves, nobody in it is refused.
#[derive(Debug)]
pub(crate) struct Patience {
    window: Duration,
    next: u64,
    until: Instant,
}

impl Patience {
    pub(crate) fn new(window: Duration, next: u64) -> Patience {
        Patience { window, next, until: Instant::now() + window }
    }

    /// The sender's next nonce, as it is now.
    pub(crate) fn saw(&mut self, next: u64) {
        if next > self.next {
            (self.next, self.until) = (next, Instant::now() + self.window);
        }
    }
}

/// Why there is nothing to wait for any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotYet {
    /// Too many of this sender wait.
    Full,
    /// The time is over, and this is still the next.
    Still(u64),
}

impl Gaps {
    /// Returns when `nonce` may be next. `count` asks the node.
    pub(crate) async fn wait<Count: Future<Output = Option<u64>>>(
        &self,
        sender: Address,
        nonce: u64,
        next: u64,
        patience: &mut Patience,
        cap: usize,
        count: impl Fn() -> Count,
    ) -> Result<(), NotYet> {
        let waits = self.enter(sender, nonce, next, cap)?;
        let mut seen = waits.next.subscribe();
        let mut pause = FIRST_ASK;
        loop {
            let next = *seen.borrow_and_update();
            if next >= nonce {
                return Ok(());
            }
            patience.saw(next);
            let asked = async {
                tokio::time::sleep(pause).await;
                // It is never closed.
                let _turn = self.asking.acquire().await;
                count().await
            };
            let asks = self.is_first(sender, nonce);
            tokio::select! {
                biased;
                _ = seen.changed() => pause = FIRST_ASK,
                () = tokio::time::sleep_until(patience.until) => {
                    return Err(NotYet::Still(*seen.borrow()));
                }
                count = asked, if asks => {
                    pause = (pause * 2).min(LAST_ASK);
                    count.into_iter().for_each(|count| raise(&waits.next, count));
                }
            }
        }
    }

    /// This relay has sent the transaction with this nonce.
    pub(crate) fn accepted(&self, sender: Address, nonce: u64) {
        if let Some(early) = self.early().get(&sender) {
            raise(&early.next, nonce.saturating_add(1));
        }
    }

    fn enter(
        &self,
        sender: Address,
        nonce: u64,
        next: u64,
        cap: usize,
    ) -> Result<Waits<'_>, NotYet> {
        let mut all = self.early();
        let early = all.entry(sender).or_insert_with(|| Early {
            nonces: BTreeMap::new(),
            next: Arc::new(watch::Sender::new(next)),
        });
        if early.nonces.values().sum::<usize>() >= cap {
            return Err(NotYet::Full);
        }
        *early.nonces.entry(nonce).or_default() += 1;
        // What was seen under the lane counts, also if it is less than what was hoped for.
        early.next.send_if_modified(|known| std::mem::replace(known, next) != next);
        Ok(Waits { gaps: self, sender, nonce, next: early.next.clone() })
    }

    fn is_first(&self, sender: Address, nonce: u64) -> bool {
        let all = self.early();
        let first = all.get(&sender).and_then(|early| early.nonces.keys().next());
        first == Some(&nonce)
    }

    fn early(&self) -> MutexGuard<'_, HashMap<Address, Early>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Outside of the lane, a node that lags is not believed.
fn raise(next: &watch::Sender<u64>, to: u64) {
    next.send_if_modified(|next| {
        let rises = to > *next;
        *next = to.max(*next);
        rises
    });
}

/// One that waits; leaves when it is dropped.
struct Waits<'a> {
    gaps: &'a Gaps,
    sender: Address,
    nonce: u64,
    next: Arc<watch::Sender<u64>>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut all = self.gaps.early();
        if let Some(early) = all.get_mut(&self.sender) {
            if let Some(count) = early.nonces.get_mut(&self.nonce) {
                *count -= 1;
                if *count == 0 {
                    early.nonces.remove(&self.nonce);
                }
            }
            if early.nonces.is_empty() {
                all.remove(&self.sender);
            }
        }
        self.next.send_modify(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SENDER: Address = Address::ZERO;
    const LONG: Duration = Duration::from_secs(3600);

    const SHORT: Duration = Duration::from_secs(5);

    async fn nobody_answers() -> Option<u64> {
        None
    }

    /// One that came when the sender's next nonce was 5.
    async fn waits<Count: Future<Output = Option<u64>>>(
        gaps: &Gaps,
        nonce: u64,
        window: Duration,
        cap: usize,
        count: impl Fn() -> Count,
    ) -> Result<(), NotYet> {
        gaps.wait(SENDER, nonce, 5, &mut Patience::new(window, 5), cap, count).await
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_refused_while_the_line_moves() {
        let gaps = Gaps::default();
        let moves = async {
            for nonce in 5..20 {
                tokio::time::sleep(SHORT * 4 / 5).await;
                gaps.accepted(SENDER, nonce);
            }
        };
        let (waited, ()) = tokio::join!(waits(&gaps, 20, SHORT, 9, nobody_answers), moves);
        assert_eq!(waited, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_after_what_was_sent_here_is_told_at_once() {
        let gaps = Arc::new(Gaps::default());
        let waits = tokio::spawn({
            let gaps = gaps.clone();
            async move { waits(&gaps, 7, LONG, 9, nobody_answers).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        gaps.accepted(SENDER, 5);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits.is_finished());
        gaps.accepted(SENDER, 6);
        assert_eq!(waits.await.unwrap(), Ok(()));
        assert!(gaps.early().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_have_sent_is_seen_and_only_one_asks() {
        let gaps = Gaps::default();
        let (count, asked) = (AtomicU64::new(5), AtomicU64::new(0));
        let ask = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            Some(count.load(Ordering::Relaxed))
        };
        let waits = |nonce| waits(&gaps, nonce, LONG, 9, ask);
        let later = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert!(asked.load(Ordering::Relaxed) <= 410, "{asked:?}");
            count.store(8, Ordering::Relaxed);
        };
        let (one, two, three, ()) = tokio::join!(waits(6), waits(7), waits(8), later);
        assert_eq!((one, two, three), (Ok(()), Ok(()), Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_no_more_than_may() {
        let gaps = Gaps::default();
        let first = waits(&gaps, 9, SHORT, 1, nobody_answers);
        let second = async {
            tokio::task::yield_now().await;
            waits(&gaps, 8, SHORT, 1, nobody_answers).await
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (Err(NotYet::Still(5)), Err(NotYet::Full)));
        assert!(gaps.early().is_empty());
    }

    /// A hope that the node does not share must not make it come back at once, again and again.
    #[tokio::test(start_paused = true)]
    async fn what_was_seen_under_the_lane_counts_more_than_what_was_heard() {
        let gaps = Gaps::default();
        let hears = async {
            tokio::task::yield_now().await;
            gaps.accepted(SENDER, 8);
        };
        let first = waits(&gaps, 9, SHORT, 9, nobody_answers);
        let other = waits(&gaps, 20, SHORT, 9, nobody_answers);
        let again = async {
            let (first, ()) = tokio::join!(first, hears);
            assert_eq!(first, Ok(()));
            waits(&gaps, 9, SHORT, 9, nobody_answers).await
        };
        let (again, _) = tokio::join!(again, other);
        assert_eq!(again, Err(NotYet::Still(5)));
    }
}
