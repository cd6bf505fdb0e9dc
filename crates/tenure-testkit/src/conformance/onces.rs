//! Cases about work that is done once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tenure::{
    Begun, Done, ErrorKind, Fence, Forgotten, Once, OnceRecord, Outcome, Released, Run, Tenure,
};

use super::locks::poll_once;
use super::{Kit, SECOND, lasting, unrenewed};

async fn begin(once: Once) -> Run {
    match once.begin().await.expect("an answer") {
        Begun::Mine(run) => run,
        other => panic!("it should be ours: {other:?}"),
    }
}

fn replayed(done: Done) -> Outcome {
    match done {
        Done::Replayed(outcome) => outcome,
        other => panic!("it should be done: {other:?}"),
    }
}

async fn unwanted(once: Once) -> Done {
    let done = once.run(async |_| Err::<&str, _>("it ran")).await.expect("an answer");
    done.expect("it is not to be run")
}

pub(super) async fn a_once_is_run_by_one_and_replayed_to_all(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let (runs, ran) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let client = if number % 2 == 0 { &one } else { &two };
        let (once, kit) = (client.once(&name), kit.clone());
        let (runs, ran, runtime) = (runs.clone(), ran.clone(), kit.runtime.clone());
        tasks.push(runtime.spawn(async move {
            let work = async |_: &Run| {
                runs.fetch_add(1, SeqCst);
                kit.sleep(Duration::from_millis(20)).await;
                Ok::<_, Infallible>("paid")
            };
            match once.run(work).await.expect("an answer").expect("no failure") {
                Done::Ran(outcome) => {
                    ran.fetch_add(1, SeqCst);
                    assert_eq!(*outcome, *b"paid");
                }
                done => assert_eq!(*replayed(done), *b"paid"),
            }
        }));
    }
    for task in tasks {
        kit.soon("an outcome", task).await;
    }
    assert_eq!((runs.load(SeqCst), ran.load(SeqCst)), (1, 1));
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"paid");
}

pub(super) async fn those_who_wait_for_a_once_get_its_outcome_by_push(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let run = begin(one.once(&name).options(lasting(&one, 600))).await;
    let waits = kit.runtime.spawn(unwanted(two.once(&name)));
    // After the look that every claim takes soon after joining: from now on only a push is quick.
    kit.sleep(SECOND * 3).await;
    // Long, and with every byte value, because an outcome is data, not text.
    let outcome: Vec<u8> = (0..20_000).map(|n| (n % 251) as u8).collect();
    assert_eq!(run.settle(&outcome).await.expect("settled"), Released::InTime);
    assert_eq!(*replayed(kit.soon("the outcome", waits).await), *outcome);
}

pub(super) async fn who_does_not_wait_for_a_once_hears_that_it_is_in_progress(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let run = begin(one.once(&name).owner("first")).await;
    // Longer than a busy machine keeps the engine from its first answer.
    for wait in [Duration::ZERO, SECOND] {
        let done = kit.soon("an answer", unwanted(two.once(&name).wait(wait))).await;
        let Done::InProgress(Some(holder)) = done else { panic!("it is in progress: {done:?}") };
        assert_eq!((holder.details.owner.as_str(), holder.fence), ("first", run.fence()));
    }
    assert_eq!(run.settle("").await.expect("settled"), Released::InTime);
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"");
}

pub(super) async fn what_did_not_happen_is_run_by_the_next(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let failed = one.once(&name).run(async |_| Err::<&str, _>("no money")).await.expect("asked");
    assert_eq!(failed.expect_err("it failed"), "no money");
    let first = begin(one.once(&name)).await;
    let (fence, next) = (first.fence(), kit.runtime.spawn(begin(two.once(&name))));
    kit.sleep(Duration::from_millis(50)).await;
    first.undo().await.expect("undone");
    let next = kit.soon("the next one's turn", next).await;
    assert!(next.fence() > fence);
    next.settle("ok").await.expect("settled");
}

pub(super) async fn what_was_never_settled_is_refused_or_run_again(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let first = begin(one.once(&name)).await;
    let waits = kit.runtime.spawn(unwanted(two.once(&name)));
    kit.sleep(Duration::from_millis(50)).await;
    let fence = first.fence();
    drop(first);
    assert!(matches!(kit.soon("an answer", waits).await, Done::Unsettled));
    assert!(matches!(unwanted(one.once(&name)).await, Done::Unsettled));
    let again = begin(two.once(&name).rerun(true)).await;
    assert!(again.fence() > fence);
    again.settle("second").await.expect("settled");
    assert_eq!(*replayed(unwanted(one.once(&name)).await), *b"second");
}

pub(super) async fn a_slow_holder_of_a_once_resolves_its_own_doubt(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let slow = begin(one.once(&name).options(unrenewed(&one, 1))).await;
    kit.soon("the end of the hold", slow.hold().lost()).await;
    kit.sleep(SECOND / 2).await;
    assert!(matches!(unwanted(two.once(&name)).await, Done::Unsettled));
    assert_eq!(slow.settle("late").await.expect("settled"), Released::Late);
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"late");
}

pub(super) async fn whoever_began_again_is_not_settled_by_the_one_before(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let slow = begin(one.once(&name).options(unrenewed(&one, 1))).await;
    kit.soon("the end of the hold", slow.hold().lost()).await;
    let again = two.once(&name).rerun(true);
    let again = kit.soon("the turn of the next one", begin(again)).await;
    assert_eq!(slow.settle("late").await.expect("an answer"), Released::Late);
    assert!(matches!(unwanted(one.once(&name).wait(Duration::ZERO)).await, Done::InProgress(_)));
    again.settle("again").await.expect("settled");
    assert_eq!(*replayed(unwanted(one.once(&name)).await), *b"again");
}

