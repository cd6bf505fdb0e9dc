//! The parts of the benchmark. Each has its own name and leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use tenure_measure::clock;
use tenure_measure::figures::{Stamps, percentile};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::figures::Contest;
use super::lock::{Lock, Which};
use super::processes::{Processes, Role, Task};
use super::report::Figure;
use super::worker::MOST;
use crate::args::Part;
use crate::engine;
use crate::failure::{Failure, INTERNAL};
use crate::settings::Settings;

/// How long holds last without renewal, in case everything is killed.
pub(super) const TTL: Duration = Duration::from_secs(10);
/// The same for a holder that is to be killed.
const SHORT_TTL: Duration = Duration::from_secs(1);
/// The most pairs that are measured.
const MOST_PAIRS: usize = 1_000_000;
/// The number of tasks with their own names.
const TASKS: usize = 64;
/// The number of processes that want one name, or wait.
const PROCESSES: usize = 4;
/// The number of waiters.
const WAITERS: usize = 200;
/// How long they may take to join the line.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this, the work of joining the line is over.
const SETTLED: Duration = Duration::from_millis(500);
/// The most holders that are killed.
const MOST_KILLED: usize = 20;

/// Tasks of this process, and their records.
type Tasks = JoinSet<Result<Vec<Stamps>, Failure>>;

/// The state that all parts share. It outlives a part that was given up, so that its tasks and processes can be
/// ended.
pub(super) struct Scene {
    pub(super) settings: Arc<Settings>,
    /// How long a part takes.
    pub(super) length: Duration,
    /// Whether other processes can use the same engine.
    pub(super) shared: bool,
    /// The prefix of all names.
    pub(super) space: String,
    names: usize,
    processes: Processes,
    tasks: Tasks,
    /// The source of the engine's own count of commands, if there is one.
    pub(super) counter: Option<Lock>,
}

impl Scene {
    pub(super) fn new(settings: Arc<Settings>, length: Duration, counter: Option<Lock>) -> Scene {
        let shared = settings.address.scheme() != Some("memory");
        let space = settings.full_name(&format!("tenure-bench/{:016x}", super::random()));
        let (processes, tasks) = (Processes::default(), Tasks::new());
        Scene { settings, length, shared, space, names: 0, processes, tasks, counter }
    }

    /// Measures a part; `None` if this engine has nothing to measure.
    pub(super) async fn measure(
        &mut self,
        part: Part,
        lock: &Lock,
    ) -> Result<Option<Vec<Figure>>, Failure> {
        let figures = match part {
            Part::Pairs => self.go_round(lock, 1).await,
            Part::Names => self.go_round(lock, TASKS).await,
            Part::Contended => self.contended(lock).await,
            Part::Idle => self.idle(lock).await,
            Part::Recovery if self.shared => self.recovery(lock).await,
            Part::Recovery => return Ok(None),
        };
        self.end().await;
        figures.map(Some)
    }

