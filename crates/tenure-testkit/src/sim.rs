//! Virtual time: an executor that runs the production code of the core in a simulated world.
//!
//! It has one thread, a seeded choice among the tasks that can run, and a clock that jumps to the next timer
//! when no task can. Each process has its own clock, which runs slightly fast or slow. A process can be paused,
//! like one that was stopped, and killed, so that not even its destructors have an effect outside.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::engine::{Alarm, ClaimId, Job, Moment, Result, World};

use crate::rng::Rng;
use crate::runtime::{Runtime, Task};

/// A process of the simulation.
pub type Process = u32;

/// The process of the engine and the network: never paused and never killed; its clock is the true one.
pub const OUTSIDE: Process = 0;

/// A simulated world.
#[derive(Clone)]
pub struct Sim(Arc<Mutex<State>>);

/// A simulation that polls more often than this is in an endless loop.
const MOST_POLLS: u64 = 1_000_000;

struct State {
    now: u64,
    polls: u64,
    rng: Rng,
    tasks: BTreeMap<u64, (Process, Option<Task>)>,
    next_task: u64,
    ready: Vec<u64>,
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    sleepers: HashMap<u64, Waker>,
    next_timer: u64,
    paused: HashMap<Process, u64>,
    dead: HashSet<Process>,
    clocks: HashMap<Process, (u64, u64)>,
}

/// Why a simulation did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No task can run and no timer is set: a task waits for something that will never happen.
    Deadlock {
        /// When.
        at: Duration,
    },
    /// It took longer than its limit.
    TooLong,
}

