//! Connections that break: backends that are killed, servers that restart, answers that are lost.

use tenure::Released;
use tenure_testkit::servers::Postgres;

use crate::postgres_site::*;

const OTHERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_outlives_the_end_of_all_its_sessions() {
    let site = PostgresSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(secs(3)).acquire().await.unwrap();
    for _ in 0..4 {
        site.sql(OTHERS);
        pause(ms(700)).await;
        assert!(hold.is_live());
    }
    assert_eq!(holders(&tenure, "x").await, [hold.fence().get()]);
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    site.is_sound();
}

/// The answer to a claim is lost with its connection after the commit: the claim is found, not made twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_answer_was_lost_is_found() {
    let site = PostgresSite::new();
    let proxy = site.proxy();
    let tenure = connect(&site.through(&proxy, "?connections=1&command_timeout=1s")).await;
    let near = site.connect().await;
    for round in 0..5 {
        // The reply to the claim is dropped, and then the connection.
        proxy.drop_replies(1);
        let hold = soon(tenure.mutex("x").ttl(secs(60)).acquire()).await.unwrap();
        assert_eq!(holders(&near, "x").await, [hold.fence().get()], "round {round}");
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
        until_free(&near, "x").await;
    }
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_holds_and_places() {
    let site = PostgresSite::alone(Postgres::build().setting("fsync=on"));
    let (one, two) = (site.connect().await, site.connect().await);
    let hold = one.mutex("x").ttl(secs(20)).acquire().await.unwrap();
    let next = wait_for(&two, "x", secs(20));
    until_waiting(&one, "x", 1).await;
    for crash in [true, false] {
        if crash {
            site.server().kill().unwrap();
        } else {
            site.server().stop().unwrap();
        }
        site.server().restart().unwrap();
        until("it is the same hold", async || {
            one.inspect("x").await.is_ok_and(|view| {
                view.is_some_and(|view| view.holders.iter().any(|it| it.fence == hold.fence()))
            })
        })
        .await;
        until_waiting(&one, "x", 1).await;
    }
    assert!(hold.is_live() && !next.is_finished());
    let fence = hold.fence();
    soon(hold.release()).await.unwrap();
    assert!(served(next).await.fence() > fence);
    site.is_sound();
}

/// A server that stands still for less than a ttl costs nobody a hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_and_recovers_costs_no_hold() {
    let site = PostgresSite::alone(Postgres::build());
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").ttl(secs(12)).acquire().await.unwrap();
    site.server().pause().unwrap();
    pause(secs(4)).await;
    site.server().resume().unwrap();
    until("it answers", async || tenure.inspect("x").await.is_ok()).await;
    assert!(hold.is_live());
    assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
    let again = soon(tenure.mutex("x").acquire()).await.unwrap();
    soon(again.release()).await.unwrap();
}
