//! The transactions of a sender that wait at this relay, by nonce: one at a time goes to the lane for all of them.
//!
//! Whoever has had its turn passes the lane on to the next here, where that is the sender's next nonce: nobody
//! elsewhere could do anything with it. Otherwise the lowest stands in the lane's line again, behind the other
//! relays, and so the lane goes round between them for as long as one of them has the next nonce. When it has gone
//! round and the nonce is still not there, it is looked for at growing intervals.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alloy_primitives::Address;
use tenure::{Hold, Protection};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::refusal::Refusal;

/// The first pause before one that is too early takes another turn, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(25);
/// For how long a lane is passed on within a relay before others have their turn.
pub(crate) const PASSED_ON_FOR: Duration = Duration::from_millis(100);
/// For how long, and of how many senders, it is known why a nonce is missing.
const REMEMBERED: Duration = Duration::from_secs(60);
const MANY: usize = 10_000;

/// All senders that have transactions here. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<Senders>>);

#[derive(Default)]
struct Senders {
    queues: HashMap<Address, Queue>,
    /// What was refused last: the nonce that is missing now, why, and since when.
    refused: HashMap<Address, (u64, String, Instant)>,
}

/// By nonce, then by arrival.
type Key = (u64, u64);

struct Queue {
    seats: BTreeMap<Key, Arc<Seat>>,
    /// Who is at the lane, or on the way there. Nobody while the lowest pauses.
    called: Option<Key>,
    arrivals: u64,
    /// The sender's next nonce, as it was last seen under the lane.
    next: u64,
    /// When that rose, or one of these had its outcome.
    moved: Instant,
}

#[derive(Default)]
pub(crate) struct Seat {
    told: Notify,
    /// One with a lower nonce has come while this one was at the lane.
    overtaken: Notify,
    given: Mutex<Option<Given>>,
}

/// What one that waits is given.
enum Given {
    Lane(Lane),
    No(Refusal),
}

/// One that came too early, as it was at its last turn.
pub(crate) struct Early {
    pub(crate) next: u64,
    pub(crate) until: Instant,
    pub(crate) seat: Arc<Seat>,
}

/// A lane in hand.
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
    /// Takes a place, now. `None` if as many wait as may.
    pub(crate) fn enter(&self, sender: Address, nonce: u64, most: usize) -> Option<Place> {
        let mut senders = self.lock();
        let queue = senders.queues.entry(sender).or_insert_with(|| Queue {
            seats: BTreeMap::new(),
            called: None,
            arrivals: 0,
            next: 0,
            moved: Instant::now(),
        });
        // Beside those that wait there is the one whose turn it is.
        if queue.seats.len() > most {
            return None;
        }
        let key = (nonce, queue.arrivals);
        queue.arrivals += 1;
        let seat = Arc::new(Seat::default());
        queue.seats.insert(key, seat.clone());
        match queue.called {
            None if queue.lowest() == Some(key) => queue.called = Some(key),
            Some(called) if key < called => {
                queue.seats.get(&called).into_iter().for_each(|seat| seat.overtaken.notify_one());
            }
            _ => {}
        }
        let (arrived, pause) = (Instant::now(), FIRST_PAUSE);
        let reach = nonce;
        let queues = self.clone();
        Some(Place { queues, sender, key, seat, arrived, seen: None, pause, lane: None, reach })
    }

    /// The sender's transaction with this nonce was refused: those behind it have a gap before them.
    pub(crate) fn refused(&self, sender: Address, nonce: u64, why: String) {
        let mut senders = self.lock();
        if senders.refused.len() >= MANY {
            senders.refused.retain(|_, (_, _, since)| since.elapsed() < REMEMBERED);
        }
        if senders.refused.len() < MANY || senders.refused.contains_key(&sender) {
            senders.refused.insert(sender, (nonce, why, Instant::now()));
        }
    }

    /// Why the sender's transaction with this nonce was refused here, if it was.
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
        self.seats.keys().next().copied()
    }

    /// The lowest is called, and is given the lane if its nonce is within `reach`. Returns whom to tell, and
    /// the lane if it was not given.
    fn call(&mut self, lane: Option<Lane>, reach: u64) -> (Option<Arc<Seat>>, Option<Lane>) {
        let Some((key, seat)) = self.seats.first_key_value() else {
            self.called = None;
            return (None, lane);
        };
        self.called = Some(*key);
        let fits = key.0 <= reach && lane.as_ref().is_some_and(Lane::may_be_passed_on);
        if !fits {
            return (Some(seat.clone()), lane);
        }
        *seat.given() = lane.map(Given::Lane);
        (Some(seat.clone()), None)
    }

    /// The next nonce, as it is now.
    fn saw(&mut self, next: u64) {
        if next > self.next {
            self.moved = Instant::now();
        }
        self.next = next;
    }
}

impl Seat {
    /// Returns when one with a lower nonce has come.
    pub(crate) async fn overtaken(&self) {
        self.overtaken.notified().await;
    }

