//! Renewals and releases that are late, failed or many.

use std::sync::Arc;

use tenure::engine::{Engine, Name, Renewal, Renewed, Space};
use tenure::engines::file::File;
use tenure::{Ended, Hold, Released, Tenure};
use tokio::task::JoinHandle;

use crate::file_site::*;

/// Waits for the name, and checks at the moment of the grant that the old hold is over.
fn follow(tenure: &Tenure, old: &Arc<Hold>) -> JoinHandle<()> {
    let (turn, old) = (tenure.mutex(old.name()).ttl(secs(30)).join(), old.clone());
    tokio::spawn(async move {
        let new = turn.await.unwrap();
        assert!(!old.is_live(), "two holders of {}", old.name());
        assert!(new.fence() > old.fence());
    })
}

/// S44, S47: the writer lock is taken for longer than their ttls. The next holders come only after their loss, and
/// what they sent meanwhile brings nothing back.
#[tokio::test(flavor = "multi_thread")]
async fn s47_holders_that_cannot_renew_have_lost_before_the_next_ones_hold() {
    let site = FileSite::new();
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let mut pairs = Vec::new();
    for number in 0..20 {
        let lock = ours.mutex(format!("x{number}")).ttl(ms(400 + 71 * number));
        let old = Arc::new(lock.acquire().await.unwrap());
        pairs.push((follow(&theirs, &old), old));
    }
    let risked = ours.mutex("risk").ttl(ms(2500)).acquire().await.unwrap();
    until("all wait", async || site.number("SELECT count(*) FROM claim WHERE state = 0") == 20)
        .await;
    let lock = site.lock_writers();
    let why = soon(risked.at_risk()).await;
    assert!(risked.is_live(), "at risk before it is lost: {why}");
    for (_, old) in &pairs {
        assert_eq!(soon(old.lost()).await, Ended::Expired);
    }
    drop(lock);
    for (next, _) in pairs {
        soon(next).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s44_a_renewal_that_comes_too_late_brings_nothing_back() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(ms(300)).renew(false).acquire().await.unwrap();
    let fence = hold.fence();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    until_free(&tenure, "x").await;
    let id: Vec<u8> = {
        let id = "SELECT id FROM claim WHERE fence = ?1";
        let found = site.sql().query_row(id, [fence.get() as i64], |row| row.get(0));
        found.unwrap_or_else(|_| vec![0; 16])
    };
    let engine = File::open(&site.path).unwrap();
    let renewal = Renewal::Hold {
        name: Name::new(Space::Lock, "x").unwrap(),
        id: tenure::engine::ClaimId::from_bytes(id.try_into().unwrap()),
        fence,
        ttl: secs(30),
    };
    let renewed = engine.renew(0, &[renewal]).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Gone(Ended::Expired)]), "{renewed:?}");
    assert_eq!(hold.release().await.unwrap(), Released::Late);
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some());
}

/// Someone deletes the row by hand: the holder learns of it at its next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn s46_a_hold_that_the_file_does_not_know_is_lost() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(ms(1500)).acquire().await.unwrap();
    let lock = site.lock_writers();
    site.sql().execute_batch("DELETE FROM claim; UPDATE name SET held = 0, fixed = 0").unwrap();
    drop(lock);
    assert_eq!(soon(hold.lost()).await, Ended::Forgotten);
    assert!(!hold.is_live());
}

