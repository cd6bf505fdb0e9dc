//! What the state of a claim has done when something has happened to it.

use std::sync::Arc;

use crate::model::claim::{Ended, RenewalOutcome, Risk};
use crate::model::moment::Moment;

/// What is to be done about a claim. The [table](crate::core::claim_table::ClaimTable::carry_out) does it, but
/// for what goes to the engine: `renew` and `leave` are the watchdog's, or the guard's that is dropped.
#[derive(Debug)]
pub(crate) struct Effects {
    /// Wake the waiting loop.
    pub(crate) wake: bool,
    /// Wake those who observe the hold.
    pub(crate) wake_observers: bool,
    /// Have the watchdog look at the claim then, if not earlier.
    pub(crate) look_at: Moment,
    /// Renew it; an answer is needed by then. In the far future: there is nothing to renew.
    pub(crate) renew: Moment,
    /// Send the leave that [`ClaimState::leave_of`](super::ClaimState::leave_of) makes.
    pub(crate) leave: bool,
    /// It has ended without its owner's leave. Boxed, as it is rare, and effects are passed from hand to hand
    /// for every claim.
    pub(crate) lost: Option<Box<Ended>>,
    pub(crate) at_risk: Option<Arc<Risk>>,
    /// A renewal of a hold was answered, or was not.
    pub(crate) renewal: Option<RenewalOutcome>,
    /// Its owner has left a hold, and it is known how that went.
    pub(crate) released: Option<Release>,
    /// Whether the release was not answered for as long as anyone waits for that.
    pub(crate) unheard: Unheard,
    /// What lasts as long as the hold ends.
    pub(crate) ends_hold: bool,
    /// The claim has ended and can be forgotten.
    pub(crate) over: bool,
    /// Leave its place in this process's own line.
    pub(crate) frees_local_place: bool,
}

/// How a hold was left.
#[derive(Debug)]
pub(crate) enum Release {
    InTime,
    /// It had ended before, if that is known in this way; else its release was never answered.
    Late(Option<Box<Ended>>),
}

/// Whether a release was not answered for as long as anyone waits for that, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    No,
    /// Whoever waits for the answer says so itself. It is said here if nobody does.
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

    /// Whether there is nothing to do, other than to look at the claim later.
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
