//! A standby takes over, is missing, or is in the way; the pooler is restarted; the clock is set.

use tenure::{Ended, ErrorKind, Tenure};
use tenure_testkit::servers::{Clock, Pgbouncer, Postgres};

use crate::postgres_site::*;

/// A primary with its standby, and the URL that names both.
struct Pair {
    primary: PostgresSite,
    standby: Postgres,
    url: String,
}

impl Pair {
    /// Names of standbys that a commit waits for: none, or all of them.
    async fn start(waits_for: &str) -> Pair {
        let build = Postgres::build().setting("fsync=on").setting("hot_standby=on");
        let primary = PostgresSite::alone(build.clone());
        let standby = build.start_standby_of(primary.server()).unwrap();
        let replicates = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        until("the standby follows", async || primary.number(replicates) == 1).await;
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{waits_for}'");
        primary.sql(&set);
        primary.sql("SELECT pg_reload_conf()");
        if !waits_for.is_empty() {
            let in_step = "SELECT count(*) FROM pg_stat_replication WHERE sync_state <> 'async'";
            until("commits wait for it", async || primary.number(in_step) == 1).await;
        }
        let ports = [primary.server().port(), standby.port()];
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{}",
            ports[0],
            ports[1],
            primary.database()
        );
        Pair { primary, standby, url }
    }

    /// The standby has everything that was committed.
    async fn caught_up(&self) {
        let behind =
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()";
        until("the standby has all of it", async || self.primary.number(behind) == 0).await;
    }

    async fn fail_over(&self) {
        self.primary.server().kill().unwrap();
        self.standby.promote().unwrap();
    }
}

async fn wait_for_term(tenure: &Tenure, name: &str) -> u64 {
    let hold = tenure.mutex(name).ttl(secs(2)).wait(secs(25)).acquire().await.unwrap();
    let fence = hold.fence().get();
    hold.release().await.unwrap();
    fence
}

#[tokio::test(flavor = "multi_thread")]
async fn s104_a_standby_that_takes_over_keeps_what_it_has_received() {
    let pair = Pair::start("").await;
    let (one, two) = (connect(&pair.url).await, connect(&pair.url).await);
    let hold = one.mutex("x").ttl(secs(20)).acquire().await.unwrap();
    let next = wait_for(&two, "x", secs(20));
    until_waiting(&one, "x", 1).await;
    let before = wait_for_term(&one, "free").await;
    pair.caught_up().await;
    pair.fail_over().await;
    until("the hold is there", async || {
        let view = two.inspect("x").await.ok().flatten();
        view.is_some_and(|view| view.holders.iter().any(|it| it.fence == hold.fence()))
    })
    .await;
    assert!(wait_for_term(&two, "free").await > before);
    assert!(hold.is_live() && !next.is_finished());
    soon(hold.release()).await.unwrap();
    served(next).await.release().await.unwrap();
}

