//! The engine trait: the engine steps, the core waits.
//!
//! An engine keeps the lines. Each of its methods is one attempt at one atomic step; retries,
//! waiting, back-off, renewal and loss are the core's and are written once. This module is public so
//! that engines can be written in other crates; `tenure-testkit` has the suite that one must pass.
//!
//! What every engine keeps to, besides the *Behavior* of each method:
//!
//! 1. **A step is idempotent on the claim id.** After a lost reply the same claim comes again: a
//!    grant that was made is found, not doubled, and finding it does not prolong it.
//! 2. **The engine's clock decides expiry; the caller's clock decides loss.** A yes carries what
//!    remains on the engine's clock; [`Grant::new`] turns it into the caller's deadline.
//! 3. **A pushed turn has a short [first life](FIRST_LIFE)**, which its first renewal makes the full
//!    ttl.
//! 4. **Fences rise for ever**, through restarts, and tickets come from the same counter.
//! 5. **State is bounded**: what a name leaves behind goes away by itself.

use std::any::Any;
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

pub use crate::model::claim::{
    Broken, Claim, ClaimId, Details, Ended, FIRST_LIFE, Fence, Forgotten, Grant, Holder, Leave,
    Left, Note, OnceRecord, OnceTerms, Outcome, PLACE_LIFE, Place, Renewal, Renewed, Settle,
    Ticket, Turn, Verdict, Waiter, look_again,
};
pub use crate::model::error::{Error, ErrorExt, ErrorKind, Result};
pub use crate::model::finding::{Finding, Mark};
pub use crate::model::moment::Moment;
pub use crate::model::name::{LONGEST_NAME, Name, Space};
pub use crate::model::profile::{Order, Profile};
pub use crate::model::view::{Page, Scope, View};
pub use crate::world::{Alarm, Job, SystemWorld, World};

/// Where lines are kept.
pub trait Engine: Debug + Send + Sync + 'static {
    /// What this engine promises.
    fn profile(&self) -> &Profile;

    /// Says where turns go from now on.
    ///
    /// # Behavior
    /// - Called before the first claim; several clients may attach to one engine.
    /// - The client keeps the engine alive, so the engine must not keep the client alive.
    fn attach(&self, turns: Weak<dyn Turns>);

    /// Asks to hold, or asks again.
    ///
    /// # Behavior
    /// - The order of arrival is the order of *calls*, not of polls.
    /// - A claim that holds is answered with its grant, as it is; one that waits keeps its place.
    /// - A claim with a ticket that the engine does not know is put in line by that ticket.
    /// - Any claim moves the whole line: whoever can be granted is, and is pushed its turn.
    /// - `Conflict` and `Full` are errors; contention is not.
    fn claim(&self, claim: &Claim) -> Step<Verdict>;

    /// Which of the engine's independent parts keeps `name`.
    ///
    /// The watchdog renews each part in a batch of its own, so that a dead one delays no other.
    fn shard(&self, name: &Name) -> u32 {
        let _ = name;
        0
    }

    /// Renews holds and places, all of one shard.
    ///
    /// # Behavior
    /// - One answer for each renewal, in order.
    /// - A hold is never created and never shortened; one that ended is `Gone`.
    /// - With a ttl of zero nothing is changed: the answer says whether it is held, and what remains.
    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>>;

    /// Ends a claim and serves whoever comes next in the same step.
    ///
    /// # Behavior
    /// - Leaving twice, or after expiry, changes nothing for anyone else.
    /// - With `in_doubt`, a late duplicate of this claim's requests does nothing for a minute.
    /// - With `only`, nothing happens unless the claim holds with that fence.
    fn leave(&self, leave: &Leave) -> Step<Left>;

    /// Ends a claim from any thread, with no runtime.
    ///
    /// # Behavior
    /// - Never blocks on IO, spawns or panics.
    /// - Takes effect before any claim that this thread makes afterwards.
    /// - `done` hears the answer; dropping it unheard makes the watchdog send the leave again.
    fn leave_soon(&self, leave: Leave, done: Ack);

    /// Makes a hold last although the process that asked for it ends.
    ///
    /// # Behavior
    /// - Until it is left or broken, it ends by its ttl and by nothing else. An engine that does not
    ///   know when processes end has nothing to do.
    /// - For a claim that holds nothing it does nothing.
    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        let _ = (name, id);
        Step::ready(Ok(()))
    }

    /// Changes how many units a name has.
    ///
    /// # Behavior
    /// - What is held stays held. Waiting claims heavier than `capacity` end with `Conflict`.
    /// - The capacity wins over what claims say while the name is used, and for a day after.
    /// - `Conflict` if a claim on the name has a fixed capacity, and a fixed claim for another
    ///   capacity than the one that was set is a `Conflict` too: a mutex stays a mutex.
    fn resize(&self, name: &Name, capacity: u32) -> Step<()>;

    /// Ends the hold with this fence by force, and serves whoever comes next in the same step.
    ///
    /// # Behavior
    /// - Without a hold of that fence nothing changes.
    /// - The holder hears of it by push, and by the answer to its next contact.
    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken>;

    /// Forgets what is known of a once, if that is what `seen` shows: the same fence, and settled or not.
    ///
    /// # Behavior
    /// - What runs is not forgotten, and neither is what has changed since.
    /// - Whoever asks afterwards finds nothing, and runs it.
    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten>;

    /// Shows who holds and who waits. Never shows a claim id.
    ///
    /// # Behavior
    /// - Names that nobody uses are absent, unless they are asked for by [name](Scope::Name) and there
    ///   is a record of a once.
    /// - A page of names is ordered by name.
    fn inspect(&self, scope: &Scope) -> Step<Page>;

    /// The name as it is, where that is at hand without asking anyone; for messages.
    fn glance(&self, name: &Name) -> Option<View> {
        let _ = name;
        None
    }

    /// The same lines over IO of its own, for the watchdog's thread. `None`: this engine will do.
    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        None
    }

    /// Asks for a sign of life.
    fn health(&self) -> Step<()>;

    /// Looks at everything that locks depend on and that can be wrong here: settings, rights, room.
    ///
    /// # Behavior
    /// - Nothing stays of what it does, and nothing is claimed.
    /// - What is wrong is a [`Finding`]; only an engine that cannot be reached is an error.
    /// - How long answers take is not its business: the core measures that by `health`.
    fn examine(&self) -> Step<Vec<Finding>> {
        Step::ready(Ok(Vec::new()))
    }

    /// Lets go of connections and threads. The lines stay as they are.
    fn close(&self) -> Step<()>;
}

