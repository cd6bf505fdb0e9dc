//! A claim as its own process sees it, from the request to the end.
//!
//! It is a pure state machine: it is told what happened and when, and returns the resulting [`Effects`]. It has no
//! mutex, reads no clock, and knows nothing of wakers, engines or logs. All of these belong to the
//! [live claim](crate::core::live_claim) and the [table](crate::core::claim_table).

mod detach;
mod due;
mod effects;
mod leaving;
mod phase;

use std::sync::Arc;

pub(crate) use self::effects::{Effects, Release, Unheard};
use self::phase::{Asking, Held, Phase};
use crate::model::claim::{Claim, Ended, Fence, Grant, Place, Risk, Settle, Ticket, Turn};
use crate::model::moment::Moment;
use crate::model::request::Request;

#[derive(Debug)]
pub(crate) struct ClaimState {
    phase: Phase,
    /// A renewal sent by the watchdog is under way.
    in_flight: bool,
    /// The number of requests that can put the claim in line and were never answered: they may still arrive.
    open: u32,
    /// The fence it was granted with.
    fence: Fence,
    /// Boxed because it is rare, and a process may have a million claims.
    lost: Option<Box<Ended>>,
    /// Others may know the id, and may have left the claim.
    attached: bool,
    /// The engine has never been asked.
    unsent: bool,
    /// When it was granted.
    since: Moment,
    /// When its owner left, if the clock was read.
    left_at: Moment,
    /// How a once ended.
    settle: Option<Box<Settle>>,
    /// That it was left in time was only inferred: its leave was never answered.
    guessed: bool,
}

/// What the waiting loop is woken for.
#[derive(Debug)]
pub(crate) enum ClaimEvent {
    Turn(Turn),
    Rung,
}

impl ClaimState {
    pub(crate) fn new() -> ClaimState {
        ClaimState {
            phase: Phase::Asking(Asking::new()),
            in_flight: false,
            open: 0,
            fence: Fence::default(),
            lost: None,
            attached: false,
            unsent: false,
            since: Moment::FAR,
            left_at: Moment::FAR,
            settle: None,
            guessed: false,
        }
    }

    // The waiting loop.

    /// The next event for the loop. If there is none, the loop is to be woken for a turn, or at `ring_at`.
    pub(crate) fn next_event(&mut self, ring_at: Moment) -> Option<ClaimEvent> {
        let Phase::Asking(asking) = &mut self.phase else {
            return Some(ClaimEvent::Turn(Turn::Ended(Ended::Closed)));
        };
        if let Some(turn) = asking.turn.take() {
            return Some(ClaimEvent::Turn(turn));
        }
        if std::mem::take(&mut asking.rung) {
            return Some(ClaimEvent::Rung);
        }
        asking.ring_at = ring_at;
        None
    }

    /// The engine answered that the claim waits.
    pub(crate) fn stands(&mut self, place: Place, now: Moment) -> Effects {
        match &mut self.phase {
            Phase::Asking(asking) => Effects::look_at(asking.stands(place, now)),
            _ => Effects::none(),
        }
    }

    /// The grant is taken: the claim now holds.
    ///
    /// If the end of the grant was pushed before its answer was handled, the claim is lost at once.
    pub(crate) fn start(&mut self, request: &Request, grant: &Grant, now: Moment) -> Effects {
        let ended = match &self.phase {
            Phase::Asking(Asking { turn: Some(Turn::Ended(ended)), .. }) => Some(ended.clone()),
            _ => None,
        };
        let held = Held {
            good_until: grant.good_until,
            renew_by: renew_at(request, grant),
            first_life: grant.first_life,
            risk_at: grant.start_by,
            at_risk: None,
            leave_at: Moment::FAR,
            warn_before: None,
            warned: false,
        };
        let mut effects = Effects::look_at(held.next(&request.terms, false));
        (self.fence, self.since) = (grant.fence, now);
        self.phase = Phase::Held(held);
        if let Some(ended) = ended {
            self.lose(ended, None, &mut effects);
        }
        effects
    }

    /// A request was sent, and its answer is not available yet.
    pub(crate) fn asked(&mut self) {
        self.open += 1;
    }

    /// The claim's last request was answered, or has certainly failed.
    pub(crate) fn answered(&mut self) {
        self.open -= 1;
    }

    /// The engine refused the claim. Returns whether the engine has nothing of it: an earlier request that was
    /// never answered may still arrive.
    pub(crate) fn refused(&mut self) -> bool {
        let clean = self.open == 0;
        if clean {
            self.phase = Phase::Over(None);
        }
        clean
    }

    /// The engine has not been asked yet: dropping the claim now leaves nothing behind.
    pub(crate) fn not_sent(&mut self) {
        self.unsent = true;
    }

    /// The claim to send first, with the highest fence seen since it was made.
    pub(crate) fn first(&mut self, request: &Request, seen: Fence) -> Claim {
        self.unsent = false;
        self.to_send(request, seen)
    }

    /// The claim to send again: the same id, with the ticket it was given.
    pub(crate) fn again(&mut self, request: &Request, seen: Fence) -> Claim {
        self.open += 1;
        if let Phase::Asking(asking) = &mut self.phase
            && matches!(asking.turn, Some(Turn::Ended(Ended::Expired | Ended::Forgotten)))
        {
            // What ended before is not what is granted from now on.
            asking.turn = None;
        }
        self.first(request, seen)
    }

    fn to_send(&self, request: &Request, seen: Fence) -> Claim {
        let ticket = self.place().map(|place| place.ticket);
        Claim { ticket, seen, ..request.claim.clone() }
    }