/// The docs call this the cost: the standby has not received a grant, so the name is free there. The fence tells the
/// two holders apart, and the former one is told at its next renewal.
#[tokio::test(flavor = "multi_thread")]
async fn s104_a_grant_that_the_standby_never_received_is_reported_as_lost_and_fences_rise() {
    let pair = Pair::start("").await;
    let (one, two) = (connect(&pair.url).await, connect(&pair.url).await);
    let first = wait_for_term(&one, "x").await;
    pair.caught_up().await;
    // It hears no more from the primary.
    pair.standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    pair.standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let sends = "SELECT count(*) FROM pg_stat_replication";
    until("the standby is cut off", async || pair.primary.number(sends) == 0).await;
    let hold = one.mutex("x").ttl(secs(6)).acquire().await.unwrap();
    assert!(hold.fence().get() > first);
    pair.fail_over().await;
    let again = two.mutex("x").ttl(secs(6)).wait(secs(20)).acquire().await.unwrap();
    assert!(again.fence() > hold.fence(), "{} after {}", again.fence(), hold.fence());
    let ended = soon(hold.lost()).await;
    assert!(matches!(ended, Ended::Expired | Ended::Forgotten), "{ended:?}");
    assert!(again.is_live());
    again.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s104_a_synchronous_standby_has_every_grant_that_was_answered() {
    let pair = Pair::start("*").await;
    let (one, two) = (connect(&pair.url).await, connect(&pair.url).await);
    let mut holds = Vec::new();
    for number in 0..20 {
        let lock = one.mutex(format!("x{number}")).ttl(secs(20));
        holds.push(soon(lock.acquire()).await.unwrap());
    }
    pair.fail_over().await;
    // The new server does not wait for a standby.
    pair.standby.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
    pair.standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    for hold in &holds {
        until("its hold is there", async || {
            let view = two.inspect(hold.name()).await.ok().flatten();
            view.is_some_and(|view| view.holders.iter().any(|it| it.fence == hold.fence()))
        })
        .await;
    }
    for hold in holds {
        assert!(hold.is_live());
        soon(hold.release()).await.unwrap();
    }
}

/// Commits wait for a standby that hangs: nothing is answered, sessions do not pile up, and afterwards everything
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn s104_a_standby_that_hangs_delays_steps_and_uses_up_no_connections() {
    let pair = Pair::start("*").await;
    let url = pair.primary.url() + "?command_timeout=500ms&connections=1";
    let tenure = connect(&url).await;
    let before = soon(tenure.mutex("x").acquire()).await.unwrap();
    soon(before.release()).await.unwrap();
    pair.standby.pause().unwrap();
    let error = tenure.mutex("x").wait(secs(8)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'";
    let sessions = pair.primary.number(sessions);
    assert!(sessions <= 8, "{sessions} sessions");
    pair.standby.resume().unwrap();
    let after = soon(tenure.mutex("x").wait(secs(25)).acquire()).await.unwrap();
    soon(after.release()).await.unwrap();
    pair.primary.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn s101_a_pooler_that_is_restarted_costs_no_hold_and_no_place() {
    let site = PostgresSite::alone(Postgres::build());
    let pooler = Pgbouncer::start(site.server()).unwrap();
    let direct = format!("127.0.0.1:{}", site.server().port());
    let url = format!("{}?listen={direct}", pooler.url(site.database()));
    let (one, two) = (connect(&url).await, connect(&url).await);
    let mut hold = one.mutex("x").ttl(secs(6)).acquire().await.unwrap();
    for _ in 0..3 {
        let next = wait_for(&two, "x", secs(6));
        until_waiting(&two, "x", 1).await;
        pooler.restart().unwrap();
        pause(ms(500)).await;
        assert!(hold.is_live() && !next.is_finished());
        soon(hold.release()).await.unwrap();
        hold = served(next).await;
    }
    hold.release().await.unwrap();
    site.is_sound();
}

/// Without an address to listen at, waiters find their turns by looking.
#[tokio::test(flavor = "multi_thread")]
async fn s101_behind_a_pooler_alone_everyone_is_served_by_looking() {
    let site = PostgresSite::alone(Postgres::build());
    let pooler = Pgbouncer::start(site.server()).unwrap();
    let url = format!("{}?listen=never", pooler.url(site.database()));
    let (one, two) = (connect(&url).await, connect(&url).await);
    let hold = one.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let line = line_up(&[&one, &two], "x", secs(60)).await;
    hold.release().await.unwrap();
    for waiter in line {
        within(secs(5), waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    site.is_sound();
}

/// Holds end by the server's wall clock. A step forward ends them early, and their holders are told; a step back
/// keeps them for longer, and never gives one to two holders.
#[tokio::test(flavor = "multi_thread")]
async fn s103_a_clock_that_is_set_costs_holds_at_most_and_fences_rise() {
    let clock = Clock::new().unwrap();
    let site = PostgresSite::alone(Postgres::build().clock(&clock));
    let (one, two) = (site.connect().await, site.connect().await);
    let hold = one.mutex("x").ttl(secs(3)).acquire().await.unwrap();
    clock.advance(-3_600_000).unwrap();
    pause(secs(4)).await;
    assert!(hold.is_live());
    assert!(two.mutex("x").try_acquire().await.unwrap().is_none());
    let fence = hold.fence();
    hold.release().await.unwrap();
    let hold = soon(two.mutex("x").ttl(secs(3)).acquire()).await.unwrap();
    assert!(hold.fence() > fence);
    clock.advance(2 * 3_600_000).unwrap();
    let next = soon(one.mutex("x").ttl(secs(3)).acquire()).await.unwrap();
    assert!(next.fence() > hold.fence());
    soon(hold.lost()).await;
    assert!(next.is_live());
    next.release().await.unwrap();
    site.is_sound();
}
