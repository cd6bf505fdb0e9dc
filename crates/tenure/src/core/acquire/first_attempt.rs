//! The first moment of a claim, in the caller's own call: it is sent, or not, and maybe granted at once.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tracing::Span;

use super::outcome::{Ending, Who};
use super::{Asked, Request};
use crate::core::hold::Hold;
use crate::engine::Step;
use crate::model::claim::Verdict;
use crate::model::error::Result;
use crate::model::options::OnOutage;
use crate::observe::Waiting;

/// A claim that was sent. The wait is boxed: most claims do not wait, and need not carry the room for
/// it from hand to hand.
pub(super) enum Begun {
    Held(Hold),
    Asked(Pin<Box<dyn Future<Output = Result<Ending>> + Send>>),
}

impl Begun {
    pub(super) fn sent(mut hold: Hold, step: Step<Verdict>, span: Span) -> Begun {
        match step.at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                hold.start(grant, grant.sent, Duration::ZERO, &span);
                Begun::Held(hold)
            }
            Ok(Ok(Verdict::Waiting(place))) => {
                let started = place.asked_at;
                let mut asked = Asked::new(hold, Request::None, started, span);
                asked.has_answered();
                asked.stand(place, started);
                Begun::Asked(Box::pin(asked.finish()))
            }
            otherwise => {
                hold.stake().asked();
                let now = hold.core().world.now();
                let step = otherwise.map_or_else(|step| step, Step::ready);
                let asked = Asked::new(hold, Request::Claim(step), now, span);
                Begun::Asked(Box::pin(asked.finish()))
            }
        }
    }

    /// A claim that goes on without the engine if it must: it stands in this process's own line first,
    /// where it has said so, and asks the engine only if that can be reached.
    pub(super) fn or_without(hold: Hold, span: Span) -> Result<Begun> {
        let (core, stake) = (hold.core().clone(), hold.stake().clone());
        let name = &stake.claim.name;
        let explain = |error| core.not_sent(error, &stake.claim);
        stake.not_sent();
        if stake.outage() == OnOutage::Local {
            match core.lines.join(&stake.claim).map_err(explain)? {
                Some(place) if place.take() => stake.accompany(Box::new(place)),
                Some(place) => {
                    let now = core.world.now();
                    let mut asked = Asked::new(hold, Request::Line(Box::new(place)), now, span);
                    asked.waiting.stands_here();
                    return Ok(Begun::Asked(Box::pin(asked.finish())));
                }
                None => {
                    let (reporter, now) = (core.slots.reporter.clone(), core.world.now());
                    Waiting::new(reporter, stake.clone(), span, now).busy(None, now);
                    return Ok(Begun::Asked(Box::pin(async { Ok(Ending::Busy(hold, Who::Here)) })));
                }
            }
        }
        if core.is_down(name) {
            return hold.fall_back(Duration::ZERO, &span).map(Begun::Held).map_err(explain);
        }
        let step = core.engine.claim(&stake.first(core.slots.seen()));
        Ok(Begun::sent(hold, step, span))
    }
}
