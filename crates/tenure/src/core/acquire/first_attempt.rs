//! The first attempt, within the caller's own call: the claim is sent, and may be granted at once.

use std::time::Duration;

use tracing::Span;

use super::outcome::{AcquireOutcome, HeldBy};
use super::{OpenStep, WaitLoop};
use crate::core::guard::{ClaimGuard, HeldClaim};
use crate::engine::Step;
use crate::model::claim::Verdict;
use crate::model::error::Result;
use crate::model::options::OnOutage;
use crate::observe::Waiting;

/// A claim that was sent. The wait is boxed: most claims do not wait, and should not move that much memory
/// around.
pub(super) enum FirstAttempt {
    Held(HeldClaim),
    Waiting(Box<WaitLoop>),
    /// Another claim of this process has it, and this one does not want to wait.
    Busy(ClaimGuard),
}

impl FirstAttempt {
    /// Waits for the outcome, unless it is already known.
    pub(super) async fn outcome(self) -> Result<AcquireOutcome> {
        match self {
            FirstAttempt::Held(held) => Ok(AcquireOutcome::Granted(held)),
            FirstAttempt::Waiting(wait) => wait.await,
            FirstAttempt::Busy(guard) => Ok(AcquireOutcome::Busy(guard, HeldBy::ThisProcess)),
        }
    }

    pub(super) fn sent(guard: ClaimGuard, step: Step<Verdict>, span: Span) -> FirstAttempt {
        match step.at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                guard.start(&grant, grant.sent, Duration::ZERO, &span);
                FirstAttempt::Held(guard.held(grant.fence))
            }
            Ok(Ok(Verdict::Waiting(place))) => {
                let started = place.asked_at;
                let mut wait_loop = WaitLoop::new(guard, OpenStep::None, started, span);
                wait_loop.has_answered();
                wait_loop.stand(place, started);
                FirstAttempt::Waiting(Box::new(wait_loop))
            }
            otherwise => {
                guard.live().with(|state, _| state.asked());
                let now = guard.core().world.now();
                let step = otherwise.map_or_else(|step| step, Step::ready);
                let wait_loop = WaitLoop::new(guard, OpenStep::Claim(step), now, span);
                FirstAttempt::Waiting(Box::new(wait_loop))
            }
        }
    }

    /// Begins a claim that can continue without the engine. If its policy is `local`, it joins the local line
    /// first; then it asks the engine, if the engine can be reached.
    pub(super) fn or_without(guard: ClaimGuard, span: Span) -> Result<FirstAttempt> {
        let (core, live) = (guard.core().clone(), guard.live().clone());
        let name = &live.claim.name;
        let explain = |error| core.not_sent(error, &live.claim);
        live.with(|state, _| state.not_sent());
        if live.outage() == OnOutage::Local {
            match core.lines.join(&live.claim).map_err(explain)? {
                Some(place) if place.take() => live.keep_local_place(Box::new(place)),
                Some(place) => {
                    let now = core.world.now();
                    let mut wait_loop =
                        WaitLoop::new(guard, OpenStep::Line(Box::new(place)), now, span);
                    if let Some(waiting) = &mut wait_loop.waiting {
                        waiting.stands_in_local_line();
                    }
                    return Ok(FirstAttempt::Waiting(Box::new(wait_loop)));
                }
                None => {
                    let now = core.world.now();
                    if let Some(mut waiting) = Waiting::new(&core.table.reporter, &live, span, now)
                    {
                        waiting.busy(None, now);
                    }
                    return Ok(FirstAttempt::Busy(guard));
                }
            }
        }
        if core.is_down(name) {
            return guard.fall_back(Duration::ZERO, &span).map(FirstAttempt::Held).map_err(explain);
        }
        let seen = core.table.seen();
        let step = core.engine.claim(&live.with(|state, request| state.first(request, seen)));
        Ok(FirstAttempt::sent(guard, step, span))
    }
}
