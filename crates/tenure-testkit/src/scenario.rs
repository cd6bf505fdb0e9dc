//! Scenarios for the simulation: a seed makes processes, workers, names and a network, and runs the production
//! core over them on virtual time. The whole history is judged.

mod broken;
mod liveness;
mod others;
mod report;
mod server;
mod worker;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure::Tenure;
use tenure::engine::{Engine, Moment, Scope, Space};

use self::liveness::{Asker, Liveness, Mishaps};
use self::others::Onces;
use self::server::Server;
use self::worker::Worker;
use crate::faulty::{Faults, Faulty, Mishap, MishapLog};
use crate::judge::{Record, Rules, judge};
use crate::rng::Rng;
use crate::runtime::Runtime;
use crate::sim::{OUTSIDE, Process, Sim};

/// The settings of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The network between each process and the engine.
    pub faults: Faults,
    /// Whether processes are paused and killed, and holds broken.
    pub nemesis: bool,
    /// Whether the server is restarted, and may lose its memory.
    restarts: bool,
    /// Whether a server that has lost its memory grants at once, which is the default.
    grants_at_once: bool,
    /// Whether the next two to five waiters in line are stopped while others wait behind them.
    rows: bool,
    /// Whether processes hand holds over among their own claims.
    hands_over: bool,
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

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Holds that were granted.
    pub granted: u64,
    /// Holds that were lost.
    pub lost: u64,
    /// Claims that were dropped while they waited.
    pub dropped: u64,
    /// Claims whose wait was over.
    pub over: u64,
    /// Holds that were detached and continued elsewhere.
    pub passed_on: u64,
    /// How often two or more waiters at the head of the line were stopped.
    pub stopped: u64,
    /// How often the server lost its memory.
    pub forgot: u64,
    /// Terms of leaders.
    pub led: u64,
    /// Holds of several names.
    pub several: u64,
    /// Onces that were begun, that were found done, and that are unsettled.
    pub ran: u64,
    /// See `ran`.
    pub replayed: u64,
    /// See `ran`.
    pub unsettled: u64,
    /// The longest time for which a name was free although a claim waited that would have reacted.
    pub longest_free: Duration,
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
        let (faults, nemesis) = match seed % 8 {
            0 => (perfect, false),
            1 | 5 => (bad, false),
            2 | 6 => (Faults { lost_push: 1000, ..bad }, rng.chance(500)),
            4 => (perfect, false),
            _ => (bad, true),
        };
        let (rows, restarts) = (seed % 8 == 4, matches!(seed % 8, 5 | 7));
        let grants_at_once = restarts && seed % 16 >= 8;
        let kind = match rng.between(0, 3) {
            0 | 1 => Kind::Mutex,
            2 => Kind::Semaphore(rng.between(1, 4) as u32),
            _ => Kind::RwLock,
        };
        let processes = rng.between(1, 3) as u32;
        let workers = rng.between(1, 3) as u32;
        let hands_over = seed / 8 % 2 == 1;
        let (rounds, names) = (rng.between(1, 4) as u32, rng.between(1, 2));
        // A long ttl: no claim looks by itself for that long. Many processes, so that some continue.
        let (ttl, processes, names) = match rows {
            true => (ttl * 20, processes + 3, 1),
            false => (ttl, processes, names),
        };
        // Nothing is handed over among few, or if the engine is so far away that its answers are old.
        let near = (faults.latency.0, faults.latency.1.min(ttl.as_micros() as u64 / 200).min(5000));
        let (workers, faults, kind) = match hands_over && !rows {
            true => (workers + 2, Faults { latency: near, ..faults }, Kind::Mutex),
            false => (workers, faults, kind),
        };
        Scenario {
            seed,
            faults,
            nemesis,
            restarts,
            grants_at_once,
            rows,
            hands_over,
            processes,
            workers,
            rounds,
            names,
            kind,
            ttl,
        }
    }

    fn strict(&self) -> bool {
        self.seed.is_multiple_of(8)
    }

    /// How much later than an earlier claim one of a process that hands over may ask, and be served before it.
    fn passes_within(&self) -> Duration {
        let trip = Duration::from_micros(self.faults.latency.1 * 2);
        let fresh = (self.ttl / 20).min(Duration::from_millis(20));
        if self.hands_over { fresh + trip } else { Duration::ZERO }
    }

    /// If every push is lost, everyone is served in the end, but not soon.
    fn serves_soon(&self) -> bool {
        self.faults.lost_push < 1000
    }

    /// Runs it. An error says which promise was broken.
    pub fn play(&self) -> Result<Report, String> {
        let sim = Sim::new(self.seed);
        let truth = sim.process(OUTSIDE);
        let engine = Arc::new(Server::new(truth.clone(), self.hands_over));
        let play = Arc::new(Play {
            scenario: self.clone(),
            sim: sim.clone(),
            truth: truth.clone(),
            engine,
            seen: Mutex::default(),
            mishaps: Mutex::default(),
        });
        let limit = Duration::from_secs(3600);
        let end = sim.run(limit, run(play.clone()));
        let mut seen = play.seen();
        if let Err(stuck) = end {
            let waiting = format!("{stuck:?}: someone waits for what never comes");
            seen.wrong.push(waiting);
        }
        // A claim that looks when a ttl is over does so by its own clock.
        // A process that hands over may wait for one answer, and then ask again, before it gives the next turn.
        let trips = if self.hands_over { 10 } else { 6 };
        let allowed = Duration::from_micros(self.faults.latency.1 * trips + 1000) + self.ttl / 100;
        let free_for = if self.strict() { allowed } else { Duration::MAX };
        seen.report.longest_free = seen.liveness.longest;
        let broken = std::mem::take(&mut seen.broken);
        let mut history = std::mem::take(&mut seen.history);
        history.retain(|record| !broken.contains(&(record.name.clone(), record.fence)));
        let passes_within = self.passes_within();
        let rules = Rules { order: self.strict(), passes_within, free_for };
        let mut memories: Vec<Vec<Record>> = vec![Vec::new(); seen.restarts.len() + 1];
        history.iter().for_each(|it| memories[seen.memory_of(it.fence)].push(it.clone()));
        let mut found: Vec<_> = memories.iter().flat_map(|of_one| judge(of_one, rules)).collect();
        if memories.len() > 1 {
            // Earlier holds may overlap with later ones, but fences rise even if the server forgot everything.
            // A name with room for all is judged only by its fences.
            history.iter_mut().for_each(|record| record.capacity = u32::MAX);
            found.extend(judge(&history, rules));
        }
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
    truth: Arc<dyn Runtime>,
    engine: Arc<Server>,
    seen: Mutex<Seen>,
    mishaps: Mutex<Vec<MishapLog>>,
}

