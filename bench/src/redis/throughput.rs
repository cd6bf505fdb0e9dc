//! W1, W2, W3 and W3h: throughput, fairness and cost; W3 on a file, too.

use std::time::{Duration, SystemTime};

use tenure_measure::figures::Stamps;

use super::children::Child;
use super::clock;
use super::failure::Failure;
use super::figures::Trial;
use super::lockers::Kind;
use super::options::Flavour;
use super::server::Server;
use super::table::{Goal, Table};
use super::work::Names;
use super::{Bench, Engine};
use crate::folder::Folder;

/// The description of a trial.
#[derive(Clone, Copy)]
struct Shape {
    names: Names,
    processes: u64,
    /// In each process.
    tasks: u64,
    hold: Duration,
    think: Duration,
}

impl Shape {
    const fn new(names: Names, processes: u64, tasks: u64) -> Shape {
        Shape { names, processes, tasks, hold: Duration::ZERO, think: Duration::ZERO }
    }
}

/// A single task: the yardstick.
const ALONE: Shape = Shape::new(Names::Fresh, 1, 1);

/// Each kind's trials, by round; a kind that failed has the reason.
type Rounds = Vec<(Kind, Result<Vec<Trial>, Failure>)>;

/// W1: one task, a new name each time.
pub(crate) fn w1(bench: &mut Bench<'_>) {
    let goal = |kind| match kind {
        Kind::Awaited => Some(Goal::Reach { minimum: 0.9, goal: 0.95 }),
        Kind::Dropped => Some(Goal::Reach { minimum: 1.3, goal: 1.4 }),
        Kind::Raw | Kind::Script | Kind::Rslock => None,
    };
    apart(bench, "W1 one task, a fresh name each time", ALONE, goal, None);
}

/// W2: 64 tasks, each its own name.
pub(crate) fn w2(bench: &mut Bench<'_>) {
    let goal = |kind: Kind| kind.is_ours().then_some(Goal::Reach { minimum: 1.1, goal: 1.3 });
    let shape = Shape::new(Names::Own, 1, 64);
    let to_rslock = Some(Goal::AtLeast(1.0));
    apart(bench, "W2 64 tasks in one process, each its own name", shape, goal, to_rslock);
}

/// Tasks that do not contend: every kind compared with `raw` and `rslock` on the same work.
fn apart(
    bench: &mut Bench<'_>,
    what: &str,
    shape: Shape,
    goal: fn(Kind) -> Option<Goal>,
    to_rslock: Option<Goal>,
) {
    for flavour in Flavour::ALL {
        let plan: Vec<_> = bench.kinds(&Kind::ALL).into_iter().map(|kind| (kind, shape)).collect();
        let rounds = bench.rounds(&plan, flavour, bench.options.length);
        bench.table.heading(&format!("{what}; {flavour}"));
        let (raw, rslock) =
            (Yardstick::of(&rounds, Kind::Raw), Yardstick::of(&rounds, Kind::Rslock));
        for (kind, trials) in &rounds {
            let whose = kind.label();
            let trials = match trials {
                Ok(trials) => trials,
                Err(reason) => {
                    bench.table.failed(whose, reason);
                    continue;
                }
            };
            let each = |figure: fn(&Trial) -> f64| trials.iter().map(figure).collect::<Vec<_>>();
            let speed = each(Trial::per_second);
            bench.table.row(whose, "pairs/s", None, &speed);
            if *kind != Kind::Raw {
                raw.compare(&mut bench.table, (whose, "pairs/s to raw"), goal(*kind), trials);
            }
            if kind.is_ours() {
                rslock.compare(&mut bench.table, (whose, "pairs/s to rslock"), to_rslock, trials);
            }
            bench.table.row(whose, "client CPU, us a pair", None, &each(|trial| trial.cpu().0));
            bench.table.row(whose, "server CPU, us a pair", None, &each(|trial| trial.cpu().1));
        }
        bench.say_how_quiet(&rounds);
    }
}

