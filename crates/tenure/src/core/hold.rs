//! The guard.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use crate::core::claim_state::{Released, Stake, Todo, Watcher};
use crate::core::handle::{Core, Handle};
use crate::model::claim::{Ended, Fence, Grant, Renewal, Renewed};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::options::{OnOutage, Protection, check_ttl};
use crate::observe::{End, Reporter};

/// A granted claim in your hand.
///
/// The watchdog renews it in the background. Dropping it queues the release, which is **not
/// immediate**: [`release`](Hold::release) waits until the engine has confirmed it, and says whether
/// the hold lasted until then. A hold that is forgotten (`mem::forget`) is renewed until `max_hold`,
/// or for the life of the process.
///
/// Holds are not re-entrant: asking for a name that you hold waits for yourself.
#[must_use = "a hold that is dropped at once protects nothing"]
pub struct Hold {
    handle: Arc<Handle>,
    stake: Arc<Stake>,
    fence: Fence,
    /// The other names of an `all`.
    rest: Vec<Hold>,
    /// In the caller's hand: `hold_for` is a promise about what somebody had.
    given: bool,
    /// Its release is on its way.
    left: bool,
}

impl Hold {
    /// The guard is there before the request is sent, so that whatever is dropped is left.
    pub(crate) fn asking(handle: Arc<Handle>, stake: Arc<Stake>) -> Hold {
        Hold { handle, stake, fence: Fence::default(), rest: Vec::new(), given: false, left: false }
    }

    /// The claim was granted after it had waited that long, in that span.
    pub(crate) fn start(&mut self, grant: Grant, now: Moment, waited: Duration, acquire: &Span) {
        let say = |reporter: &Reporter, stake: &Stake| reporter.granted(stake, waited, acquire);
        self.start_and_say(grant, now, acquire, say);
    }

    /// The engine says that a hold of this id is there, and this process goes on with it.
    pub(crate) fn attached(
        handle: Arc<Handle>,
        stake: Arc<Stake>,
        grant: Grant,
        now: Moment,
    ) -> Hold {
        let mut hold = Hold::asking(handle, stake);
        hold.stake.attached();
        hold.start_and_say(grant, now, &Span::none(), Reporter::attached);
        hold.given()
    }

    fn start_and_say(
        &mut self,
        grant: Grant,
        now: Moment,
        acquire: &Span,
        say: impl FnOnce(&Reporter, &Stake),
    ) {
        self.fence = grant.fence;
        let (core, stake) = (self.core(), &self.stake);
        let slots = &core.slots;
        slots.saw(grant.fence);
        if stake.outage() != OnOutage::Closed && stake.protection == Protection::Engine {
            core.outage.granted(&stake.claim.name, grant.fence);
        }
        let mut todo = Todo::default();
        let holding = slots.reporter.holding(&stake.claim, &grant, acquire);
        slots.schedule(stake, stake.start(grant, now, holding, &mut todo));
        say(&slots.reporter, stake);
        if !todo.is_empty() {
            slots.carry_out(stake, &mut todo);
        }
    }

    /// Lets go of it without leaving. Returns whether a request of its claim may still arrive. If it
    /// has ended it is left like any other.
    pub(crate) fn let_go(mut self) -> Result<bool> {
        let core = self.core();
        if core.forked() {
            return Err(Error::closed());
        }
        let (forget_at, in_doubt) = self.stake.let_go(core.world.now())?;
        core.slots.schedule(&self.stake, forget_at);
        let (stake, holding) = (&self.stake, self.stake.take_holding());
        core.slots.reporter.detached(End { stake, holding, world: &core.world });
        self.left = true;
        Ok(in_doubt)
    }

    /// The guard of another claim, of the same caller.
    pub(crate) fn beside(&self, stake: Arc<Stake>) -> Hold {
        Hold::asking(self.handle.clone(), stake)
    }

