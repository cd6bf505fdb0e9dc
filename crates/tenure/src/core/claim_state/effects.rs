//! The effects of an event on a claim.

use std::sync::Arc;

use crate::model::claim::{Ended, RenewalOutcome, Risk};
use crate::model::moment::Moment;

/// What to do about a claim. The [table](crate::core::claim_table::ClaimTable::carry_out) does it, except for
/// `renew` and `leave`, which go to the engine: the watchdog sends these, or the guard that is dropped.
#[derive(Debug)]
pub(crate) struct Effects {
    /// Wake the waiting loop.
    pub(crate) wake: bool,
    /// Wake the observers of the hold.
    pub(crate) wake_observers: bool,
    /// Have the watchdog look at the claim at this time, or earlier.
    pub(crate) look_at: Moment,
    /// Renew it; an answer is needed by this time. [`Moment::FAR`] if there is nothing to renew.
    pub(crate) renew: Moment,
    /// Send the leave that [`ClaimState::leave_of`](super::ClaimState::leave_of) returns.
    pub(crate) leave: bool,
    /// It has ended without its owner leaving. Boxed because it is rare, and effects are moved around for every
    /// claim.
    pub(crate) lost: Option<Box<Ended>>,
    pub(crate) at_risk: Option<Arc<Risk>>,
    /// A renewal of a hold was answered, or not.
    pub(crate) renewal: Option<RenewalOutcome>,
    /// Its owner has left a hold, and the result is known.
    pub(crate) released: Option<Release>,
    /// Whether the release stayed unanswered for as long as callers wait.
    pub(crate) unheard: Unheard,
    /// The span and the gauges of the hold end.
    pub(crate) ends_hold: bool,
    /// The claim has ended and can be forgotten.
    pub(crate) over: bool,
    /// Leave its place in the local line.
    pub(crate) frees_local_place: bool,
}

/// The result of leaving a hold.
#[derive(Debug)]
pub(crate) enum Release {
    InTime,
    /// It had ended before, for this reason if it is known; otherwise its release was never answered.
    Late(Option<Box<Ended>>),
}

/// Whether a release stayed unanswered for as long as callers wait, and who reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    No,
    /// A caller that waits for the answer reports it. If there is none, it is reported here.
    ObserversSay,
    Say,
}

impl Effects {
    pub(crate) fn none() -> Effects {
        Effects::look_at(Moment::FAR)
    }

    pub(super) fn look_at(at: Moment) -> Effects {
        Effects {
            wake: false,
            wake_observers: false,
            look_at: at,
            renew: Moment::FAR,
            leave: false,
            lost: None,
            at_risk: None,
            renewal: None,
            released: None,
            unheard: Unheard::No,
            ends_hold: false,
            over: false,
            frees_local_place: false,
        }
    }

    /// Whether there is nothing to do, except to look at the claim later.
    pub(crate) fn is_empty(&self) -> bool {
        let quiet = self.lost.is_none()
            && self.at_risk.is_none()
            && self.renewal.is_none()
            && self.released.is_none()
            && self.unheard == Unheard::No
            && !(self.wake || self.wake_observers);
        let idle = self.renew == Moment::FAR && !self.leave;
        quiet && idle && !(self.over || self.ends_hold || self.frees_local_place)
    }
}
