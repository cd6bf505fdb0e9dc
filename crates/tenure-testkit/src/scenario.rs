//! Scenarios for the simulation: a seed makes processes, workers, a name or two and a network, and
//! plays the production core over them on virtual time. Everything that is seen is judged.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure::engine::{Engine, Scope, Space};
use tenure::engines::memory::Memory;
use tenure::{ErrorKind, Hold, Tenure};

use crate::faulty::{Faults, Faulty};
use crate::judge::{Record, Rules, judge};
use crate::rng::Rng;
use crate::sim::{OUTSIDE, Process, Sim};
use crate::stage::Stage;

/// What a seed plays.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The network between each process and the engine.
    pub faults: Faults,
    /// Whether processes are paused and killed, and holds broken.
    pub nemesis: bool,
    processes: u32,
    workers: u32,
    rounds: u32,
    names: u64,
    kind: Kind,
    ttl: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Semaphore(u32),
    RwLock,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Holds that were granted.
    pub granted: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Asks that were dropped while they waited.
    pub dropped: u64,
    /// Asks whose wait was over.
    pub over: u64,
    /// Holds that were detached and gone on with.
    pub passed_on: u64,
}

impl Scenario {
    /// The scenario of a seed. One in four has a perfect network, and is judged most strictly.
    pub fn new(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x7E57);
        let ttl = Duration::from_millis(rng.between(200, 3000));
        let slow = ttl.as_micros() as u64 / 30;
        let perfect = Faults { latency: (0, rng.between(0, slow)), ..Faults::NONE };
        let bad = Faults {
            cut: rng.between(0, 40),
            duplicate: rng.between(0, 100),
            lost_push: rng.between(0, 300),
            late_push: rng.between(0, 300),
            ..perfect
        };
        let (faults, nemesis) = match seed % 4 {
            0 => (perfect, false),
            1 => (bad, false),
            2 => (Faults { lost_push: 1000, ..bad }, rng.chance(500)),
            _ => (bad, true),
        };
        let kind = match rng.between(0, 3) {
            0 | 1 => Kind::Mutex,
            2 => Kind::Semaphore(rng.between(1, 4) as u32),
            _ => Kind::RwLock,
        };
        let processes = rng.between(1, 3) as u32;
        let workers = rng.between(1, 3) as u32;
        let (rounds, names) = (rng.between(1, 4) as u32, rng.between(1, 2));
        Scenario { seed, faults, nemesis, processes, workers, rounds, names, kind, ttl }
    }

    fn strict(&self) -> bool {
        self.seed.is_multiple_of(4)
    }

    /// Plays it. An error says what was wrong.
    pub fn play(&self) -> Result<Report, String> {
        let sim = Sim::new(self.seed);
        let truth = sim.process(OUTSIDE);
        let engine = Arc::new(Memory::in_world(truth.world(), 0));
        let play = Arc::new(Play {
            scenario: self.clone(),
            sim: sim.clone(),
            truth: truth.clone(),
            engine,
            seen: Mutex::default(),
        });
        let limit = Duration::from_secs(3600);
        let end = sim.run(limit, run(play.clone()));
        let mut seen = play.seen();
        if let Err(stuck) = end {
            let waiting = format!("{stuck:?}: someone waits for what never comes");
            seen.wrong.push(waiting);
        }
        let allowed = self.faults.latency.1 * 6 + 1000;
        let free_for = if self.strict() { Duration::from_micros(allowed) } else { Duration::MAX };
        let broken = std::mem::take(&mut seen.broken);
        let mut history = std::mem::take(&mut seen.history);
        history.retain(|record| !broken.contains(&record.fence));
        let found = judge(&history, Rules { order: self.strict(), free_for });
        seen.wrong.extend(found.iter().map(|violation| format!("{violation:?}")));
        match seen.wrong.first() {
            None => Ok(seen.report),
            Some(_) => Err(format!("{self:?}: {:#?}", seen.wrong)),
        }
    }
}

