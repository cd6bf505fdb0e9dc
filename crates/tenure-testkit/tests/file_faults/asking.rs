//! Claims: refused, dropped, repeated, many at once.

use tenure::{ErrorKind, Tenure};
use tenure_testkit::rng::Rng;

use crate::file_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_ttl_that_cannot_be_kept_is_refused_before_anything_is_written() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    for ttl in [ms(0), ms(49), secs(24 * 3600 + 1), std::time::Duration::MAX] {
        let error = tenure.mutex("x").ttl(ttl).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    for query in ["?ttl=10ms", "?tll=5s", "?wait=nan", "?guard=0x10"] {
        let refused = Tenure::connect(&format!("{}{query}", site.url())).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{query}");
    }
    assert_eq!(site.number("SELECT count(*) FROM name"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_try_neither_waits_nor_passes_the_line() {
    let site = FileSite::new();
    let (tenure, mut other) = (site.connect().await, ChildProcess::on(&site).await);
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut line: Vec<_> = (0..5).map(|_| wait_for(&tenure, "x", secs(30))).collect();
    until_waiting(&tenure, "x", 5).await;
    other.tell("try a x 1000");
    other.hears("busy a").await;
    hold.release().await.unwrap();
    let first = served(line.remove(0)).await;
    other.tell("try b x 1000");
    other.hears("busy b").await;
    assert_eq!(view(&tenure, "x").await.unwrap().waiters.len(), 4);
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_waits_that_are_shorter_than_a_step_end_and_leave_nothing() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut asks = Vec::new();
    for round in 0..300 {
        let wait = [ms(0), ms(1), ms(5)][round % 3];
        let name = if round % 2 == 0 { "shared".to_owned() } else { format!("own{round}") };
        let ask = tenure.mutex(name).wait(wait).join();
        asks.push(tokio::spawn(async move {
            let began = now();
            let answer = ask.await;
            assert!(now().since(began) < wait + secs(5));
            if let Err(error) = answer {
                let kinds = [ErrorKind::WaitOver, ErrorKind::Unavailable];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
        }));
    }
    for ask in asks {
        soon(ask).await.unwrap();
    }
    until("all are gone", async || tenure.list("").await.unwrap().is_empty()).await;
    assert!(tenure.mutex("shared").try_acquire().await.unwrap().is_some());
}

/// Claims its own names, drops most of the requests, and checks what it is granted.
async fn ask_and_drop(tenure: Tenure, worker: u64, rounds: u64) {
    let mut rng = Rng::new(worker);
    for round in 0..rounds {
        let (name, owner) =
            (format!("w{worker}:{}", rng.between(0, 3)), format!("{worker}-{round}"));
        let claim = tenure.mutex(&name).owner(&owner).join();
        match rng.between(0, 3) {
            0 => {
                let hold = soon(claim).await.unwrap();
                let seen = view(&tenure, &name).await.unwrap();
                assert_eq!(seen.holders.len(), 1);
                assert_eq!(seen.holders[0].fence, hold.fence());
                assert_eq!(seen.holders[0].details.owner, owner);
            }
            1 => drop(claim),
            _ => {
                let _ = tokio::time::timeout(ms(rng.between(0, 2)), claim).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_dropped_futures_never_shift_the_answers_of_others() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let workers: Vec<_> =
        (0..10).map(|worker| tokio::spawn(ask_and_drop(tenure.clone(), worker, 100))).collect();
    for worker in workers {
        within(secs(60), worker).await.unwrap();
    }
    until("nothing is left", async || tenure.list("").await.unwrap().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s35_the_dead_do_not_fill_the_line() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let mut other = ChildProcess::on(&site).await;
    for tag in ["a", "b", "c"] {
        other.tell(&format!("claim {tag} x 600000"));
    }
    until_waiting(&tenure, "x", 3).await;
    let error = tenure.mutex("x").max_waiters(3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    other.kill();
    other.reap();
    let waiter = tokio::spawn(tenure.mutex("x").max_waiters(3).join());
    until_waiting(&tenure, "x", 1).await;
    hold.release().await.unwrap();
    drop(served(waiter).await);
}

/// Units of the dead come back, each once.
#[tokio::test(flavor = "multi_thread")]
async fn s37_units_of_the_dead_come_back_and_never_twice() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut other = ChildProcess::on(&site).await;
        other.tell("units a x 2 8 600000");
        other.hears("held a").await;
        others.push(other);
    }
    assert!(tenure.semaphore("x", 8).try_acquire().await.unwrap().is_none());
    let mut units = Vec::new();
    for (round, mut other) in others.into_iter().enumerate() {
        other.kill();
        other.reap();
        while let Some(unit) = tenure.semaphore("x", 8).try_acquire().await.unwrap() {
            units.push(unit);
        }
        assert_eq!(units.len(), (round + 1) * 2);
    }
    units.truncate(5);
    until("the rest is free", async || {
        let view = view(&tenure, "x").await.unwrap();
        view.holders.iter().map(|holder| holder.weight).sum::<u32>() == 5
    })
    .await;
    drop(tenure.semaphore("x", 8).acquire_many(3).await.unwrap());
    site.is_sound();
}

/// A thousand in one line, in two clients: each hand-over notifies only the claims that it affects.
#[tokio::test(flavor = "multi_thread")]
async fn s41_a_long_line_is_handed_over_without_reading_all_of_it() {
    let site = FileSite::new();
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let hold = ours.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    let mut line = Vec::new();
    for number in 0..1000 {
        let client = if number % 2 == 0 { &ours } else { &theirs };
        let turn = client.mutex("x").ttl(secs(600)).join();
        line.push(tokio::spawn(async move {
            let hold = turn.await.unwrap();
            let fence = hold.fence();
            hold.release().await.unwrap();
            fence
        }));
    }
    until_waiting(&ours, "x", 1000).await;
    let began = now();
    hold.release().await.unwrap();
    let mut fences = Vec::new();
    for waiter in line {
        fences.push(soon(waiter).await.unwrap());
    }
    println!("1000 hand-overs in {:?}", began.until(now()));
    fences.sort();
    fences.dedup();
    assert_eq!(fences.len(), 1000);
    site.is_sound();
}
