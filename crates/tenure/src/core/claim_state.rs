//! One claim as its own process sees it, from the request to the end.
//!
//! A state machine and nothing else: it is told what happened and when, and returns the [`Effects`] that
//! this has. It has no mutex, reads no clock, and knows neither wakers, engines nor logs; all of these are
//! the [live claim](crate::core::live_claim)'s and the [table](crate::core::claim_table)'s.

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
    /// A renewal of the watchdog's is on its way.
    in_flight: bool,
    /// Requests that can put the claim in line and were never answered: they may still arrive.
    open: u32,
    /// What it was granted with.
    fence: Fence,
    lost: Option<Ended>,
    /// Others may know the id, and have left.
    attached: bool,
    /// The engine has never heard of it.
    unsent: bool,
    /// When it was granted.
    since: Moment,
    /// When its owner left, if that was looked at.
    left_at: Moment,
    /// What became of a once.
    settle: Option<Settle>,
    /// That it was left in time follows from a leave that was never answered.
    guessed: bool,
}

/// What the waiting loop wakes up for.
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

    /// What the loop has to hear now. If there is nothing, it is to be woken for a turn, or at `ring_at`.
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

    /// The grant is taken: the claim holds from now on.
    ///
    /// The end of the grant may have been pushed before its answer was heard: then it is lost at once.
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

    /// A request was sent, and its answer is not at hand.
    pub(crate) fn asked(&mut self) {
        self.open += 1;
    }

    /// The claim's last request is answered, or has failed for certain.
    pub(crate) fn answered(&mut self) {
        self.open -= 1;
    }

    /// The engine refused the claim. Returns whether it keeps nothing of it: an earlier request that
    /// was never answered may still arrive.
    pub(crate) fn refused(&mut self) -> bool {
        let clean = self.open == 0;
        if clean {
            self.phase = Phase::Over(None);
        }
        clean
    }

    /// It is there, and the engine was not asked yet: whoever drops it now leaves nothing.
    pub(crate) fn not_sent(&mut self) {
        self.unsent = true;
    }

    /// The claim to send first, with what was seen since it was made.
    pub(crate) fn first(&mut self, request: &Request, seen: Fence) -> Claim {
        self.unsent = false;
        self.to_send(request, seen)
    }

    /// The claim to send again: the same id, with the ticket it was given.
    pub(crate) fn again(&mut self, request: &Request, seen: Fence) -> Claim {
        self.open += 1;
        self.first(request, seen)
    }

    fn to_send(&self, request: &Request, seen: Fence) -> Claim {
        let ticket = self.place().map(|place| place.ticket);
        Claim { ticket, seen, ..request.claim.clone() }
    }

    /// The engine cannot be reached: the loop hears of it.
    pub(crate) fn ring(&mut self) -> Effects {
        let mut effects = Effects::none();
        if let Phase::Asking(asking) = &mut self.phase {
            asking.rung = true;
            effects.wake = true;
        }
        effects
    }

    // The engine's pushes.

    /// Takes what the engine pushed; `false` if nobody waits for it.
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
            // It will not ask again: whatever comes now comes too late.
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
            // A turn that comes late is an old one, but its claim is alive: to say that nobody waits
            // for it would have the engine leave the hold.
            (Phase::Held(_), _) | (Phase::Detached(_), Turn::Granted(_)) => true,
            (Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_), _) => false,
        };
        (taken, effects)
    }

    // The end.

    /// The `Tenure` was closed: a waiting claim ends, a hold is lost. Neither is renewed any more.
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

    /// The end that is known, or that the clock says. Looking is enough to notice it.
    pub(crate) fn ended(&self, request: &Request, now: Moment) -> Option<Ended> {
        if self.lost.is_some() {
            return self.lost.clone();
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

    /// When it was granted, and when its owner left if that is known. Also when it is over.
    pub(crate) fn times(&self) -> (Moment, Option<Moment>) {
        (self.since, Some(self.left_at).filter(|left_at| *left_at != Moment::FAR))
    }

    /// Since when it holds, or since when it stands in line.
    #[cfg(feature = "metrics")]
    pub(crate) fn standing(&self) -> Option<(bool, Moment)> {
        match &self.phase {
            Phase::Held(_) => Some((true, self.since)),
            Phase::Asking(Asking { place: Some(_), since, .. }) => Some((false, *since)),
            _ => None,
        }
    }

    /// Where it waits, as of the last answer.
    pub(crate) fn place(&self) -> Option<&Place> {
        match &self.phase {
            Phase::Asking(asking) => asking.place.as_deref(),
            _ => None,
        }
    }

    /// Its ticket, while it waits and has heard nothing.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.phase {
            Phase::Asking(Asking { turn: None, place: Some(place), .. }) => Some(place.ticket),
            _ => None,
        }
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

/// When to renew what was granted. By its own share a little earlier: many that were granted together
/// must not be due together for ever.
fn renew_at(request: &Request, grant: &Grant) -> Moment {
    let at = match request.terms.renew_every {
        Some(every) if !grant.first_life => (grant.sent + every).min(grant.start_by),
        _ => grant.renew_by,
    };
    let (share, span) = ((request.claim.id.bits() >> 48) as u32, grant.sent.until(at));
    let at = (at - span / 8 * share / (1 << 16)).as_nanos();
    // And with others on a beat: to be woken for each alone costs more than to renew it.
    let beat = (span.as_nanos() as u64 / 128).max(1).next_power_of_two() / 2;
    Moment::from_nanos(at - at % beat.max(1))
}

/// When a hold that was granted then has lasted for its longest.
fn cap(request: &Request, since: Moment) -> Moment {
    request.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)
}
