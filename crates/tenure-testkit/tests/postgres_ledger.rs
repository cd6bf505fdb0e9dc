//! The rule in PL/pgSQL against the rule in Rust: the scripts of `redis_ledger`, on Postgres.
//!
//! `TENURE_SCRIPTS` sets how many scripts run, from `TENURE_FIRST_SEED`: `TENURE_FIRST_SEED=42 TENURE_SCRIPTS=1 cargo
//! test -p tenure-testkit --test engines postgres_ledger::`.

#[path = "redis_ledger/asking.rs"]
mod asking;
#[allow(dead_code, reason = "the other half of the test uses the rest")]
#[path = "redis_ledger/comparison.rs"]
mod comparison;
#[path = "postgres_ledger/environment.rs"]
mod environment;
#[path = "redis_ledger/model.rs"]
mod model;
#[path = "redis_ledger/plan.rs"]
mod plan;
#[path = "redis_ledger/run.rs"]
mod run;
#[path = "redis_ledger/said.rs"]
mod said;
#[path = "redis_ledger/storage.rs"]
mod storage;

use std::sync::Arc;
use std::time::Instant;

use tenure_testkit::servers::Flavour;

use comparison::Comparison;
use environment::Environment;
use plan::{Actor, Event, Manner, Op, Plan, Shape};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_script_behaves_like_the_ledger() {
    let slow = std::env::var_os("TENURE_SLOW").is_some();
    let first = number("TENURE_FIRST_SEED", 0);
    let count = number("TENURE_SCRIPTS", if slow { 10_000 } else { 1_000 });
    let began = Instant::now();
    let tally = run::scripts(Flavour::Debian, first..first + count).await;
    println!("{count} scripts from {first} in {:?}: {tally:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_has_run_out_comes_back_with_its_own_capacity() {
    let environment = Arc::new(Environment::new(Flavour::Debian).await);
    let actor = Actor {
        process: 0,
        on_behalf: false,
        weight: 1,
        ttl: 30_005,
        keep: 0,
        rerun: false,
        content: 0,
    };
    let shape = Shape { capacity: 1, fixed: false, once: false };
    let plan = Plan { seed: 0, shape, actors: vec![actor, actor], rounds: Vec::new() };
    let mut case = Comparison::new(&environment, plan, "directed");
    let (may_wait, max_waiters, server) = (true, u32::MAX, 0);
    let manner = Manner { may_wait, max_waiters, by_ticket: true, seen: None, odd: None, server };
    case.look_around();
    for who in 0..2 {
        case.step(Op::Claim(who, manner)).await.unwrap();
    }
    environment.happen(Event::Pass(60_010)).await;
    case.look_around();
    let kept = case.step(Op::Keep(1, Manner { odd: Some((1, 3)), ..manner })).await.unwrap();
    assert_eq!(kept.kind(), "granted for a first life");
}
