//! The engine trait: the engine steps, the core waits.
//!
//! An engine keeps the lines. Each of its methods is one attempt at one atomic step. Retries, waiting, back-off,
//! renewal and loss belong to the core, and are written once. This module is public so that engines can be
//! written in other crates; `tenure-testkit` has the suite that an engine must pass.
//!
//! Every engine guarantees this, besides the *Behavior* of each method:
//!
//! 1. **A step is idempotent on the claim id.** After a lost reply the same claim is sent again: a
//!    grant that was made is found, not made twice, and finding it does not extend it.
//! 2. **The engine's clock decides expiry; the caller's clock decides loss.** A grant carries the time that
//!    remains on the engine's clock; [`Grant::new`] turns it into the caller's deadline.
//! 3. **A pushed turn has a short [first life](FIRST_LIFE)**. Its first renewal extends it to the full
//!    ttl.
//! 4. **Fences always rise**, even across restarts, and tickets come from the same counter.
//! 5. **State is bounded**: whatever a name leaves behind expires.

use std::any::Any;
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

pub use crate::model::claim::{
    Broken, Claim, ClaimId, Details, Ended, FIRST_LIFE, Fence, Fences, Forgotten, Grant, Holder,
    Keep, Kept, Leave, Left, MOST_FENCES, Note, OnceRecord, OnceTerms, Outcome, PLACE_LIFE, Place,
    Renewal, Renewed, Settle, Ticket, Turn, Verdict, Waiter, look_again,
};
pub use crate::model::error::{Error, ErrorExt, ErrorKind, Result};
pub use crate::model::finding::{Finding, Mark};
pub use crate::model::moment::Moment;
pub use crate::model::name::{LONGEST_NAME, Name, Space};
pub use crate::model::profile::{Order, Profile};
pub use crate::model::request::check_claim;
pub use crate::model::view::{Page, Scope, View};
pub use crate::world::{Alarm, Job, SystemWorld, World};

/// Where lines are kept.
pub trait Engine: Debug + Send + Sync + 'static {
    /// The guarantees and limits of this engine.
    fn profile(&self) -> &Profile;

    /// Tells the engine where to deliver turns.
    ///
    /// # Behavior
    /// - Called before the first claim; several clients may attach to one engine.
    /// - The client keeps the engine alive, so the engine must not keep the client alive.
    fn attach(&self, turns: Weak<dyn Turns>);

    /// Asks to hold, or asks again.
    ///
    /// # Behavior
    /// - The order of arrival is the order of *calls*, not of polls.
    /// - A claim that holds is answered with its grant, unchanged; one that waits keeps its place.
    /// - A claim with a ticket that the engine does not know is put in line by that ticket.
    /// - Any claim moves the whole line: every claim that can be granted is granted, and its turn is pushed.
    /// - `Conflict` and `Full` are errors; contention is not.
    fn claim(&self, claim: &Claim) -> Step<Verdict>;

    /// The independent part of the engine that keeps `name`.
    ///
    /// The watchdog renews each part in a separate batch, so that a dead part does not delay the others.
    fn shard(&self, name: &Name) -> u32 {
        let _ = name;
        0
    }

    /// Renews holds and places of one shard.
    ///
    /// # Behavior
    /// - One answer for each renewal, in order.
    /// - A hold is never created and never shortened; one that has ended is `Gone`.
    /// - A ttl of zero changes nothing: the answer says whether it is held, and how long it still lasts.
    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>>;

    /// Renews a hold that its process hands over among its own claims, if the [profile](Profile::hands_over) says
    /// that this is possible.
    ///
    /// # Behavior
    /// - The fence and the details become those of the hold, unless the hold has a higher fence or the engine has
    ///   not given that number: then it is `Gone`.
    /// - Fences are given in a row, and to nobody else. None is higher than the engine's wall clock in
    ///   microseconds, so that an engine that has lost its counter continues above them.
    fn keep(&self, keep: &Keep) -> Step<Kept> {
        let _ = keep;
        Step::ready(Err(Error::new(ErrorKind::Unsupported, "this engine does not hand over")))
    }

    /// Ends a claim, and serves the next ones in the same step.
    ///
    /// # Behavior
    /// - Leaving twice, or after expiry, changes nothing for anyone else.
    /// - With `in_doubt`, a late duplicate of this claim's requests does nothing for a minute.
    /// - With `only`, nothing happens unless the claim holds with that fence.
    fn leave(&self, leave: &Leave) -> Step<Left>;

    /// Ends a claim from any thread, without a runtime.
    ///
    /// # Behavior
    /// - Never blocks on IO, spawns or panics.
    /// - Takes effect before any claim that this thread makes afterwards.
    /// - `done` receives the answer. If it is dropped without one, the watchdog sends the leave again.
    fn leave_soon(&self, leave: Leave, done: Ack);

    /// The same for an engine that needs no IO: the claim has left when this returns. `None` means that nothing
    /// was done, and the leave must be [queued](Engine::leave_soon).
    fn leave_at_once(&self, leave: &Leave) -> Option<Left> {
        let _ = leave;
        None
    }

    /// Makes a hold survive the end of the process that asked for it.
    ///
    /// # Behavior
    /// - Until it is left or broken, it ends by its ttl and for no other reason. An engine that does not
    ///   notice when processes end has nothing to do.
    /// - Does nothing for a claim that does not hold.
    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        let _ = (name, id);
        Step::ready(Ok(()))
    }

    /// Changes the capacity of a name.
    ///
    /// # Behavior
    /// - What is held stays held. Waiting claims heavier than `capacity` end with `Conflict`.
    /// - The capacity wins over the one that claims ask for while the name is used, and for a day after.
    /// - It is a `Conflict` if a claim on the name has a fixed capacity. A later claim with a fixed capacity
    ///   other than the one that was set is a `Conflict`, too: a mutex stays a mutex.
    fn resize(&self, name: &Name, capacity: u32) -> Step<()>;

    /// Ends the hold with this fence by force, and serves the next ones in the same step.
    ///
    /// # Behavior
    /// - If no hold has that fence, nothing changes.
    /// - The holder learns of it by push, and from the answer to its next contact.
    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken>;

    /// Forgets the record of a once, if it still matches `seen`: the same fence, and settled or not.
    ///
    /// # Behavior
    /// - A once that is running is not forgotten, nor is one that has changed since.
    /// - The next claim for it finds nothing, and runs it.
    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten>;

    /// Shows who holds and who waits. Never shows a claim id.
    ///
    /// # Behavior
    /// - Names that nobody uses are left out, unless they are asked for by [name](Scope::Name) and have the
    ///   record of a once.
    /// - A page of names is ordered by name.
    fn inspect(&self, scope: &Scope) -> Step<Page>;

    /// A view of the name, if it is available without IO. For messages.
    fn glance(&self, name: &Name) -> Option<View> {
        let _ = name;
        None
    }

    /// The same lines over separate IO, for the watchdog's thread. `None` means that this engine will do.
    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        None
    }

    /// Checks that the engine answers.
    fn health(&self) -> Step<()>;

    /// Checks everything here that locks depend on: settings, permissions, space.
    ///
    /// # Behavior
    /// - It leaves nothing behind and claims nothing.
    /// - What is wrong is reported as a [`Finding`]; only an engine that cannot be reached is an error.
    /// - Latency is not part of it: the core measures that with `health`.
    fn examine(&self) -> Step<Vec<Finding>> {
        Step::ready(Ok(Vec::new()))
    }

    /// Closes connections and ends threads. The lines stay as they are.
    fn close(&self) -> Step<()>;
}

