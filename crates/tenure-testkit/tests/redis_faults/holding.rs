//! Renewals and releases that are late, lost or many.

use std::time::Duration;

use tenure::{Ended, Released};
use tenure_testkit::proxy::Direction;

use crate::redis_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn s44_a_renewal_that_comes_too_late_brings_nothing_back() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    let hold = far.mutex("x").ttl(ms(900)).acquire().await.unwrap();
    proxy.hold(Direction::Upstream);
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    until_free(&near, "x").await;
    // Everything that was sent meanwhile arrives now, and there is nobody else.
    proxy.pass().unwrap();
    pause(ms(300)).await;
    assert_eq!(holders(&near, "x").await, [0; 0]);
    assert!(!hold.is_live());
    assert_eq!(hold.release().await.unwrap(), Released::Late);
    assert!(near.mutex("x").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_renewal_whose_reply_is_lost_is_repeated_and_so_are_later_ones() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    for _ in 0..2 {
        let hold = tenure.mutex("x").ttl(ms(900)).acquire().await.unwrap();
        proxy.drop_replies(1);
        pause(ms(1500)).await;
        assert!(hold.is_live());
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_a_release_whose_reply_is_lost_is_repeated_and_was_in_time() {
    let server = server();
    let proxy = proxy(&server);
    let near = connect(&server.url()).await;
    // From a new client each time, because one whose connection breaks again and again waits longer and longer before
    // the next attempt.
    for _ in 0..10 {
        let far = connect(&through(&proxy, "")).await;
        let hold = far.mutex("y").acquire().await.unwrap();
        proxy.drop_replies(1);
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
        assert_eq!(holders(&near, "y").await, [0; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s49_a_release_without_a_connection_happens_when_there_is_one_again() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    let (hold, gone) = (
        far.mutex("x").ttl(secs(60)).acquire().await.unwrap(),
        far.mutex("y").ttl(ms(600)).acquire().await.unwrap(),
    );
    proxy.refuse().unwrap();
    proxy.reset();
    let began = now();
    drop(hold);
    assert!(now().since(began) < ms(500), "a drop never waits");
    // A hold that cannot be released in time ends by its ttl, and says so.
    assert_eq!(soon(gone.release()).await.unwrap(), Released::Late);
    assert_eq!(holders(&near, "x").await.len(), 1);
    proxy.pass().unwrap();
    until_free(&near, "x").await;
    assert!(now().since(began) < secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn s49_closing_does_not_wait_for_a_server_that_cannot_answer() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    proxy.swallow(Direction::Upstream);
    drop(hold);
    let began = now();
    soon(tenure.close()).await;
    // Until the hold is over by itself, not until a server comes back.
    assert!(now().since(began) < secs(10));
}

fn counter(server: &tenure_testkit::servers::Redis, field: &str) -> u64 {
    server.info(field).and_then(|count| count.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_thousand_holds_are_renewed_together_and_none_is_lost() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let asks: Vec<_> = (0..1000)
        .map(|n| tokio::spawn(tenure.mutex(format!("x{n}")).ttl(secs(3)).join()))
        .collect();
    let mut holds = Vec::new();
    for ask in asks {
        holds.push(served(ask).await);
    }
    let fields = ["total_commands_processed", "total_reads_processed"];
    let before = fields.map(|field| counter(&server, field));
    pause(secs(7)).await;
    let after = fields.map(|field| counter(&server, field));
    assert!(holds.iter().all(|hold| hold.is_live()));
    let (commands, reads) = (after[0] - before[0], after[1] - before[1]);
    assert!(commands >= 4000, "{commands}");
    assert!(reads * 4 < commands, "{commands} commands came in {reads} pieces");
    for hold in holds {
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s55_a_hold_is_at_risk_before_it_is_lost() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    proxy.refuse().unwrap();
    proxy.reset();
    let why = soon(hold.at_risk()).await;
    assert!(hold.is_live(), "{why}");
    // A renewal that succeeds ends the risk.
    proxy.pass().unwrap();
    pause(secs(2)).await;
    assert!(hold.is_live());
    proxy.swallow(Direction::Upstream);
    soon(hold.at_risk()).await;
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
}

#[test]
fn s56_code_that_blocks_the_only_thread_does_not_stop_renewals() {
    let server = server();
    let url = server.url();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tenure = connect(&url).await;
            until_held(&tenure, "x").await;
            let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
            (hold.fence(), now())
        })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tenure = connect(&server.url()).await;
        let hold = tenure.mutex("x").ttl(secs(1)).acquire().await.unwrap();
        std::thread::sleep(Duration::from_millis(2500));
        assert!(hold.is_live() && !other.is_finished());
        let (fence, left) = (hold.fence(), now());
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
        let (next, came) = other.join().unwrap();
        assert!(next > fence && came > left);
    });
}
