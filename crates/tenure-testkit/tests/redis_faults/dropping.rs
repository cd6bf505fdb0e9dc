//! Futures that are dropped: while they wait, at the moment of the grant, before the guard exists.

use tenure::Tenure;
use tenure_testkit::proxy::Direction;
use tenure_testkit::rng::Rng;

use crate::probe_redis::*;

#[tokio::test(flavor = "multi_thread")]
async fn s14_a_dropped_waiter_leaves_the_line() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut rng = Rng::new(14);
    for _ in 0..40 {
        let mut line: Vec<_> = (0..10).map(|_| Box::pin(tenure.mutex("x").join())).collect();
        for waiter in &mut line {
            assert!(poll_once(waiter).is_pending());
        }
        pause(ms(rng.between(0, 6))).await;
    }
    until_waiting(&tenure, "x", 0).await;
    hold.release().await.unwrap();
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_turn_that_nobody_takes_is_passed_on_at_once() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut rng = Rng::new(15);
    for round in 0..400 {
        let hold = ours.mutex("x").acquire().await.unwrap();
        let mut given_up = Box::pin(theirs.mutex("x").join());
        assert!(poll_once(&mut given_up).is_pending());
        let next = wait_for(&ours, "x", secs(30));
        if round % 2 == 0 {
            until_waiting(&ours, "x", 2).await;
        }
        let release = tokio::spawn(hold.release());
        // Aimed at the moment of the hand-over.
        for _ in 0..rng.between(0, 2000) {
            std::hint::spin_loop();
        }
        if rng.between(0, 3) == 0 {
            let _ = poll_once(&mut given_up);
        }
        drop(given_up);
        // Far below the first life of a turn that nobody gave back.
        drop(within(ms(1500), next).await.unwrap().unwrap());
        soon(release).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_grant_that_arrives_after_its_future_was_dropped_is_given_back() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    // The server knows the script from now on: a claim is one request.
    drop(soon(far.mutex("first").acquire()).await.unwrap());
    for round in 0..10 {
        let name = format!("x{round}");
        proxy.delay(Direction::Downstream, ms(80));
        let mut claim = Box::pin(far.mutex(&name).ttl(secs(60)).join());
        assert!(poll_once(&mut claim).is_pending());
        until_held(&near, &name).await;
        drop(claim);
        until_free(&near, &name).await;
        proxy.pass().unwrap();
    }
}

/// Asks for names of its own, drops most of what it asked for, and checks what it is given.
async fn ask_and_drop(tenure: Tenure, worker: u64, rounds: u64) {
    let mut rng = Rng::new(worker);
    let mut last = [0; 4];
    for round in 0..rounds {
        let pick = rng.between(0, 3);
        let (name, owner) = (format!("w{worker}:{pick}"), format!("{worker}-{round}"));
        let mut claim = Box::pin(tenure.mutex(&name).owner(&owner).join());
        match rng.between(0, 3) {
            0 => {
                let hold = soon(claim).await.unwrap();
                assert_eq!(hold.name(), name);
                let seen = view(&tenure, &name).await.unwrap();
                assert_eq!(seen.name.as_str(), name);
                assert_eq!(seen.holders.len(), 1);
                assert_eq!(seen.holders[0].fence, hold.fence());
                assert_eq!(seen.holders[0].details.owner, owner);
                let last = &mut last[pick as usize];
                assert!(hold.fence().get() > *last);
                *last = hold.fence().get();
            }
            1 => drop(claim),
            2 => drop(poll_once(&mut claim)),
            _ => {
                let _ = tokio::time::timeout(ms(rng.between(0, 2)), claim).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_dropped_futures_never_shift_the_replies_of_others() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let workers: Vec<_> =
        (0..10).map(|worker| tokio::spawn(ask_and_drop(tenure.clone(), worker, 1000))).collect();
    for worker in workers {
        within(secs(60), worker).await.unwrap();
    }
    until("nothing is left", async || soon(tenure.list("")).await.unwrap().is_empty()).await;
}
