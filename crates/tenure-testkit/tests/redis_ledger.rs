//! The rule in Lua against the rule in Rust: the same steps on a real server and on the ledger, and
//! after each one the same answer, the same pushes to the same claims and the same name to look at.
//!
//! The server's time stands still unless a script lets it pass, so that remaining times are compared to the
//! millisecond. `TENURE_SCRIPTS` sets how many scripts run, from `TENURE_FIRST_SEED`. A script that goes wrong is
//! shortened and printed, and its seed repeats it: `TENURE_FIRST_SEED=42 TENURE_SCRIPTS=1 cargo test -p
//! tenure-testkit --test engines redis_ledger::`.

mod asking;
mod comparison;
mod directed;
mod environment;
mod model;
mod plan;
mod run;
mod said;
mod storage;

use std::time::Instant;

use tenure_testkit::servers::Flavour;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Plays one in `part` of the scripts that are asked for.
async fn play(flavour: Flavour, part: u64) {
    let first = number("TENURE_FIRST_SEED", 0);
    let count = number("TENURE_SCRIPTS", 10_000).div_ceil(part);
    let began = Instant::now();
    let tally = run::scripts(flavour, first..first + count).await;
    println!("{flavour:?}: {count} scripts from {first} in {:?}: {tally:?}", began.elapsed());
    // The scripts must have covered the cases that they are for.
    if count >= 10_000 {
        let rare = EVERYTHING.into_iter().filter(|kind| tally.get(kind).is_none_or(|it| *it < 50));
        assert_eq!(rare.collect::<Vec<_>>(), Vec::<&str>::new(), "too rarely met: {tally:?}");
    }
}

#[tokio::test]
async fn every_script_behaves_like_the_ledger() {
    play(Flavour::Debian, 1).await;
}

#[tokio::test]
async fn every_script_behaves_like_the_ledger_on_the_oldest_redis() {
    play(Flavour::Redis62, 20).await;
}

#[tokio::test]
async fn every_script_behaves_like_the_ledger_on_valkey() {
    play(Flavour::Valkey, 20).await;
}

/// The possible answers and pushes.
const EVERYTHING: [&str; 24] = [
    "exact",
    "granted",
    "granted for a first life",
    "kept",
    "kept without fences",
    "waiting",
    "busy",
    "full",
    "conflict",
    "settled",
    "unsettled",
    "left",
    "gone",
    "gone: broken",
    "released",
    "quit",
    "done",
    "moved on",
    "turn",
    "hint",
    "told: broken",
    "told: conflict",
    "told: settled",
    "told: look again",
];
