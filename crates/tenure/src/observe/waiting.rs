//! What lasts from an ask to its answer: the span of the wait, and a place in the gauges.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, debug_span};

#[cfg(feature = "metrics")]
use super::meters;
use super::{Observer, TARGET, about, group, kind, measure, millis};
use crate::claim::{Claim, Holder, Place};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::stake::Stake;
use crate::system;

impl Observer {
    /// A claim is about to be sent. The span is the caller's: what it waits for is a part of that.
    pub(crate) fn acquiring(&self, claim: &Claim) -> Span {
        debug_span!(
            target: TARGET,
            "tenure.acquire",
            tenure.name = %claim.name,
            tenure.kind = kind(claim),
            tenure.group = group(&claim.name),
            tenure.engine = &*self.engine,
            tenure.owner = claim.details.owner,
            tenure.fence = Empty,
            tenure.outcome = Empty,
            tenure.wait.ms = Empty,
            tenure.wait.position = Empty,
            tenure.blocked_by.owner = Empty,
            tenure.blocked_by.fence = Empty,
        )
    }
}

/// A claim that was sent and not granted on the spot. Dropped without an answer, its caller has lost
/// interest.
pub(crate) struct Waiting {
    observer: Arc<Observer>,
    stake: Arc<Stake>,
    span: Span,
    started: Moment,
    answered: bool,
    in_line: bool,
    #[cfg(feature = "metrics")]
    counted: meters::Counted,
    generation: u64,
}

impl Waiting {
    pub(crate) fn new(
        observer: Arc<Observer>,
        stake: Arc<Stake>,
        span: Span,
        started: Moment,
    ) -> Waiting {
        Waiting {
            observer,
            stake,
            span,
            started,
            answered: false,
            in_line: false,
            #[cfg(feature = "metrics")]
            counted: meters::Counted::default(),
            generation: system::generation(),
        }
    }

    /// It stands in line, there.
    pub(crate) fn stands(&mut self, place: &Place) {
        self.behind(place);
        if std::mem::replace(&mut self.in_line, true) {
            return;
        }
        let (claim, queue) = (&self.stake.claim, place.ahead);
        let (ttl_ms, reason) = (millis(claim.ttl), claim.details.reason.as_deref());
        let holder = place.holder.as_ref();
        let blocked_by = (holder.map(owner), holder.map(fence));
        self.span.in_scope(|| {
            about!(
                debug,
                "lock.queued",
                self.observer,
                claim,
                queue,
                ttl_ms,
                reason,
                blocked_by.owner = blocked_by.0,
                blocked_by.fence = blocked_by.1
            );
        });
        #[cfg(feature = "metrics")]
        {
            self.counted = meters::waiting_now(&self.observer, claim);
        }
    }

    /// Where it stands and who is in its way, as far as is known, on the span.
    fn behind(&self, place: &Place) {
        if self.span.is_disabled() {
            return;
        }
        self.span.record("tenure.wait.position", place.ahead + 1);
        if let Some(holder) = &place.holder {
            self.span.record("tenure.blocked_by.owner", owner(holder));
            self.span.record("tenure.blocked_by.fence", fence(holder));
        }
    }

    /// The claim is about to be started on. Returns the span, for what is said about that.
    pub(crate) fn ends(&mut self) -> Span {
        self.last_seen();
        self.answered = true;
        self.span.clone()
    }

    /// It was not granted: it did not want to wait.
    pub(crate) fn busy(&mut self, holder: Option<&Holder>, now: Moment) {
        self.not_granted("busy", holder, now);
    }

    /// The wait ended with an error.
    pub(crate) fn failed(&mut self, error: &Error, now: Moment) {
        if error.kind() == ErrorKind::WaitOver {
            let place = self.stake.place();
            return self.not_granted("timeout", place.and_then(|place| place.holder).as_ref(), now);
        }
        let claim = &self.stake.claim;
        let wait_ms = millis(now.since(self.started));
        self.span.record("tenure.outcome", "error");
        self.span.in_scope(|| {
            about!(debug, "lock.failed", self.observer, claim, wait_ms, reason = %error);
        });
        self.over("error", Some(now.since(self.started)));
    }

    fn not_granted(&mut self, outcome: &'static str, holder: Option<&Holder>, now: Moment) {
        self.last_seen();
        let (claim, wait_ms) = (&self.stake.claim, millis(now.since(self.started)));
        let (blocked_owner, blocked_fence) = (holder.map(owner), holder.map(fence));
        if let Some(holder) = holder {
            self.span.record("tenure.blocked_by.owner", owner(holder));
            self.span.record("tenure.blocked_by.fence", fence(holder));
        }
        self.span.record("tenure.outcome", outcome);
        self.span.record("tenure.wait.ms", wait_ms);
        self.span.in_scope(|| {
            about!(
                debug,
                "lock.busy",
                self.observer,
                claim,
                wait_ms,
                blocked_by.owner = blocked_owner,
                blocked_by.fence = blocked_fence
            );
        });
        self.over(outcome, Some(now.since(self.started)));
    }

    /// The watchdog may have heard since where the claim stands.
    fn last_seen(&self) {
        if !self.span.is_disabled()
            && let Some(place) = self.stake.place()
        {
            self.behind(&place);
        }
    }

    fn over(&mut self, outcome: &'static str, waited: Option<Duration>) {
        self.answered = true;
        measure!(acquisition(&self.observer, &self.stake.claim, outcome, waited));
        #[cfg(not(feature = "metrics"))]
        let _ = (outcome, waited);
    }
}

fn owner(holder: &Holder) -> &str {
    &holder.details.owner
}

fn fence(holder: &Holder) -> u64 {
    holder.fence.get()
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.generation != system::generation() {
            // Whoever listens may have been listening in the very moment of the fork.
            std::mem::forget(std::mem::replace(&mut self.span, Span::none()));
            #[cfg(feature = "metrics")]
            std::mem::forget(std::mem::take(&mut self.counted));
            return;
        }
        if !self.answered {
            let claim = &self.stake.claim;
            self.span.record("tenure.outcome", "cancelled");
            self.span.in_scope(|| about!(debug, "lock.quit", self.observer, claim,));
            self.over("cancelled", None);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}