#[derive(Default)]
struct Seen {
    wrong: Vec<String>,
    report: Report,
    history: Vec<Record>,
    running: u32,
    live: HashMap<String, Vec<Inside>>,
    onces: Onces,
    /// The names and fences of holds that were broken.
    broken: HashSet<(String, u64)>,
    /// The names whose holds were broken while a process may have handed them over, the fence that the operator saw,
    /// and when that was.
    broken_at: Vec<(String, u64, Moment)>,
    /// The highest fence that was used under a live hold, for exclusive names.
    used: HashMap<String, u64>,
    liveness: Liveness,
    /// Which process each of them is of.
    askers: HashMap<Asker, Process>,
    /// When processes were stopped or killed, and holds broken.
    strikes: Mishaps,
    /// When the server forgot everything and granted at once, and the lowest fence that it has granted since.
    restarts: Vec<(Moment, u64)>,
}

impl Seen {
    /// Before or after which loss of memory a fence was granted.
    fn memory_of(&self, fence: u64) -> usize {
        self.restarts.iter().filter(|(_, lowest)| *lowest <= fence).count()
    }
}

/// A holder. `look` returns whether the hold is live by the clock of its holder; `None` if it is gone.
struct Inside {
    weight: u32,
    fence: u64,
    look: Box<dyn Fn() -> Option<bool> + Send>,
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
        play.check_served();
        if play.scenario.rows && rng.chance(50) {
            play.stop_a_row(&mut rng);
        } else if play.scenario.nemesis && rng.chance(300) {
            next = play.strike(next, &mut rng);
        }
        if play.scenario.restarts && rng.chance(20) {
            play.restart_server(&mut rng);
        }
        quiet = if play.seen().running == 0 { quiet + 1 } else { 0 };
    }
    // A hold ends with its ttl; a place, and a trace of a claim, within a minute.
    play.truth.sleep(play.scenario.ttl * 3 + Duration::from_secs(190)).await;
    play.check_empty().await;
}

