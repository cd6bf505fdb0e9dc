//! Semaphores, read-write locks and several names at once.

use crate::fixtures;

use fixtures::{is_free, memory, ms, now, poll_once, soon, view, waiting};
use tenure::{ErrorKind, Released};

#[test]
fn units_are_shared_out_by_weight() {
    let tenure = memory();
    let five = || tenure.semaphore("a", 5);
    let two = now(five().acquire_many(2)).unwrap();
    let three = now(five().try_acquire_many(3)).unwrap().expect("three are left");
    assert!(now(five().try_acquire()).unwrap().is_none());
    drop(two);
    assert!(now(five().try_acquire_many(3)).unwrap().is_none(), "two are free");
    let again = now(five().try_acquire_many(2)).unwrap().expect("two are free");
    assert_ne!(again.fence(), three.fence(), "every grant has a fence of its own");
    assert_eq!(view(&tenure, "a").holders.iter().map(|holder| holder.weight).sum::<u32>(), 5);
}

#[test]
fn a_heavy_claim_is_not_passed_by_light_ones() {
    let tenure = memory();
    let three = || tenure.semaphore("a", 3);
    let light = now(three().acquire()).unwrap();
    let heavy = waiting(three().join_many(3));
    let mut behind: Vec<_> = (0..3).map(|_| waiting(three().join_many(1))).collect();
    drop(light);
    let heavy = now(heavy).unwrap();
    assert!(behind.iter_mut().all(|asking| poll_once(asking).is_pending()));
    drop(heavy);
    assert!(behind.into_iter().all(|asking| now(asking).unwrap().is_live()));
}

#[test]
fn another_capacity_for_a_name_in_use_is_a_conflict() {
    let tenure = memory();
    let hold = now(tenure.semaphore("a", 5).acquire()).unwrap();
    let others = [
        now(tenure.semaphore("a", 4).acquire()),
        now(tenure.semaphore("a", 6).acquire()),
        now(tenure.mutex("a").acquire()),
        now(tenure.rwlock("a").read()),
    ];
    for other in others {
        let error = other.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("a capacity of 5"), "{error}");
    }
    assert_eq!(view(&tenure, "a").waiters, []);
    drop(hold);
    let unused = now(tenure.semaphore("a", 4).acquire()).unwrap();
    assert!(unused.is_live(), "a name that nobody uses has no capacity");
}

#[test]
fn resize_up_serves_several_at_once() {
    let tenure = memory();
    let two = || tenure.semaphore("a", 2);
    let holds = [now(two().acquire()).unwrap(), now(two().acquire()).unwrap()];
    let mut line: Vec<_> = (0..4).map(|_| waiting(two().join_many(1))).collect();
    now(two().resize(5)).unwrap();
    let last = line.pop().unwrap();
    let served: Vec<_> = line.into_iter().map(|asking| now(asking).unwrap()).collect();
    let mut last = last;
    assert!(poll_once(&mut last).is_pending(), "five units, five holders");
    assert_eq!(view(&tenure, "a").capacity, 5);
    drop(served);
    assert!(now(last).unwrap().is_live());
    drop(holds);
    assert!(now(two().acquire()).unwrap().is_live(), "the old number is still understood");
}

