//! Handing a lock over among the claims of one process: an engine over an engine.
//!
//! The [machine](line) of each name decides. This carries out what it says, in its order, and tells it what the engine
//! answers. The watchdog waits for answers that no caller waits for, and tells it the time.

mod answers;
mod last_claims;
mod line;
mod lines;
mod pushes;
mod renewals;
mod tenancy;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrong;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use self::last_claims::LastClaims;
use self::line::{Asked, Contact, Effect, Heard, Leaves, Line};
use self::lines::{Lines, Next};
use self::pushes::Pushes;
use crate::engine::{Ack, Engine, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, Fence, Forgotten, Grant, Keep, Kept, Leave, Left, Note,
    OnceRecord, Renewal, Renewed, Turn, Verdict,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::finding::Finding;
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::model::profile::Profile;
use crate::model::view::{Page, Scope, View};
use crate::world::World;

/// The longest time for which the answer to something that nobody waits for is awaited.
const LONGEST: Duration = Duration::from_secs(5);

/// An engine whose holds are handed over within this process.
pub(crate) struct Handover {
    shared: Arc<Shared>,
    /// What requests are sent over: the engine itself, or its lifeline.
    engine: Arc<dyn Engine>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    world: Arc<dyn World>,
    lines: Lines,
    last_claims: LastClaims,
    /// Where turns go.
    turns: OnceLock<Weak<dyn Turns>>,
    /// The engine delivers here.
    pushes: OnceLock<Arc<Pushes>>,
    /// Requests that no caller waits for.
    on_the_way: Mutex<Vec<OnTheWay>>,
    hurry: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct OnTheWay {
    name: Name,
    step: Sent,
    until: Moment,
}

enum Sent {
    Contact(Contact, Step<Kept>),
    Claims(Vec<ClaimId>, Step<Vec<Renewed>>),
}

impl Handover {
    pub(crate) fn new(engine: Arc<dyn Engine>, world: Arc<dyn World>) -> Arc<Handover> {
        let shared = Arc::new(Shared {
            engine: engine.clone(),
            lines: Lines::default(),
            last_claims: LastClaims::default(),
            world,
            turns: OnceLock::new(),
            pushes: OnceLock::new(),
            on_the_way: Mutex::default(),
            hurry: OnceLock::new(),
        });
        Arc::new(Handover { shared, engine })
    }

    /// What to call when the watchdog has more to do than it knows.
    pub(crate) fn hurry(&self, hurry: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.hurry.set(Box::new(hurry));
    }

    /// The engine itself.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Ends the tenancy of a claim that was detached. Returns the id under which the engine knows the hold, and whether
    /// a request of that may still arrive.
    pub(crate) fn give_away(&self, name: &Name, id: &ClaimId) -> Option<(ClaimId, bool)> {
        let now = self.shared.world.now();
        self.shared.tell(name, |line| line.give_away(id, now)).flatten()
    }

    /// Does what is due.
    pub(crate) fn look(&self) {
        let now = self.shared.world.now();
        for name in self.shared.lines.due(now) {
            self.shared.tell(&name, |line| line.tick(now));
        }
    }

    /// When there is something to do.
    pub(crate) fn next(&self) -> Moment {
        let until = self.shared.on_the_way().iter().map(|sent| sent.until).min();
        self.shared.lines.settle_next().min(until.unwrap_or(Moment::FAR))
    }

    /// Handles the answers that have arrived. Returns whether there were any.
    pub(crate) fn poll_answers(&self, cx: &mut Context<'_>) -> bool {
        let now = self.shared.world.now();
        let waiting = std::mem::take(&mut *self.shared.on_the_way());
        let mut any = false;
        for OnTheWay { name, mut step, until } in waiting {
            let stuck = now >= until;
            let done = match &mut step {
                Sent::Contact(contact, step) => match Pin::new(step).poll(cx) {
                    Poll::Ready(answer) => {
                        self.shared.heard(&name, contact, answer);
                        true
                    }
                    Poll::Pending if stuck => {
                        self.shared.tell(&name, |line| line.heard(contact, Heard::Nothing, now));
                        true
                    }
                    Poll::Pending => false,
                },
                Sent::Claims(ids, step) => match Pin::new(step).poll(cx) {
                    Poll::Ready(answer) => {
                        self.shared.claimed_anew(&name, ids, answer.ok());
                        true
                    }
                    Poll::Pending if stuck => {
                        self.shared.claimed_anew(&name, ids, None);
                        true
                    }
                    Poll::Pending => false,
                },
            };
            any |= done;
            if !done {
                self.shared.on_the_way().push(OnTheWay { name, step, until });
            }
        }
        any
    }

    /// Tells the engine `told` in place of `leave`, after everything that this process wants to have said before.
    fn leave_told(&self, leave: &Leave, told: Leave, done: Ack) {
        let name = told.name.clone();
        let done = if told.id == leave.id && told.in_doubt == leave.in_doubt {
            done
        } else {
            let (shared, name, id) = (self.shared.clone(), name.clone(), told.id);
            Ack::from_fn(move |answer: Result<Left>| {
                if answer.is_ok() {
                    shared.left(&name, &id);
                }
                done.done(answer);
            })
        };
        if let Some((told, done)) = self.shared.lines.leave_after(&name, told, done) {
            self.engine.leave_soon(told, done);
        }
    }

    /// Asks for a claim that may share a hold. `None` if the engine is to be asked with that claim as it is.
    fn ask(&self, claim: &Claim) -> Option<Asked> {
        let now = self.shared.world.now();
        let is_second = self.shared.last_claims.is_second(&claim.name, &claim.id);
        self.shared.tell_or_make(&claim.name, is_second.then_some(claim.ttl), |line| {
            (line.ttl() == claim.ttl || line.knows(&claim.id)).then(|| line.claim(claim, now))
        })?
    }
}

impl Shared {
    fn on_the_way(&self) -> MutexGuard<'_, Vec<OnTheWay>> {
        self.on_the_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the machine of a name something, if there is one, and carries out what follows.
    fn tell<T>(&self, name: &Name, told: impl FnOnce(&mut Line) -> T) -> Option<T> {
        self.tell_or_make(name, None, told)
    }

    fn tell_or_make<T>(
        &self,
        name: &Name,
        ttl: Option<Duration>,
        told: impl FnOnce(&mut Line) -> T,
    ) -> Option<T> {
        let (answer, mut after) = self.lines.tell(name, ttl, told)?;
        // Effects are carried out in their order, without a lock, by one thread at a time for each name.
        while let Some(next) = after.next {
            match next {
                Next::Effect(effect) => self.carry_out(name, effect),
                Next::Leave(leave, done) => self.engine.leave_soon(leave, done),
            }
            after = self.lines.next(name);
        }
        if after.hurry {
            self.hurry();
        }
        Some(answer)
    }

    /// Carries out one effect. What the machine is told here, it answers with more effects for the same thread.
    fn carry_out(&self, name: &Name, effect: Effect) {
        match effect {
            Effect::Give(id, grant) => {
                if !self.deliver(name, &id, Turn::Granted(grant)) {
                    let now = self.world.now();
                    self.tell(name, |line| line.refused(&id, grant.fence, now));
                }
            }
            Effect::Tell(id, ended) => {
                self.deliver(name, &id, Turn::Ended(ended));
            }
            Effect::Contact(contact) => match self.engine.keep(&contact.keep).at_hand() {
                Ok(answer) => drop(self.heard(name, &contact, answer)),
                Err(step) => self.send(name, Sent::Contact(contact, step)),
            },
            Effect::Leave(leave) => {
                let (shared, of, carrier) = (self.weak(), name.clone(), leave.id);
                let heard = move |answer: Result<Left>| {
                    if let (Some(shared), Ok(_)) = (shared.upgrade(), answer) {
                        shared.left(&of, &carrier);
                    }
                };
                self.engine.leave_soon(leave, Ack::from_fn(heard));
            }
            Effect::Claim(claims) => {
                let ids: Vec<ClaimId> = claims.iter().map(|claim| claim.id).collect();
                let batch: Vec<_> = claims.into_iter().map(Renewal::Place).collect();
                match self.engine.renew(self.engine.shard(name), &batch).at_hand() {
                    Ok(answer) => self.claimed_anew(name, &ids, answer.ok()),
                    Err(step) => self.send(name, Sent::Claims(ids, step)),
                }
            }
        }
    }

    fn send(&self, name: &Name, step: Sent) {
        let until = self.world.now() + LONGEST;
        self.on_the_way().push(OnTheWay { name: name.clone(), step, until });
        self.hurry();
    }

    fn hurry(&self) {
        if let Some(hurry) = self.hurry.get() {
            hurry();
        }
    }

    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let turns = self.turns.get().and_then(Weak::upgrade);
        turns.is_some_and(|turns| turns.deliver(name, id, turn))
    }

    /// A contact was answered. Returns what that means for the claim that asked for it.
    fn heard(&self, name: &Name, contact: &Contact, answer: Result<Kept>) -> Renewed {
        let now = self.world.now();
        let renewed = match &answer {
            Ok(Kept::Held { grant, .. }) => {
                Renewed::Held(Grant { fence: contact.keep.fence, ..*grant })
            }
            Ok(Kept::Gone(ended)) => Renewed::Gone(ended.clone()),
            Err(_) => Renewed::Gone(Ended::Expired),
        };
        let (heard, renewed) = match answer {
            Ok(kept) => (Heard::Kept(kept), renewed),
            Err(error) => (Heard::Nothing, Renewed::Unknown(error)),
        };
        self.tell(name, |line| line.heard(contact, heard, now));
        renewed
    }

    /// Nobody took a turn of the engine.
    fn not_taken(&self, name: &Name, id: &ClaimId, fence: Fence) {
        let now = self.world.now();
        self.tell(name, |line| line.given_back(id, fence, now));
    }

    /// A leave that went to the engine under this id was answered.
    fn left(&self, name: &Name, id: &ClaimId) {
        self.tell(name, |line| line.left(id));
    }

    fn add_waiters(&self, view: &mut View) {
        let now = self.world.now();
        let here = self.lines.look(&view.name, |line| line.waiters_here(now));
        view.waiters.extend(here.unwrap_or_default());
    }

    /// What becomes of a leave. `None` if it is none of the machine's.
    fn leaves(&self, leave: &Leave) -> Option<Leaves> {
        self.last_claims.leaves(&leave.name, &leave.id);
        if leave.only.is_some() || leave.only_waiting || leave.settle.is_some() {
            return None;
        }
        let now = self.world.now();
        self.tell(&leave.name, |line| line.leave(leave, now))
    }
}

impl Engine for Handover {
    fn profile(&self) -> &Profile {
        self.engine.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let _ = self.shared.turns.set(turns);
        let pushes = Arc::new(Pushes::new(Arc::downgrade(&self.shared)));
        let weak: Weak<dyn Turns> = Arc::downgrade(&pushes) as _;
        let _ = self.shared.pushes.set(pushes);
        self.engine.attach(weak);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let asked = if claim.shared { self.ask(claim) } else { None };
        let ticket = match asked {
            None => return self.engine.claim(claim),
            Some(Asked::Here(place)) => return Step::ready(Ok(Verdict::Waiting(place))),
            Some(Asked::Granted(grant)) => return Step::ready(Ok(Verdict::Granted(grant))),
            Some(Asked::Engine(ticket)) => ticket,
        };
        let step = match claim.ticket == ticket {
            true => self.engine.claim(claim),
            false => self.engine.claim(&Claim { ticket, ..claim.clone() }),
        };
        let (shared, name, id) = (self.shared.clone(), claim.name.clone(), claim.id);
        match step.at_hand() {
            Ok(answer) => {
                shared.claimed(&name, &id, &answer);
                Step::ready(answer)
            }
            Err(step) => Step::pending(async move {
                let answer = step.await;
                shared.claimed(&name, &id, &answer);
                answer
            }),
        }
    }

    fn shard(&self, name: &Name) -> u32 {
        self.engine.shard(name)
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        self.renew_all(shard, batch)
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        self.engine.keep(keep)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        let told = match self.shared.leaves(leave) {
            None => return self.engine.leave(leave),
            Some(Leaves::Here(left)) => return Step::ready(Ok(left)),
            Some(Leaves::Engine(told)) => told,
        };
        // Another thread may not have sent yet what must come before it.
        if self.shared.lines.is_busy(&leave.name) {
            let (tell, heard) = oneshot::channel();
            let done = Ack::from_fn(move |answer| drop(tell.send(answer)));
            self.leave_told(leave, told, done);
            return Step::pending(async move {
                heard.await.unwrap_or_else(|_| {
                    let reason = "the engine has not answered a leave";
                    Err(Error::new(ErrorKind::Unavailable, reason).in_doubt())
                })
            });
        }
        let step = self.engine.leave(&told);
        if told.id == leave.id && told.in_doubt == leave.in_doubt {
            return step;
        }
        let (shared, name, id) = (self.shared.clone(), told.name, told.id);
        Step::pending(async move {
            let left = step.await?;
            shared.left(&name, &id);
            Ok(left)
        })
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let told = match self.shared.leaves(&leave) {
            None => return self.engine.leave_soon(leave, done),
            Some(Leaves::Here(left)) => return done.done(Ok(left)),
            Some(Leaves::Engine(told)) => told,
        };
        self.leave_told(&leave, told, done);
    }

    fn leave_at_once(&self, leave: &Leave) -> Option<Left> {
        match self.shared.leaves(leave) {
            None => self.engine.leave_at_once(leave),
            Some(Leaves::Here(left)) => Some(left),
            Some(Leaves::Engine(told)) => {
                let left = self.engine.leave_at_once(&told)?;
                self.shared.left(&told.name, &told.id);
                Some(left)
            }
        }
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        let now = self.shared.world.now();
        let carrier = self.shared.tell(name, |line| line.shut(id, now)).flatten();
        self.engine.detach(name, &carrier.unwrap_or(*id))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.engine.resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.engine.break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.engine.forget(name, seen)
    }

    /// With the claims of this process that stand here, of which the engine does not know.
    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let shared = self.shared.clone();
        let add = move |mut page: Page| {
            page.views.iter_mut().for_each(|view| shared.add_waiters(view));
            page
        };
        match self.engine.inspect(scope).at_hand() {
            Ok(answer) => Step::ready(answer.map(add)),
            Err(step) => Step::pending(async move { step.await.map(add) }),
        }
    }

    fn glance(&self, name: &Name) -> Option<View> {
        let mut view = self.engine.glance(name)?;
        self.shared.add_waiters(&mut view);
        Some(view)
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        let engine = self.engine.lifeline()?;
        Some(Arc::new(Handover { shared: self.shared.clone(), engine }))
    }

    fn health(&self) -> Step<()> {
        self.engine.health()
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        self.engine.examine()
    }

    fn close(&self) -> Step<()> {
        self.engine.close()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}