/// Where an engine delivers what it pushes.
pub trait Turns: Debug + Send + Sync {
    /// Hands `turn` to the claim.
    ///
    /// `false` means that nobody waits for it any more. If the turn was a grant, the engine then
    /// leaves that claim at once, [only](Leave::only) if it still holds with that fence.
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool;

    /// Makes every waiting claim of a shard ask again: pushes may have been lost.
    fn look_again(&self, shard: u32);

    /// Makes every hold of these shards renew at once: another server has taken over, and may not know
    /// them.
    fn check_holds(&self, _shards: &[u32]) {}
}

/// An answer that is at hand, or on its way.
///
/// Engines that answer at once return [`Step::ready`] and allocate nothing.
#[must_use = "a step does nothing more unless its answer is awaited"]
pub struct Step<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<Result<T>>),
    Pending(Pin<Box<dyn Future<Output = Result<T>> + Send>>),
}

impl<T> Step<T> {
    /// An answer that is at hand.
    pub fn ready(answer: Result<T>) -> Step<T> {
        Step(Inner::Ready(Some(answer)))
    }

    /// The answer, if it is at hand.
    pub(crate) fn at_hand(self) -> std::result::Result<Result<T>, Step<T>> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            inner => Err(Step(inner)),
        }
    }

    /// An answer on its way. What must happen in the order of calls has happened already.
    pub fn pending(answer: impl Future<Output = Result<T>> + Send + 'static) -> Step<T> {
        Step(Inner::Pending(Box::pin(answer)))
    }
}

// What is pinned is boxed.
impl<T> Unpin for Step<T> {}

impl<T> Future for Step<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            Inner::Ready(answer) => {
                let gone = || Err(Error::new(ErrorKind::Internal, "a step was polled twice"));
                Poll::Ready(answer.take().unwrap_or_else(gone))
            }
            Inner::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> Debug for Step<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Inner::Ready(_) => f.write_str("Step(ready)"),
            Inner::Pending(_) => f.write_str("Step(pending)"),
        }
    }
}

/// Takes the engine's answer to a queued leave.
///
/// Dropping it says that there was no answer, and the watchdog sends the leave again.
pub struct Ack(Option<Hears>);

enum Hears {
    Core(Arc<dyn LeaveAnswers>, Arc<dyn Any + Send + Sync>),
    Function(Box<dyn FnOnce(Result<Left>) + Send>),
}

/// The core, which hears how the leave of a claim was answered.
pub(crate) trait LeaveAnswers: Send + Sync {
    /// The leave was answered, or never will be.
    fn left(&self, claim: Arc<dyn Any + Send + Sync>, answer: Option<Left>);
}

impl Ack {
    /// An acknowledgement for a claim of the core's. The core's own types stand above engines, so that
    /// they are seen here only as what they do.
    pub(crate) fn new(core: Arc<dyn LeaveAnswers>, claim: Arc<dyn Any + Send + Sync>) -> Ack {
        Ack(Some(Hears::Core(core, claim)))
    }

    /// An acknowledgement that calls `heard`, for engines around engines. It is not called if the
    /// acknowledgement is dropped.
    pub fn from_fn(heard: impl FnOnce(Result<Left>) + Send + 'static) -> Ack {
        Ack(Some(Hears::Function(Box::new(heard))))
    }

    /// The engine's answer.
    pub fn done(mut self, answer: Result<Left>) {
        match self.0.take() {
            Some(Hears::Core(core, claim)) => core.left(claim, answer.ok()),
            Some(Hears::Function(heard)) => heard(answer),
            None => {}
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        if let Some(Hears::Core(core, claim)) = self.0.take() {
            core.left(claim, None);
        }
    }
}

impl Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ack")
    }
}
