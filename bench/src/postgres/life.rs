//! What many steps leave behind in the tables, with and without an old transaction.

use std::time::Instant;

use tokio::task::JoinSet;

use super::{Bench, pair};
use crate::redis::Goal;

/// The number of steps of all clients together, in parts; an acquire and a release are two steps.
const PARTS: usize = 10;
const STEPS_OF_A_PART: usize = 10_000;
const CLIENTS: usize = 8;

pub(super) async fn run(bench: &mut Bench) {
    let without = parts(bench, "new").await;
    let reads = bench.client().await;
    // This transaction has a snapshot, so no later row version may be removed.
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.name";
    reads.batch_execute(begin).await.expect("a transaction");
    let with = parts(bench, "old").await;
    reads.batch_execute("COMMIT").await.expect("it ends");
    let table = &mut bench.table;
    table.heading("100,000 steps of 8 clients on 8 names, pairs a second");
    for (whose, rates, goal) in
        [("alone", &without, Some(Goal::AtMost(1.5))), ("old transaction", &with, None)]
    {
        table.row(whose, "the first 10,000 steps", None, &rates[..1]);
        table.row(whose, "the last 10,000 steps", None, &rates[PARTS - 1..]);
        table.row(whose, "first to last", goal, &[rates[0] / rates[PARTS - 1]]);
    }
}

async fn parts(bench: &Bench, prefix: &str) -> Vec<f64> {
    let mut clients = Vec::new();
    for at in 0..CLIENTS {
        clients.push((bench.tenure().await, format!("{prefix}{at}")));
    }
    // Connecting is not counted.
    for (tenure, name) in &clients {
        pair(tenure, name).await;
    }
    let mut rates = Vec::new();
    for _ in 0..PARTS {
        let began = Instant::now();
        let mut all = JoinSet::new();
        for (tenure, name) in clients.clone() {
            all.spawn(async move {
                for _ in 0..STEPS_OF_A_PART / CLIENTS / 2 {
                    pair(&tenure, &name).await;
                }
            });
        }
        all.join_all().await;
        rates.push((STEPS_OF_A_PART / 2) as f64 / began.elapsed().as_secs_f64());
    }
    for (tenure, _) in clients {
        tenure.close().await;
    }
    rates
}