struct Play {
    scenario: Scenario,
    sim: Sim,
    truth: Arc<dyn Stage>,
    engine: Arc<Memory>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    report: Report,
    history: Vec<Record>,
    running: u32,
    live: HashMap<String, Vec<(Weak<Hold>, u32)>>,
    broken: HashSet<u64>,
    /// The highest fence that was used under a live hold, of exclusive names.
    used: HashMap<String, u64>,
}

/// Counts a worker as running, until it ends or is killed.
struct Running(Arc<Play>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.seen().running -= 1;
    }
}

async fn run(play: Arc<Play>) {
    let mut rng = play.sim.rng();
    let mut next: Process = 1;
    for _ in 0..play.scenario.processes {
        play.start_process(next, &mut rng);
        next += 1;
    }
    let mut quiet = 0;
    while quiet < 2 {
        play.truth.sleep(rng.micros(1000, 400_000)).await;
        play.check_live();
        if play.scenario.nemesis && rng.chance(300) {
            next = play.strike(next, &mut rng);
        }
        quiet = if play.seen().running == 0 { quiet + 1 } else { 0 };
    }
    // A hold ends with its ttl, a place and what is remembered of a claim within a minute.
    play.truth.sleep(play.scenario.ttl * 3 + Duration::from_secs(190)).await;
    play.check_empty().await;
}

impl Play {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_process(self: &Arc<Self>, process: Process, rng: &mut Rng) {
        let offset = Duration::from_secs(rng.between(0, 100_000));
        self.sim.set_clock(process, offset, rng.between(9_970, 10_030));
        let stage = self.sim.process(process);
        let tenure = self.client(process, rng);
        let elsewhere = self.client(process, rng);
        for _ in 0..self.scenario.workers {
            self.seen().running += 1;
            let running = Running(self.clone());
            let rng = rng.fork();
            let (tenure, elsewhere) = (tenure.clone(), elsewhere.clone());
            let worker = Worker { stage: stage.clone(), tenure, elsewhere, process, rng };
            stage.start(Box::pin(worker.work(running)));
        }
    }

    /// A client of a process, with connections of its own.
    fn client(&self, process: Process, rng: &mut Rng) -> Tenure {
        let (sim, world) = (self.sim.clone(), self.sim.process(process).world());
        let dead = move || sim.is_dead(process);
        let engine: Arc<dyn Engine> = self.engine.clone();
        let (network, faults) = (self.truth.clone(), self.scenario.faults);
        let faulty = Faulty::new(engine, network, world.clone(), faults, rng.fork(), dead);
        Tenure::in_world(Arc::new(faulty), world)
    }

    /// Something bad happens to someone.
    fn strike(self: &Arc<Self>, next: Process, rng: &mut Rng) -> Process {
        let victim = rng.between(1, u64::from(next) - 1) as Process;
        match rng.between(0, 3) {
            0 | 1 => self.sim.pause(victim, rng.micros(10_000, 5_000_000)),
            2 if next < 6 && !self.sim.is_dead(victim) => {
                self.sim.kill(victim);
                if self.seen().running > 0 {
                    self.start_process(next, rng);
                    return next + 1;
                }
            }
            _ => self.break_one(),
        }
        next
    }

    fn break_one(self: &Arc<Self>) {
        let play = self.clone();
        self.truth.start(Box::pin(async move {
            let operator = Tenure::in_world(play.engine.clone(), play.truth.world());
            for view in operator.list("").await.unwrap_or_default() {
                if let Some(holder) = view.holders.first() {
                    play.seen().broken.insert(holder.fence.get());
                    let _ = operator.break_hold(view.name.as_str(), holder.fence, "drill").await;
                }
            }
        }));
    }

    /// Never more live weight than there is, by the callers' own clocks.
    fn check_live(&self) {
        let mut seen = self.seen();
        let capacity = self.scenario.capacity();
        let mut wrong = Vec::new();
        for (name, holds) in &seen.live {
            let alive = holds.iter().filter_map(|(hold, weight)| Some((hold.upgrade()?, *weight)));
            let inside: Vec<_> = alive
                .filter(|(hold, _)| hold.is_live() && !seen.broken.contains(&hold.fence().get()))
                .map(|(hold, weight)| (hold.fence(), weight))
                .collect();
            let held: u64 = inside.iter().map(|(_, weight)| u64::from(*weight)).sum();
            if held > u64::from(capacity) {
                wrong.push(format!("{name}: {held} of {capacity} held: {inside:?}"));
            }
        }
        seen.wrong.extend(wrong);
    }