/// Nobody can be asked when the hold is dropped: the drop does not wait, and the release comes later.
#[tokio::test(flavor = "multi_thread")]
async fn s49_a_release_that_cannot_be_made_now_is_made_later() {
    let site = FileSite::new();
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let hold = ours.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let lock = site.lock_writers();
    let began = now();
    drop(hold);
    assert!(now().since(began) < ms(500), "a drop never waits");
    pause(ms(300)).await;
    drop(lock);
    until_free(&theirs, "x").await;
    // Meanwhile, a process that ends does not wait for long.
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a y 600000");
    other.hears("held a").await;
    let lock = site.lock_writers();
    other.tell("drop a");
    other.hears("dropped a").await;
    let began = now();
    other.reap();
    assert!(now().since(began) < secs(12), "{:?}", now().since(began));
    drop(lock);
    until_free(&theirs, "y").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_thousand_holds_are_renewed_together_and_none_is_lost() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let asks: Vec<_> = (0..1000)
        .map(|n| tokio::spawn(tenure.mutex(format!("x{n}")).ttl(secs(3)).join()))
        .collect();
    let mut holds = Vec::new();
    for ask in asks {
        holds.push(served(ask).await);
    }
    pause(secs(5)).await;
    assert!(holds.iter().all(|hold| hold.is_live()));
    for hold in holds {
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    }
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn s56_code_that_blocks_the_only_thread_does_not_stop_renewals() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a x 1000");
    let fence = other.hears("held a").await.fence();
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 1).await;
    other.tell("block 2500");
    pause(ms(2300)).await;
    assert!(!next.is_finished());
    assert_eq!(holders(&tenure, "x").await, [fence]);
    other.tell("release a");
    assert!(other.hears("released a").await.0.contains("InTime"));
    drop(served(next).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s57_a_section_that_panics_is_released_and_one_that_is_forgotten_ends_at_its_longest() {
    let site = FileSite::new();
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let hold = ours.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    let section = tokio::spawn(async move {
        let _hold = hold;
        panic!("in the section");
    });
    assert!(section.await.is_err());
    drop(within(AT_ONCE, theirs.mutex("x").acquire()).await.unwrap());
    let lock = ours.mutex("y").ttl(ms(500)).max_hold(ms(1000));
    std::mem::forget(lock.acquire().await.unwrap());
    drop(within(secs(10), theirs.mutex("y").acquire()).await.unwrap());
}

/// A detached hold continues without its process; it does not outlive its ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_detached_hold_outlives_its_process_and_not_its_ttl() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a x 1500");
    other.hears("held a").await;
    other.tell("detach a");
    assert_eq!(other.hears("detached a").await.word(2), "true");
    let detached = now();
    other.kill();
    other.reap();
    let next = wait_for(&tenure, "x", secs(600));
    until_waiting(&tenure, "x", 1).await;
    assert!(!next.is_finished());
    drop(within(secs(10), next).await.unwrap().unwrap());
    assert!(detached.until(now()) > ms(1000));
}

/// A hold that is meant to outlive its process is renewed by it, and then lasts for its ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_outlives_its_process_is_renewed_while_that_lives_and_ends_by_its_ttl() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a x 1500");
    let fence = other.hears("held a").await.fence();
    other.tell("outlive a");
    assert_eq!(other.hears("outlives a").await.word(2), "true");
    pause(ms(2500)).await;
    assert_eq!(holders(&tenure, "x").await, [fence], "it is renewed");
    other.kill();
    other.reap();
    assert_eq!(holders(&tenure, "x").await, [fence], "it outlives its process");
    let next = wait_for(&tenure, "x", secs(600));
    until_waiting(&tenure, "x", 1).await;
    assert!(!next.is_finished());
    drop(within(secs(10), next).await.unwrap().unwrap());
}

/// The wall clock plays no part: see `clock.rs` of the library, which reads only CLOCK_BOOTTIME. This test makes the
/// wall clock jump all the same.
#[tokio::test(flavor = "multi_thread")]
async fn s6_a_wall_clock_that_jumps_changes_nothing() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let clock = tenure_testkit::servers::Clock::new().unwrap();
    let variables = clock.environment().map(|(name, value)| (name, value.into_os_string()));
    let mut other = ChildProcess::start_with(&[], &variables).await;
    other.tell(&format!("connect {}", site.url()));
    other.hears("connected").await;
    other.tell("claim a x 1500");
    let fence = other.hears("held a").await.fence();
    let next = wait_for(&tenure, "x", secs(600));
    until_waiting(&tenure, "x", 1).await;
    for hours in [1, -1, 24, -24, 0] {
        clock.offset(hours * 3_600_000).unwrap();
        pause(ms(600)).await;
        assert_eq!(holders(&tenure, "x").await, [fence], "{hours} h");
        assert_eq!(other.all("lost").len(), 0, "{hours} h");
    }
    other.kill();
    drop(within(AT_ONCE, next).await.unwrap().unwrap());
}