    fn given(&self) -> MutexGuard<'_, Option<Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One transaction's place among those of its sender. It leaves when this is dropped.
pub(crate) struct Place {
    queues: Queues,
    sender: Address,
    key: Key,
    seat: Arc<Seat>,
    arrived: Instant,
    /// The next nonce at the turn before, and how long it paused after that.
    seen: Option<u64>,
    pause: Duration,
    /// What whoever comes next gets, and up to which nonce.
    lane: Option<Lane>,
    reach: u64,
}

impl Place {
    /// Waits until it may go to the lane; the lane itself, if it was passed on.
    pub(crate) async fn turn(&self) -> Result<Option<Lane>, Refusal> {
        loop {
            let given = self.seat.given().take();
            match given {
                Some(Given::Lane(lane)) => return Ok(Some(lane)),
                Some(Given::No(refusal)) => return Err(refusal),
                None if self.is_called() => return Ok(None),
                None => {}
            }
            self.seat.told.notified().await;
        }
    }

    /// Whether one that has come meanwhile goes first: then it has the lane.
    pub(crate) fn goes_behind(&self, lane: Lane) -> Result<(), Lane> {
        let mut senders = self.queues.lock();
        let queue = senders.queues.get_mut(&self.sender);
        let Some(queue) = queue.filter(|queue| queue.lowest() != Some(self.key)) else {
            return Err(lane);
        };
        let (seat, lane) = queue.call(Some(lane), u64::MAX);
        drop(senders);
        tell(seat, lane);
        Ok(())
    }

    /// Its turn came too early: the next is `next`. Returns when it may try again, with the end of its time: `window`
    /// after the line last moved. An error is how long it has waited in vain.
    pub(crate) async fn step_aside(
        &mut self,
        next: u64,
        lane: Lane,
        window: Duration,
    ) -> Result<Early, Duration> {
        let rose = self.seen.replace(next).is_some_and(|seen| next > seen);
        let early = |until| Early { next, until, seat: self.seat.clone() };
        let until = {
            let mut senders = self.queues.lock();
            let Some(queue) = senders.queues.get_mut(&self.sender) else {
                return Ok(early(self.arrived + window));
            };
            queue.saw(next);
            let until = queue.moved.max(self.arrived) + window;
            if queue.lowest() != Some(self.key) {
                let (seat, lane) = queue.call(Some(lane), next);
                drop(senders);
                tell(seat, lane);
                return Ok(early(until));
            }
            if until <= Instant::now() {
                // It leaves, and whoever is next is called then.
                return Err(self.arrived.elapsed());
            }
            if rose {
                // The others go on: in line again, behind them.
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
            // What was told before may be left over.
            while !self.is_called() && self.seat.given().is_none() {
                self.seat.told.notified().await;
            }
        };
        if tokio::time::timeout_at(again, called).await.is_err() {
            self.call_again();
        }
        Ok(early)
    }

    /// After a pause, unless someone else is at the lane.
    fn call_again(&self) {
        let mut senders = self.queues.lock();
        let Some(queue) = senders.queues.get_mut(&self.sender) else { return };
        if queue.called.is_none() {
            let (seat, _) = queue.call(None, 0);
            drop(senders);
            tell(seat, None);
        }
    }

    /// Leaves with an outcome. `next`, where it is known, is what the sender's next nonce is now; whoever has that
    /// here gets the lane.
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

    /// There is no lane to be had: for nobody here.
    pub(crate) fn refuse_all(self, refusal: &Refusal) {
        let senders = self.queues.lock();
        let seats: Vec<_> = senders
            .queues
            .get(&self.sender)
            .map(|queue| queue.seats.values().cloned().collect())
            .unwrap_or_default();
        drop(senders);
        for seat in seats {
            seat.given().get_or_insert_with(|| Given::No(refusal.clone()));
            seat.told.notify_one();
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
        queue.seats.remove(&self.key);
        let lane = self.lane.take();
        let (seat, lane) = match queue.called {
            Some(called) if called == self.key => queue.call(lane, self.reach),
            // The one that paused is gone: the next may try at once.
            None => queue.call(lane, self.reach),
            Some(_) => (None, lane),
        };
        if queue.seats.is_empty() {
            senders.queues.remove(&self.sender);
        }
        drop(senders);
        tell(seat, lane);
    }
}

/// First the lane is left, so that whoever is told finds it free.
fn tell(seat: Option<Arc<Seat>>, lane: Option<Lane>) {
    drop(lane);
    if let Some(seat) = seat {
        seat.told.notify_one();
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
        // It was alone when it came; then one came that goes before it.
        assert!(two.turn().await.unwrap().is_none());
        assert!(two.goes_behind(lane().await).is_ok());
        let lane = one.turn().await.unwrap().expect("the lane is passed on");
        one.leave(Some(lane), Some(2));
        let lane = two.turn().await.unwrap().expect("the lane is passed on");
        assert!(two.goes_behind(lane).is_err(), "nobody is before it");
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
            late.step_aside(6, lane().await, LONG).await.map(drop).unwrap();
            late.turn().await.unwrap().is_some()
        });
        tokio::task::yield_now().await;
        let before = queues.enter(SENDER, 6, 9).unwrap();
        before.turn().await.unwrap();
        before.leave(Some(lane().await), Some(7));
        assert!(waits.await.unwrap(), "with the lane");
    }

    /// The first time it looks again soon, then less and less often, and its time ends a window after the line
    /// last moved.
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
                    early.step_aside(next, lane_of(&tenure).await, SHORT).await.is_ok(),
                    "it moves"
                );
                looks += 1;
            }
        }
        assert!(began.elapsed() > SHORT * 7 && looks < 2000, "{looks} looks");
        let stopped = Instant::now();
        while early.step_aside(14, lane_of(&tenure).await, SHORT).await.is_ok() {
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