    async fn check_empty(&self) {
        let scope =
            Scope::Prefix { space: Space::Lock, prefix: String::new(), after: None, limit: 10 };
        match self.engine.inspect(&scope).await {
            Ok(page) if page.views.is_empty() => {}
            left => self.seen().wrong.push(format!("left behind: {left:?}")),
        }
    }
}

impl Scenario {
    fn capacity(&self) -> u32 {
        match self.kind {
            Kind::Mutex => 1,
            Kind::Semaphore(capacity) => capacity,
            Kind::RwLock => 1 << 20,
        }
    }
}

struct Worker {
    stage: Arc<dyn Stage>,
    tenure: Tenure,
    /// With connections of its own, for holds that are passed on.
    elsewhere: Tenure,
    process: Process,
    rng: Rng,
}

impl Worker {
    async fn work(mut self, running: Running) {
        let play = running.0.clone();
        for _ in 0..play.scenario.rounds {
            self.stage.sleep(self.rng.micros(0, 300_000)).await;
            self.round(&play).await;
        }
    }

    async fn round(&mut self, play: &Arc<Play>) {
        let name = format!("n{}", self.rng.between(1, play.scenario.names));
        let capacity = play.scenario.capacity();
        let weight = match play.scenario.kind {
            Kind::RwLock if self.rng.chance(700) => 1,
            Kind::RwLock => capacity,
            _ => self.rng.between(1, u64::from(capacity)) as u32,
        };
        let asked = play.truth.now();
        let ask = self.ask(play, &name, weight);
        let patience = match self.rng.chance(200) {
            true => self.rng.micros(0, 2_000_000),
            false => Duration::from_secs(3000),
        };
        match self.stage.within(patience, ask).await {
            None => play.seen().report.dropped += 1,
            Some(Ok(hold)) => {
                let granted = play.truth.now();
                let joined = asked + Duration::from_micros(play.scenario.faults.latency.1 + 1);
                let record = Record {
                    process: self.process,
                    name,
                    weight,
                    capacity,
                    asked,
                    joined: joined.min(granted),
                    granted,
                    ended: granted,
                    freed: granted,
                    fence: hold.fence().get(),
                    excused: !play.scenario.strict(),
                };
                self.hold(play, hold, record).await;
            }
            Some(Err(error)) if error.kind() == ErrorKind::WaitOver => {
                play.seen().report.over += 1;
            }
            Some(Err(error)) => {
                // A wait that is over before an answer can have come says nothing of others.
                let trip = Duration::from_micros(play.scenario.faults.latency.1) * 2;
                let too_soon = play.truth.now().since(asked) <= trip;
                let excused =
                    error.kind() == ErrorKind::Unavailable && (too_soon || !play.scenario.strict());
                if !excused {
                    play.seen().wrong.push(format!("an ask failed: {error:?}"));
                }
            }
        }
    }

    fn ask(
        &mut self,
        play: &Play,
        name: &str,
        weight: u32,
    ) -> impl Future<Output = tenure::Result<Hold>> + Send + use<> {
        let mut options = self.tenure.defaults();
        options.ttl = play.scenario.ttl;
        options.renew = self.rng.chance(850);
        options.wait = self.rng.chance(150).then(|| self.rng.micros(1, 3_000_000));
        let max_hold = options.ttl * self.rng.between(1, 3) as u32;
        options.max_hold = self.rng.chance(150).then_some(max_hold);
        let capacity = play.scenario.capacity();
        let future: std::pin::Pin<Box<dyn Future<Output = tenure::Result<Hold>> + Send>> =
            match play.scenario.kind {
                Kind::Mutex => Box::pin(self.tenure.mutex(name).options(options).join()),
                Kind::Semaphore(capacity) => {
                    let semaphore = self.tenure.semaphore(name, capacity).options(options);
                    Box::pin(semaphore.join_many(weight))
                }
                Kind::RwLock if weight == capacity => {
                    Box::pin(self.tenure.rwlock(name).options(options).join_write())
                }
                Kind::RwLock => Box::pin(self.tenure.rwlock(name).options(options).join_read()),
            };
        future
    }

