//! A hold that this process lets go of without leaving it.

use std::sync::Arc;

use super::Stake;
use super::phase::Phase;
use crate::model::claim::{Ended, PLACE_LIFE};
use crate::model::moment::Moment;
use crate::observe::Holding;

impl Stake {
    /// Lets go of a hold that is live, or of one that was only asked after. Returns when the stake can
    /// be forgotten, and whether a request of it may still arrive.
    ///
    /// It is not forgotten at once: a turn that comes late would be taken for one that nobody waits
    /// for, and given back, which ends the hold.
    pub(crate) fn let_go(&self, now: Moment) -> Result<(Moment, bool), Ended> {
        let mut state = self.state();
        if let Some(ended) = self.ended_in(&state, now) {
            return Err(ended);
        }
        let forget_at = now + PLACE_LIFE;
        state.phase = Phase::Detached(forget_at);
        let (waker, observers) = (state.waker.take(), std::mem::take(&mut state.observers));
        let companion = state.companion.take();
        let in_doubt = state.open > 0;
        drop(state);
        drop((waker, observers, companion));
        Ok((forget_at, in_doubt))
    }

    /// What lasted as long as the hold that was let go of.
    pub(crate) fn take_holding(&self) -> Option<Arc<Holding>> {
        self.state().holding.take()
    }

    /// It was granted before, and others may know its id, too.
    pub(crate) fn attached(&self) {
        self.state().attached = true;
    }

    /// Whether this process has let go of it, and only knows its id.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.state().phase, Phase::Detached(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::claim_state::Todo;
    use crate::core::request_builder::Draft;
    use crate::model::claim::{Fence, Grant};
    use crate::model::name::{Name, Space};
    use crate::model::options::Options;

    fn held(now: Moment) -> std::sync::Arc<Stake> {
        let name = Name::new(Space::Lock, "x").unwrap();
        let stake = Draft::new(name, &Options::new("me".into())).into_stake();
        let grant = Grant::new(Fence::new(7), now, Duration::from_secs(30), false);
        stake.start(grant, now, None, &mut Todo::default());
        stake
    }

    #[test]
    fn what_was_let_go_of_is_forgotten_after_a_minute_and_needs_nothing_until_then() {
        let now = Moment::ORIGIN + Duration::from_secs(1000);
        let stake = held(now);
        assert_eq!(stake.let_go(now), Ok((now + PLACE_LIFE, false)));
        assert!(stake.is_detached() && !stake.holds(Fence::new(7)));
        for (at, over) in [(now, false), (now + PLACE_LIFE / 2, false), (now + PLACE_LIFE, true)] {
            let mut todo = Todo::default();
            assert_eq!(stake.look(at, false, &mut todo), now + PLACE_LIFE);
            assert_eq!(todo.over, over);
            assert!(todo.renew.is_none() && todo.leave.is_none() && todo.lost.is_none());
        }
        assert!(stake.leave(now).0.is_none(), "it is not this process's to leave");
    }

    #[test]
    fn a_request_that_may_still_arrive_is_not_forgotten() {
        let stake = held(Moment::ORIGIN);
        stake.asked();
        assert_eq!(stake.let_go(Moment::ORIGIN), Ok((Moment::ORIGIN + PLACE_LIFE, true)));
    }

    #[test]
    fn what_has_ended_is_not_let_go_of() {
        let stake = held(Moment::ORIGIN);
        let late = Moment::ORIGIN + Duration::from_secs(30);
        assert_eq!(stake.let_go(late), Err(Ended::Expired));
        assert!(!stake.is_detached());
    }
}
