//! The span and the gauges of a wait, from the request to its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug, debug_span};

#[cfg(feature = "metrics")]
use super::meters;
use super::{
    Reporter, Subject, TARGET, about, about_blocked, group, kind, listens, measure, millis, pairs,
};
use crate::model::claim::{Claim, Holder, Place};
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;
use crate::system;

impl Reporter {
    /// A claim is about to be sent. The span is a child of the caller's.
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
            tenure.blocked_by.trace = Empty,
        )
    }
}

/// A claim that was sent and not granted at once. If it is dropped without an answer, its caller has given up.
pub(crate) struct Waiting {
    reporter: Arc<Reporter>,
    live: Arc<dyn Subject>,
    span: Span,
    started: Moment,
    answered: bool,
    in_line: bool,
    #[cfg(feature = "metrics")]
    counted: meters::Counted,
    generation: u64,
}

impl Waiting {
    /// Returns `None` if there is no listener.
    pub(crate) fn new<S: Subject>(
        reporter: &Arc<Reporter>,
        live: &Arc<S>,
        span: Span,
        started: Moment,
    ) -> Option<Waiting> {
        listens().then(|| Waiting {
            reporter: reporter.clone(),
            live: live.clone(),
            span,
            started,
            answered: false,
            in_line: false,
            #[cfg(feature = "metrics")]
            counted: meters::Counted::default(),
            generation: system::generation(),
        })
    }

    /// It stands in the local line, before it asks the engine.
    pub(crate) fn stands_in_local_line(&mut self) {
        #[cfg(feature = "metrics")]
        {
            self.counted = meters::waiting_now(&self.reporter, &self.live.request().claim);
        }
    }

    /// It waits in line, at `place`.
    pub(crate) fn stands(&mut self, place: &Place) {
        self.behind(place);
        if std::mem::replace(&mut self.in_line, true) {
            return;
        }
        let (claim, queue) = (&self.live.request().claim, place.ahead);
        let (ttl_ms, reason) = (millis(claim.ttl), claim.details.reason.as_deref());
        let holder = place.holder.as_ref();
        self.span.in_scope(|| {
            about_blocked!(
                debug,
                "lock.queued",
                self.reporter,
                claim,
                holder,
                queue,
                ttl_ms,
                reason
            );
        });
        self.stands_in_local_line();
    }

    /// Records its place and its blocker, as far as known, on the span.
    fn behind(&self, place: &Place) {
        if self.span.is_disabled() {
            return;
        }
        self.span.record("tenure.wait.position", place.ahead + 1);
        self.blocked_by(place.holder.as_ref());
    }

    fn blocked_by(&self, holder: Option<&Holder>) {
        let Some(Holder { fence, details, .. }) = holder else { return };
        self.span.record("tenure.blocked_by.owner", &*details.owner);
        self.span.record("tenure.blocked_by.fence", fence.get());
        // Links the trace of the waiting claim to that of the holder.
        if let Some(trace) = &details.trace {
            self.span.record("tenure.blocked_by.trace", &**trace);
        }
    }

    /// The hold is about to start. Returns the span, for reports about it.
    pub(crate) fn ends(&mut self) -> Span {
        self.last_seen();
        self.answered = true;
        self.span.clone()
    }

    /// It was not granted, and does not want to wait.
    pub(crate) fn busy(&mut self, holder: Option<&Holder>, now: Moment) {
        if self.live.request().claim.once.is_some() {
            measure!(once(&self.live.request().claim, "in_flight"));
        }
        self.not_granted("busy", holder, now);
    }

    /// The once was started before, and is settled or not.
    pub(crate) fn ended_before(&mut self, outcome: &'static str, now: Moment) {
        let (claim, wait_ms) = (&self.live.request().claim, millis(now.since(self.started)));
        self.span.record("tenure.outcome", outcome);
        self.span.record("tenure.wait.ms", wait_ms);
        self.span.in_scope(|| {
            about!(debug, "once.replayed", self.reporter, claim, wait_ms, outcome);
        });
        measure!(once(claim, if outcome == "settled" { "replayed" } else { outcome }));
        self.over(outcome, Some(now.since(self.started)));
    }

    /// The wait ended with an error.
    pub(crate) fn failed(&mut self, error: &Error, now: Moment) {
        if error.kind() == ErrorKind::WaitOver {
            let place = self.live.place();
            return self.not_granted("timeout", place.and_then(|place| place.holder).as_ref(), now);
        }
        let claim = &self.live.request().claim;
        if claim.once.is_some() && error.kind() == ErrorKind::Conflict {
            measure!(once(claim, "mismatch"));
        }
        let wait_ms = millis(now.since(self.started));
        self.span.record("tenure.outcome", "error");
        self.span.in_scope(|| {
            about!(debug, "lock.failed", self.reporter, claim, wait_ms, reason = %error);
        });
        self.over("error", Some(now.since(self.started)));
    }

    fn not_granted(&mut self, outcome: &'static str, holder: Option<&Holder>, now: Moment) {
        self.last_seen();
        let (claim, wait_ms) = (&self.live.request().claim, millis(now.since(self.started)));
        self.blocked_by(holder);
        self.span.record("tenure.outcome", outcome);
        self.span.record("tenure.wait.ms", wait_ms);
        self.span.in_scope(|| {
            about_blocked!(debug, "lock.busy", self.reporter, claim, holder, wait_ms);
        });
        self.over(outcome, Some(now.since(self.started)));
    }

    /// Updates the place: the watchdog may have had a later answer.
    fn last_seen(&self) {
        if !self.span.is_disabled()
            && let Some(place) = self.live.place()
        {
            self.behind(&place);
        }
    }

    fn over(&mut self, outcome: &'static str, waited: Option<Duration>) {
        self.answered = true;
        measure!(acquisition(&self.reporter, &self.live.request().claim, outcome, waited));
        #[cfg(not(feature = "metrics"))]
        let _ = (outcome, waited);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.generation != system::generation() {
            // A thread of the parent may have been inside the subscriber at the moment of the fork.
            std::mem::forget(std::mem::replace(&mut self.span, Span::none()));
            #[cfg(feature = "metrics")]
            std::mem::forget(std::mem::take(&mut self.counted));
            return;
        }
        if !self.answered {
            let claim = &self.live.request().claim;
            self.span.record("tenure.outcome", "cancelled");
            self.span.in_scope(|| about!(debug, "lock.quit", self.reporter, claim,));
            self.over("cancelled", None);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}
