//! What failovers cost: whether two hold one name at the same time, and for how long.
//!
//! Behind sentinels and in a cluster, a primary is replaced on request or killed, while one name is held and waited
//! for and others change hands. Every hold is recorded as its owner sees it, and then the histories are compared.
//!
//! `TENURE_FAILOVERS=50 cargo test --workspace --all-features --test engines failovers:: -- --nocapture` plays 50 of
//! each kind with each setting, on several groups of servers side by side (`TENURE_GROUPS`, 3), and prints
//! what it measured: the figures of docs/engines/redis.md. Ten minutes.

mod group;
mod history;
mod round;

use std::time::Duration;

use group::{How, Mode};
use round::{Outcome, Setting, play};

const DEFAULT: Setting = Setting { name: "default", query: "", replicas: 1 };
const WAIT_REPLICAS: Setting =
    Setting { name: "wait_replicas=1", query: "?wait_replicas=1&wait_timeout=500ms", replicas: 2 };
const AFTER_RESTART: Setting =
    Setting { name: "after_restart=wait", query: "?after_restart=wait&max_ttl=2s", replicas: 1 };

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many failovers of each kind to play, and whether that is a measurement.
fn rounds() -> (usize, bool) {
    let asked = variable("TENURE_FAILOVERS");
    (asked.unwrap_or(1), asked.is_some())
}

/// Plays the rounds of one setting on several groups of servers, and prints the results.
async fn measure(mode: Mode, how: How, setting: Setting) -> Vec<Outcome> {
    let (rounds, measured) = rounds();
    let groups = if measured { variable("TENURE_GROUPS").unwrap_or(3).min(rounds) } else { 1 };
    let share = |group: usize| rounds / groups + usize::from(group < rounds % groups);
    let alone = move |rounds| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(play(mode, how, setting, rounds))
    };
    let plays = (0..groups).map(|group| {
        let rounds = share(group);
        tokio::task::spawn_blocking(move || alone(rounds))
    });
    let mut all = Vec::new();
    for play in plays.collect::<Vec<_>>() {
        all.extend(play.await.unwrap());
    }
    let worst = |of: fn(&Outcome) -> Duration| all.iter().map(of).max().unwrap_or_default();
    let with = |of: fn(&Outcome) -> Duration| all.iter().filter(|it| !of(it).is_zero()).count();
    println!(
        "{mode:?} {how:?} {}: {} failovers; two holders of a held name in {}, at most {:?}; of names \
         that change hands in {}, at most {:?}; the hold outlived {}; nobody was served for {:?} at most",
        setting.name,
        all.len(),
        with(|it| it.held),
        worst(|it| it.held),
        with(|it| it.fresh),
        worst(|it| it.fresh),
        all.iter().filter(|it| it.kept).count(),
        worst(|it| it.gap),
    );
    all
}

/// A hold that the next primary knows is never given to another while its owner believes in it.
async fn held_names_have_one_holder(mode: Mode, how: How, setting: Setting) -> Vec<Outcome> {
    let all = measure(mode, how, setting).await;
    for outcome in &all {
        assert!(outcome.held.is_zero(), "two holders for {:?}: {outcome:?}", outcome.held);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_planned() {
    held_names_have_one_holder(Mode::Sentinels, How::Planned, DEFAULT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_forced() {
    held_names_have_one_holder(Mode::Sentinels, How::Forced, DEFAULT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_wait_replicas() {
    held_names_have_one_holder(Mode::Sentinels, How::Planned, WAIT_REPLICAS).await;
    if rounds().1 {
        held_names_have_one_holder(Mode::Sentinels, How::Forced, WAIT_REPLICAS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_after_restart_wait() {
    let mut all = held_names_have_one_holder(Mode::Sentinels, How::Planned, AFTER_RESTART).await;
    if rounds().1 {
        all.extend(held_names_have_one_holder(Mode::Sentinels, How::Forced, AFTER_RESTART).await);
    }
    // Nothing at all is granted before all earlier holds have ended.
    assert!(all.iter().all(|outcome| outcome.fresh.is_zero()), "two holders: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_planned() {
    held_names_have_one_holder(Mode::Cluster, How::Planned, DEFAULT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_forced() {
    held_names_have_one_holder(Mode::Cluster, How::Forced, DEFAULT).await;
}

/// The settings in a cluster: each kind of failover with one of them, and both with each when it is measured.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_settings() {
    let mut plays = vec![(How::Planned, WAIT_REPLICAS), (How::Forced, AFTER_RESTART)];
    if rounds().1 {
        plays.extend([(How::Forced, WAIT_REPLICAS), (How::Planned, AFTER_RESTART)]);
    }
    for (how, setting) in plays {
        held_names_have_one_holder(Mode::Cluster, how, setting).await;
    }
}
