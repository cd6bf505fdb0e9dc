//! An engine that stands between the core and `memory:`, and does what it is told to.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use tenure::engine::{
    Ack, Broken, Claim, ClaimId, Engine, Error, ErrorKind, Fence, Forgotten, Leave, Left, Name,
    Note, OnceRecord, Page, Profile, Renewal, Renewed, Result, Scope, Step, Turn, Turns, Verdict,
};
use tenure::engines::memory::Memory;

#[derive(Default)]
pub(crate) struct Between {
    memory: Arc<Memory>,
    late: AtomicU32,
    late_renewals: AtomicU32,
    turns: Mutex<Option<Weak<dyn Turns>>>,
    deaf: AtomicBool,
    panics: AtomicBool,
    leaves: AtomicU32,
    renewals: AtomicU32,
    /// Leaves that wait for the gate to be opened; `None` while it is open.
    shut_in: Mutex<Option<Vec<(Leave, Ack)>>>,
    ids: Mutex<Vec<[u8; 16]>>,
}

impl Between {
    pub(crate) fn new() -> Arc<Between> {
        Arc::default()
    }

    /// Another way to the same lines, as another process would have.
    pub(crate) fn beside(&self) -> Arc<Between> {
        Arc::new(Between { memory: self.memory.clone(), ..Between::default() })
    }

    /// Answers to claims come after so many polls. What they ask for happens when they are sent.
    pub(crate) fn answer_late(&self, polls: u32) {
        self.late.store(polls, SeqCst);
    }

    /// Answers to renewals come after so many polls. What they ask for happens when they are sent.
    pub(crate) fn renew_late(&self, polls: u32) {
        self.late_renewals.store(polls, SeqCst);
    }

    /// Pushes something to the claim that came last; whether that was taken.
    pub(crate) fn push(&self, name: &Name, turn: Turn) -> bool {
        let id = *locked(&self.ids).last().expect("a claim was made");
        let turns = locked(&self.turns).clone().expect("a client");
        let turns = turns.upgrade().expect("the client is there");
        turns.deliver(name, &ClaimId::from_bytes(id), turn)
    }

    /// Renewals of holds are not answered any more.
    pub(crate) fn be_deaf(&self) {
        self.deaf.store(true, SeqCst);
    }

    /// The next renewal panics.
    pub(crate) fn panic_once(&self) {
        self.panics.store(true, SeqCst);
    }

    /// Renewals of holds are answered again.
    pub(crate) fn hear_again(&self) {
        self.deaf.store(false, SeqCst);
    }

    /// How often renewals were answered.
    pub(crate) fn renewals(&self) -> u32 {
        self.renewals.load(SeqCst)
    }

    /// How often somebody wanted to leave.
    pub(crate) fn leaves(&self) -> u32 {
        self.leaves.load(SeqCst)
    }

    /// Nobody leaves from now on.
    pub(crate) fn shut(&self) {
        *locked(&self.shut_in) = Some(Vec::new());
    }

    /// Whoever wanted to leave leaves.
    pub(crate) fn open(&self) {
        let leaves = locked(&self.shut_in).take().unwrap_or_default();
        leaves.into_iter().for_each(|(leave, done)| self.memory.leave_soon(leave, done));
    }

    /// The secrets that passed by, as a log would spell them.
    pub(crate) fn spellings(&self) -> Vec<String> {
        let ids = locked(&self.ids);
        assert!(!ids.is_empty(), "no claim was made");
        let hex = |id: &[u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let number = |id: &[u8; 16]| u128::from_be_bytes(*id).to_string();
        let list = |id: &[u8; 16]| format!("{id:?}").trim_matches(['[', ']']).to_owned();
        ids.iter().flat_map(|id| [hex(id), number(id), list(id)]).collect()
    }
}

/// The ids that it has seen are nobody's business.
impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn after<T: Send + 'static>(mut polls: u32, mut step: Step<T>) -> Step<T> {
    if polls == 0 {
        return step;
    }
    Step::pending(poll_fn(move |cx| {
        if polls == 0 {
            return Pin::new(&mut step).poll(cx);
        }
        polls -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }))
}

impl Engine for Between {
    fn profile(&self) -> &Profile {
        self.memory.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        *locked(&self.turns) = Some(turns.clone());
        self.memory.attach(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        locked(&self.ids).push(claim.id.to_bytes());
        after(self.late.load(SeqCst), self.memory.claim(claim))
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        assert!(!self.panics.swap(false, SeqCst), "an engine that panics");
        if !self.deaf.load(SeqCst) {
            self.renewals.fetch_add(1, SeqCst);
            return after(self.late_renewals.load(SeqCst), self.memory.renew(shard, batch));
        }
        let unknown = |_: &Renewal| {
            let error = Error::new(ErrorKind::Unavailable, "nobody listens");
            Renewed::Unknown(error.in_doubt())
        };
        Step::ready(Ok(batch.iter().map(unknown).collect()))
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.leaves.fetch_add(1, SeqCst);
        let shut = locked(&self.shut_in).is_some();
        if shut { Step::pending(pending()) } else { self.memory.leave(leave) }
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        self.leaves.fetch_add(1, SeqCst);
        let mut shut_in = locked(&self.shut_in);
        if let Some(leaves) = &mut *shut_in {
            leaves.push((leave, done));
            return;
        }
        drop(shut_in);
        self.memory.leave_soon(leave, done);
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.memory.resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.memory.break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.memory.forget(name, seen)
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.memory.inspect(scope)
    }

    fn health(&self) -> Step<()> {
        let answer: Result<()> = Ok(());
        Step::ready(answer)
    }

    fn close(&self) -> Step<()> {
        self.memory.close()
    }
}
