//! `memory:` compared with `tokio::sync::Mutex` behind a sharded map, in one run.
//!
//! Every kind runs once per round, in turn, so that a neighbour's noise affects all of them alike. The figures
//! are medians over the rounds; so are the ratios, which are computed within a round.

mod baseline;

use std::future::Future;
use std::time::{Duration, Instant};

use baseline::{Keep, Table};
use tenure::Tenure;
use tokio::runtime::{Builder, Runtime};

const ROUNDS: usize = 9;
const PAIRS: usize = 300_000;
const HANDOFFS: usize = 100_000;

/// Runs all measurements and prints the figures.
pub(crate) fn run() {
    let names: Vec<String> = (0..1024).map(|number| format!("wallet:{number}")).collect();
    let one = || Builder::new_current_thread().build().expect("a runtime");
    let two = || Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");

    println!("uncontended: acquire + release, one task, 1024 names in turn, ns a pair");
    let pairs: [(&str, Kind); 4] = [
        ("tokio Mutex, sharded map, entries vanish", Kind::Tokio(Keep::WhileUsed)),
        ("tokio Mutex, sharded map, entries stay", Kind::Tokio(Keep::ForEver)),
        ("tenure memory:, release awaited", Kind::Tenure { awaited: true }),
        ("tenure memory:, hold dropped", Kind::Tenure { awaited: false }),
    ];
    compare(&pairs, PAIRS, |kind| uncontended(&one(), kind, &names));

    let handoffs: [(&str, Kind); 2] = [
        ("tokio Mutex, sharded map, entries vanish", Kind::Tokio(Keep::WhileUsed)),
        ("tenure memory:, hold dropped", Kind::Tenure { awaited: false }),
    ];
    println!("\ncontended: two tasks take turns on one name, current-thread, ns a hand-off");
    compare(&handoffs, HANDOFFS, |kind| contended(&one(), kind));
    println!("\ncontended: two tasks take turns on one name, two workers, ns a hand-off");
    compare(&handoffs, HANDOFFS, |kind| contended(&two(), kind));
}

#[derive(Clone, Copy)]
enum Kind {
    Tokio(Keep),
    Tenure { awaited: bool },
}

/// Runs every kind once per round and prints its median, and its ratio to the first.
fn compare(kinds: &[(&str, Kind)], count: usize, run: impl Fn(Kind) -> Duration) {
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for ((_, kind), times) in kinds.iter().zip(&mut rounds) {
            times.push(run(*kind).as_nanos() as f64 / count as f64);
        }
    }
    for ((label, _), times) in kinds.iter().zip(&rounds) {
        let ratios = times.iter().zip(&rounds[0]).map(|(time, first)| time / first).collect();
        println!("  {label:<42} {:>7.0}   {:>5.2}x", median(times.clone()), median(ratios));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn uncontended(runtime: &Runtime, kind: Kind, names: &[String]) -> Duration {
    runtime.block_on(async {
        match kind {
            Kind::Tokio(keep) => {
                let table = Table::new(keep);
                timed(PAIRS, async |turn| drop(table.lock(&names[turn % names.len()]).await)).await
            }
            Kind::Tenure { awaited } => {
                let tenure = Tenure::connect("memory:").await.expect("memory");
                timed(PAIRS, async |turn| {
                    let hold = tenure.mutex(&names[turn % names.len()]).acquire().await;
                    let hold = hold.expect("nobody else asks");
                    if awaited {
                        hold.release().await.expect("memory answers");
                    }
                })
                .await
            }
        }
    })
}

async fn timed(count: usize, step: impl AsyncFn(usize)) -> Duration {
    // The first few warm the caches.
    for turn in 0..count / 10 {
        step(turn).await;
    }
    let start = Instant::now();
    for turn in 0..count {
        step(turn).await;
    }
    start.elapsed()
}

/// Two tasks on one name. The holder lets the other task run, which then joins the line, so every release is a
/// hand-off.
fn contended(runtime: &Runtime, kind: Kind) -> Duration {
    match kind {
        Kind::Tokio(keep) => {
            let table = Table::new(keep);
            take_turns(runtime, move || {
                let table = table.clone();
                async move { table.lock("baton").await }
            })
        }
        Kind::Tenure { .. } => {
            let tenure = runtime.block_on(Tenure::connect("memory:")).expect("memory");
            take_turns(runtime, move || {
                let baton = tenure.mutex("baton");
                async move { baton.acquire().await.expect("the turn comes") }
            })
        }
    }
}

fn take_turns<G, F>(runtime: &Runtime, lock: impl Fn() -> F + Clone + Send + 'static) -> Duration
where
    F: Future<Output = G> + Send + 'static,
    G: Send + 'static,
{
    let start = Instant::now();
    let tasks = [lock.clone(), lock].map(|lock| {
        runtime.spawn(async move {
            for _ in 0..HANDOFFS / 2 {
                let guard = lock().await;
                tokio::task::yield_now().await;
                drop(guard);
            }
        })
    });
    for task in tasks {
        runtime.block_on(task).expect("a task ends");
    }
    start.elapsed()
}
