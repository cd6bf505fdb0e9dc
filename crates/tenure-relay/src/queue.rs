//! A sender's transactions that wait at this relay, in the order of their nonces. One of them waits in the lane
//! on behalf of all.
//!
//! When a transaction has its outcome, it passes the lane to the next one here if that has the sender's next
//! nonce: no other relay could use the lane. Otherwise the lowest nonce here joins the lane's line again,
//! behind the other relays, so the lane goes from relay to relay as long as one of them has the next nonce. If
//! all of them had the lane and the nonce is at no relay, each tries again at growing intervals.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alloy_primitives::Address;
use tenure::{Hold, Protection};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::refusal::Refusal;

/// The first and the longest pause before an early transaction takes another turn.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(25);
/// How long a lane may be passed on within a relay before other relays have their turn.
pub(crate) const PASSED_ON_FOR: Duration = Duration::from_millis(100);
/// How long, and for how many senders, the relay remembers why a nonce is missing.
const REMEMBERED: Duration = Duration::from_secs(60);
const MANY: usize = 10_000;

/// The queues of all senders. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<Senders>>);

#[derive(Default)]
struct Senders {
    queues: HashMap<Address, Queue>,
    /// A sender's last refused transaction: its nonce, the reason, and when.
    refused: HashMap<Address, (u64, String, Instant)>,
}

/// By nonce, then by arrival.
type Key = (u64, u64);

struct Queue {
    waiters: BTreeMap<Key, Arc<Waiter>>,
    /// The transaction that has the lane or queues for it; `None` while the lowest one pauses.
    called: Option<Key>,
    arrivals: u64,
    /// The sender's next nonce when it was last looked up.
    next: u64,
    /// When that last rose, or when one of these last had its outcome.
    moved: Instant,
}

#[derive(Default)]
pub(crate) struct Waiter {
    told: Notify,
    /// A lower nonce arrived while this one had the lane.
    overtaken: Notify,
    given: Mutex<Option<Given>>,
}

/// What a waiting transaction is given.
enum Given {
    Lane(Lane),
    No(Refusal),
}

/// What an early transaction found at its last turn.
pub(crate) struct Early {
    pub(crate) next: u64,
    pub(crate) until: Instant,
    pub(crate) waiter: Arc<Waiter>,
}

/// A lane that is held, and since when.
pub(crate) struct Lane {
    pub(crate) hold: Hold,
    since: Instant,
}

impl Lane {
    pub(crate) fn new(hold: Hold) -> Lane {
        Lane { hold, since: Instant::now() }
    }

    fn may_be_passed_on(&self) -> bool {
        self.hold.protection() == Protection::Engine
            && self.hold.is_live()
            && self.since.elapsed() < PASSED_ON_FOR
    }
}

impl Queues {
    /// Enters a transaction. `None` if the queue is full.
    pub(crate) fn enter(&self, sender: Address, nonce: u64, most: usize) -> Option<Place> {
        let mut senders = self.lock();
        let queue = senders.queues.entry(sender).or_insert_with(|| Queue {
            waiters: BTreeMap::new(),
            called: None,
            arrivals: 0,
            next: 0,
            moved: Instant::now(),
        });
        // The one that has the lane is in the queue, too, and does not count.
        if queue.waiters.len() > most {
            return None;
        }
        let key = (nonce, queue.arrivals);
        queue.arrivals += 1;
        let waiter = Arc::new(Waiter::default());
        queue.waiters.insert(key, waiter.clone());
        match queue.called {
            None if queue.lowest() == Some(key) => queue.called = Some(key),
            Some(called) if key < called => {
                queue
                    .waiters
                    .get(&called)
                    .into_iter()
                    .for_each(|waiter| waiter.overtaken.notify_one());
            }
            _ => {}
        }
        let (arrived, pause) = (Instant::now(), FIRST_PAUSE);
        let reach = nonce;
        let queues = self.clone();
        Some(Place { queues, sender, key, waiter, arrived, seen: None, pause, lane: None, reach })
    }

