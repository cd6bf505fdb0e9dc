//! Holds without an engine, and holds from before: renewed, extended, lost and left like any other.

use tenure::{Ended, ErrorKind, Protection, Released};

use super::policies::{POLICIES, connect_with, until_protected};
use crate::redis_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_without_an_engine_is_renewed_extended_and_released() {
    for (_, policy, protection) in POLICIES {
        let server = server();
        let tenure = connect_with(&server, policy).await;
        server.kill().unwrap();
        let hold = soon(tenure.mutex("x").ttl(secs(1)).acquire()).await.unwrap();
        assert_eq!(hold.protection(), protection);
        pause(ms(2500)).await;
        assert!(hold.is_live(), "it was not renewed");
        hold.extend(secs(60)).await.unwrap();
        assert!(hold.remaining() > secs(30));
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);

        let brief = tenure.mutex("x").ttl(ms(300)).renew(false).acquire().await.unwrap();
        assert_eq!(soon(brief.lost()).await, Ended::Expired);
        assert_eq!(soon(brief.release()).await.unwrap(), Released::Late);

        let error = soon(tenure.mutex("x").acquire()).await.unwrap().detach().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("could not be reached"), "{error}");
        // It was released.
        let done = soon(tenure.mutex("x").run(async |hold| hold.protection())).await.unwrap();
        assert_eq!(done, protection);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_primitive_continues_in_order() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    server.kill().unwrap();
    let both = soon(tenure.all(["a", "b"]).acquire()).await.unwrap();
    assert_eq!(both.protection(), Protection::Local);
    assert_eq!(both.fences().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
    assert!(soon(tenure.all(["b", "c"]).try_acquire()).await.unwrap().is_none());
    drop(soon(tenure.mutex("c").try_acquire()).await.unwrap().expect("it was given back"));
    both.release().await.unwrap();

    let two = soon(tenure.semaphore("s", 3).acquire_many(2)).await.unwrap();
    let one = soon(tenure.semaphore("s", 3).acquire()).await.unwrap();
    assert!(soon(tenure.semaphore("s", 3).try_acquire()).await.unwrap().is_none());
    let error = soon(tenure.mutex("s").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    drop(two);
    drop(soon(tenure.semaphore("s", 3).acquire_many(2)).await.unwrap());
    drop(one);

    let readers = [soon(tenure.rwlock("r").read()).await, soon(tenure.rwlock("r").read()).await];
    assert!(soon(tenure.rwlock("r").try_write()).await.unwrap().is_none());
    let writer = tokio::spawn(tenure.rwlock("r").join_write());
    assert!(soon(tenure.rwlock("r").try_read()).await.unwrap().is_none(), "a writer waits");
    drop(readers);
    assert_eq!(served(writer).await.protection(), Protection::Local);
}

/// Its time ran out, and its work may still run.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_from_before_is_lost_in_time_and_keeps_others_of_this_process_out() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    assert_eq!(hold.protection(), Protection::Engine);
    server.pause().unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    // From here on, no claim asks the engine.
    drop(soon(tenure.mutex("y").acquire()).await.unwrap());
    let next = tokio::spawn(tenure.mutex("x").join());
    pause(ms(500)).await;
    assert!(!next.is_finished(), "the work of the one before may still run");
    let fence = hold.fence();
    drop(hold);
    let next = served(next).await;
    assert_eq!(next.protection(), Protection::Local);
    assert_eq!(next.fence(), fence);
    server.resume().unwrap();
}

/// The same after the outage: the server has granted the name to others meanwhile, but this process does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_was_lost_keeps_others_of_this_process_out_when_the_engine_is_back() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    let hold = tenure.mutex("x").ttl(secs(1)).acquire().await.unwrap();
    server.kill().unwrap();
    soon(hold.lost()).await;
    server.restart().unwrap();
    drop(until_protected(&tenure, "y").await);
    assert!(soon(tenure.mutex("x").try_acquire()).await.unwrap().is_none());
    drop(hold);
    assert_eq!(soon(tenure.mutex("x").acquire()).await.unwrap().protection(), Protection::Engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_hold_frees_the_line_of_this_process() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    server.kill().unwrap();
    let ask = || tenure.mutex("x").ttl(ms(800)).max_hold(ms(1_000));
    let hung = soon(ask().acquire()).await.unwrap();
    let lost = hung.lost();
    let waiters: Vec<_> = (0..5).map(|_| tokio::spawn(ask().join())).collect();
    assert_eq!(soon(lost).await, Ended::MaxHold);
    // Each of these hangs as well, and each has its full time: its holder is told before the next one starts.
    let mut all = vec![hung];
    for waiter in waiters {
        let hold = served(waiter).await;
        assert!(hold.is_live());
        assert!(all.iter().all(|before| !before.is_live()), "two are inside");
        all.push(hold);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_for_keeps_the_line_of_this_process() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    server.kill().unwrap();
    let hold = soon(tenure.mutex("x").hold_for(ms(1500)).acquire()).await.unwrap();
    let granted = now();
    assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
    assert!(soon(tenure.mutex("x").try_acquire()).await.unwrap().is_none());
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
    assert!(now().since(granted) >= ms(1400), "after {:?}", now().since(granted));
}

/// Claims in the local line can be dropped and closed like any other.
#[tokio::test(flavor = "multi_thread")]
async fn local_waiters_can_be_dropped_and_closed() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    for down in [false, true] {
        if down {
            server.kill().unwrap();
        }
        let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
        let dropped = tokio::spawn(tenure.mutex("x").join());
        let next = tokio::spawn(tenure.mutex("x").join());
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        drop(hold);
        let next = served(next).await;
        let waits = tokio::spawn(tenure.mutex("x").join());
        if down {
            soon(tenure.close()).await;
            let error = soon(waits).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert!(!next.is_live());
        } else {
            drop(next);
            drop(served(waits).await);
        }
    }
}