    /// Uses the hold for a while, with effects that check that it is alone.
    async fn hold(&mut self, play: &Arc<Play>, hold: Hold, mut record: Record) {
        let hold = Arc::new(hold);
        {
            let mut seen = play.seen();
            seen.report.granted += 1;
            if play.scenario.strict() && !hold.is_live() {
                seen.wrong.push(format!("{}: a hold was dead on arrival", record.name));
            }
            let live = seen.live.entry(record.name.clone()).or_default();
            live.retain(|(hold, _)| hold.strong_count() > 0);
            live.push((Arc::downgrade(&hold), record.weight));
        }
        let longest = if self.rng.chance(200) { 3 } else { 1 };
        for _ in 0..self.rng.between(1, 3) {
            if !self.effect(play, &hold, &mut record) {
                break;
            }
            if self.rng.chance(100) {
                let _ = hold.extend(play.scenario.ttl).await;
            }
            let span = play.scenario.ttl.as_micros() as u64 * longest / 2;
            self.stage.sleep(self.rng.micros(0, span)).await;
        }
        self.effect(play, &hold, &mut record);
        let hold = match (Arc::into_inner(hold), self.rng.chance(150)) {
            (Some(hold), true) => self.pass_on(play, hold, &mut record).await,
            (hold, _) => hold,
        };
        record.freed = play.truth.now();
        play.seen().history.push(record);
        match hold {
            Some(hold) if self.rng.chance(667) => drop(hold.release().await),
            hold => drop(hold),
        }
    }

    /// Detaches the hold, and goes on with it by another client or by the same one.
    async fn pass_on(&mut self, play: &Arc<Play>, hold: Hold, record: &mut Record) -> Option<Hold> {
        let since = play.truth.now();
        let detached = hold.detach().await.ok()?;
        let span = play.scenario.ttl.as_micros() as u64 * 6 / 5;
        self.stage.sleep(self.rng.micros(0, span)).await;
        let to = if self.rng.chance(700) { &self.elsewhere } else { &self.tenure };
        let attached = to.attach(&detached).await;
        let ended = play.truth.now();
        let mut seen = play.seen();
        match attached {
            Ok(hold) => {
                seen.report.passed_on += 1;
                drop(seen);
                self.effect(play, &hold, record);
                Some(hold)
            }
            Err(error) => {
                // Until its ttl has nearly run out nobody but an operator can have ended it.
                let broken = seen.broken.contains(&record.fence);
                let too_early = ended < since + play.scenario.ttl * 4 / 5 && !broken;
                if error.kind() != ErrorKind::Unavailable && too_early {
                    let wrong = format!("{}: a detached hold was gone: {error}", record.name);
                    seen.wrong.push(wrong);
                }
                None
            }
        }
    }

    /// One use of what the hold protects. Returns whether the hold was live.
    fn effect(&self, play: &Play, hold: &Hold, record: &mut Record) -> bool {
        play.check_live();
        let mut seen = play.seen();
        if !hold.is_live() {
            seen.report.lost += 1;
            return false;
        }
        record.ended = play.truth.now();
        let fence = hold.fence().get();
        if record.weight == record.capacity && !seen.broken.contains(&fence) {
            let highest = seen.used.entry(record.name.clone()).or_default();
            if fence < *highest {
                let wrong = format!("{}: fence {fence} was used after {highest}", record.name);
                seen.wrong.push(wrong);
            } else {
                *highest = fence;
            }
        }
        true
    }
}

impl std::ops::Add for Report {
    type Output = Report;

    fn add(self, other: Report) -> Report {
        Report {
            granted: self.granted + other.granted,
            lost: self.lost + other.lost,
            dropped: self.dropped + other.dropped,
            over: self.over + other.over,
            passed_on: self.passed_on + other.passed_on,
        }
    }
}