impl Sim {
    /// The world of this seed.
    pub fn new(seed: u64) -> Sim {
        Sim(Arc::new(Mutex::new(State {
            now: 1_000_000_000,
            polls: 0,
            rng: Rng::new(seed),
            tasks: BTreeMap::new(),
            next_task: 0,
            ready: Vec::new(),
            timers: BinaryHeap::new(),
            sleepers: HashMap::new(),
            next_timer: 0,
            paused: HashMap::new(),
            dead: HashSet::new(),
            clocks: HashMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime of one process.
    pub fn process(&self, process: Process) -> Arc<dyn Runtime> {
        Arc::new(SimProcess { sim: self.clone(), process })
    }

    /// True time since the start.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.state().now - 1_000_000_000)
    }

    /// Another random generator of this seed.
    pub fn rng(&self) -> Rng {
        self.state().rng.fork()
    }

    /// Gives a process a clock that runs `permyriad` ten-thousandths of its speed.
    pub fn set_clock(&self, process: Process, offset: Duration, permyriad: u64) {
        self.state().clocks.insert(process, (offset.as_nanos() as u64, permyriad));
    }

    /// Stops a process for a while. Its clock continues.
    pub fn pause(&self, process: Process, span: Duration) {
        let mut state = self.state();
        let until = state.now + span.as_nanos() as u64;
        state.paused.insert(process, until);
        state.set_timer(until, None);
    }

    /// Kills a process. Code that carries its messages must check [`is_dead`](Sim::is_dead).
    pub fn kill(&self, process: Process) {
        let mut state = self.state();
        state.dead.insert(process);
        let doomed: Vec<u64> =
            state.tasks.iter().filter(|(_, (of, _))| *of == process).map(|(id, _)| *id).collect();
        let doomed: Vec<_> = doomed.iter().filter_map(|id| state.tasks.remove(id)).collect();
        // Destructors may start tasks or set timers, so they run without the lock.
        drop(state);
        drop(doomed);
    }

    /// Whether a process is stopped.
    pub fn is_paused(&self, process: Process) -> bool {
        let state = self.state();
        state.paused.get(&process).is_some_and(|until| *until > state.now)
    }

    /// Whether a process was killed.
    pub fn is_dead(&self, process: Process) -> bool {
        self.state().dead.contains(&process)
    }

    /// Runs `main` and all tasks that it starts, until `main` is done.
    pub fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        main: impl Future<Output = T> + Send + 'static,
    ) -> std::result::Result<T, Stuck> {
        let mut main = std::pin::pin!(self.process(OUTSIDE).spawn(main));
        loop {
            if let Poll::Ready(value) = main.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                self.clear();
                return Ok(value);
            }
            if let Err(stuck) = self.turn(limit) {
                self.clear();
                return Err(stuck);
            }
        }
    }

    /// Polls one task, or lets time pass.
    fn turn(&self, limit: Duration) -> std::result::Result<(), Stuck> {
        let mut state = self.state();
        if let Some((id, process, mut task)) = state.pick() {
            state.polls += 1;
            let in_circles = state.polls > MOST_POLLS;
            // Dropping a task may need the state, so it must not be locked.
            drop(state);
            if in_circles {
                return Err(Stuck::TooLong);
            }
            let waker = Waker::from(Arc::new(WakeTask { sim: self.clone(), id }));
            let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let mut state = self.state();
            let gone = state.dead.contains(&process);
            match state.tasks.get_mut(&id) {
                Some((_, slot)) if !done => {
                    *slot = Some(task);
                    return Ok(());
                }
                _ => {
                    state.tasks.remove(&id);
                }
            }
            drop(state);
            if gone || done {
                drop(task);
            }
            return Ok(());
        }
        let at = Duration::from_nanos(state.now - 1_000_000_000);
        let Some(Reverse((moment, timer))) = state.timers.pop() else {
            return Err(Stuck::Deadlock { at });
        };
        if at > limit {
            return Err(Stuck::TooLong);
        }
        state.now = state.now.max(moment);
        let sleeper = state.sleepers.remove(&timer);
        drop(state);
        if let Some(waker) = sleeper {
            waker.wake();
        }
        Ok(())
    }

    /// Drops the remaining tasks, which have references to the simulation.
    fn clear(&self) {
        loop {
            let mut state = self.state();
            let tasks = std::mem::take(&mut state.tasks);
            let sleepers = std::mem::take(&mut state.sleepers);
            drop(state);
            if tasks.is_empty() && sleepers.is_empty() {
                return;
            }
        }
    }
}

impl State {
    /// Takes one of the tasks that can run; the seed decides which.
    fn pick(&mut self) -> Option<(u64, Process, Task)> {
        loop {
            let now = self.now;
            self.paused.retain(|_, until| *until > now);
            let tasks = &self.tasks;
            let paused = &self.paused;
            let can_run =
                |id: &&u64| tasks.get(id).is_none_or(|(process, _)| !paused.contains_key(process));
            let count = self.ready.iter().filter(can_run).count();
            if count == 0 {
                return None;
            }
            let chosen = self.rng.bits() as usize % count;
            let id = *self.ready.iter().filter(can_run).nth(chosen)?;
            self.ready.retain(|ready| *ready != id);
            if let Some((process, slot)) = self.tasks.get_mut(&id)
                && let Some(task) = slot.take()
            {
                return Some((id, *process, task));
            }
        }
    }

    fn set_timer(&mut self, at: u64, waker: Option<Waker>) -> u64 {
        let timer = self.next_timer;
        self.next_timer += 1;
        self.timers.push(Reverse((at, timer)));
        self.sleepers.extend(waker.map(|waker| (timer, waker)));
        timer
    }

    fn local(&self, process: Process) -> Moment {
        let (offset, permyriad) = self.clock(process);
        Moment::from_nanos(offset + (u128::from(self.now) * u128::from(permyriad) / 10_000) as u64)
    }

    /// The first true moment at which the process's clock shows `local`.
    fn global(&self, process: Process, local: Moment) -> u64 {
        let (offset, permyriad) = self.clock(process);
        let own = u128::from(local.as_nanos().saturating_sub(offset));
        u64::try_from(own * 10_000 / u128::from(permyriad) + 1).unwrap_or(u64::MAX)
    }

    fn clock(&self, process: Process) -> (u64, u64) {
        self.clocks.get(&process).copied().unwrap_or((0, 10_000))
    }
}

struct WakeTask {
    sim: Sim,
    id: u64,
}

impl Wake for WakeTask {
    fn wake(self: Arc<Self>) {
        let mut state = self.sim.state();
        if !state.ready.contains(&self.id) {
            state.ready.push(self.id);
        }
    }
}

/// One process of the simulation, as a runtime and as a world.
#[derive(Clone)]
struct SimProcess {
    sim: Sim,
    process: Process,
}

impl Runtime for SimProcess {
    fn world(&self) -> Arc<dyn World> {
        Arc::new(self.clone())
    }

    fn start(&self, task: Task) {
        let mut state = self.sim.state();
        if state.dead.contains(&self.process) {
            drop(state);
            drop(task);
            return;
        }
        let id = state.next_task;
        state.next_task += 1;
        state.tasks.insert(id, (self.process, Some(task)));
        state.ready.push(id);
    }

    fn sleep(&self, span: Duration) -> Task {
        let at = self.sim.state().now + span.as_nanos() as u64;
        Box::pin(Sleep { sim: self.sim.clone(), at, timer: None })
    }
}

struct Sleep {
    sim: Sim,
    at: u64,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let at = self.at;
        let sim = self.sim.clone();
        let mut state = sim.state();
        if state.now >= at {
            return Poll::Ready(());
        }
        match self.timer {
            Some(timer) => {
                state.sleepers.insert(timer, cx.waker().clone());
            }
            None => self.timer = Some(state.set_timer(at, Some(cx.waker().clone()))),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.sim.state().sleepers.remove(&timer);
            drop(waker);
        }
    }
}

impl World for SimProcess {
    fn now(&self) -> Moment {
        self.sim.state().local(self.process)
    }

    fn mint(&self) -> Result<ClaimId> {
        let rng = &mut self.sim.state().rng;
        let (low, high) = (rng.bits().to_le_bytes(), rng.bits().to_le_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high);
        Ok(ClaimId::from_bytes(bytes))
    }

    fn start(&self, job: Job) -> io::Result<()> {
        let alarm = SimAlarm { owner: self.clone(), at: Moment::FAR, sleep: None };
        Runtime::start(self, job(Box::new(alarm)));
        Ok(())
    }
}

struct SimAlarm {
    owner: SimProcess,
    at: Moment,
    sleep: Option<Sleep>,
}

impl Alarm for SimAlarm {
    fn set(&mut self, at: Moment) {
        if at != self.at {
            self.at = at;
            let global = self.owner.sim.state().global(self.owner.process, at);
            let sleep = Sleep { sim: self.owner.sim.clone(), at: global, timer: None };
            self.sleep = (at != Moment::FAR).then_some(sleep);
        }
    }

    fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        if Pin::new(sleep).poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        self.at = Moment::FAR;
        Poll::Ready(())
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sim")
    }
}

impl fmt::Debug for SimProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimProcess({})", self.process)
    }
}
