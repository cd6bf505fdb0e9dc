//! Waiting claims: pushes that are lost, processes that are gone.

use std::time::Instant;

use tenure::Tenure;
use tenure_testkit::servers::Postgres;

use crate::postgres_site::*;

/// The backends of the sessions that listen.
const LISTENERS: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
    AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread")]
async fn nobody_listens_unless_someone_waits_or_holds_for_long() {
    let site = PostgresSite::new();
    let (one, two) = (site.connect().await, site.connect().await);
    let hold = one.mutex("x").acquire().await.unwrap();
    let next = wait_for(&two, "x", secs(30));
    until_waiting(&one, "x", 1).await;
    assert!(site.number(LISTENERS) >= 1);
    hold.release().await.unwrap();
    served(next).await.release().await.unwrap();
    until("nobody listens any more", async || site.number(LISTENERS) == 0).await;
    for _ in 0..20 {
        one.mutex("x").acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(site.number(LISTENERS), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_waiter_whose_process_was_killed_is_passed_over_at_once() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let mut dead = ChildProcess::on(&site).await;
    dead.tell("claim a x 60000");
    until_waiting(&tenure, "x", 1).await;
    let next = wait_for(&tenure, "x", secs(60));
    until_waiting(&tenure, "x", 2).await;
    drop(dead);
    until_waiting(&tenure, "x", 1).await;
    let began = now();
    hold.release().await.unwrap();
    let next = served(next).await;
    // No first life is spent on a dead process.
    assert!(now().since(began) < ms(1900), "{:?}", now().since(began));
    next.release().await.unwrap();
    site.is_sound();
}

/// An administrator ends the session that listens: the claim reconnects by itself and hears its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_killed_is_replaced_and_no_turn_is_lost() {
    let site = PostgresSite::new();
    let (one, two) = (site.connect().await, site.connect().await);
    let mut hold = one.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    for _ in 0..5 {
        let next = wait_for(&two, "x", secs(60));
        until_waiting(&one, "x", 1).await;
        site.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
            AND mode = 'ExclusiveLock'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
        hold.release().await.unwrap();
        hold = within(secs(10), next).await.unwrap().unwrap();
    }
    hold.release().await.unwrap();
    site.is_sound();
}

/// Nothing that a waiter relies on comes by push: every one is swallowed by the network.
#[tokio::test(flavor = "multi_thread")]
async fn everyone_is_served_although_nobody_listens() {
    let site = PostgresSite::new();
    let url = format!("{}?listen=never", site.url());
    let clients = [connect(&url).await, connect(&url).await];
    // A long ttl, so that the end of a hold helps nobody.
    let hold = clients[0].mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let line = line_up(&[&clients[0], &clients[1], &clients[0]], "x", secs(60)).await;
    hold.release().await.unwrap();
    for waiter in line {
        // A second until it looks, with room for a busy machine.
        let hold = within(secs(5), waiter).await.unwrap().unwrap();
        hold.release().await.unwrap();
    }
    site.is_sound();
}

/// Waiters look now and then, all of them together.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_waiters_ask_next_to_nothing() {
    let site = PostgresSite::alone(Postgres::build().setting("log_statement=all"));
    let holder = site.connect().await;
    let tenure = Tenure::connect(&site.url()).await.unwrap();
    let hold = holder.mutex("x").ttl(secs(3600)).acquire().await.unwrap();
    let line: Vec<_> = (0..200).map(|_| wait_for(&tenure, "x", secs(60))).collect();
    until_waiting(&holder, "x", 200).await;
    // Their first looks are over.
    pause(secs(5)).await;
    let before = executed(&site);
    pause(secs(22)).await;
    let asked = executed(&site) - before;
    assert!((1..=12).contains(&asked), "{asked} statements in 22 s");
    assert_eq!(site.number("SELECT waiting FROM tenure.name WHERE name = 'x'"), 200);
    line.iter().for_each(|waiter| waiter.abort());
    hold.release().await.unwrap();
    site.is_sound();
}

/// How many statements of programs the server has executed.
fn executed(site: &PostgresSite) -> usize {
    let log = std::fs::read_to_string(site.server().directory().join("server.log")).unwrap();
    log.lines().filter(|line| line.contains("execute <unnamed>")).count()
}

/// A leave is not sent again and again while it is on its way: each would be one more commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_leave_that_takes_its_time_is_not_sent_every_few_milliseconds() {
    let site = PostgresSite::alone(Postgres::build().setting("log_statement=all"));
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&site.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = "BEGIN; SELECT FROM tenure.name WHERE name = 'x' FOR UPDATE";
    client.batch_execute(lock).await.unwrap();
    let (began, release) = (Instant::now(), tokio::spawn(hold.release()));
    pause(ms(700)).await;
    client.batch_execute("COMMIT").await.unwrap();
    soon(release).await.unwrap().unwrap();
    // At once, and every 200 ms; and that of the second hold.
    let most = 2 + began.elapsed().as_millis() as usize / 200;
    tenure.mutex("x").acquire().await.unwrap().release().await.unwrap();
    // Those of the watchdog go over another connection.
    pause(ms(300)).await;
    let log = std::fs::read_to_string(site.server().directory().join("server.log")).unwrap();
    let sent = log.lines().filter(|line| line.contains("tenure_v1.leave($1)"));
    let sent = sent.filter(|line| line.contains("execute <unnamed>")).count();
    assert!((2..=most).contains(&sent), "{sent} leaves, and not {most} at most");
    site.is_sound();
}

/// Nobody answers at the address to listen at: waiters are served, and the server is not asked all the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_listen_address_that_does_not_answer_causes_no_storm() {
    let site = PostgresSite::alone(Postgres::build().setting("log_statement=all"));
    let proxy = site.proxy();
    proxy.refuse().unwrap();
    let url = format!("{}?listen=127.0.0.1:{}", site.url(), proxy.port());
    let tenure = Tenure::connect(&url).await.unwrap();
    let other = site.connect().await;
    let hold = other.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let own = tenure.mutex("own").ttl(ms(900)).acquire().await.unwrap();
    let line: Vec<_> = (0..20).map(|_| wait_for(&tenure, "x", secs(3))).collect();
    until_waiting(&other, "x", 20).await;
    pause(secs(6)).await;
    let before = executed(&site);
    pause(secs(4)).await;
    let asked = executed(&site) - before;
    assert!(asked < 60, "{asked} statements in 4 s");
    assert!(own.is_live());
    line[3..].iter().for_each(|waiter| waiter.abort());
    hold.release().await.unwrap();
    for waiter in line.into_iter().take(3) {
        served(waiter).await.release().await.unwrap();
    }
    site.is_sound();
}