/// W3: 64 tasks on one name, in one process and in four.
pub(crate) fn w3(bench: &mut Bench<'_>) {
    let within = Goal::Reach { minimum: 8.0, goal: 15.0 };
    let between = Goal::Reach { minimum: 0.8, goal: 1.0 };
    for (processes, tasks, goal) in [(1, 64, within), (4, 16, between)] {
        for flavour in Flavour::ALL {
            let what = format!("W3 {processes} x {tasks} tasks on one name; {flavour}");
            together(bench, &what, Shape::new(Names::One, processes, tasks), flavour, goal);
        }
    }
}

fn together(bench: &mut Bench<'_>, what: &str, shape: Shape, flavour: Flavour, goal: Goal) {
    let mut plan = vec![(Kind::Raw, ALONE)];
    let kinds = bench.kinds(&[Kind::Script, Kind::Rslock, Kind::Awaited, Kind::Dropped]);
    plan.extend(kinds.into_iter().map(|kind| (kind, shape)));
    let rounds = bench.rounds(&plan, flavour, bench.options.length);
    bench.table.heading(what);
    let raw1 = Yardstick::of(&rounds, Kind::Raw);
    bench.table.row("raw1", "pairs/s, one task", None, &raw1.speeds);
    for (kind, trials) in rounds.iter().skip(1) {
        let whose = kind.label();
        let trials = match trials {
            Ok(trials) => trials,
            Err(reason) => {
                bench.table.failed(whose, reason);
                continue;
            }
        };
        let ours = |goal| kind.is_ours().then_some(goal);
        let each = |figure: fn(&Trial) -> f64| trials.iter().map(figure).collect::<Vec<_>>();
        let speed = each(Trial::per_second);
        let table = &mut bench.table;
        table.row(whose, "acquisitions/s", None, &speed);
        raw1.compare(table, (whose, "acquisitions/s to raw1"), ours(goal), trials);
        table.row(whose, "share that went to another task", None, &each(Trial::switched));
        table.row(whose, "Jain index", ours(Goal::AtLeast(0.99)), &each(Trial::jain));
        let waits = each(Trial::longest_wait);
        table.row(whose, "longest wait, mean cycles", ours(Goal::NeverAbove(4.0)), &waits);
        let overlaps = each(Trial::overlaps);
        table.row(whose, "overlaps", ours(Goal::NeverAbove(0.0)), &overlaps);
        table.row(whose, "client CPU, us each", None, &each(|trial| trial.cpu().0));
        table.row(whose, "server CPU, us each", None, &each(|trial| trial.cpu().1));
        // In a separate trial, because being monitored costs the server time.
        match bench.trial(*kind, shape, flavour, Duration::from_millis(300), true) {
            Ok(counted) => {
                let commands: Vec<f64> = counted.commands_each().into_iter().collect();
                let goal = ours(Goal::AtMost(2.2));
                bench.table.row(whose, "commands each", goal, &commands);
            }
            Err(reason) => bench.table.failed(whose, &reason),
        }
    }
    bench.say_how_quiet(&rounds);
}

/// W3h: 8 tasks on one name, each of which holds it for 2 ms and then leaves it alone for 2 ms.
pub(crate) fn w3h(bench: &mut Bench<'_>) {
    let rest = Duration::from_millis(2);
    let shape = Shape { hold: rest, think: rest, ..Shape::new(Names::One, 1, 8) };
    let length = bench.options.length.max(Duration::from_secs(2));
    for flavour in Flavour::ALL {
        let kinds = bench.kinds(&[Kind::Script, Kind::Rslock, Kind::Awaited, Kind::Dropped]);
        let plan: Vec<_> = kinds.into_iter().map(|kind| (kind, shape)).collect();
        let rounds = bench.rounds(&plan, flavour, length);
        bench.table.heading(&format!("W3h 8 tasks on one name, hold 2 ms, think 2 ms; {flavour}"));
        for (kind, trials) in &rounds {
            let whose = kind.label();
            let ours = |goal| kind.is_ours().then_some(goal);
            match trials {
                Err(reason) => bench.table.failed(whose, reason),
                Ok(trials) => {
                    let each = |f: fn(&Trial) -> f64| trials.iter().map(f).collect::<Vec<_>>();
                    let held = each(|trial| trial.held() * 100.0);
                    let goal = Goal::Reach { minimum: 97.0, goal: 99.0 };
                    let table = &mut bench.table;
                    table.row(whose, "held, % of the time", ours(goal), &held);
                    let overlaps = each(Trial::overlaps);
                    table.row(whose, "overlaps", ours(Goal::NeverAbove(0.0)), &overlaps);
                }
            }
        }
    }
}