    pub(crate) fn stake(&self) -> &Arc<Stake> {
        &self.stake
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    pub(crate) fn with_rest(mut self, rest: Vec<Hold>) -> Hold {
        self.rest = rest;
        self
    }

    pub(crate) fn given(mut self) -> Hold {
        self.given = true;
        self.rest.iter_mut().for_each(|hold| hold.given = true);
        self
    }

    /// Takes it back from the caller that it was not given to yet.
    pub(crate) fn not_given(mut self) -> Hold {
        self.given = false;
        self
    }

    fn each(&self) -> impl Iterator<Item = &Hold> {
        std::iter::once(self).chain(&self.rest)
    }

    pub(crate) fn stakes(&self) -> impl Iterator<Item = &Arc<Stake>> {
        self.each().map(|hold| &hold.stake)
    }

    fn now(&self) -> Moment {
        self.core().world.now()
    }

    /// What is held; of several, the first by name.
    pub fn name(&self) -> &str {
        self.stake.claim.name.as_str()
    }

    /// The number of this grant; of several names, that of the first.
    ///
    /// Give it to whatever the hold protects, and have that refuse lower numbers than the highest it
    /// has seen: a holder that comes back too late can then do no harm. [`fencing`](crate::fencing)
    /// does that for databases, files and HTTP servers. Co-holders of a semaphore cannot be fenced
    /// against each other.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Each name with its fence, in the order of the names.
    pub fn fences(&self) -> impl Iterator<Item = (&str, Fence)> {
        self.each().map(|hold| (hold.name(), hold.fence))
    }

    /// What protects it; of several names, the weakest. Anything but [`Protection::Engine`] means that the
    /// engine could not be reached when it was asked for, and stays so until the hold is left.
    pub fn protection(&self) -> Protection {
        let each = self.each().map(|hold| hold.stake.protection);
        each.max().unwrap_or(Protection::Engine)
    }

    /// How long it is certain to last by this process's clock, renewals to come not counted.
    pub fn remaining(&self) -> Duration {
        if self.core().forked() {
            return Duration::ZERO;
        }
        let now = self.now();
        let until = |hold: &Hold| now.until(hold.stake.deadline());
        self.each().map(until).min().unwrap_or_default()
    }

    /// Whether it is certainly still held. Looks at the clock; asks nobody.
    pub fn is_live(&self) -> bool {
        self.ended().is_none()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.core().ended(self.each().map(|hold| &hold.stake))
    }

    /// Yields the reason when the hold ends without its release; of several names, when the first
    /// does.
    ///
    /// The future is independent of the hold and can be cloned. Once the hold is released it never
    /// yields.
    pub fn lost(&self) -> Lost {
        let stakes = self.each().map(|hold| hold.stake.clone()).collect();
        Lost { core: self.core().clone(), stakes, watcher: Watcher::new() }
    }

    /// Yields the reason when renewals begin to fail while the hold is still good, or when it is lost.
    ///
    /// The future is independent of the hold and can be cloned. Once the hold is released it never
    /// yields.
    pub fn at_risk(&self) -> AtRisk {
        AtRisk { lost: self.lost() }
    }

    /// How it stands, for whoever needs `before` to come to an end in time.
    pub(crate) fn outlook(&self, before: Duration) -> Outlook {
        let lost = self.lost();
        for stake in &lost.stakes {
            lost.core.slots.schedule(stake, stake.warn(before));
        }
        Outlook { lost, before }
    }

    /// Makes the hold last `ttl` from now. It never becomes shorter.
    ///
    /// # Errors
    /// `Invalid` if the ttl is out of the engine's range or beyond `max_hold`, `Lost` if the hold has
    /// ended, `Unavailable` if the engine did not answer; the hold then goes on as it was.
    ///
    /// # Cancel safety
    /// An extension that was sent may happen although the future was dropped.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        for hold in self.each() {
            let core = hold.core();
            let extended = hold.extend_one(ttl).await;
            extended.map_err(|error| core.explain(error, "extend", &hold.stake.claim.name))?;
        }
        Ok(())
    }

    async fn extend_one(&self, ttl: Duration) -> Result<()> {
        let (core, stake) = (self.core(), &self.stake);
        core.open()?;
        check_ttl(ttl, core.engine.profile())?;
        let now = core.world.now();
        if let Some(ended) = stake.ended(now) {
            return Err(ended.into());
        }
        if let (Some(max_hold), Some(since)) = (stake.terms.max_hold, stake.held_since())
            && now + ttl > since + max_hold
        {
            let reason = format!("{ttl:?} from now is beyond max_hold {max_hold:?}");
            return Err(Error::invalid(reason).next("raise max_hold, or extend by less"));
        }
        self.renew_for(ttl).await
    }

    /// Asks the engine once to make it last `ttl` from now.
    pub(crate) async fn renew_for(&self, ttl: Duration) -> Result<()> {
        let (core, stake) = (self.core(), &self.stake);
        let (name, id) = (stake.claim.name.clone(), stake.claim.id);
        let renewal = Renewal::Hold { name, id, fence: self.fence, ttl };
        let engine = core.engine_of(stake);
        let mut answers = engine.renew(engine.shard(&stake.claim.name), &[renewal]).await?;
        let answer = answers.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "no answer"))?;
        let outcome = match &answer {
            Renewed::Gone(ended) => Err(ended.clone().into()),
            Renewed::Unknown(error) => Err(Error::new(error.kind(), error.to_string())),
            Renewed::Held(_) | Renewed::Waiting(_) => Ok(()),
        };
        let mut todo = Todo::default();
        let next = stake.extended(answer, core.world.now(), &mut todo);
        core.slots.carry_out(stake, &mut todo);
        core.slots.schedule(stake, next);
        outcome
    }

    /// Releases, and says whether the hold lasted until then.
    ///
    /// The release is queued at once and awaited after that, for a second at most: if the engine does not
    /// answer, the result is [`Released::Unknown`], and the release goes on being sent in the background for
    /// as long as this process runs. With `hold_for` the answer comes at once and the name stays taken for
    /// the rest of that time.
    ///
    /// # Cancel safety
    /// The release happens even if the future is dropped.
    pub async fn release(self) -> Result<Released> {
        self.release_and_wait(false).await
    }

    /// The same, but waits `to_the_end` of the hold for an answer.
    pub(crate) async fn release_and_wait(mut self, to_the_end: bool) -> Result<Released> {
        let core = self.core();
        core.open().map_err(|error| core.explain(error, "release", &self.stake.claim.name))?;
        self.each().for_each(|hold| core.leave(&hold.stake, true));
        self.left = true;
        self.rest.iter_mut().for_each(|hold| hold.left = true);
        let mut all = Released::InTime;
        for hold in self.each() {
            let released = hold.core().answer_to_leave(&hold.stake, to_the_end).await;
            if all != Released::Late && released != Released::InTime {
                all = released;
            }
        }
        Ok(all)
    }

    /// Runs `work` until it is done or the hold is lost, whichever comes first; then releases.
    pub(crate) async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T> {
        let done = self.until_lost(work(&self)).await?;
        // Whether the release was late is logged; the work itself ended in time.
        let _ = self.release().await?;
        Ok(done)
    }

    /// Runs `work` until it is done, or drops it when the hold is lost.
    pub(crate) async fn until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let mut lost = self.lost();
        let mut work = std::pin::pin!(work);
        let done = poll_fn(|cx| {
            // The clock first: after a pause, work must not go on for a single step.
            match Pin::new(&mut lost).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => work.as_mut().poll(cx).map(Ok),
            }
        });
        done.await.map_err(|ended| {
            let error = Error::new(ErrorKind::Lost, ended.to_string())
                .next("the work was stopped; guard what it writes with the fence");
            self.core().explain(error, "run", &self.stake.claim.name)
        })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let core = &self.handle.core;
        if !self.left && !core.forked() {
            core.leave(&self.stake, self.given);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name())
            .field("fence", &self.fence)
            .field("claim", &self.stake.claim.id)
            .finish_non_exhaustive()
    }
}

