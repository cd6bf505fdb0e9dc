//! The engine of a scenario: memory that can be restarted, and lose its contents.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure::engine::{
    Ack, Broken, Claim, ClaimId, Engine, Error, ErrorKind, Fence, Forgotten, Keep, Kept, Leave,
    Left, Moment, Name, Note, OnceRecord, Page, Profile, Renewal, Renewed, Scope, Step, Turns,
    Verdict, View,
};
use tenure::engines::memory::Memory;

use crate::runtime::Runtime;

/// Lines in memory. After a loss, it grants nothing until all holds may have ended, as with
/// `after_restart=wait`, or grants at once, as without it.
#[derive(Debug)]
pub(super) struct Server {
    truth: Arc<dyn Runtime>,
    profile: Profile,
    hands_over: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: Arc<Memory>,
    clients: Vec<Weak<dyn Turns>>,
    waits_until: Moment,
}

impl Server {
    pub(super) fn new(truth: Arc<dyn Runtime>, hands_over: bool) -> Server {
        let memory = Server::empty(&truth, hands_over);
        let profile = memory.profile().clone();
        let state = State { memory, clients: Vec::new(), waits_until: Moment::ORIGIN };
        Server { truth, profile, hands_over, state: Mutex::new(state) }
    }

    /// Numbers start from the clock, so they keep rising.
    fn lowest(truth: &Arc<dyn Runtime>) -> u64 {
        truth.now().as_nanos() / 1000
    }

    fn empty(truth: &Arc<dyn Runtime>, hands_over: bool) -> Arc<Memory> {
        let memory = Memory::in_world(truth.world(), Server::lowest(truth));
        Arc::new(if hands_over { memory.handing_over() } else { memory })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> Arc<Memory> {
        self.state().memory.clone()
    }

    /// Breaks connections; with `forgets`, all contents are lost, and nobody is served for this time. Returns
    /// the lowest number that an empty memory gives from now on.
    pub(super) fn restart(&self, forgets: Option<Duration>) -> u64 {
        let mut state = self.state();
        let lowest = Server::lowest(&self.truth);
        if let Some(quiet) = forgets {
            state.memory = Server::empty(&self.truth, self.hands_over);
            state.waits_until = self.truth.now() + quiet;
            state.clients.iter().for_each(|client| state.memory.attach(client.clone()));
        }
        let clients = state.clients.clone();
        drop(state);
        for client in clients.iter().filter_map(Weak::upgrade) {
            client.look_again(0);
        }
        lowest
    }
}

impl Engine for Server {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let mut state = self.state();
        state.memory.attach(turns.clone());
        state.clients.push(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let (memory, waits_until) = {
            let state = self.state();
            (state.memory.clone(), state.waits_until)
        };
        if self.truth.now() < waits_until {
            let error = Error::new(ErrorKind::Unavailable, "it waits for holds from before");
            return Step::ready(Err(error));
        }
        memory.claim(claim)
    }

    fn shard(&self, name: &Name) -> u32 {
        self.memory().shard(name)
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        if self.truth.now() < self.state().waits_until {
            // It would be a place in line, and perhaps the first.
            let error = || Error::new(ErrorKind::Unavailable, "it waits for holds from before");
            let answers = batch.iter().map(|_| Renewed::Unknown(error()));
            return Step::ready(Ok(answers.collect()));
        }
        self.memory().renew(shard, batch)
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        if self.truth.now() < self.state().waits_until {
            let error = Error::new(ErrorKind::Unavailable, "it waits for holds from before");
            return Step::ready(Err(error));
        }
        self.memory().keep(keep)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.memory().leave(leave)
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        self.memory().leave_soon(leave, done);
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        self.memory().detach(name, id)
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.memory().resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.memory().break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.memory().forget(name, seen)
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.memory().inspect(scope)
    }

    fn glance(&self, name: &Name) -> Option<View> {
        self.memory().glance(name)
    }

    fn health(&self) -> Step<()> {
        self.memory().health()
    }

    fn close(&self) -> Step<()> {
        Step::ready(Ok(()))
    }
}