pub(super) async fn a_once_with_other_content_is_refused(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let run = begin(one.once(&name).content("42 euros")).await;
    let other = || two.once(&name).content("43 euros");
    let refused = other().begin().await.expect_err("it runs, with other content");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    run.settle("paid").await.expect("settled");
    let refused = other().rerun(true).begin().await.expect_err("it is done, with other content");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(*replayed(unwanted(two.once(&name).content("42 euros")).await), *b"paid");
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"paid");
}

pub(super) async fn a_once_is_remembered_for_as_long_as_it_is_kept(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let once = || one.once(&name).keep(SECOND * 2);
    begin(once()).await.settle("kept").await.expect("settled");
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"kept");
    kit.sleep(SECOND * 3).await;
    begin(once()).await.settle("anew").await.expect("settled");
}

pub(super) async fn a_turn_that_nobody_took_leaves_no_doubt(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let first = begin(one.once(&name)).await;
    let mut stuck: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(two.once(&name).begin());
    // The claim is in line and is never polled again.
    assert!(poll_once(&mut stuck).is_pending());
    kit.sleep(Duration::from_millis(100)).await;
    first.undo().await.expect("undone");
    kit.sleep(Duration::from_millis(100)).await;
    drop(stuck);
    kit.soon("the next run", begin(one.once(&name))).await.undo().await.expect("undone");
}

pub(super) async fn an_older_doubt_is_not_undone(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    drop(begin(one.once(&name)).await);
    let again = kit.soon("the second run", begin(two.once(&name).rerun(true))).await;
    // It knows nothing of the first.
    again.undo().await.expect("undone");
    assert!(matches!(unwanted(one.once(&name)).await, Done::Unsettled));
    begin(two.once(&name).rerun(true)).await.settle("third").await.expect("settled");
    assert_eq!(*replayed(unwanted(one.once(&name)).await), *b"third");
}

pub(super) async fn what_a_once_left_does_not_wait_for_hold_for(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let once = one.once(&name).hold_for(SECOND * 20);
    let settled = begin(once).await.settle("at once").await;
    assert_eq!(settled.expect("settled"), Released::InTime);
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"at once");
}

async fn record(client: &Tenure, name: &str) -> Option<OnceRecord> {
    client.once(name).inspect().await.expect("an answer").and_then(|view| view.record)
}

async fn forget(client: &Tenure, name: &str, seen: &OnceRecord) -> Forgotten {
    client.once(name).forget(seen).await.expect("an answer")
}

pub(super) async fn what_is_remembered_of_a_once_is_shown(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    assert_eq!(record(&two, &name).await, None);
    let run = begin(one.once(&name).keep(SECOND * 100)).await;
    let running = record(&two, &name).await.expect("it was started");
    assert_eq!((running.fence, running.outcome), (run.fence(), None));
    let fence = run.fence();
    run.settle("paid").await.expect("settled");
    kit.sleep(SECOND).await;
    let view = two.once(&name).inspect().await.expect("an answer").expect("it is remembered");
    assert!(!view.is_used(), "nobody is at it: {view:?}");
    let settled = view.record.expect("a record");
    assert_eq!((settled.fence, settled.outcome.as_deref()), (fence, Some(&b"paid"[..])));
    // A busy machine may be late.
    assert!(settled.age > SECOND / 2 && settled.age < SECOND * 60, "{settled:?}");
    assert!(settled.remaining > SECOND * 40 && settled.remaining < SECOND * 100, "{settled:?}");
    let listed = two.list(&name).await.expect("an answer");
    assert!(listed.is_empty(), "lists are of those who hold and wait: {listed:?}");
}

pub(super) async fn a_once_that_is_forgotten_is_run_by_the_next(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    begin(one.once(&name)).await.settle("wrong").await.expect("settled");
    let seen = record(&two, &name).await.expect("a record");
    assert_eq!(forget(&two, &name, &seen).await, Forgotten::Done);
    assert_eq!(one.once(&name).inspect().await.expect("an answer"), None, "nothing is left");
    assert_eq!(forget(&two, &name, &seen).await, Forgotten::MovedOn, "it is not there any more");
    // Two unsettled runs, one after the other: neither is in doubt any more.
    drop(begin(one.once(&name)).await);
    drop(kit.soon("the second run", begin(two.once(&name).rerun(true))).await);
    let forgotten = async {
        loop {
            let seen = record(&one, &name).await.expect("a record");
            assert_eq!(seen.outcome, None);
            // It is released in the background.
            if forget(&one, &name, &seen).await == Forgotten::Done {
                return;
            }
            kit.sleep(Duration::from_millis(20)).await;
        }
    };
    kit.soon("it is forgotten", forgotten).await;
    begin(two.once(&name)).await.undo().await.expect("undone");
    begin(one.once(&name)).await.settle("right").await.expect("settled");
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"right");
}

pub(super) async fn what_has_changed_since_it_was_seen_is_not_forgotten(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let run = begin(one.once(&name)).await;
    let running = record(&two, &name).await.expect("a record");
    assert_eq!(forget(&two, &name, &running).await, Forgotten::MovedOn, "somebody is at it");
    run.settle("paid").await.expect("settled");
    // The caller that saw it unsettled must not cause a second run.
    assert_eq!(forget(&two, &name, &running).await, Forgotten::MovedOn, "it is settled");
    let mut other = record(&two, &name).await.expect("a record");
    other.fence = Fence::new(other.fence.get() - 1);
    assert_eq!(forget(&two, &name, &other).await, Forgotten::MovedOn, "that was another run");
    assert_eq!(*replayed(unwanted(two.once(&name)).await), *b"paid");
}