    /// Ends everything that was started.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
        self.processes.end().await;
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("{}/{}", self.space, self.names)
    }

    fn task(&self, role: Role, lock: &Lock, name: &str) -> Task {
        Task { role, lock: lock.which(), ttl: TTL, many: 1, name: name.to_owned() }
    }

    /// The stamps of all tasks of this process, one list each.
    async fn seen(&mut self) -> Result<Vec<Vec<Stamps>>, Failure> {
        let mut all = Vec::new();
        while let Some(seen) = self.tasks.join_next().await {
            all.push(seen.map_err(|error| {
                let help = "please report it";
                Failure::new(INTERNAL, "a task of the benchmark failed", error.to_string(), help)
            })??);
        }
        Ok(all)
    }

    /// Some tasks acquire and release, each with its own name.
    async fn go_round(&mut self, lock: &Lock, tasks: usize) -> Result<Vec<Figure>, Failure> {
        let mut locks = Vec::new();
        for _ in 0..tasks {
            locks.push((lock.another().await?, self.name()));
        }
        let began = clock::now();
        let end = clock::after(self.length);
        for (lock, name) in locks {
            let most = MOST_PAIRS / tasks;
            self.tasks.spawn(async move { lock.go_round(&name, end, most).await });
        }
        let seen = self.seen().await?;
        let over = || seen.iter().flatten().filter(|stamps| stamps.left > 0);
        let mut times: Vec<u64> = over().map(|stamps| stamps.left - stamps.asked).collect();
        times.sort_unstable();
        let last = over().map(|stamps| stamps.left).max().unwrap_or(began);
        Ok(vec![
            Figure::count("tasks", "tasks", tasks),
            Figure::rate("pairs_per_second", "pairs a second", times.len(), last - began),
            Figure::time("p50_us", "a pair, p50", percentile(&times, 0.5)),
            Figure::time("p99_us", "a pair, p99", percentile(&times, 0.99)),
        ])
    }

    /// Some contenders acquire and release the same name.
    async fn contended(&mut self, lock: &Lock) -> Result<Vec<Figure>, Failure> {
        let name = self.name();
        let (seen, began, end) = match self.shared {
            true => self.contend_in_processes(lock, &name).await?,
            false => self.contend_in_tasks(lock, &name).await?,
        };
        // If the largest number was reached, it ended early.
        let last = seen.iter().flatten().map(|stamps| stamps.leaving).max().unwrap_or(end);
        let end = end.min(last);
        let contest = Contest::new(&seen, end);
        let hand_offs = contest.hand_offs();
        let took = end.saturating_sub(began);
        Ok(vec![
            Figure::count("contenders", "contenders", seen.len()),
            Figure::rate(
                "hand_overs_per_second",
                "hand-overs a second",
                contest.hand_overs(),
                took,
            ),
            Figure::rate(
                "acquisitions_per_second",
                "acquisitions a second",
                contest.acquisitions(),
                took,
            ),
            Figure::share("fairness", "fairness (1 is even)", contest.fairness()),
            Figure::time("hand_off_p50_us", "hand-off, p50", percentile(&hand_offs, 0.5)),
            Figure::time("hand_off_p99_us", "hand-off, p99", percentile(&hand_offs, 0.99)),
            Figure::time("longest_wait_us", "longest wait", contest.longest_wait()),
            Figure::count("overlaps", "two at a time", contest.overlaps()),
        ])
    }

    /// The stamps of each contender, and when it started and ended.
    async fn contend_in_processes(
        &mut self,
        lock: &Lock,
        name: &str,
    ) -> Result<(Vec<Vec<Stamps>>, u64, u64), Failure> {
        let task = self.task(Role::Contend, lock, name);
        for _ in 0..PROCESSES {
            self.processes.start(&task, &self.settings).await?;
        }
        for worker in self.processes.all() {
            worker.hear("ready").await?;
        }
        let began = clock::now();
        let end = clock::after(self.length);
        for worker in self.processes.all() {
            worker.tell(&format!("go\t{end}")).await?;
        }
        sleep(clock::until(end)).await;
        let mut seen = Vec::new();
        for worker in self.processes.all() {
            let count = usize::try_from(worker.hear_number("stamps").await?).unwrap_or(0);
            let bytes = worker.bytes(count.min(MOST) * Stamps::BYTES).await?;
            seen.push(Stamps::read(&bytes));
        }
        Ok((seen, began, end))
    }

    async fn contend_in_tasks(
        &mut self,
        lock: &Lock,
        name: &str,
    ) -> Result<(Vec<Vec<Stamps>>, u64, u64), Failure> {
        let began = clock::now();
        let end = clock::after(self.length);
        for _ in 0..PROCESSES {
            let (lock, name) = (lock.another().await?, name.to_owned());
            self.tasks.spawn(async move { lock.go_round(&name, end, MOST).await });
        }
        Ok((self.seen().await?, began, end))
    }

    /// Many claims wait behind one hold, and nothing happens.
    async fn idle(&mut self, lock: &Lock) -> Result<Vec<Figure>, Failure> {
        let name = self.name();
        let held = lock.acquire(&name).await?;
        if self.shared {
            let each = WAITERS / PROCESSES;
            let task = Task { many: each, ..self.task(Role::Wait, lock, &name) };
            for _ in 0..PROCESSES {
                self.processes.start(&task, &self.settings).await?;
            }
            for worker in self.processes.all() {
                worker.hear("joined").await?;
            }
        } else {
            for _ in 0..WAITERS {
                let (lock, name) = (lock.another().await?, name.clone());
                self.tasks.spawn(async move { lock.acquire(&name).await.map(|_| Vec::new()) });
            }
        }
        self.in_line(lock, &name, WAITERS).await?;
        sleep(SETTLED).await;
        let (began, cpu, commands) = (clock::now(), self.cpu().await?, self.commands().await);
        sleep(self.length).await;
        let (cpu, commands) = (self.cpu().await? - cpu, commands.zip(self.commands().await));
        let took = clock::now() - began;
        self.end().await;
        lock.release(&name, held).await?;
        let processes = if self.shared { PROCESSES } else { 1 };
        let mut figures = vec![
            Figure::count("waiters", "waiters", WAITERS),
            Figure::count("processes", "processes", processes),
            Figure::percent("cpu_percent", "CPU, % of one core", cpu as f64 / took as f64 * 100.0),
        ];
        if let Some((before, after)) = commands {
            // The second question is one of them.
            let sent = usize::try_from(after.saturating_sub(before + 1)).unwrap_or(usize::MAX);
            let label = "commands a second, in scripts too";
            figures.push(Figure::rate("commands_per_second", label, sent, took));
        }
        Ok(figures)
    }

    /// The CPU time that the waiters have used so far.
    async fn cpu(&mut self) -> Result<u64, Failure> {
        if !self.shared {
            return Ok(clock::cpu());
        }
        let mut sum = 0;
        for worker in self.processes.all() {
            worker.tell("cpu").await?;
            sum += worker.hear_number("cpu").await?;
        }
        Ok(sum)
    }

    async fn commands(&self) -> Option<u64> {
        self.counter.as_ref()?.commands().await
    }

    /// Waits until this many are in line. The naive lock has no line, so this is unknown there.
    async fn in_line(&self, lock: &Lock, name: &str, waiters: usize) -> Result<(), Failure> {
        let Some(tenure) = lock.tenure() else { return Ok(()) };
        let began = Instant::now();
        loop {
            let view = tenure.inspect(name).await;
            let view = view.map_err(|error| engine::failure(&error, &self.settings))?;
            let there = view.map_or(0, |view| view.waiters.len());
            if there >= waiters {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let what = format!("only {there} of {waiters} stand in line after {PATIENCE:?}");
                let help = "try again when the machine has less to do";
                return Err(Failure::new(INTERNAL, what, "something is very slow", help));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Kills holders, one after the other, while another claim waits.
    async fn recovery(&mut self, lock: &Lock) -> Result<Vec<Figure>, Failure> {
        let over = Instant::now() + self.length;
        let mut times = Vec::new();
        while times.len() < MOST_KILLED && (times.is_empty() || Instant::now() < over) {
            let name = self.name();
            let task =
                |scene: &Scene, role| Task { ttl: SHORT_TTL, ..scene.task(role, lock, &name) };
            let holder = self.processes.start(&task(self, Role::Hold), &self.settings).await?;
            self.processes[holder].hear("held").await?;
            let next = self.processes.start(&task(self, Role::Wait), &self.settings).await?;
            self.processes[next].hear("joined").await?;
            self.in_line(lock, &name, 1).await?;
            let killed = clock::now();
            self.processes[holder].kill().await;
            let granted = self.processes[next].hear_number("granted").await?;
            times.push(granted.saturating_sub(killed));
            self.processes.end().await;
        }
        times.sort_unstable();
        let ttl = u64::try_from(SHORT_TTL.as_nanos()).unwrap_or(0);
        let mut figures = vec![
            Figure::count("killed", "holders killed", times.len()),
            Figure::time("recovery_p50_us", "until the next has it, p50", percentile(&times, 0.5)),
            Figure::time("recovery_max_us", "the longest", percentile(&times, 1.0)),
        ];
        if lock.which() == Which::Naive || self.settings.address.scheme() != Some("file") {
            figures.push(Figure::time("ttl_us", "the ttl, which must run out", ttl));
        }
        Ok(figures)
    }
}
