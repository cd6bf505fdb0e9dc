//! The API for programs without a runtime: none of these tests has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use tenure::blocking::{Begun, Tenure};
use tenure::{Done, Ended, ErrorKind, Released};

fn connect() -> Tenure {
    Tenure::connect("memory:").unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn threads_hold_one_by_one_in_the_order_of_arrival() {
    let tenure = connect();
    let first = tenure.mutex("x").acquire().unwrap();
    let (inside, turns) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut threads = Vec::new();
    for number in 0..8 {
        let place = tenure.mutex("x").join();
        let (inside, turns) = (inside.clone(), turns.clone());
        threads.push(thread::spawn(move || {
            let hold = place.wait().unwrap();
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two are inside");
            assert_eq!(turns.fetch_add(1, SeqCst), number, "served in their order");
            thread::sleep(Duration::from_millis(2));
            inside.fetch_sub(1, SeqCst);
            assert_eq!(hold.release().unwrap(), Released::InTime);
        }));
    }
    first.release().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_hold_is_renewed_while_the_program_does_something_else() {
    let tenure = connect();
    let hold = tenure.mutex("x").ttl(SECOND / 2).acquire().unwrap();
    thread::sleep(SECOND * 3 / 2);
    assert!(hold.is_live() && hold.remaining() > Duration::ZERO);
    hold.extend(SECOND * 60).unwrap();
    assert!(hold.remaining() > SECOND * 30);
    assert!(tenure.mutex("x").try_acquire().unwrap().is_none());
    drop(hold);
    assert!(tenure.mutex("x").try_acquire().unwrap().is_some());
}

#[test]
fn a_loss_is_reported_and_work_that_outlived_its_hold_is_an_error() {
    let tenure = connect();
    let hold = tenure.mutex("x").ttl(SECOND / 2).renew(false).acquire().unwrap();
    assert_eq!(hold.lost(), Ended::Expired);
    assert_eq!(hold.release().unwrap(), Released::Late);
    let slow = tenure.mutex("x").ttl(SECOND / 2).renew(false).run(|hold| hold.lost());
    let error = slow.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(tenure.mutex("x").run(|hold| hold.is_live()).unwrap());
}

#[test]
fn a_place_that_is_dropped_is_left() {
    let tenure = connect();
    let hold = tenure.mutex("x").acquire().unwrap();
    let place = tenure.mutex("x").join();
    assert_eq!(tenure.inspect("x").unwrap().unwrap().waiters.len(), 1);
    drop(place);
    let began = Instant::now();
    while !tenure.inspect("x").unwrap().unwrap().waiters.is_empty() {
        assert!(began.elapsed() < SECOND * 10);
        thread::sleep(Duration::from_millis(2));
    }
    let over = tenure.mutex("x").wait(Duration::from_millis(50)).acquire().unwrap_err();
    assert_eq!(over.kind(), ErrorKind::WaitOver, "{over}");
    drop(hold);
}

#[test]
fn units_readers_and_several_names() {
    let tenure = connect();
    let two = tenure.semaphore("units", 3).acquire_many(2).unwrap();
    assert!(tenure.semaphore("units", 3).try_acquire_many(2).unwrap().is_none());
    assert_eq!(tenure.semaphore("units", 3).run(|_| 7).unwrap(), 7);
    drop(two);
    let (one, other) =
        (tenure.rwlock("rows").read().unwrap(), tenure.rwlock("rows").read().unwrap());
    assert!(tenure.rwlock("rows").try_write().unwrap().is_none());
    drop((one, other));
    drop(tenure.rwlock("rows").write().unwrap());
    let both = tenure.all(["b", "a"]).acquire().unwrap();
    assert_eq!(both.fences().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn what_is_done_once_is_replayed() {
    let tenure = connect();
    let done = tenure.once("x").run(|run| Ok::<_, ()>(run.fence().to_string())).unwrap().unwrap();
    let Done::Ran(outcome) = done else { panic!("{done:?}") };
    let again = tenure.once("x").run(|_| Err::<&str, _>("it ran")).unwrap().unwrap();
    assert!(matches!(&again, Done::Replayed(same) if *same == outcome), "{again:?}");
    assert_eq!(tenure.once("y").run(|_| Err::<&str, _>("no")).unwrap().unwrap_err(), "no");
    let Begun::Mine(run) = tenure.once("y").begin().unwrap() else { panic!("not remembered") };
    drop(run);
    let refused = tenure.once("y").run(|_| Ok::<_, ()>("again")).unwrap().unwrap();
    assert!(matches!(refused, Done::Unsettled), "{refused:?}");
    let lost = tenure.once("z").ttl(SECOND / 2).renew(false).run(|run| {
        while run.hold().is_live() {
            thread::sleep(Duration::from_millis(5));
        }
        Ok::<_, ()>("late")
    });
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    let told = tenure.once("z").run(|_| Err::<&str, _>("it ran")).unwrap().unwrap();
    assert!(matches!(&told, Done::Replayed(late) if **late == *b"late"), "{told:?}");
}

#[test]
fn leaders_are_seen_and_follow_each_other() {
    let tenure = connect();
    let mut changes = tenure.election("x").observe();
    assert_eq!(changes.next().unwrap().unwrap(), None);
    let term = tenure.election("x").value("one").campaign().unwrap();
    let seen = changes.next().unwrap().unwrap().unwrap();
    assert_eq!((seen.term, seen.value.as_deref()), (term.number(), Some("one")));
    assert!(tenure.election("x").try_campaign().unwrap().is_none());
    assert!(term.is_live() && term.hold().remaining() > Duration::ZERO);
    assert_eq!((term.hold().name(), term.hold().fence()), ("x", term.number()));
    let second = tenure.clone();
    let next = thread::spawn(move || {
        let mut lost = true;
        second.election("x").ttl(SECOND / 2).renew(false).run(|term| {
            if std::mem::take(&mut lost) {
                term.lost();
            }
            term.number()
        })
    });
    term.resign().unwrap();
    assert!(next.join().unwrap().unwrap() > seen.term);
    tenure.close();
    assert!(changes.next().is_none_or(|change| change.is_ok()));
    assert_eq!(tenure.mutex("x").acquire().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn it_can_be_used_and_dropped_where_a_runtime_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let tenure = connect();
        drop(tenure.mutex("x").acquire().unwrap());
    });
}
