//! Reports of the core: events and spans through `tracing`, and numbers through `metrics` if that feature
//! is on. Claim ids appear as fingerprints only.
//!
//! The core calls one function for each thing that happened; no decision is made here. Without a listener, a report
//! only checks a flag: fields are built and clocks are read only for a listener.

mod adviser;
mod general;
mod groups;
mod holding;
#[cfg(feature = "metrics")]
pub mod meters;
mod pairs;
mod queue;
mod subject;
mod waiting;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, debug, enabled, error, info, warn};

pub use self::adviser::Advice;
pub(crate) use self::general::*;
pub(crate) use self::holding::Holding;
#[cfg(any(feature = "file", feature = "postgres"))]
pub(crate) use self::queue::keep_apart;
pub(crate) use self::subject::{HoldEnd, Subject};
pub(crate) use self::waiting::Waiting;
pub(crate) use self::worker::Worker;

use self::adviser::Adviser;
use self::groups::{group, group_of, kind};
use self::pairs::pairs;
use self::queue::Queue;
use self::subject::in_span;
use crate::model::claim::{Claim, Ended, Fence, Grant, Note, OnceRecord, RenewalOutcome, Risk};
use crate::model::error::Error;
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::model::options::Protection;
use crate::system;

/// The target of all reports, for filters.
const TARGET: &str = "tenure";

/// Passes an event to the meters, if there are any.
macro_rules! measure {
    ($($call:tt)*) => {
        #[cfg(feature = "metrics")]
        { meters::$($call)*; }
    };
}
use measure;

/// An event about a claim, with the fields that identify it and any others.
macro_rules! about {
    ($level:ident, $event:literal, $reporter:expr, $claim:expr, $($rest:tt)*) => {{
        let claim: &Claim = $claim;
        let $crate::model::claim::Details { owner, meta, trace, .. } = &*claim.details;
        $level!(
            target: TARGET,
            event = $event, name = %claim.name, kind = kind(claim), group = group(&claim.name),
            engine = &*$reporter.engine, owner, claim = %claim.id,
            meta = pairs(meta), trace = trace.as_deref(), $($rest)*
        )
    }};
}
use about;

/// An event about a claim that another one blocks.
macro_rules! about_blocked {
    ($level:ident, $event:literal, $reporter:expr, $claim:expr, $holder:expr, $($rest:tt)*) => {{
        let holder: Option<&$crate::model::claim::Holder> = $holder;
        let details = holder.map(|holder| &*holder.details);
        about!(
            $level, $event, $reporter, $claim,
            blocked_by.owner = details.map(|details| details.owner.as_str()),
            blocked_by.fence = holder.map(|holder| holder.fence.get()),
            blocked_by.trace = details.and_then(|details| details.trace.as_deref()),
            $($rest)*
        )
    }};
}
use about_blocked;

