//! The rule in PL/pgSQL against the rule in Rust: the scripts of `redis_ledger`, on Postgres.
//!
//! `TENURE_SCRIPTS` sets how many scripts run, from `TENURE_FIRST_SEED`: `TENURE_FIRST_SEED=42 TENURE_SCRIPTS=1 cargo
//! test -p tenure-testkit --test engines postgres_ledger::`.

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

use std::time::Instant;

use tenure_testkit::servers::Flavour;

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