impl Play {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_process(self: &Arc<Self>, process: Process, rng: &mut Rng) {
        let offset = Duration::from_secs(rng.between(0, 100_000));
        // Holds allow for a hundredth.
        let speed = match rng.between(0, 3) {
            0 => [9_905, 10_095][rng.between(0, 1) as usize],
            _ => rng.between(9_970, 10_030),
        };
        self.sim.set_clock(process, offset, speed);
        let runtime = self.sim.process(process);
        let (tenure, mishaps) = self.client(process, rng);
        let (elsewhere, _) = self.client(process, rng);
        for _ in 0..self.scenario.workers {
            self.seen().running += 1;
            let running = Running(self.clone());
            let rng = rng.fork();
            let (tenure, elsewhere) = (tenure.clone(), elsewhere.clone());
            let (on, mishaps) = (runtime.clone(), mishaps.clone());
            let worker = Worker { runtime: on, tenure, mishaps, elsewhere, process, rng };
            runtime.start(Box::pin(worker.work(running)));
        }
    }

    /// A client of a process with its own connections, and the faults on them.
    fn client(&self, process: Process, rng: &mut Rng) -> (Tenure, MishapLog) {
        let (sim, world) = (self.sim.clone(), self.sim.process(process).world());
        let dead = move || sim.is_dead(process);
        let engine: Arc<dyn Engine> = self.engine.clone();
        let (network, faults) = (self.truth.clone(), self.scenario.faults);
        let faulty = Faulty::new(engine, network, world.clone(), faults, rng.fork(), dead);
        let log = faulty.mishaps();
        let mut mishaps = self.mishaps.lock().unwrap_or_else(PoisonError::into_inner);
        mishaps.push(log.clone());
        drop(mishaps);
        (Tenure::in_world(Arc::new(faulty), world), log)
    }

