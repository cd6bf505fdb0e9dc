//! Acquiring: claims that give up, claims that can never be granted, claims that others find.

use tenure::Ended;
use tenure::ErrorKind;
use tenure::engine::{Claim, ClaimId, Leave, Left, Name, Space, SystemWorld, Verdict, World};
use tenure_testkit::rng::Rng;

use crate::fixtures::*;

pub(super) async fn s14_a_dropped_waiter_leaves_the_line(site: &impl Site) {
    let tenure = site.connect().await;
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

pub(super) async fn s15_a_turn_that_nobody_takes_is_passed_on_at_once(site: &impl Site) {
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let mut rng = Rng::new(15);
    for round in 0..200 {
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

pub(super) async fn s21_an_id_that_has_left_never_holds_again(site: &impl Site) {
    let (engine, another) = (site.engine().await, site.engine().await);
    let id = || SystemWorld.mint().unwrap();
    let name = Name::new(Space::Lock, "x").unwrap();
    let claim = |id: ClaimId| Claim::new(name.clone(), id);
    let (first, second) = (id(), id());
    let leave = |id: ClaimId| Leave::new(name.clone(), id);
    assert!(matches!(engine.claim(&claim(first)).await.unwrap(), Verdict::Granted(_)));
    let left = engine.leave(&Leave { in_doubt: true, ..leave(first) }).await.unwrap();
    assert_eq!(left, Left::Released);
    // A duplicate of its request comes late: the name is free and stays so, for another client, too.
    assert!(matches!(another.claim(&claim(first)).await.unwrap(), Verdict::Left));
    let Verdict::Granted(grant) = engine.claim(&claim(second)).await.unwrap() else {
        panic!("the duplicate has taken it");
    };
    assert_eq!(engine.leave(&leave(first)).await.unwrap(), Left::Gone(Ended::Expired));
    assert!(matches!(engine.claim(&claim(first)).await.unwrap(), Verdict::Left));
    let Verdict::Granted(found) = engine.claim(&claim(second)).await.unwrap() else {
        panic!("it holds");
    };
    assert_eq!(found.fence, grant.fence);
    assert_eq!(engine.leave(&leave(second)).await.unwrap(), Left::Released);
    assert_eq!(engine.leave(&leave(second)).await.unwrap(), Left::Gone(Ended::Expired));
}

pub(super) async fn s22_no_task_holds_twice_and_several_names_never_lock_up(site: &impl Site) {
    let tenure = site.connect().await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let error = tenure.mutex("x").wait(secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    assert!(error.to_string().contains("not re-entrant"), "{error}");
    drop(hold);
    let mut tasks = Vec::new();
    for names in [["a", "b"], ["b", "a"]] {
        let client = site.connect().await;
        tasks.push(tokio::spawn(async move {
            let (mut served, mut lost) = (0, 0);
            while served < 50 {
                match client.all(names).acquire().await {
                    Ok(hold) => {
                        hold.release().await.unwrap();
                        served += 1;
                    }
                    // A disk that stalls for two seconds costs the first name while the second is asked for.
                    Err(error) if error.kind() == ErrorKind::Lost && lost < 5 => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    let taken = tenure.mutex("b").acquire().await.unwrap();
    let error = tenure.all(["a", "b"]).wait(secs(2)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver, "{error}");
    until_free(&tenure, "a").await;
    assert!(taken.is_live());
}

pub(super) async fn s35_a_full_line_says_so_at_once_and_takes_others_when_it_has_drained(
    site: &impl Site,
) {
    let (tenure, far) = (site.connect().await, site.connect().await);
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let line: Vec<_> =
        (0..10).map(|_| tokio::spawn(far.mutex("x").max_waiters(10).join())).collect();
    until_waiting(&tenure, "x", 10).await;
    for _ in 0..5 {
        let error = within(AT_ONCE, tenure.mutex("x").max_waiters(10).acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    }
    hold.release().await.unwrap();
    for waiter in line {
        drop(served(waiter).await);
    }
    drop(soon(tenure.mutex("x").max_waiters(10).acquire()).await.unwrap());
}

pub(super) async fn s38_an_ask_that_can_never_be_served_is_refused_and_stops_nobody(
    site: &impl Site,
) {
    let tenure = site.connect().await;
    let all = tenure.semaphore("x", 3).acquire_many(3).await.unwrap();
    let next = tokio::spawn(tenure.semaphore("x", 3).join());
    until_waiting(&tenure, "x", 1).await;
    let error = within(secs(5), tenure.semaphore("x", 3).acquire_many(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // From a claim that believes there is more.
    let error = within(secs(5), tenure.semaphore("x", 9).acquire_many(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let behind = tokio::spawn(tenure.semaphore("x", 3).join_many(2));
    until_waiting(&tenure, "x", 2).await;
    all.release().await.unwrap();
    let _both = (served(next).await, served(behind).await);
}

pub(super) async fn s42_a_turn_that_someone_else_finds_is_pushed_to_its_owner(site: &impl Site) {
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(site).await;
    let dead = tenure.mutex("x").ttl(ms(600)).renew(false).acquire().await.unwrap();
    let fence = dead.fence().get();
    std::mem::forget(dead);
    other.tell("claim a x 600000");
    until_waiting(&tenure, "x", 1).await;
    // The claims after it ask all the time, and find that the hold has ended.
    let asking = tokio::spawn(async move {
        loop {
            assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());
            pause(ms(1)).await;
        }
    });
    let held = other.hears("held a").await;
    assert!(held.fence() > fence);
    asking.abort();
}