/// Whether anyone may listen to more than warnings. The level is a plain number: this does not ask the subscriber.
fn listens() -> bool {
    cfg!(feature = "metrics") || LevelFilter::current() >= Level::DEBUG
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// The reports of one `Tenure`, and what it remembers for them.
#[derive(Debug)]
pub(crate) struct Reporter {
    /// The engine's name, which contains no password.
    engine: Arc<str>,
    adviser: Adviser,
    #[cfg(feature = "metrics")]
    ages: meters::Ages,
    queue: Arc<Queue>,
}

impl Reporter {
    pub(crate) fn new(engine: &str) -> Reporter {
        measure!(engine_up(engine, true));
        Reporter {
            engine: engine.into(),
            adviser: Adviser::default(),
            #[cfg(feature = "metrics")]
            ages: meters::Ages::default(),
            queue: Arc::default(),
        }
    }

    /// From now on, if this is the watchdog's own thread, its reports are made by another thread.
    pub(crate) fn keep_apart(&self) {
        if system::is_own_thread() {
            self.queue.keep_apart();
        }
    }

    /// Waits briefly until the queued reports have been made.
    pub(crate) fn finish(&self) {
        self.queue.finish();
    }

    /// Reports at once, or queues the report if this thread must not run foreign code or earlier reports are still
    /// queued.
    fn say(self: &Arc<Self>, say: impl FnOnce(&Reporter) + Send + 'static) {
        if !self.queue.is_needed() {
            return say(self);
        }
        let reporter = self.clone();
        self.queue.put(None, move |_| say(&reporter));
    }

    /// The same for the end of a hold.
    fn say_end<S: Subject>(
        self: &Arc<Self>,
        end: HoldEnd<'_, S>,
        say: impl FnOnce(&Reporter, HoldEnd<'_, S>, Duration) + Send + 'static,
    ) {
        let held = end.held();
        if !self.queue.is_needed() {
            return say(self, end, held);
        }
        let (reporter, claim, world) = (self.clone(), end.claim.clone(), end.world.clone());
        self.queue.put(end.holding, move |holding| {
            let (claim, world) = (&claim, &world);
            say(&reporter, HoldEnd { claim, holding, world }, held);
        });
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn ages<S: Subject>(&self, claims: &[Arc<S>], now: Moment) {
        self.ages.tell(self, claims, now);
    }

    pub(crate) fn advice(&self) -> Vec<Advice> {
        self.adviser.all()
    }

    // Acquiring. What happens while a claim is in line is reported by `Waiting`.

    /// A claim was refused before it was sent.
    pub(crate) fn not_sent(&self, claim: &Claim, error: &Error) {
        about!(debug, "lock.failed", self, claim, reason = %error);
        measure!(acquisition(self, claim, "error", None));
    }

    /// A claim is granted. Returns a value that lives as long as the hold.
    pub(crate) fn holding(
        &self,
        claim: &Claim,
        grant: &Grant,
        acquire: &Span,
    ) -> Option<Arc<Holding>> {
        Holding::new(self, claim, grant, acquire)
    }

    pub(crate) fn granted(&self, live: &impl Subject, waited: Duration, acquire: &Span) {
        let (claim, wait_ms) = (&live.request().claim, millis(waited));
        let say = || {
            let (ttl_ms, fence, reason) =
                (millis(claim.ttl), live.fence(), claim.details.reason.as_deref());
            about!(
                debug,
                "lock.granted",
                self,
                claim,
                fence = fence.get(),
                wait_ms,
                ttl_ms,
                reason
            );
        };
        if enabled!(target: TARGET, Level::DEBUG) {
            if !acquire.is_disabled() {
                acquire.record("tenure.fence", live.fence().get());
                acquire.record("tenure.wait.ms", wait_ms);
                acquire.record("tenure.outcome", "granted");
            }
            acquire.in_scope(say);
        }
        measure!(acquisition(self, claim, "granted", Some(waited)));
    }

    /// This process continues a hold that it or another process has detached.
    pub(crate) fn attached(&self, live: &impl Subject) {
        let ttl_ms = millis(live.request().claim.ttl);
        about!(
            debug,
            "lock.attached",
            self,
            &live.request().claim,
            fence = live.fence().get(),
            ttl_ms
        );
    }

    // During a hold.

    /// Renewals were answered, or not.
    pub(crate) fn renewals<S: Subject>(self: &Arc<Self>, heard: Vec<(Arc<S>, RenewalOutcome)>) {
        if listens() && !heard.is_empty() {
            self.say(move |reporter| {
                heard.iter().for_each(|(live, outcome)| reporter.renewal(&**live, outcome));
            });
        }
    }

    fn renewal(&self, live: &impl Subject, heard: &RenewalOutcome) {
        let claim = &live.request().claim;
        if let RenewalOutcome::Renewed { left, first_life } = *heard
            && enabled!(target: TARGET, Level::DEBUG)
        {
            let (ttl_ms, left_ms) = (millis(claim.ttl), millis(left));
            in_span(live.holding(), || {
                let fence = live.fence();
                about!(
                    debug,
                    "lock.renewed",
                    self,
                    claim,
                    fence = fence.get(),
                    ttl_ms,
                    left_ms,
                    first_life
                );
            });
        }
        measure!(renewal(self, claim, *heard));
    }

    pub(crate) fn at_risk<S: Subject>(
        self: &Arc<Self>,
        live: &Arc<S>,
        why: Arc<Risk>,
        now: Moment,
    ) {
        let (ttl_ms, left_ms) =
            (millis(live.request().claim.ttl), millis(now.until(live.deadline())));
        let live = live.clone();
        self.say(move |reporter| {
            in_span(live.holding(), || {
                let (claim, fence, why) = (&live.request().claim, live.fence(), &*why);
                about!(
                    warn,
                    "lock.renew_late",
                    reporter,
                    claim,
                    fence = fence.get(),
                    ttl_ms,
                    left_ms,
                    reason = %why
                );
            });
        });
    }

    pub(crate) fn lost<S: Subject>(self: &Arc<Self>, end: HoldEnd<'_, S>, ended: Ended) {
        self.say_end(end, move |reporter, end, held| reporter.say_lost(end, &ended, held));
    }

    fn say_lost<S: Subject>(&self, end: HoldEnd<'_, S>, ended: &Ended, held: Duration) {
        let (claim, fence) = (&end.claim.request().claim, end.claim.fence());
        let (ttl_ms, hold_ms) = (millis(claim.ttl), millis(held));
        end.say(|| {
            about!(error, "lock.lost", self, claim, fence = fence.get(), ttl_ms, hold_ms, reason = %ended);
        });
        if let Some(holding) = end.holding {
            holding.over(held, how(ended), Some(ended));
        }
        measure!(lost(self, claim, ended));
        measure!(held(self, claim, how(ended), held));
    }

    /// This process has detached a hold.
    pub(crate) fn detached<S: Subject>(&self, end: HoldEnd<'_, S>) {
        let (claim, fence) = (&end.claim.request().claim, end.claim.fence());
        let ttl_ms = millis(claim.ttl);
        end.say(|| about!(debug, "lock.detached", self, claim, fence = fence.get(), ttl_ms));
        if let Some(holding) = end.holding {
            let held = end.world.now().since(end.claim.times().0);
            holding.over(held, "detached", None);
        }
    }

    // The end of a hold by its owner.

    pub(crate) fn released<S: Subject>(self: &Arc<Self>, end: HoldEnd<'_, S>) {
        // If nobody listens and the hold is renewed, its length is of no use: do not read the clock.
        if !end.claim.request().terms.renew || end.holding.is_some() || listens() {
            self.say_end(end, Reporter::say_released);
        }
    }

    fn say_released<S: Subject>(&self, end: HoldEnd<'_, S>, held: Duration) {
        let claim = &end.claim.request().claim;
        end.say(|| {
            let (fence, hold_ms) = (end.claim.fence(), millis(held));
            about!(debug, "lock.released", self, claim, fence = fence.get(), hold_ms);
        });
        self.advise(&end, held);
        if let Some(holding) = end.holding {
            holding.over(held, "released", None);
        }
        measure!(held(self, claim, "released", held));
    }

    /// The owner released a hold that had ended before, or whose release was never answered.
    pub(crate) fn released_late<S: Subject>(
        self: &Arc<Self>,
        end: HoldEnd<'_, S>,
        ended: Option<Ended>,
    ) {
        self.say_end(end, move |reporter, end, held| {
            reporter.say_released_late(end, ended.as_ref(), held);
        });
    }

    fn say_released_late<S: Subject>(
        &self,
        end: HoldEnd<'_, S>,
        ended: Option<&Ended>,
        held: Duration,
    ) {
        let (claim, fence) = (&end.claim.request().claim, end.claim.fence());
        let (ttl_ms, hold_ms) = (millis(claim.ttl), millis(held));
        let unanswered = || "the release was never answered".to_owned();
        let reason = ended.map_or_else(unanswered, Ended::to_string);
        let next = match ended {
            Some(Ended::Expired) if !end.claim.request().terms.renew => {
                "raise the ttl, or have it renewed"
            }
            Some(Ended::Expired) => "raise the ttl, or find out why renewals failed",
            _ => "guard what it wrote with the fence",
        };
        end.say(|| {
            about!(
                warn,
                "lock.expired_before_release",
                self,
                claim,
                fence = fence.get(),
                ttl_ms,
                hold_ms,
                reason,
                "the hold had ended before it was released: {next}"
            );
        });
        self.advise(&end, held);
        measure!(expired_before_release(self, claim));
        // A hold that was lost has been measured already.
        if let Some(holding) = end.holding {
            let how = ended.map_or("expired", how);
            holding.over(held, how, None);
            measure!(held(self, claim, how, held));
        }
    }

    /// The owner released a hold, and the engine has not answered yet.
    pub(crate) fn release_unanswered<S: Subject>(self: &Arc<Self>, live: &Arc<S>) {
        let live = live.clone();
        self.say(move |reporter| {
            in_span(live.holding(), || {
                let (claim, ttl_ms) = (&live.request().claim, millis(live.request().claim.ttl));
                about!(
                    warn,
                    "lock.release_unanswered",
                    reporter,
                    claim,
                    fence = live.fence().get(),
                    ttl_ms,
                    "the engine has not confirmed the release: the name stays taken until it does, \
                     or until the ttl is over"
                );
            });
        });
    }

    /// Records how long a hold lasted, and warns if the ttl of its group is too short.
    fn advise<S: Subject>(&self, end: &HoldEnd<'_, S>, held: Duration) {
        let claim = &end.claim.request().claim;
        if end.claim.request().terms.renew {
            return;
        }
        let group = group(&claim.name);
        let Some(advice) = self.adviser.ended(group, held, claim.ttl, end.world.now()) else {
            return;
        };
        let (p50_ms, p99_ms) = (millis(advice.p50), millis(advice.p99));
        let (ttl_ms, proposal_ms) = (millis(advice.ttl), advice.proposal.map(millis));
        warn!(
            target: TARGET,
            event = "ttl.advice", group, engine = &*self.engine, holds = advice.holds, p50_ms, p99_ms,
            ttl_ms, proposal_ms,
            "one hold in a hundred takes more than a third of its ttl, and nothing renews it: \
             raise the ttl to the proposal, or have the holds renewed"
        );
    }

    /// A hold was not granted by the engine, because it cannot be reached.
    pub(crate) fn unprotected(&self, live: &impl Subject) {
        let fence = live.fence();
        let protection = match live.request().protection {
            Protection::Engine => "engine",
            Protection::Local => "local",
            Protection::None => "none",
        };
        about!(
            warn,
            "lock.unprotected",
            self,
            &live.request().claim,
            fence = fence.get(),
            protection
        );
        measure!(fail_open(&live.request().claim));
    }

    // Elections and onces.

    /// A candidate becomes leader.
    pub(crate) fn elected(&self, live: &impl Subject) {
        let (claim, fence) = (&live.request().claim, live.fence());
        let value = claim.details.value.as_deref();
        about!(info, "leader.elected", self, claim, fence = fence.get(), value);
        measure!(elected(claim, fence));
    }

    /// A leader resigns.
    pub(crate) fn resigned(&self, live: &impl Subject) {
        about!(info, "leader.resigned", self, &live.request().claim, fence = live.fence().get());
    }

    /// A once has run, or was reported not to have happened.
    pub(crate) fn settled(&self, live: &impl Subject, happened: bool) {
        let outcome = if happened { "ran" } else { "undone" };
        measure!(once(&live.request().claim, outcome));
        #[cfg(not(feature = "metrics"))]
        let _ = (live, outcome);
    }

    /// The outcome of a once came after its hold was lost; it counts unless someone has started again.
    pub(crate) fn settled_late(&self, live: &impl Subject) {
        about!(warn, "once.settled_late", self, &live.request().claim, fence = live.fence().get());
    }

    /// The record of a once was forgotten on request: it may be run again.
    pub(crate) fn forgotten(&self, name: &Name, record: &OnceRecord) {
        let (group, engine, fence) = (group(name), &*self.engine, record.fence.get());
        let settled = record.outcome.is_some();
        warn!(target: TARGET, event = "once.forgotten", %name, group, engine, fence, settled);
    }

    /// An operator broke a hold. The holder reports the loss itself.
    pub(crate) fn broken(&self, name: &Name, fence: Fence, note: &Note) {
        let (group, engine, by, reason) = (group(name), &*self.engine, &note.by, &note.reason);
        warn!(target: TARGET, event = "lock.broken", %name, group, engine, fence = fence.get(), by, reason);
        measure!(broken(self, name));
    }
}

/// How a hold ended, in a word.
fn how(ended: &Ended) -> &'static str {
    match ended {
        Ended::Expired => "expired",
        Ended::Broken(_) => "broken",
        _ => "lost",
    }
}
