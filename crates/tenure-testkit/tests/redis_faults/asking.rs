//! Claims on a bad network: replies that are lost, refusals, requests that come twice.

use tenure::ErrorKind;
use tenure_testkit::proxy::Direction;

use crate::redis_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_grant_whose_reply_is_lost_is_found_again_and_not_doubled() {
    let server = server();
    let proxy = proxy(&server);
    let (tenure, watch) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    // The server knows the script from now on: a claim is one request.
    drop(soon(tenure.mutex("first").acquire()).await.unwrap());
    for round in 0..10 {
        let name = format!("x{round}");
        proxy.hold(Direction::Downstream);
        let claim = tokio::spawn(tenure.mutex(&name).join());
        until_held(&watch, &name).await;
        let granted = holders(&watch, &name).await;
        // The held reply dies with its connection.
        proxy.refuse().unwrap();
        proxy.reset();
        until("the connection is cut", async || proxy.connections() == 0).await;
        proxy.pass().unwrap();
        let hold = served(claim).await;
        assert_eq!(vec![hold.fence().get()], granted);
        assert_eq!(holders(&watch, &name).await, granted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_every_reply_may_be_lost_once_and_all_are_served_once() {
    let server = server();
    let proxy = proxy(&server);
    let (tenure, watch) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    let mut last = 0;
    for round in 0..40 {
        // The answers to a claim, to a claim that has to wait, to a release and to what follows.
        proxy.drop_replies(1 + round % 2);
        let hold = soon(tenure.mutex("x").acquire()).await.unwrap();
        let waiter = (round % 3 == 0).then(|| wait_for(&tenure, "x", secs(30)));
        let view = view(&watch, "x").await.unwrap();
        assert_eq!(view.holders.len(), 1);
        assert_eq!(view.holders[0].fence, hold.fence());
        assert!(hold.fence().get() > last);
        last = hold.fence().get();
        drop(hold);
        if let Some(waiter) = waiter {
            let fence = served(waiter).await.fence().get();
            assert!(fence > last);
            last = fence;
        }
    }
    proxy.pass().unwrap();
    until_free(&watch, "x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_try_does_not_pass_the_line_and_a_dead_network_is_not_busy() {
    let server = server();
    let proxy = proxy(&server);
    let (tenure, far) = (
        connect(&server.url()).await,
        connect(&through(&proxy, "?connect_timeout=300ms&command_timeout=300ms")).await,
    );
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut line: Vec<_> = (0..5).map(|_| wait_for(&tenure, "x", secs(30))).collect();
    until_waiting(&tenure, "x", 5).await;
    assert!(far.mutex("x").try_acquire().await.unwrap().is_none());
    hold.release().await.unwrap();
    let first = served(line.remove(0)).await;
    assert!(far.mutex("x").try_acquire().await.unwrap().is_none());
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());

    // Cut in the middle of a try for a name that is taken: that is not a refusal, but a missing answer.
    proxy.hold(Direction::Downstream);
    let attempt = tokio::spawn(async move { far.mutex("x").try_acquire().await });
    pause(ms(50)).await;
    proxy.refuse().unwrap();
    proxy.reset();
    let error = soon(attempt).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_waits_shorter_than_a_round_trip_end_and_leave_nothing() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    proxy.delay(Direction::Upstream, ms(20));
    let mut asks = Vec::new();
    for round in 0..120 {
        let wait = [ms(0), ms(1), ms(5)][round % 3];
        let name = if round % 2 == 0 { "shared".to_owned() } else { format!("own{round}") };
        let ask = tenure.mutex(name).wait(wait).join();
        asks.push(tokio::spawn(async move {
            let began = now();
            let answer = ask.await;
            assert!(now().since(began) < wait + secs(3));
            if let Err(error) = answer {
                let kinds = [ErrorKind::WaitOver, ErrorKind::Unavailable];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }));
    }
    for ask in asks {
        soon(ask).await.unwrap();
    }
    proxy.pass().unwrap();
    // What an unanswered claim may still do is remembered for a minute; nobody holds or waits.
    for view in soon(tenure.list("")).await.unwrap() {
        let name = view.name.as_str().to_owned();
        until("it is left", async || self::view(&tenure, &name).await.is_none()).await;
    }
    assert!(tenure.mutex("shared").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_a_release_while_the_waiter_is_still_connecting_is_not_missed() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    for round in 0..8 {
        let hold = near.mutex("x").acquire().await.unwrap();
        proxy.delay(Direction::Downstream, ms(5 * round));
        proxy.reset();
        let waiter = wait_for(&far, "x", secs(30));
        // Anywhere between its connect, its login, its subscription and its claim.
        pause(ms(4 * round)).await;
        hold.release().await.unwrap();
        drop(within(secs(8), waiter).await.unwrap().unwrap());
        proxy.pass().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_ttl_that_cannot_be_kept_is_refused_before_anything_is_sent() {
    let server = server();
    let tenure = connect(&server.url()).await;
    for ttl in [ms(0), ms(49), secs(24 * 3600 + 1), std::time::Duration::MAX] {
        let error = tenure.mutex("x").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    for query in ["?ttl=10ms", "?max_ttl=25h", "?max_ttl=1s&ttl=2s"] {
        let refused = tenure::Tenure::connect(&format!("{}{query}", server.url())).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(keys(&server).is_empty());
}
