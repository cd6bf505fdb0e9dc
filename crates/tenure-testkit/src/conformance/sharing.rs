//! Cases with several holders at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tenure::ErrorKind;

use super::{Kit, held};

pub(super) async fn weights_add_up_to_the_capacity(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let inside = Arc::new(AtomicU32::new(0));
    let most = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for number in 0..9_u32 {
        let client = if number % 2 == 0 { one.clone() } else { two.clone() };
        let (kit, name, inside, most) = (kit.clone(), name.clone(), inside.clone(), most.clone());
        let runtime = kit.runtime.clone();
        tasks.push(runtime.spawn(async move {
            let weight = number % 3 + 1;
            for _ in 0..4 {
                let hold = held(client.semaphore(&name, 4).acquire_many(weight).await);
                most.fetch_max(inside.fetch_add(weight, SeqCst) + weight, SeqCst);
                kit.sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(weight, SeqCst);
                drop(hold);
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    let most = most.load(SeqCst);
    assert!(most <= 4, "{most} of 4 were held");
    assert!(most > 1, "nobody ever shared");
}

pub(super) async fn a_big_ask_is_not_passed_by_small_ones(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let semaphore = || one.semaphore(&name, 4);
    let first = held(semaphore().acquire_many(2).await);
    let big = kit.runtime.spawn(two.semaphore(&name, 4).join_many(4));
    kit.line_of(&one, &name, 1).await;
    // Two units are free, but the heavy claim came first.
    assert!(semaphore().try_acquire().await.expect("an answer").is_none());
    let small = kit.runtime.spawn(semaphore().join_many(1));
    kit.line_of(&one, &name, 2).await;
    drop(first);
    let big = held(kit.soon("the big ask", big).await);
    kit.line_of(&one, &name, 1).await;
    drop(big);
    drop(held(kit.soon("the small ask", small).await));
}

pub(super) async fn another_capacity_is_a_conflict(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let hold = held(one.semaphore(&name, 5).acquire().await);
    let conflict = two.semaphore(&name, 3).acquire().await.expect_err("five, not three");
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
    assert!(conflict.to_string().contains('5'), "{conflict}");
    let conflict = two.mutex(&name).try_acquire().await.expect_err("five, not one");
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
    let conflict = two.rwlock(&name).read().await.expect_err("a semaphore is no rwlock");
    assert_eq!(conflict.kind(), ErrorKind::Conflict);
    drop(hold);
    kit.unused(&one, &name).await;
    drop(held(two.semaphore(&name, 3).acquire().await));
}

pub(super) async fn a_resize_serves_or_ends_those_who_wait(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let semaphore = || one.semaphore(&name, 2);
    let first = held(semaphore().acquire_many(2).await);
    let a = kit.runtime.spawn(two.semaphore(&name, 2).join_many(1));
    kit.line_of(&one, &name, 1).await;
    let b = kit.runtime.spawn(two.semaphore(&name, 2).join_many(2));
    kit.line_of(&one, &name, 2).await;
    semaphore().resize(3).await.expect("resized");
    let a = held(kit.soon("the third unit", a).await);
    semaphore().resize(1).await.expect("resized");
    let ended = kit.soon("the end of what can never fit", b).await;
    assert_eq!(ended.expect_err("two of one").kind(), ErrorKind::Conflict);
    drop(first);
    // One unit of one is still held: the hold continues, and nothing is granted beside it.
    kit.line_of(&one, &name, 0).await;
    assert!(semaphore().try_acquire().await.expect("an answer").is_none());
    drop(a);
    drop(held(kit.soon("the one unit", semaphore().acquire()).await));
}

pub(super) async fn readers_share_and_a_writer_comes_in_its_turn(kit: Kit) {
    let (one, two, name) = (kit.client(), kit.client(), kit.name("x"));
    let first = held(one.rwlock(&name).read().await);
    let second = held(kit.soon("a second reader", two.rwlock(&name).read()).await);
    assert!(two.rwlock(&name).try_write().await.expect("an answer").is_none());
    let writer = kit.runtime.spawn(two.rwlock(&name).join_write());
    kit.line_of(&one, &name, 1).await;
    assert!(one.rwlock(&name).try_read().await.expect("an answer").is_none(), "passed a writer");
    let readers: Vec<_> =
        (0..3).map(|_| kit.runtime.spawn(one.rwlock(&name).join_read())).collect();
    kit.line_of(&one, &name, 4).await;
    drop((first, second));
    let writer = held(kit.soon("the writer", writer).await);
    kit.line_of(&one, &name, 3).await;
    let fence = writer.fence();
    drop(writer);
    let mut together = Vec::new();
    for reader in readers {
        together.push(held(kit.soon("the readers, together", reader).await));
    }
    assert!(together.iter().all(|reader| reader.fence() > fence));
}

pub(super) async fn all_is_all_or_nothing(kit: Kit) {
    let (one, two) = (kit.client(), kit.client());
    let [a, b, c] = ["a", "b", "c"].map(|suffix| kit.name(suffix));
    let blocker = held(two.mutex(&c).acquire().await);
    let tried = one.all([&b, &a, &c]).try_acquire().await.expect("an answer");
    assert!(tried.is_none());
    // Long enough for the answers to the first two on a busy engine.
    let wait = Duration::from_secs(2);
    let over = one.all([&c, &b, &a]).wait(wait).acquire().await.expect_err("c is held");
    assert_eq!(over.kind(), ErrorKind::WaitOver, "{over}");
    kit.unused(&one, &a).await;
    kit.unused(&one, &b).await;
    drop(blocker);
    let hold = held(kit.soon("all three", one.all([&c, &a, &b, &a]).acquire()).await);
    let names: Vec<_> = hold.fences().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, [a.clone(), b.clone(), c]);
    let fence = hold.fences().nth(1).expect("three").1;
    two.break_hold(&b, fence, "a drill").await.expect("broken");
    kit.soon("the loss of all with one", hold.lost()).await;
    assert!(!hold.is_live());
    drop(hold);
    kit.unused(&two, &a).await;
}