/// Hand-overs per second on a file if no process hands a name over to itself: the fastest round on the machine
/// of docs/benchmarks.md. Handing over within a process should be fifty times as fast.
const ASKING_EACH_TIME: f64 = 4_750.0;

/// W3 on a file: 64 tasks of one process on one name.
pub(crate) fn w3_on_file(bench: &mut Bench<'_>) {
    let shape = Shape::new(Names::One, 1, 64);
    let goal = Some(Goal::AtLeast(50.0 * ASKING_EACH_TIME));
    for flavour in Flavour::ALL {
        let kinds = bench.kinds(&[Kind::Awaited, Kind::Dropped]);
        let plan: Vec<_> = kinds.into_iter().map(|kind| (kind, shape)).collect();
        let rounds = bench.rounds_on(Engine::File, &plan, flavour, bench.options.length);
        bench.table.heading(&format!("W3 1 x 64 tasks on one name of a file; {flavour}"));
        for (kind, trials) in &rounds {
            let whose = kind.label();
            let trials = match trials {
                Ok(trials) => trials,
                Err(reason) => {
                    bench.table.failed(whose, reason);
                    continue;
                }
            };
            let each = |figure: fn(&Trial) -> f64| trials.iter().map(figure).collect::<Vec<_>>();
            let handed = each(|trial| trial.per_second() * trial.switched());
            let table = &mut bench.table;
            table.row(whose, "hand-overs/s", goal, &handed);
            table.row(whose, "Jain index", Some(Goal::AtLeast(0.99)), &each(Trial::jain));
            table.row(whose, "longest wait, mean cycles", None, &each(Trial::longest_wait));
            let overlaps = each(Trial::overlaps);
            table.row(whose, "overlaps", Some(Goal::NeverAbove(0.0)), &overlaps);
            table.row(whose, "client CPU, us each", None, &each(|trial| trial.cpu().0));
        }
        bench.say_how_quiet(&rounds);
    }
}

/// The figures of one kind, by round.
struct Yardstick {
    speeds: Vec<f64>,
    cpu: Vec<f64>,
}

impl Yardstick {
    fn of(rounds: &Rounds, kind: Kind) -> Yardstick {
        let found = rounds.iter().find(|(found, _)| *found == kind);
        let trials = || found.and_then(|(_, trials)| trials.as_ref().ok()).into_iter().flatten();
        let speeds = trials().map(Trial::per_second).collect();
        Yardstick { speeds, cpu: trials().map(Trial::cpu_each).collect() }
    }

    /// Ratios within each round: of the speeds, and of the CPU times. CPU times give the same ratio if the CPU
    /// is not shared, and do not change if other processes use a part of it.
    fn compare(
        &self,
        table: &mut Table,
        (whose, figure): (&str, &str),
        goal: Option<Goal>,
        trials: &[Trial],
    ) {
        let speeds = trials.iter().zip(&self.speeds).map(|(trial, base)| trial.per_second() / base);
        table.row(whose, figure, goal, &speeds.collect::<Vec<_>>());
        let cpu = trials.iter().zip(&self.cpu).map(|(trial, base)| base / trial.cpu_each());
        table.row(whose, "the same, by CPU time", None, &cpu.collect::<Vec<_>>());
    }
}

