//! Servers that have forgotten: keys deleted by hand, FLUSHALL, a crash, a truncated file.

use std::sync::Arc;

use tenure::engine::Moment;
use tenure::{Begun, Ended, Hold, Released, Tenure};
use tenure_testkit::proxy::Direction;
use tenure_testkit::servers::{Fsync, Redis};
use tokio::task::JoinSet;

use crate::redis_site::*;

/// Nothing is granted before every hold that may have been forgotten is over.
const WAITS: &str = "?after_restart=wait&max_ttl=1s&ttl=1s";

#[tokio::test(flavor = "multi_thread")]
async fn s46_a_hold_whose_keys_are_deleted_is_lost_as_forgotten_for_good() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    let key = key_of(&server, "x");
    server.command(&["DEL", &key]).unwrap();
    assert_eq!(within(secs(5), hold.lost()).await, Ended::Forgotten);
    assert!(!hold.is_live() && hold.remaining().is_zero());
    let next = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    assert!(next.fence() > hold.fence());
    // Later requests of the old one change nothing: neither for it nor for the new one.
    assert_eq!(hold.extend(secs(2)).await.unwrap_err().kind(), tenure::ErrorKind::Lost);
    assert_eq!(hold.release().await.unwrap(), Released::Late);
    assert!(next.is_live());
    assert_eq!(next.release().await.unwrap(), Released::InTime);
}

/// The first leave was never answered. That alone does not mean that it has settled anything.
#[tokio::test(flavor = "multi_thread")]
async fn s73_what_a_server_has_forgotten_is_not_reported_as_settled_in_time() {
    for forgets in [false, true] {
        let server = server();
        let proxy = proxy(&server);
        let tenure = connect(&through(&proxy, "")).await;
        let Begun::Mine(run) = tenure.once("x").begin().await.unwrap() else {
            panic!("nobody was before it")
        };
        // It arrives, and its answer is lost; or it never arrives.
        let lost = if forgets { Direction::Upstream } else { Direction::Downstream };
        let sent = proxy.bytes(Direction::Upstream);
        proxy.swallow(lost);
        let settled = tokio::spawn(run.settle(b"done"));
        until("it was sent", async || proxy.bytes(Direction::Upstream) > sent).await;
        if forgets {
            server.command(&["FLUSHALL"]).unwrap();
        } else {
            let watch = connect(&server.url()).await;
            until("it has arrived", async || {
                let view = soon(watch.once("x").inspect()).await.unwrap();
                view.and_then(|view| view.record).is_some_and(|record| record.outcome.is_some())
            })
            .await;
        }
        proxy.pass().unwrap();
        let released = soon(settled).await.unwrap().unwrap();
        assert_eq!(released, if forgets { Released::Late } else { Released::InTime });
    }
}

/// A holder and four waiters, each with a connection of its own.
struct Crowd {
    holder: Hold,
    waiters: JoinSet<(usize, Hold, Moment)>,
    _clients: Vec<Tenure>,
}

async fn crowd(server: &Redis, query: &str) -> Crowd {
    let url = format!("{}{query}", server.url());
    let first = connect(&url).await;
    let holder = first.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    let (mut waiters, mut clients) = (JoinSet::new(), vec![first]);
    for number in 0..4 {
        let client = connect(&url).await;
        let turn = client.mutex("x").ttl(secs(2)).join();
        waiters.spawn(async move {
            let hold = turn.await.unwrap();
            (number, hold, now())
        });
        until_waiting(&clients[0], "x", number + 1).await;
        clients.push(client);
    }
    Crowd { holder, waiters, _clients: clients }
}

/// Serves the whole line, one claim after another: all are back before the first one leaves. Returns the order in
/// which they came.
async fn serve_all(mut crowd: Crowd, gone: Ended) -> Vec<usize> {
    assert_eq!(soon(crowd.holder.lost()).await, gone);
    let mut fence = crowd.holder.fence();
    let mut order = Vec::new();
    while let Some(came) = soon(crowd.waiters.join_next()).await {
        let (number, hold, _) = came.unwrap();
        assert!(hold.fence() > fence, "{:?} after {fence:?}", hold.fence());
        fence = hold.fence();
        if order.is_empty() {
            pause(ms(1500)).await;
        }
        assert!(hold.is_live(), "{number}");
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
        order.push(number);
    }
    order
}

/// The first one that returns is served at once; the others by ticket.
fn in_order_after_the_first(order: &[usize]) -> bool {
    order.len() == 4 && order[1..].is_sorted()
}

