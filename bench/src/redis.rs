//! The Redis engine compared with hand-written locks, in one run.
//!
//! Each kind has its own process and its own server. Unless `--free` is given, all clients share one CPU with
//! their server: a wake-up across cores costs more than a command and depends on the neighbours. Every kind
//! runs once per round; ratios are computed within a round.

mod children;
mod clock;
mod deaths;
mod failure;
mod figures;
mod holds;
mod lockers;
mod options;
mod room;
mod server;
mod table;
mod throughput;
mod waiting;
mod work;

use std::time::Duration;

use children::{Given, Orders};
use failure::Failure;
use lockers::Kind;
use options::Flavour;

pub(crate) use children::CHILD;
pub(crate) use options::Options;
pub(crate) use table::{Goal, Table};
pub(crate) use tenure_measure::figures::median;

/// No child lives longer than this.
const LONGEST: Duration = Duration::from_secs(300);

type Workload = fn(&mut Bench<'_>);

/// All workloads, by name.
const WORKLOADS: &[(&str, Workload)] = &[
    ("w1", throughput::w1),
    ("w2", throughput::w2),
    ("w3", throughput::w3),
    ("w3h", throughput::w3h),
    ("w4", waiting::w4),
    ("w4b", waiting::w4b),
    ("w5", deaths::w5),
    ("w5b", deaths::w5b),
    ("room", room::room),
    ("holds", holds::holds),
];

/// One run.
struct Bench<'a> {
    options: &'a Options,
    table: Table,
}

/// The workloads on a file, by name.
const FILE_WORKLOADS: &[(&str, Workload)] =
    &[("w3", throughput::w3_on_file), ("holds", holds::holds_on_file)];

/// Where the locks are kept.
#[derive(Clone, Copy)]
enum Engine {
    Redis,
    File,
}

/// Runs the requested workloads, and prints the figures.
pub(crate) fn run(options: &Options) {
    let place = match options.cpu {
        Some(cpu) => format!("all on CPU {cpu}"),
        None => "the scheduler is free".to_owned(),
    };
    println!("{} rounds of {:?}; {place}", options.rounds, options.length);
    let mut bench = Bench { options, table: Table::default() };
    for (name, workload) in options.known {
        if options.asks_for(name) {
            workload(&mut bench);
        }
    }
    bench.table.end();
}

impl Bench<'_> {
    /// The requested ones among `kinds`.
    fn kinds(&self, kinds: &[Kind]) -> Vec<Kind> {
        kinds.iter().copied().filter(|kind| self.options.kinds.contains(kind)).collect()
    }

    /// The arguments of every child.
    fn arguments(&self, url: &str, flavour: Flavour) -> Vec<String> {
        let mut arguments = vec![format!("url={url}"), format!("runtime={flavour}")];
        arguments.extend(self.options.cpu.map(|cpu| format!("cpu={cpu}")));
        arguments
    }
}

/// This process as a child: the first argument is its task.
pub(crate) fn child(given: &[String]) {
    let outcome = given.split_first().ok_or_else(|| "no task".into()).and_then(|(task, rest)| {
        let given = Given::read(rest);
        if let Ok(cpu) = given.number("cpu") {
            clock::pin(None, cpu)?;
        }
        std::thread::spawn(|| {
            std::thread::sleep(LONGEST);
            std::process::exit(1);
        });
        let mut orders = Orders::listen();
        let runtime = Flavour::build(given.text("runtime")?)?;
        runtime.block_on(perform(task, &given, &mut orders))
    });
    if let Err(error) = outcome {
        let _ = children::say(format_args!("failed: {error}"));
    }
    // Tasks that still wait must not delay the end.
    std::process::exit(0);
}

async fn perform(task: &str, given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    match task {
        "work" => work::run(given, orders).await,
        "idle" => waiting::idle(given, orders).await,
        "crowd" => waiting::crowd(given, orders).await,
        "hold" => deaths::hold(given, orders).await,
        "wait" => deaths::wait(given, orders).await,
        "holds" => holds::child(given, orders).await,
        "names" => room::names(given, orders).await,
        other => Err(format!("no task {other}").into()),
    }
}