impl Bench<'_> {
    /// The share of the CPU that we had: if it is much less than all, the machine was not quiet.
    fn say_how_quiet(&mut self, rounds: &Rounds) {
        if self.options.cpu.is_some() {
            let trials = rounds.iter().filter_map(|(_, trials)| trials.as_ref().ok()).flatten();
            let busy: Vec<f64> = trials.map(|trial| trial.busy() * 100.0).collect();
            self.table.row("all of them", "% of the CPU that was theirs", None, &busy);
        }
    }

    /// Runs every kind once per round, in turn. A kind that fails is not tried again.
    fn rounds(&self, plan: &[(Kind, Shape)], flavour: Flavour, length: Duration) -> Rounds {
        self.rounds_on(Engine::Redis, plan, flavour, length)
    }

    fn rounds_on(
        &self,
        engine: Engine,
        plan: &[(Kind, Shape)],
        flavour: Flavour,
        length: Duration,
    ) -> Rounds {
        let mut rounds: Rounds = plan.iter().map(|(kind, _)| (*kind, Ok(Vec::new()))).collect();
        for _ in 0..self.options.rounds {
            for ((kind, shape), (_, trials)) in plan.iter().zip(&mut rounds) {
                let Ok(done) = trials else { continue };
                let trial = match engine {
                    Engine::Redis => self.trial(*kind, *shape, flavour, length, false),
                    Engine::File => self.trial_on_file(*kind, *shape, flavour, length),
                };
                match trial {
                    Ok(trial) => done.push(trial),
                    Err(reason) => *trials = Err(reason),
                }
            }
        }
        rounds
    }

    /// One kind in one window, on a server of its own.
    fn trial(
        &self,
        kind: Kind,
        shape: Shape,
        flavour: Flavour,
        length: Duration,
        count: bool,
    ) -> Result<Trial, Failure> {
        let mut server = Server::start(self.options.cpu)?;
        let mut children = self.workers(&server.url(), kind, shape, flavour)?;
        let watch = count.then(|| server.watch()).transpose()?;
        let window = announce(&mut children, length)?;
        std::thread::sleep(clock::until(window.0));
        let (began, before) = (SystemTime::now(), server.cpu()?);
        std::thread::sleep(clock::until(window.1));
        let (ended, after) = (SystemTime::now(), server.cpu()?);
        let commands = watch.map(|watch| watch.count(began, ended));
        let mut trial = collect(&mut children, shape, window, after - before)?;
        // Minus our own two readings of the CPU time, which fall into the window.
        trial.commands = commands.map(|commands| commands.saturating_sub(2));
        Ok(trial)
    }

    /// The same on a separate file.
    fn trial_on_file(
        &self,
        kind: Kind,
        shape: Shape,
        flavour: Flavour,
        length: Duration,
    ) -> Result<Trial, Failure> {
        let folder = Folder::new()?;
        let url = format!("file:{}", folder.path().join("locks").display());
        let mut children = self.workers(&url, kind, shape, flavour)?;
        let window = announce(&mut children, length)?;
        collect(&mut children, shape, window, 0.0)
    }

    /// Starts the processes, and waits until all are ready.
    fn workers(
        &self,
        url: &str,
        kind: Kind,
        shape: Shape,
        flavour: Flavour,
    ) -> Result<Vec<Child>, Failure> {
        let mut children = Vec::new();
        for process in 0..shape.processes {
            let mut arguments = self.arguments(url, flavour);
            arguments.extend([
                format!("kind={kind}"),
                format!("names={}", shape.names.label()),
                format!("tasks={}", shape.tasks),
                format!("first={}", process * shape.tasks),
                format!("hold={}", shape.hold.as_micros()),
                format!("think={}", shape.think.as_micros()),
            ]);
            children.push(Child::start("work", &arguments)?);
        }
        for child in &mut children {
            child.hear("ready")?;
        }
        Ok(children)
    }
}

/// Sends the same window to all of them.
fn announce(children: &mut [Child], length: Duration) -> Result<(u64, u64), Failure> {
    let start = clock::now() + 50_000_000;
    let end = start + length.as_nanos() as u64;
    for child in children {
        child.tell(&format!("go {start} {end}"))?;
    }
    Ok((start, end))
}

/// Reads the records of all of them in the window.
fn collect(
    children: &mut [Child],
    shape: Shape,
    window: (u64, u64),
    server_cpu: f64,
) -> Result<Trial, Failure> {
    let mut client_cpu = 0.0;
    let mut stamps = Vec::new();
    for child in children {
        client_cpu += child.hear("cpu")?.parse::<f64>()? / 1000.0;
        stamps.extend(Stamps::read(&child.rest()?));
    }
    let tasks = (shape.processes * shape.tasks) as usize;
    let trial = Trial::new(stamps, tasks, window, (client_cpu, server_cpu));
    if trial.is_empty() { Err("nothing was acquired".into()) } else { Ok(trial) }
}