#[tokio::test(flavor = "multi_thread")]
async fn s73_after_a_crash_without_persistence_the_line_comes_back_in_order() {
    let server = server();
    let crowd = crowd(&server, "").await;
    server.kill().unwrap();
    server.restart().unwrap();
    let order = serve_all(crowd, Ended::Forgotten).await;
    assert!(in_order_after_the_first(&order), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flushall_ends_the_hold_and_keeps_the_line() {
    let server = server();
    let crowd = crowd(&server, "").await;
    server.command(&["FLUSHALL"]).unwrap();
    let order = serve_all(crowd, Ended::Forgotten).await;
    assert!(in_order_after_the_first(&order), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s75_with_a_file_that_keeps_everything_a_hold_survives_a_crash_and_is_renewed() {
    let server = Redis::build().aof(Fsync::Always).start().unwrap();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(secs(3)).acquire().await.unwrap();
    let next = wait_for(&tenure, "x", secs(3));
    until_waiting(&tenure, "x", 1).await;
    server.kill().unwrap();
    server.restart().unwrap();
    // Longer than its ttl: it is renewed on the new process.
    pause(ms(3500)).await;
    assert!(hold.is_live() && !next.is_finished());
    assert_eq!(holders(&tenure, "x").await, [hold.fence().get()]);
    let fence = hold.fence();
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    assert!(served(next).await.fence() > fence);
}

/// The old holder is cut off, so that its own clock alone tells it that it has lost.
async fn nothing_is_granted_too_early(server: &Redis, forget: impl FnOnce(&Redis)) {
    let proxy = proxy(server);
    let cut_off = connect(&through(&proxy, WAITS)).await;
    let stranger = connect(&format!("{}{WAITS}", server.url())).await;
    let old = cut_off.mutex("x").join();
    let units = [1, 2].map(|_| cut_off.semaphore("s", 2).join());
    let old = Arc::new(soon(old).await.unwrap());
    let mut taken = Vec::new();
    for unit in units {
        taken.push(soon(unit).await.unwrap());
    }
    proxy.swallow(Direction::Upstream);
    proxy.swallow(Direction::Downstream);
    forget(server);
    let (old_too, tenure) = (old.clone(), stranger.clone());
    let lock = tokio::spawn(async move {
        let new = tenure.mutex("x").acquire().await.unwrap();
        assert!(!old_too.is_live(), "two holders");
        assert!(new.fence() > old_too.fence());
    });
    let unit = stranger.semaphore("s", 2).acquire();
    let unit = soon(unit).await.unwrap();
    assert!(taken.iter().all(|old| !old.is_live() && old.fence() < unit.fence()));
    soon(lock).await.unwrap();
    assert_eq!(soon(old.lost()).await, Ended::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_restart_wait_a_flushed_server_grants_nothing_before_old_holds_are_over() {
    let server = server();
    nothing_is_granted_too_early(&server, |server| {
        server.command(&["FLUSHALL"]).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_restart_wait_a_new_process_grants_nothing_before_old_holds_are_over() {
    let server = server();
    nothing_is_granted_too_early(&server, |server| server.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s74_a_file_that_lost_its_end_costs_a_wait_and_no_second_holder() {
    let server = Redis::build().aof(Fsync::EverySec).start().unwrap();
    nothing_is_granted_too_early(&server, |server| {
        server.kill().unwrap();
        let folder = server.directory().join("appendonlydir");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let log = files.into_iter().find(|file| file.to_string_lossy().ends_with(".incr.aof"));
        let log = std::fs::File::options().write(true).open(log.unwrap()).unwrap();
        let length = log.metadata().unwrap().len();
        assert!(length > 0);
        log.set_len(length.saturating_sub(4096)).unwrap();
        server.restart().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_restart_wait_a_hold_that_hears_of_it_is_forgotten_and_tries_are_busy() {
    let server = server();
    let tenure = connect(&format!("{}{WAITS}", server.url())).await;
    // A new server waits once: it may have replaced another one.
    let began = now();
    let hold = tenure.mutex("x").acquire().await.unwrap();
    assert!(now().since(began) > ms(700), "{:?}", now().since(began));
    server.command(&["FLUSHALL"]).unwrap();
    assert!(tenure.mutex("y").try_acquire().await.unwrap().is_none());
    assert_eq!(soon(hold.lost()).await, Ended::Forgotten);
    let error = tenure.mutex("z").ttl(secs(2)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), tenure::ErrorKind::Invalid, "{error}");
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_a_new_server_grants_at_once() {
    let server = server();
    let tenure = connect(&server.url()).await;
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some());
    server.command(&["FLUSHALL"]).unwrap();
    assert!(tenure.mutex("y").try_acquire().await.unwrap().is_some());
    server.restart().unwrap();
    assert!(soon(tenure.mutex("z").try_acquire()).await.unwrap().is_some());
}
