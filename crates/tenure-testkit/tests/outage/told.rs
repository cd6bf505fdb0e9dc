//! The errors while the engine does not serve: they never say that others hold the name.

use std::time::Duration;

use tenure::{ErrorKind, Hold, Tenure};
use tracing::Level;

use super::events::{changes, keep, written};
use crate::redis_site::*;

fn unavailable(error: &tenure::Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(words), "{words} is not in: {error}");
}

/// The wait ends when it should: not before, and not much later.
async fn waits(tenure: &Tenure, name: &str, wait: Duration) -> tenure::Result<Hold> {
    let began = now();
    let asked = within(wait + secs(10), tenure.mutex(name).wait(wait).acquire()).await;
    let took = now().since(began);
    assert!(took >= wait && took < wait + secs(2), "{wait:?} took {took:?}");
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_server_are_reported_in_its_own_words() {
    for (word, settings) in [
        ("OOM", &["CONFIG", "SET", "maxmemory", "1"][..]),
        ("NOREPLICAS", &["CONFIG", "SET", "min-replicas-to-write", "1"]),
        ("replica", &["REPLICAOF", "127.0.0.1", "1"]),
    ] {
        let server = server();
        let tenure = connect(&server.url()).await;
        drop(soon(tenure.mutex("x").acquire()).await.unwrap());
        server.command(settings).unwrap();
        unavailable(&waits(&tenure, "x", ms(1500)).await.unwrap_err(), word);
        unavailable(&soon(tenure.mutex("x").try_acquire()).await.unwrap_err(), word);
        let begun = soon(tenure.once("x").wait(ms(500)).begin()).await;
        unavailable(&begun.unwrap_err(), word);
    }
}

/// Someone held it, according to an old answer of the engine.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_wait_reports_that_the_engine_went_away() {
    for hung in [false, true] {
        let server = server();
        let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
        let _held = soon(theirs.mutex("x").ttl(secs(60)).acquire()).await.unwrap();
        let (waiting, once) = (ours.clone(), ours.clone());
        let _run = soon(theirs.once("x").ttl(secs(60)).begin()).await.unwrap();
        let waits = tokio::spawn(async move { waits(&waiting, "x", secs(5)).await });
        let begins = tokio::spawn(async move { once.once("x").wait(secs(5)).begin().await });
        until_waiting(&theirs, "x", 1).await;
        if hung {
            server.pause().unwrap()
        } else {
            server.kill().unwrap()
        }
        unavailable(&soon(waits).await.unwrap().unwrap_err(), "");
        unavailable(&soon(begins).await.unwrap().unwrap_err(), "");
    }
}

/// If it is known that others hold it, the error still says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_over_still_says_who_has_it() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let _held = soon(theirs.mutex("x").ttl(secs(60)).acquire()).await.unwrap();
    for wait in [ms(50), ms(3000)] {
        let error = waits(&ours, "x", wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitOver, "{error}");
        assert!(error.to_string().contains("held by"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_logs_that_the_engine_is_gone_and_back() {
    keep();
    let server = server();
    let tenure = connect(&server.url()).await;
    let label = tenure.profile().label.clone();
    let said = || written("engine", &label, &["engine.down", "engine.up"]);
    for round in 0..2 {
        if round == 0 {
            server.kill().unwrap()
        } else {
            server.pause().unwrap()
        }
        let waits = tokio::spawn(tenure.mutex("x").wait(secs(60)).join());
        until("it is written that it is gone", async || said().len() == 2 * round + 1).await;
        if round == 0 {
            server.restart().unwrap()
        } else {
            server.resume().unwrap()
        }
        drop(served(waits).await);
        until("it is written that it is back", async || said().len() == 2 * round + 2).await;
    }
    assert_eq!(said(), changes(2));
    // Nobody asks for anything: a renewal detects the outage.
    let hold = soon(tenure.mutex("x").ttl(secs(3)).acquire()).await.unwrap();
    server.kill().unwrap();
    until("it is written once more", async || said().len() == 5).await;
    drop(hold);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_missing_at_the_start_is_logged_and_so_is_its_arrival() {
    keep();
    let server = server();
    server.kill().unwrap();
    let tenure = soon(Tenure::connect(&server.url())).await.unwrap();
    let label = tenure.profile().label.clone();
    let said = || written("engine", &label, &["engine.down", "engine.up"]);
    assert_eq!(said(), [(Level::ERROR, "engine.down".to_owned())]);
    server.restart().unwrap();
    until("it is written that it is there", async || said() == changes(1)).await;
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
}