/// Receives what an engine pushes.
pub trait Turns: Debug + Send + Sync {
    /// Delivers `turn` to the claim.
    ///
    /// Returns `false` if nobody waits for it any more. If the turn was a grant, the engine must then leave that
    /// claim at once, [only](Leave::only) if it still holds with that fence.
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool;

    /// Makes every waiting claim of a shard ask again, because pushes may have been lost.
    fn look_again(&self, shard: u32);

    /// Makes every hold of these shards renew at once: another server has taken over, and may not know them.
    fn check_holds(&self, _shards: &[u32]) {}
}

/// An answer that is available now or later.
///
/// Engines that answer at once return [`Step::ready`], which does not allocate.
#[must_use = "a step does nothing more unless its answer is awaited"]
pub struct Step<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<Result<T>>),
    Pending(Pin<Box<dyn Future<Output = Result<T>> + Send>>),
}

impl<T> Step<T> {
    /// An answer that is available now.
    pub fn ready(answer: Result<T>) -> Step<T> {
        Step(Inner::Ready(Some(answer)))
    }

    /// The answer, if it is available now.
    pub(crate) fn at_hand(self) -> std::result::Result<Result<T>, Step<T>> {
        match self.0 {
            Inner::Ready(Some(answer)) => Ok(answer),
            inner => Err(Step(inner)),
        }
    }

    /// An answer that comes later. Everything that must happen in the order of calls has happened already.
    pub fn pending(answer: impl Future<Output = Result<T>> + Send + 'static) -> Step<T> {
        Step(Inner::Pending(Box::pin(answer)))
    }
}

// The future inside is boxed, so the step itself can move.
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

/// Receives the engine's answer to a queued leave.
///
/// Dropping it means that there was no answer, and the watchdog sends the leave again.
pub struct Ack(Option<Hears>);

enum Hears {
    Core(Arc<dyn LeaveAnswers>, Arc<dyn Any + Send + Sync>),
    Function(Box<dyn FnOnce(Result<Left>) + Send>),
}

/// The core's side of an [`Ack`].
pub(crate) trait LeaveAnswers: Send + Sync {
    /// The leave was answered, or never will be.
    fn left(&self, claim: Arc<dyn Any + Send + Sync>, answer: Option<Left>);
}

impl Ack {
    /// An acknowledgement for a claim of the core. Engines cannot see the core's types, so it is passed as a
    /// trait object.
    pub(crate) fn new(core: Arc<dyn LeaveAnswers>, claim: Arc<dyn Any + Send + Sync>) -> Ack {
        Ack(Some(Hears::Core(core, claim)))
    }

    /// An acknowledgement that calls `heard`, for engines that wrap engines. If it is dropped, `heard` is not
    /// called.
    pub fn from_fn(heard: impl FnOnce(Result<Left>) + Send + 'static) -> Ack {
        Ack(Some(Hears::Function(Box::new(heard))))
    }

    /// Passes on the engine's answer.
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