/// Yields the reason when a hold is lost. See [`Hold::lost`].
#[derive(Clone)]
#[must_use = "futures do nothing unless awaited"]
pub struct Lost {
    core: Arc<Core>,
    stakes: Vec<Arc<Stake>>,
    watcher: Watcher,
}

impl Drop for Lost {
    fn drop(&mut self) {
        if !self.core.forked() {
            self.stakes.iter().for_each(|stake| stake.unobserve(self.watcher.0));
        }
    }
}

impl Lost {
    fn look(&self, cx: &Context<'_>) -> Option<Ended> {
        // Observed before it is looked at, so that what happens in between is not missed.
        if !self.core.forked() {
            self.stakes.iter().for_each(|stake| stake.observe(cx, self.watcher.0));
        }
        self.core.ended(self.stakes.iter())
    }
}

impl Core {
    /// Waits for the answer to a leave: `to_the_end` of the hold, or as long as anyone waits for an answer.
    pub(crate) async fn answer_to_leave(&self, stake: &Arc<Stake>, to_the_end: bool) -> Released {
        let watcher = Watcher::new();
        let released = poll_fn(|cx| stake.poll_released(cx, watcher.0, to_the_end)).await;
        if released == Released::Unknown {
            self.doubt(&stake.claim.name);
            if stake.fence() != Fence::default() {
                self.slots.reporter.release_unanswered(stake);
            }
        }
        released
    }

    /// The first end that is known, or that the clock says. A forked child holds nothing.
    fn ended<'a>(&self, mut stakes: impl Iterator<Item = &'a Arc<Stake>>) -> Option<Ended> {
        if self.forked() {
            return Some(Ended::Closed);
        }
        let now = self.world.now();
        stakes.find_map(|stake| stake.ended(now))
    }
}

impl Future for Lost {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.look(cx).map_or(Poll::Pending, Poll::Ready)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}

/// Yields the reason when a hold is at risk. See [`Hold::at_risk`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct AtRisk {
    lost: Lost,
}

impl Future for AtRisk {
    type Output = String;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        if let Some(ended) = self.lost.look(cx) {
            return Poll::Ready(ended.to_string());
        }
        let why = self.lost.stakes.iter().find_map(|stake| stake.at_risk());
        why.map_or(Poll::Pending, |why| Poll::Ready(why.to_string()))
    }
}

/// How a hold stands, again and again. See [`Hold::outlook`].
pub(crate) struct Outlook {
    lost: Lost,
    before: Duration,
}

/// How a hold stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Good,
    /// Renewals fail.
    AtRisk,
    /// No more is left than it takes to come to an end.
    RunningOut,
    Lost,
}

impl Outlook {
    /// How it stands now; `cx` is woken when that may have changed. It looks at the clock, so that
    /// after a pause of the whole machine the first look is right.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Standing {
        if self.lost.look(cx).is_some() {
            return Standing::Lost;
        }
        let enough = self.lost.core.world.now() + self.before;
        let stakes = &self.lost.stakes;
        if stakes.iter().any(|stake| stake.deadline() <= enough) {
            Standing::RunningOut
        } else if stakes.iter().any(|stake| stake.at_risk().is_some()) {
            Standing::AtRisk
        } else {
            Standing::Good
        }
    }
}
