//! Futures that are dropped: while they wait, at the moment of the grant, before the guard exists.

use tenure::Tenure;
use tenure_testkit::proxy::Direction;
use tenure_testkit::rng::Rng;

use crate::redis_site::*;

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

/// Claims its own names, drops most of the requests, and checks what it is granted.
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