#[test]
fn resize_below_the_weight_of_a_waiter_ends_it_with_conflict() {
    let tenure = memory();
    let five = || tenure.semaphore("a", 5);
    let hold = now(five().acquire_many(5)).unwrap();
    let heavy = waiting(five().join_many(3));
    let light = waiting(five().join_many(2));
    now(five().resize(2)).unwrap();
    let error = now(heavy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("changed to 2"), "{error}");
    assert!(hold.is_live(), "what is held stays held");
    drop(hold);
    assert!(now(light).unwrap().is_live());
    assert_eq!(now(five().acquire_many(3)).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn resize_down_waits_until_enough_has_left() {
    let tenure = memory();
    let three = || tenure.semaphore("a", 3);
    let mut holds: Vec<_> = (0..3).map(|_| now(three().acquire()).unwrap()).collect();
    now(three().resize(1)).unwrap();
    let mut next = waiting(three().join_many(1));
    for _ in 0..2 {
        assert!(holds.iter().all(|hold| hold.is_live()));
        holds.pop();
        assert!(poll_once(&mut next).is_pending());
    }
    holds.clear();
    assert!(now(next).unwrap().is_live());
}

/// A mutex has one unit, whatever anyone says about a semaphore with that name.
#[test]
fn a_mutex_stays_exclusive_whatever_is_resized() {
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    let _ = now(tenure.semaphore("a", 1).resize(3));
    let second = now(tenure.mutex("a").try_acquire());
    assert!(!matches!(second, Ok(Some(_))), "two inside: {hold:?} and {second:?}");
    drop((hold, second));

    let _ = now(tenure.semaphore("b", 3).resize(3));
    let first = now(tenure.mutex("b").try_acquire());
    let second = now(tenure.mutex("b").try_acquire());
    let both = matches!((&first, &second), (Ok(Some(_)), Ok(Some(_))));
    assert!(!both, "two inside: {first:?} and {second:?}");
}

#[test]
fn readers_read_together_and_a_writer_waits_for_all_of_them() {
    let tenure = memory();
    let lock = || tenure.rwlock("a");
    let mut readers: Vec<_> = (0..50).map(|_| now(lock().read()).unwrap()).collect();
    assert!(now(lock().try_write()).unwrap().is_none());
    let mut writer = waiting(lock().join_write());
    while let Some(reader) = readers.pop() {
        assert!(reader.is_live() && poll_once(&mut writer).is_pending());
        drop(reader);
    }
    let writer = now(writer).unwrap();
    assert!(now(lock().try_read()).unwrap().is_none());
    assert!(now(lock().try_write()).unwrap().is_none());
    drop(writer);
    assert!(now(lock().try_write()).unwrap().is_some());
}

#[test]
fn a_reader_behind_a_waiting_writer_waits_and_readers_enter_together() {
    let tenure = memory();
    let lock = || tenure.rwlock("a");
    let first = now(lock().read()).unwrap();
    let writer = waiting(lock().join_write());
    let mut behind: Vec<_> = (0..3).map(|_| waiting(lock().join_read())).collect();
    assert!(now(lock().try_read()).unwrap().is_none());
    drop(first);
    let writer = now(writer).unwrap();
    assert!(behind.iter_mut().all(|reader| poll_once(reader).is_pending()));
    drop(writer);
    let together: Vec<_> = behind.into_iter().map(|reader| now(reader).unwrap()).collect();
    assert!(together.iter().all(|reader| reader.is_live()));
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let tenure = memory();
    let lock = || tenure.rwlock("a");
    let first = now(lock().read()).unwrap();
    let writer = waiting(lock().join_write());
    let behind = waiting(lock().join_read());
    drop(writer);
    assert!(now(behind).unwrap().is_live() && first.is_live());
}

#[test]
fn a_read_write_lock_and_a_semaphore_never_agree() {
    let tenure = memory();
    let _read = now(tenure.rwlock("a").read()).unwrap();
    let most = (1 << 20) - 1;
    let error = now(tenure.semaphore("a", most).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

/// A read-write lock has one unit more than the largest semaphore, so that they never agree.
#[test]
fn a_semaphore_as_large_as_a_read_write_lock_is_refused() {
    let tenure = memory();
    let largest = now(tenure.semaphore("a", (1 << 20) - 1).acquire()).unwrap();
    assert!(largest.is_live());
    let answer = now(tenure.semaphore("b", 1 << 20).acquire());
    assert_eq!(answer.map_err(|error| error.kind()).map(drop), Err(ErrorKind::Invalid));
}

#[test]
fn several_names_are_sorted_and_each_is_taken_once() {
    let tenure = memory();
    let hold = now(tenure.all(["b", "a", "a"]).acquire()).unwrap();
    let fences: Vec<_> = hold.fences().collect();
    assert_eq!(fences.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((hold.name(), hold.fence()), fences[0]);
    for (name, fence) in fences {
        assert_eq!(view(&tenure, name).holders[0].fence, fence);
    }
    assert_eq!(now(hold.release()).unwrap(), Released::InTime);
    assert!(is_free(&tenure, "a") && is_free(&tenure, "b"));
}

#[tokio::test]
async fn if_one_of_several_names_cannot_be_acquired_none_is_held() {
    let tenure = memory();
    let blocker = tenure.mutex("b").acquire().await.unwrap();
    let names = || tenure.all(["c", "b", "a"]);
    assert!(names().try_acquire().await.unwrap().is_none());
    assert!(is_free(&tenure, "a") && is_free(&tenure, "c"));
    let error = soon(names().wait(ms(30)).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    assert!(error.to_string().contains("acquire \"b\""), "names the one that was not had: {error}");
    assert!(is_free(&tenure, "a") && is_free(&tenure, "c"));
    assert_eq!(view(&tenure, "b").waiters, []);
    drop(blocker);
    assert!(names().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn the_wait_for_several_names_is_for_all_of_them_together() {
    let tenure = memory();
    let first = tenure.mutex("a").ttl(ms(600)).renew(false).acquire().await.unwrap();
    let _second = tenure.mutex("b").acquire().await.unwrap();
    let asked = std::time::Instant::now();
    let waiting = tenure.all(["a", "b"]).wait(ms(700)).acquire();
    assert_eq!(soon(waiting).await.unwrap_err().kind(), ErrorKind::WaitOver);
    let waited = asked.elapsed();
    // Separate waits would take at least 1.3 seconds.
    assert!(waited >= ms(700) && waited < ms(1_250), "{waited:?}");
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_asked_for_in_opposite_order_do_not_deadlock() {
    let tenure = memory();
    let tasks = [["a", "b"], ["b", "a"]].map(|names| {
        let tenure = tenure.clone();
        tokio::spawn(async move {
            for _ in 0..1_000 {
                let hold = tenure.all(names).acquire().await.unwrap();
                assert!(hold.is_live());
                tokio::task::yield_now().await;
            }
        })
    });
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(tenure.list("").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_units_are_held_than_there_are() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    let tenure = memory();
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (tenure, weight) = (tenure.clone(), n % 3 + 1);
            tokio::spawn(async move {
                for _ in 0..100 {
                    let hold = tenure.semaphore("a", 4).acquire_many(weight).await.unwrap();
                    assert!(INSIDE.fetch_add(weight, SeqCst) + weight <= 4);
                    tokio::task::yield_now().await;
                    INSIDE.fetch_sub(weight, SeqCst);
                    drop(hold);
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
}
