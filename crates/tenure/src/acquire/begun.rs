//! The first moment of a claim, in the caller's own call: it is sent, or not, and maybe granted at once.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::ending::{Ending, Who};
use super::{Asked, Request};
use crate::claim::Verdict;
use crate::engine::Step;
use crate::error::Result;
use crate::hold::Hold;
use crate::moment::Moment;
use crate::observe;
use crate::options::OnOutage;

/// A claim that was sent. The wait is boxed: most claims do not wait, and need not carry the room for
/// it from hand to hand.
pub(super) enum Begun {
    Held(Hold),
    Asked(Pin<Box<dyn Future<Output = Result<Ending>> + Send>>),
}

impl Begun {
    pub(super) fn sent(mut hold: Hold, step: Step<Verdict>) -> Begun {
        match step.at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                hold.start(grant, grant.sent, Duration::ZERO);
                Begun::Held(hold)
            }
            Ok(Ok(Verdict::Waiting(place))) => {
                let started = place.asked_at;
                let mut asked = Asked::new(hold, Request::None, started);
                (asked.answered, asked.give_up) = (true, Moment::FAR);
                asked.stand(place, started);
                Begun::Asked(Box::pin(asked.finish()))
            }
            otherwise => {
                hold.stake().asked();
                let now = hold.core().world.now();
                let step = otherwise.map_or_else(|step| step, Step::ready);
                let asked = Asked::new(hold, Request::Claim(step), now);
                Begun::Asked(Box::pin(asked.finish()))
            }
        }
    }

    /// A claim that goes on without the engine if it must: it stands in this process's own line first,
    /// where it has said so, and asks the engine only if that can be reached.
    pub(super) fn or_without(hold: Hold) -> Result<Begun> {
        let (core, stake) = (hold.core().clone(), hold.stake().clone());
        let name = &stake.claim.name;
        let explain = |error| core.explain(error, "acquire", name);
        stake.not_sent();
        if stake.outage() == OnOutage::Local {
            match core.lines.join(&stake.claim).map_err(explain)? {
                Some(place) if place.is_inside() => stake.accompany(Box::new(place)),
                Some(place) => {
                    let now = core.world.now();
                    let asked = Asked::new(hold, Request::Line(Box::new(place)), now);
                    return Ok(Begun::Asked(Box::pin(asked.finish())));
                }
                None => {
                    observe::busy(&stake);
                    return Ok(Begun::Asked(Box::pin(async { Ok(Ending::Busy(hold, Who::Here)) })));
                }
            }
        }
        if core.is_down(name) {
            return hold.fall_back(Duration::ZERO).map(Begun::Held).map_err(explain);
        }
        let step = core.engine.claim(&stake.first(core.slots.seen()));
        Ok(Begun::sent(hold, step))
    }
}
