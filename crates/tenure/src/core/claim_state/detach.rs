//! Holds that this process hands over without leaving them.

use super::ClaimState;
use super::phase::Phase;
use crate::model::claim::{Ended, PLACE_LIFE};
use crate::model::moment::Moment;
use crate::model::request::Request;

impl ClaimState {
    /// Detaches a hold that is live, or one that was only checked. Returns when the claim can
    /// be forgotten, and whether a request of it may still arrive.
    ///
    /// It is not forgotten at once: a late turn would then look like one that nobody waits for, and would be given
    /// back, which ends the hold.
    pub(crate) fn detach(
        &mut self,
        request: &Request,
        now: Moment,
    ) -> Result<(Moment, bool), Ended> {
        if let Some(ended) = self.ended(request, now) {
            return Err(ended);
        }
        let forget_at = now + PLACE_LIFE;
        self.phase = Phase::Detached(forget_at);
        Ok((forget_at, self.open > 0))
    }

    /// It was granted before, and others may know its id.
    pub(crate) fn attached(&mut self) {
        self.attached = true;
    }

    /// Whether this process has detached it, and only knows its id.
    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.phase, Phase::Detached(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::claim::{Fence, Grant, Turn};
    use crate::model::name::{Name, Space};
    use crate::model::options::Options;

    fn held(now: Moment) -> (ClaimState, Request) {
        let name = Name::new(Space::Lock, "x").unwrap();
        let request = Request::new(name, &Options::new("me".into()));
        let mut state = ClaimState::new();
        let grant = Grant::new(Fence::new(7), now, Duration::from_secs(30), false);
        state.start(&request, &grant, now);
        (state, request)
    }

    #[test]
    fn what_was_detached_is_forgotten_after_a_minute_and_needs_nothing_until_then() {
        let now = Moment::ORIGIN + Duration::from_secs(1000);
        let (mut state, request) = held(now);
        assert_eq!(state.detach(&request, now), Ok((now + PLACE_LIFE, false)));
        assert!(state.is_detached() && !state.holds(Fence::new(7)));
        for (at, over) in [(now, false), (now + PLACE_LIFE / 2, false), (now + PLACE_LIFE, true)] {
            let (next, effects) = state.look(&request, at, false);
            assert_eq!(next, now + PLACE_LIFE);
            assert_eq!(effects.over, over);
            assert!(effects.renew == Moment::FAR && !effects.leave && effects.lost.is_none());
        }
        assert!(!state.leave(&request, now).leave, "it is not this process's to leave");
    }

    #[test]
    fn a_request_that_may_still_arrive_is_not_forgotten() {
        let (mut state, request) = held(Moment::ORIGIN);
        state.asked();
        let detached = state.detach(&request, Moment::ORIGIN);
        assert_eq!(detached, Ok((Moment::ORIGIN + PLACE_LIFE, true)));
    }

    /// Otherwise the engine would be asked to take back the hold that another process has now.
    #[test]
    fn a_late_turn_for_a_detached_hold_counts_as_taken() {
        let (mut state, request) = held(Moment::ORIGIN);
        state.detach(&request, Moment::ORIGIN).unwrap();
        let late = Grant::new(Fence::new(7), Moment::ORIGIN, Duration::from_secs(30), true);
        let (is_taken, effects) = state.deliver(Turn::Granted(late));
        assert!(is_taken && effects.is_empty());
        let (is_taken, _) = state.deliver(Turn::LookAgain);
        assert!(!is_taken, "it no longer waits");
    }

    #[test]
    fn what_has_ended_is_not_detached() {
        let (mut state, request) = held(Moment::ORIGIN);
        let late = Moment::ORIGIN + Duration::from_secs(30);
        assert_eq!(state.detach(&request, late), Err(Ended::Expired));
        assert!(!state.is_detached());
    }
}