    /// A fault happens to a random process.
    fn strike(self: &Arc<Self>, next: Process, rng: &mut Rng) -> Process {
        let victim = rng.between(1, u64::from(next) - 1) as Process;
        self.seen().strikes.push((self.truth.now(), Duration::from_secs(1)));
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

    /// Stops the next waiters in line, so that their turns run out one after the other; half of the time the
    /// last waiter, too. At least one waiter continues.
    fn stop_a_row(self: &Arc<Self>, rng: &mut Rng) {
        let Some(view) = self.view(rng.between(1, self.scenario.names)) else { return };
        let owners = view.waiters.iter().filter_map(|waiter| waiter.details.owner.parse().ok());
        let mut seen = self.seen();
        let processes: Vec<Process> =
            owners.filter_map(|asker: Asker| seen.askers.get(&asker).copied()).collect();
        let count = rng.between(2, 5) as usize;
        let last = processes.last().filter(|_| rng.chance(500));
        let row: BTreeSet<Process> = processes.iter().take(count).chain(last).copied().collect();
        if row.len() < 2 || processes.iter().all(|process| row.contains(process)) {
            return;
        }
        // One row after the other: otherwise the next row would explain the delay of the first.
        if seen.askers.values().any(|process| self.sim.is_paused(*process)) {
            return;
        }
        seen.report.stopped += 1;
        for process in row {
            seen.strikes.push((self.truth.now(), Duration::ZERO));
            self.sim.pause(process, rng.micros(5_000_000, 60_000_000));
        }
    }

    /// Half of the time the server forgets.
    fn restart_server(&self, rng: &mut Rng) {
        // Until the longest hold has ended.
        let quiet = self.scenario.ttl * u32::from(!self.scenario.grants_at_once);
        let forgets = rng.chance(500).then_some(quiet);
        let mut seen = self.seen();
        // Nobody is served before, and connections are made again.
        let cost = forgets.unwrap_or_default() + Duration::from_secs(5);
        seen.strikes.push((self.truth.now(), cost));
        if forgets.is_some() {
            seen.report.forgot += 1;
            seen.onces.forgotten();
        }
        drop(seen);
        let lowest = self.engine.restart(forgets);
        if forgets.is_some() && self.scenario.grants_at_once {
            let now = self.truth.now();
            self.seen().restarts.push((now, lowest));
        }
    }

    /// Checks that no claim that could be served waits for longer than the faults explain.
    fn check_served(&self) {
        if !self.scenario.serves_soon() {
            return;
        }
        let now = self.truth.now();
        let mut seen = self.seen();
        let mut mishaps = seen.strikes.clone();
        for of_client in self.mishaps.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let of_client = of_client.lock().unwrap_or_else(PoisonError::into_inner);
            let cost = |mishap: Mishap| match mishap {
                // A request may arrive this late, and its caller waits this long for an answer.
                Mishap::Cut => Duration::from_secs(5),
                // A claim that was not told looks when the previous hold would have ended.
                Mishap::LostPush => self.scenario.ttl + Duration::from_secs(1),
                Mishap::LatePush(late) => late.max(Duration::from_secs(1)),
            };
            mishaps.extend(of_client.iter().map(|(at, mishap)| (*at, cost(*mishap))));
        }
        let Seen { liveness, askers, wrong, .. } = &mut *seen;
        let reacts = |asker: Asker| {
            let process = askers.get(&asker).copied().unwrap_or(OUTSIDE);
            !self.sim.is_dead(process) && !self.sim.is_paused(process)
        };
        for number in 1..=self.scenario.names {
            if let Some(view) = self.view(number) {
                wrong.extend(liveness.look(&view, now, &mishaps, reacts));
            }
        }
    }

    /// The live weight never exceeds the capacity, by the callers' own clocks. If the server forgot the holders
    /// and granted at once, this applies separately before and after; and earlier holders are told within their
    /// ttl.
    fn check_live(&self) {
        let mut seen = self.seen();
        let (capacity, now) = (self.scenario.capacity(), self.truth.now());
        // A clock may run a hundredth too slow, which holds allow for.
        let told_within = self.scenario.ttl + self.scenario.ttl / 50;
        let mut wrong = Vec::new();
        for (name, holds) in &seen.live {
            let capacity = if name.starts_with('n') { capacity } else { 1 };
            let live = holds.iter().filter(|inside| (inside.look)() == Some(true));
            let inside: Vec<_> = live
                .map(|inside| (inside.fence, inside.weight))
                .filter(|(fence, _)| !seen.broken.contains(&(name.clone(), *fence)))
                .collect();
            for memory in 0..=seen.restarts.len() {
                let of_it = inside.iter().filter(|(fence, _)| seen.memory_of(*fence) == memory);
                let held: u64 = of_it.map(|(_, weight)| u64::from(*weight)).sum();
                if held > u64::from(capacity) {
                    wrong.push(format!("{name}: {held} of {capacity} held: {inside:?}"));
                }
                let forgot = seen.restarts.get(memory).map(|(at, _)| *at);
                if held > 0 && forgot.is_some_and(|at| at + told_within < now) {
                    wrong.push(format!("{name}: held since before a restart: {inside:?}"));
                }
            }
        }
        seen.wrong.extend(wrong);
    }

    async fn check_empty(&self) {
        for space in [Space::Lock, Space::Election, Space::Once] {
            let scope = Scope::Prefix { space, prefix: String::new(), after: None, limit: 10 };
            match self.engine.inspect(&scope).await {
                Ok(page) if page.views.is_empty() => {}
                left => self.seen().wrong.push(format!("left behind: {left:?}")),
            }
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