    /// Tells the loop that the engine cannot be reached.
    pub(crate) fn ring(&mut self) -> Effects {
        let mut effects = Effects::none();
        if let Phase::Asking(asking) = &mut self.phase {
            asking.rung = true;
            effects.wake = true;
        }
        effects
    }

    // The engine's pushes.

    /// Takes what the engine pushed. Returns `false` if nobody waits for it.
    pub(crate) fn deliver(&mut self, turn: Turn) -> (bool, Effects) {
        let mut effects = Effects::none();
        let taken = match (&mut self.phase, turn) {
            (Phase::Asking(asking), Turn::LookAgain) if asking.place.is_some() => {
                asking.contact_at = Moment::ORIGIN;
                effects.look_at = Moment::ORIGIN;
                true
            }
            (Phase::Asking(asking), Turn::LookAt(at)) => {
                asking.hint = at;
                if let Some(place) = &mut asking.place {
                    place.look_again = at;
                }
                effects.look_at = at;
                true
            }
            // It will not ask again, so whatever arrives now is too late.
            (
                Phase::Asking(Asking {
                    turn: Some(Turn::Ended(Ended::Closed | Ended::Conflict { .. })),
                    ..
                }),
                turn,
            ) => !matches!(turn, Turn::Granted(_)),
            (Phase::Asking(asking), turn) => {
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    effects.wake = true;
                }
                true
            }
            (Phase::Held(_), Turn::Ended(ended)) => {
                self.lose(ended, None, &mut effects);
                true
            }
            // The turn is late and stale, but its claim is alive: saying that nobody waits for it would make the
            // engine leave the hold.
            (Phase::Held(_), _) | (Phase::Detached(_), Turn::Granted(_)) => true,
            (Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_), _) => false,
        };
        (taken, effects)
    }

    // The end.

    /// The `Tenure` was closed: a waiting claim ends, a hold is lost. Neither is renewed from now on.
    pub(crate) fn close(&mut self) -> Effects {
        let mut effects = Effects::none();
        match &mut self.phase {
            Phase::Asking(asking) => {
                asking.turn = Some(Turn::Ended(Ended::Closed));
                effects.wake = true;
            }
            Phase::Held(_) => self.lose(Ended::Closed, None, &mut effects),
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => {}
        }
        effects
    }

    // What others may know.

    /// How it ended, if that is known or the clock shows it; the latter needs no event.
    pub(crate) fn ended(&self, request: &Request, now: Moment) -> Option<Ended> {
        if let Some(ended) = self.lost.as_deref() {
            return Some(ended.clone());
        }
        match &self.phase {
            Phase::Held(held) if held.is_kept() => None,
            Phase::Held(_) if now >= cap(request, self.since) => Some(Ended::MaxHold),
            Phase::Held(held) if now >= held.good_until => Some(Ended::Expired),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self, request: &Request) -> Moment {
        match &self.phase {
            Phase::Held(held) => held.good_until.min(cap(request, self.since)),
            _ => Moment::ORIGIN,
        }
    }

    /// The fence it was granted with, if it ever was.
    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    pub(crate) fn holds(&self, fence: Fence) -> bool {
        matches!(&self.phase, Phase::Held(_)) && self.fence == fence
    }

    pub(crate) fn held_since(&self) -> Option<Moment> {
        matches!(&self.phase, Phase::Held(_)).then_some(self.since)
    }

    /// When it was granted, and when its owner left, if known. Still available after it is over.
    pub(crate) fn times(&self) -> (Moment, Option<Moment>) {
        (self.since, Some(self.left_at).filter(|left_at| *left_at != Moment::FAR))
    }

    /// Whether it holds (or waits), and since when.
    #[cfg(feature = "metrics")]
    pub(crate) fn standing(&self) -> Option<(bool, Moment)> {
        match &self.phase {
            Phase::Held(_) => Some((true, self.since)),
            Phase::Asking(Asking { place: Some(_), since, .. }) => Some((false, *since)),
            _ => None,
        }
    }

    /// Its place, as of the last answer.
    pub(crate) fn place(&self) -> Option<&Place> {
        match &self.phase {
            Phase::Asking(asking) => asking.place.as_deref(),
            _ => None,
        }
    }

    /// Its ticket, while it waits and nothing was pushed to it.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.phase {
            Phase::Asking(Asking { turn: None, place: Some(place), .. }) => Some(place.ticket),
            _ => None,
        }
    }

    /// Whether it has been neither granted nor left yet.
    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking(_))
    }

    pub(crate) fn at_risk(&self) -> Option<Arc<Risk>> {
        match &self.phase {
            Phase::Held(held) => held.at_risk.clone(),
            _ => None,
        }
    }

    /// Whether it has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }
}

/// When to renew a grant. Each claim renews a little earlier, by a share of its own, so that claims granted
/// together do not stay due together.
fn renew_at(request: &Request, grant: &Grant) -> Moment {
    let at = match request.terms.renew_every {
        Some(every) if !grant.first_life => (grant.sent + every).min(grant.start_by),
        _ => grant.renew_by,
    };
    let (share, at) = (u128::from(request.claim.id.bits() >> 48), at.as_nanos());
    let span = at.saturating_sub(grant.sent.as_nanos());
    let early = (u128::from(span / 8) * share) >> 16;
    let at = at - early as u64;
    // Round down to a common beat: waking up for a single claim costs more than its renewal.
    let beat = ((span / 128).max(1).next_power_of_two() / 2).max(1);
    Moment::from_nanos(at & !(beat - 1))
}

/// When a hold granted at `since` reaches `max_hold`.
fn cap(request: &Request, since: Moment) -> Moment {
    request.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)
}