    /// Remembers why this nonce was refused: the ones after it wait for a replacement.
    pub(crate) fn refused(&self, sender: Address, nonce: u64, why: String) {
        let mut senders = self.lock();
        if senders.refused.len() >= MANY {
            senders.refused.retain(|_, (_, _, since)| since.elapsed() < REMEMBERED);
        }
        if senders.refused.len() < MANY || senders.refused.contains_key(&sender) {
            senders.refused.insert(sender, (nonce, why, Instant::now()));
        }
    }

    /// Why this relay refused this nonce, if it did.
    pub(crate) fn why_missing(&self, sender: Address, nonce: u64) -> Option<String> {
        let senders = self.lock();
        let known = senders.refused.get(&sender);
        let known = known.filter(|(of, _, since)| *of == nonce && since.elapsed() < REMEMBERED);
        known.map(|(_, why, _)| why.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Senders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn lowest(&self) -> Option<Key> {
        self.waiters.keys().next().copied()
    }

    /// Calls the lowest nonce, and gives it the lane if its nonce is at most `reach`. Returns the waiter to wake, and the
    /// lane if it was not given.
    fn call(&mut self, lane: Option<Lane>, reach: u64) -> (Option<Arc<Waiter>>, Option<Lane>) {
        let Some((key, waiter)) = self.waiters.first_key_value() else {
            self.called = None;
            return (None, lane);
        };
        self.called = Some(*key);
        let fits = key.0 <= reach && lane.as_ref().is_some_and(Lane::may_be_passed_on);
        if !fits {
            return (Some(waiter.clone()), lane);
        }
        *waiter.given() = lane.map(Given::Lane);
        (Some(waiter.clone()), None)
    }

    /// Takes note of the sender's next nonce.
    fn saw(&mut self, next: u64) {
        if next > self.next {
            self.moved = Instant::now();
        }
        self.next = next;
    }
}

impl Waiter {
    /// Waits until a lower nonce arrives.
    pub(crate) async fn overtaken(&self) {
        self.overtaken.notified().await;
    }

    fn given(&self) -> MutexGuard<'_, Option<Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One transaction's place in the queue of its sender. Dropping it leaves the queue.
pub(crate) struct Place {
    queues: Queues,
    sender: Address,
    key: Key,
    waiter: Arc<Waiter>,
    arrived: Instant,
    /// The sender's next nonce at the previous turn, and the pause before the next turn.
    seen: Option<u64>,
    pause: Duration,
    /// The lane for the next one in the queue, and the highest nonce that may have it.
    lane: Option<Lane>,
    reach: u64,
}

impl Place {
    /// Waits until this transaction may queue for the lane. Returns the lane if it was passed on.
    pub(crate) async fn turn(&self) -> Result<Option<Lane>, Refusal> {
        loop {
            let given = self.waiter.given().take();
            match given {
                Some(Given::Lane(lane)) => return Ok(Some(lane)),
                Some(Given::No(refusal)) => return Err(refusal),
                None if self.is_called() => return Ok(None),
                None => {}
            }
            self.waiter.told.notified().await;
        }
    }

    /// Passes the lane to a lower nonce if one has arrived; otherwise the error returns the lane.
    pub(crate) fn pass_to_lower(&self, lane: Lane) -> Result<(), Lane> {
        let mut senders = self.queues.lock();
        let queue = senders.queues.get_mut(&self.sender);
        let Some(queue) = queue.filter(|queue| queue.lowest() != Some(self.key)) else {
            return Err(lane);
        };
        let (waiter, lane) = queue.call(Some(lane), u64::MAX);
        drop(senders);
        tell(waiter, lane);
        Ok(())
    }

    /// Gives the lane back because the sender's next nonce is `next`, and returns when this transaction may try again. It
    /// may wait for `window` after the queue last advanced; the error is how long it has waited when that is over.
    pub(crate) async fn wait_until_next(
        &mut self,
        next: u64,
        lane: Lane,
        window: Duration,
    ) -> Result<Early, Duration> {
        let rose = self.seen.replace(next).is_some_and(|seen| next > seen);
        let early = |until| Early { next, until, waiter: self.waiter.clone() };
        let until = {
            let mut senders = self.queues.lock();
            let Some(queue) = senders.queues.get_mut(&self.sender) else {
                return Ok(early(self.arrived + window));
            };
            queue.saw(next);
            let until = queue.moved.max(self.arrived) + window;
            if queue.lowest() != Some(self.key) {
                let (waiter, lane) = queue.call(Some(lane), next);
                drop(senders);
                tell(waiter, lane);
                return Ok(early(until));
            }
            if until <= Instant::now() {
                // It leaves the queue, which calls the next one.
                return Err(self.arrived.elapsed());
            }
            if rose {
                // Other relays make progress: queue again at once, behind them.
                let early = early(until);
                self.pause = FIRST_PAUSE;
                return Ok(early);
            }
            queue.called = None;
            until
        };
        let early = early(until);
        drop(lane);
        let again = (Instant::now() + self.pause).min(until);
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        let called = async {
            // The wake-up may be an old one.
            while !self.is_called() && self.waiter.given().is_none() {
                self.waiter.told.notified().await;
            }
        };
        if tokio::time::timeout_at(again, called).await.is_err() {
            self.call_again();
        }
        Ok(early)
    }

    /// Calls the lowest nonce after a pause, unless one has the lane.
    fn call_again(&self) {
        let mut senders = self.queues.lock();
        let Some(queue) = senders.queues.get_mut(&self.sender) else { return };
        if queue.called.is_none() {
            let (waiter, _) = queue.call(None, 0);
            drop(senders);
            tell(waiter, None);
        }
    }

    /// Leaves the queue with an outcome. `next` is the sender's next nonce, if it is known; a transaction here that has it
    /// gets the lane.
    pub(crate) fn leave(mut self, lane: Option<Lane>, next: Option<u64>) {
        let mut senders = self.queues.lock();
        if let Some(queue) = senders.queues.get_mut(&self.sender) {
            queue.next = next.unwrap_or(queue.next);
            queue.moved = Instant::now();
        }
        drop(senders);
        self.reach = next.unwrap_or(self.key.0);
        self.lane = lane;
    }

    /// Refuses everything in the queue: there is no lane for any of them.
    pub(crate) fn refuse_all(self, refusal: &Refusal) {
        let senders = self.queues.lock();
        let waiters: Vec<_> = senders
            .queues
            .get(&self.sender)
            .map(|queue| queue.waiters.values().cloned().collect())
            .unwrap_or_default();
        drop(senders);
        for waiter in waiters {
            waiter.given().get_or_insert_with(|| Given::No(refusal.clone()));
            waiter.told.notify_one();
        }
    }

    fn is_called(&self) -> bool {
        let senders = self.queues.lock();
        senders.queues.get(&self.sender).is_some_and(|queue| queue.called == Some(self.key))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut senders = self.queues.lock();
        let Some(queue) = senders.queues.get_mut(&self.sender) else { return };
        queue.waiters.remove(&self.key);
        let lane = self.lane.take();
        let (waiter, lane) = match queue.called {
            Some(called) if called == self.key => queue.call(lane, self.reach),
            // The one that paused has left, so the next one may try at once.
            None => queue.call(lane, self.reach),
            Some(_) => (None, lane),
        };
        if queue.waiters.is_empty() {
            senders.queues.remove(&self.sender);
        }
        drop(senders);
        tell(waiter, lane);
    }
}

/// Releases the lane before it wakes the next one, which may queue for it.
fn tell(waiter: Option<Arc<Waiter>>, lane: Option<Lane>) {
    drop(lane);
    if let Some(waiter) = waiter {
        waiter.told.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tenure::Tenure;

    use super::*;

    const SENDER: Address = Address::ZERO;
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_secs(5);

    async fn lane() -> Lane {
        lane_of(&Tenure::connect("memory:").await.unwrap()).await
    }

    async fn lane_of(tenure: &Tenure) -> Lane {
        Lane::new(tenure.mutex("lane").acquire().await.unwrap())
    }

    #[tokio::test]
    async fn the_lowest_nonce_goes_first_and_passes_the_lane_on_to_the_next() {
        let queues = Queues::default();
        let enter = |nonce| queues.enter(SENDER, nonce, 9).unwrap();
        let (two, one, five) = (enter(2), enter(1), enter(5));
        // It was alone when it arrived; then a lower nonce arrived.
        assert!(two.turn().await.unwrap().is_none());
        assert!(two.pass_to_lower(lane().await).is_ok());
        let lane = one.turn().await.unwrap().expect("the lane is passed on");
        one.leave(Some(lane), Some(2));
        let lane = two.turn().await.unwrap().expect("the lane is passed on");
        assert!(two.pass_to_lower(lane).is_err(), "nobody is before it");
        two.leave(Some(self::lane().await), Some(3));
        assert!(five.turn().await.unwrap().is_none(), "it is not next: others may be");
        drop(five);
        assert!(queues.lock().queues.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_early_is_called_when_the_one_before_it_has_left() {
        let queues = Queues::default();
        let mut late = queues.enter(SENDER, 7, 9).unwrap();
        let waits = tokio::spawn(async move {
            late.turn().await.unwrap();
            late.wait_until_next(6, lane().await, LONG).await.map(drop).unwrap();
            late.turn().await.unwrap().is_some()
        });
        tokio::task::yield_now().await;
        let before = queues.enter(SENDER, 6, 9).unwrap();
        before.turn().await.unwrap();
        before.leave(Some(lane().await), Some(7));
        assert!(waits.await.unwrap(), "with the lane");
    }

    /// It tries again soon at first, then less and less often, until a window after the queue last advanced.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_nobody_is_refused_while_the_line_moves() {
        let queues = Queues::default();
        let tenure = Tenure::connect("memory:").await.unwrap();
        let mut early = queues.enter(SENDER, 20, 9).unwrap();
        let (began, mut looks) = (Instant::now(), 0);
        for next in 5..15 {
            let moved = Instant::now();
            while moved.elapsed() < SHORT * 4 / 5 {
                early.turn().await.unwrap();
                assert!(
                    early.wait_until_next(next, lane_of(&tenure).await, SHORT).await.is_ok(),
                    "it moves"
                );
                looks += 1;
            }
        }
        assert!(began.elapsed() > SHORT * 7 && looks < 2000, "{looks} looks");
        let stopped = Instant::now();
        while early.wait_until_next(14, lane_of(&tenure).await, SHORT).await.is_ok() {
            early.turn().await.unwrap();
            assert!(stopped.elapsed() < SHORT * 2, "it ends");
        }
    }

    #[tokio::test]
    async fn no_more_wait_than_may_and_none_for_what_nobody_gets() {
        let queues = Queues::default();
        let enter = |nonce| queues.enter(SENDER, nonce, 1);
        let (one, two) = (enter(1).unwrap(), enter(2).unwrap());
        assert!(enter(3).is_none());
        one.turn().await.unwrap();
        one.refuse_all(&Refusal::ShuttingDown);
        assert_eq!(two.turn().await.map(drop), Err(Refusal::ShuttingDown));
    }

    #[test]
    fn it_is_known_why_a_nonce_is_missing_and_of_how_many_is_bounded() {
        let queues = Queues::default();
        queues.refused(SENDER, 3, "no money".to_owned());
        assert_eq!(queues.why_missing(SENDER, 3).as_deref(), Some("no money"));
        assert_eq!(queues.why_missing(SENDER, 4), None);
        for number in 0..2 * MANY {
            queues.refused(Address::left_padding_from(&number.to_be_bytes()), 0, String::new());
        }
        assert!(queues.lock().refused.len() <= MANY);
    }
}
