//! Cases with one holder at a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Broken, Detached, Ended, ErrorKind, Fence, Hold, Options, Released, Tenure};

use super::{Kit, SECOND, held, lasting, unrenewed};
use crate::faulty::{Faults, Faulty};
use crate::rng::Rng;

impl Kit {
    /// Two clients and a name that is exclusive while the filler is kept.
    async fn exclusive(&self) -> (Tenure, Tenure, String, Option<Hold>) {
        let (one, two, name) = (self.client(), self.client(), self.name("x"));
        let filler = self.how.prepare(&one, &name).await;
        (one, two, name, filler)
    }

    async fn take(&self, client: &Tenure, name: &str, options: Options) -> Hold {
        held(self.soon("a grant", self.how.join(client, name, options)).await)
    }

    async fn is_taken(&self, client: &Tenure, name: &str) -> bool {
        let tried = self.how.try_acquire(client, name, client.defaults()).await;
        tried.expect("a try is answered").is_none()
    }
}

pub(super) async fn one_holds_at_a_time(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let inside = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let client = if number % 2 == 0 { one.clone() } else { two.clone() };
        let (kit, name, inside) = (kit.clone(), name.clone(), inside.clone());
        let runtime = kit.runtime.clone();
        tasks.push(runtime.spawn(async move {
            for _ in 0..5 {
                let hold = held(kit.how.join(&client, &name, client.defaults()).await);
                assert!(!inside.swap(true, SeqCst), "two are inside");
                kit.sleep(Duration::from_millis(1)).await;
                inside.store(false, SeqCst);
                assert_eq!(hold.release().await.expect("released"), Released::InTime);
            }
        }));
    }
    for task in tasks {
        task.await;
    }
}

pub(super) async fn first_come_first_served(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let first = kit.take(&one, &name, one.defaults()).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let client = if number % 2 == 0 { &one } else { &two };
        let turn = kit.how.join(client, &name, client.defaults());
        let served = served.clone();
        tasks.push(kit.runtime.spawn(async move {
            let hold = held(turn.await);
            served.lock().expect("no panic").push(number);
            drop(hold);
        }));
        kit.line_of(&one, &name, number + 1).await;
        if one.profile().hands_over {
            // Among claims that come sooner after one another, those of one process may be served together.
            kit.sleep(Duration::from_millis(25)).await;
        }
    }
    drop(first);
    for task in tasks {
        kit.soon("a turn", task).await;
    }
    assert_eq!(*served.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
}

pub(super) async fn a_try_neither_waits_nor_barges(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, one.defaults()).await;
    assert!(kit.is_taken(&two, &name).await);
    let next = kit.runtime.spawn(kit.how.join(&two, &name, two.defaults()));
    kit.line_of(&one, &name, 1).await;
    assert!(kit.is_taken(&one, &name).await);
    let view = kit.view(&one, &name).await.expect("in use");
    assert_eq!(view.waiters.len(), 1, "a try left something in line");
    drop(hold);
    let next = held(kit.soon("the turn of the one in line", next).await);
    assert!(kit.is_taken(&one, &name).await);
    drop(next);
}

pub(super) async fn a_wait_that_is_over_leaves_the_line(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let mut options = one.defaults();
    options.details_mut().owner = "the-holder".into();
    let hold = kit.take(&one, &name, options).await;
    let mut options = two.defaults();
    options.wait = Some(SECOND);
    let over = kit.soon("the end of the wait", kit.how.join(&two, &name, options)).await;
    let error = over.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    if kit.how != super::Exclusive::LastOfFive {
        assert!(error.to_string().contains("held by the-holder"), "{error}");
    }
    kit.line_of(&one, &name, 0).await;
    drop(hold);
    kit.unused(&one, &name).await;
}

pub(super) async fn an_unrenewed_hold_ends_with_its_ttl(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let first = kit.take(&one, &name, unrenewed(&one, 1)).await;
    assert!(first.remaining() <= SECOND);
    let lost = first.lost();
    let second = kit.take(&two, &name, lasting(&two, 60)).await;
    assert!(!first.is_live(), "the first is live although the second has it");
    assert_eq!(kit.soon("the loss", lost).await, Ended::Expired);
    assert!(second.fence() > first.fence());
    assert_eq!(first.release().await.expect("an answer"), Released::Late);
    assert!(kit.is_taken(&one, &name).await, "a late release freed a stranger's hold");
    assert!(second.is_live());
}

pub(super) async fn renewal_outlives_the_ttl(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    // A busy machine may need a second to renew.
    let hold = kit.take(&one, &name, lasting(&one, 3)).await;
    kit.sleep(SECOND * 7).await;
    assert!(hold.is_live());
    assert!(kit.is_taken(&two, &name).await);
    assert_eq!(hold.release().await.expect("released"), Released::InTime);
}

pub(super) async fn an_extension_counts_from_now(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, unrenewed(&one, 1)).await;
    hold.extend(SECOND * 4).await.expect("extended");
    assert!(hold.remaining() > SECOND * 3);
    hold.extend(SECOND).await.expect("extended");
    assert!(hold.remaining() > SECOND * 2, "an extension made it shorter");
    kit.sleep(SECOND * 2).await;
    assert!(hold.is_live() && kit.is_taken(&two, &name).await);
    let next = kit.take(&two, &name, two.defaults()).await;
    assert!(!hold.is_live() && next.is_live());
    let late = hold.extend(SECOND).await.expect_err("it has ended");
    assert_eq!(late.kind(), ErrorKind::Lost);
    assert!(next.is_live() && kit.is_taken(&one, &name).await);
}

pub(super) async fn fences_rise(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let mut highest = 0;
    for number in 0..20 {
        let client = if number % 2 == 0 { &one } else { &two };
        let hold = kit.take(client, &name, client.defaults()).await;
        let fence = hold.fence().get();
        assert!(fence > highest, "{fence} after {highest}");
        assert!(fence < 1 << 53);
        highest = fence;
    }
}

pub(super) async fn an_ask_dropped_at_any_point_leaves_nothing(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    for polls in 0..8 {
        let hold = kit.take(&one, &name, one.defaults()).await;
        let mut ask = kit.how.join(&two, &name, two.defaults());
        for _ in 0..polls {
            assert!(poll_once(&mut ask).is_pending());
            kit.sleep(Duration::from_millis(1)).await;
        }
        drop(ask);
        kit.line_of(&one, &name, 0).await;
        // Dropped at the moment of the hand-over: the turn must pass to the next claim.
        let mut ask = kit.how.join(&two, &name, two.defaults());
        let _ = poll_once(&mut ask);
        drop(hold);
        for _ in 0..polls {
            kit.sleep(Duration::from_micros(300)).await;
        }
        drop(ask);
        drop(kit.take(&one, &name, one.defaults()).await);
    }
    kit.unused(&one, &name).await;
}

pub(super) fn poll_once<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

pub(super) async fn a_dropped_hold_is_handed_over(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, one.defaults()).await;
    let next = kit.runtime.spawn(kit.how.join(&two, &name, two.defaults()));
    kit.line_of(&one, &name, 1).await;
    drop(hold);
    drop(held(kit.soon("the next turn", next).await));
    kit.unused(&one, &name).await;
}

pub(super) async fn a_turn_comes_by_push(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    // The hold would end in an hour, so no claim looks earlier: the turn is pushed, or never seen.
    let hold = kit.take(&one, &name, lasting(&one, 3600)).await;
    let next = kit.runtime.spawn(kit.how.join(&two, &name, two.defaults()));
    kit.line_of(&one, &name, 1).await;
    drop(hold);
    drop(held(kit.soon("a pushed turn", next).await));
}

pub(super) async fn a_turn_that_nobody_takes_passes_on(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, lasting(&one, 3600)).await;
    // The claim is in line and is never polled again, as in a blocked runtime.
    let mut stuck = kit.how.join(&two, &name, lasting(&two, 3600));
    assert!(poll_once(&mut stuck).is_pending());
    kit.line_of(&one, &name, 1).await;
    let next = kit.runtime.spawn(kit.how.join(&one, &name, one.defaults()));
    kit.line_of(&one, &name, 2).await;
    drop(hold);
    drop(held(kit.soon("the turn of the next, after a first life", next).await));
    // It has kept its place.
    drop(held(kit.soon("the turn of the one that was stuck", stuck).await));
}

pub(super) async fn a_turn_becomes_a_full_hold(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    for renew in [true, false] {
        let hold = kit.take(&one, &name, one.defaults()).await;
        let mut options = lasting(&two, 6);
        options.renew = renew;
        let next = kit.runtime.spawn(kit.how.join(&two, &name, options));
        kit.line_of(&one, &name, 1).await;
        drop(hold);
        let next = held(kit.soon("the turn", next).await);
        // Longer than a first life.
        kit.sleep(SECOND * 3).await;
        assert!(next.is_live(), "renew {renew}: it ended with its first life");
        assert!(kit.is_taken(&one, &name).await);
    }
}

pub(super) async fn max_hold_is_the_end(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let mut options = lasting(&one, 3);
    options.max_hold = Some(SECOND * 4);
    let hold = kit.take(&one, &name, options).await;
    let beyond = hold.extend(SECOND * 30).await.expect_err("beyond max_hold");
    assert_eq!(beyond.kind(), ErrorKind::Invalid);
    let lost = hold.lost();
    std::mem::forget(hold);
    let next = kit.take(&two, &name, two.defaults()).await;
    assert_eq!(kit.soon("the loss", lost).await, Ended::MaxHold);
    assert!(next.is_live());
}

pub(super) async fn hold_for_keeps_the_name(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let mut options = lasting(&one, 1);
    options.hold_for = SECOND * 2;
    let since = kit.runtime.now();
    let hold = kit.take(&one, &name, options).await;
    assert_eq!(hold.release().await.expect("released"), Released::InTime);
    assert!(kit.is_taken(&two, &name).await, "it was free before its time");
    drop(kit.take(&two, &name, two.defaults()).await);
    assert!(kit.runtime.now().since(since) >= Duration::from_millis(1900));
}

pub(super) async fn a_broken_hold_is_lost_and_handed_over(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, lasting(&one, 60)).await;
    let next = kit.runtime.spawn(kit.how.join(&two, &name, two.defaults()));
    kit.line_of(&one, &name, 1).await;
    let wrong = Fence::new(hold.fence().get() + 1_000_000);
    let nothing = two.break_hold(&name, wrong, "a typo").await.expect("an answer");
    assert_eq!(nothing, Broken::MovedOn);
    assert!(hold.is_live() && kit.is_taken(&two, &name).await);
    let done = two.break_hold(&name, hold.fence(), "a drill").await.expect("an answer");
    assert_eq!(done, Broken::Done);
    let next = held(kit.soon("the next turn", next).await);
    let why = kit.soon("the loss", hold.lost()).await;
    assert!(matches!(&why, Ended::Broken(note) if note.reason == "a drill"), "{why:?}");
    assert!(next.is_live() && next.fence() > hold.fence());
}

pub(super) async fn a_detached_hold_goes_on_elsewhere(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let first = kit.take(&one, &name, one.defaults()).await;
    // The hold came by push, so it lasts for a first life.
    let asker = kit.client();
    let turn = kit.runtime.spawn(kit.how.join(&asker, &name, lasting(&asker, 20)));
    kit.line_of(&one, &name, 1).await;
    drop(first);
    let hold = held(kit.soon("the turn", turn).await);
    let fence = hold.fence();
    let detached = hold.detach().await.expect("detached");
    asker.close().await;
    drop(asker);
    // Longer than a first life.
    kit.sleep(SECOND * 3).await;
    assert!(kit.is_taken(&one, &name).await, "it ended with the process that asked for it");
    let detached = Detached::from_secret(&name, &detached.secret()).expect("a secret");
    assert!(two.check(&detached).await.expect("held") < SECOND * 17);
    let hold = two.attach(&detached).await.expect("held");
    assert_eq!(hold.fence(), fence);
    assert!(hold.remaining() < SECOND * 17, "asking prolonged it");
    assert!(kit.is_taken(&one, &name).await);
    let next = kit.runtime.spawn(kit.how.join(&one, &name, one.defaults()));
    kit.line_of(&one, &name, 1).await;
    assert_eq!(hold.release().await.expect("released"), Released::InTime);
    let next = held(kit.soon("the next turn", next).await);
    assert!(next.fence() > fence);
    assert_eq!(two.check(&detached).await.expect_err("gone").kind(), ErrorKind::Lost);
    assert!(next.is_live() && kit.is_taken(&two, &name).await);
}

pub(super) async fn a_detached_hold_ends_with_its_ttl(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, lasting(&one, 2)).await;
    let detached = hold.detach().await.expect("detached");
    let next = kit.take(&two, &name, lasting(&two, 60)).await;
    assert!(next.fence() > detached.fence());
    for client in [&one, &two] {
        let gone = client.attach(&detached).await.expect_err("it has ended");
        assert_eq!(gone.kind(), ErrorKind::Lost);
    }
    assert!(next.is_live() && kit.is_taken(&one, &name).await);
}

pub(super) async fn inspection_shows_who_holds_and_who_waits(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let mut options = lasting(&one, 60);
    let details = options.details_mut();
    details.owner = "web-3:4121".into();
    details.reason = Some("nightly".into());
    details.meta = vec![("trace".into(), "4bf9".into())];
    let hold = kit.take(&one, &name, options).await;
    let waiting = kit.runtime.spawn(kit.how.join(&two, &name, two.defaults()));
    kit.line_of(&one, &name, 1).await;
    let view = kit.view(&two, &name).await.expect("in use");
    let [holder] = &view.holders[..] else { panic!("one holds: {view:?}") };
    assert_eq!(holder.fence, hold.fence());
    assert_eq!(holder.details.owner, "web-3:4121");
    assert_eq!(holder.details.reason.as_deref(), Some("nightly"));
    assert_eq!(holder.details.meta, [("trace".to_owned(), "4bf9".to_owned())]);
    assert!(holder.remaining <= SECOND * 60 && holder.remaining > SECOND * 40);
    let listed = two.list(&kit.prefix).await.expect("a list");
    assert!(listed.iter().any(|view| view.name.as_str() == name));
    drop(hold);
    drop(held(kit.soon("the turn", waiting).await));
}

pub(super) async fn a_full_line_refuses(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, one.defaults()).await;
    let mut options = two.defaults();
    options.max_waiters = Some(2);
    let one_waits = kit.runtime.spawn(kit.how.join(&two, &name, options.clone()));
    kit.line_of(&one, &name, 1).await;
    let two_wait = kit.runtime.spawn(kit.how.join(&two, &name, options.clone()));
    kit.line_of(&one, &name, 2).await;
    let refused = kit.soon("a refusal", kit.how.join(&two, &name, options.clone())).await;
    assert_eq!(refused.expect_err("the line is full").kind(), ErrorKind::Full);
    drop(hold);
    drop(held(kit.soon("a turn", one_waits).await));
    drop(held(kit.soon("a turn", two_wait).await));
    drop(kit.take(&two, &name, options).await);
}

pub(super) async fn an_unused_name_leaves_nothing(kit: Kit) {
    let one = kit.client();
    for number in 0..20 {
        let name = kit.name(&format!("many:{number}"));
        let filler = kit.how.prepare(&one, &name).await;
        drop(kit.take(&one, &name, one.defaults()).await);
        drop(filler);
    }
    let gone = async {
        while !one.list(kit.name("many:")).await.expect("a list").is_empty() {
            kit.sleep(Duration::from_millis(5)).await;
        }
    };
    kit.soon("nothing is left", gone).await;
}

pub(super) async fn an_examination_changes_nothing(kit: Kit) {
    let (one, two, name, _filler) = kit.exclusive().await;
    let hold = kit.take(&one, &name, lasting(&one, 60)).await;
    let findings = two.examine().await.expect("an engine that answers");
    assert!(findings.iter().any(|finding| finding.check == "latency"), "{findings:?}");
    assert!(hold.is_live() && kit.is_taken(&two, &name).await);
    assert_eq!(hold.release().await.expect("released"), Released::InTime);
    let listed = two.list(&kit.prefix).await.expect("a list");
    assert!(listed.is_empty(), "{listed:?}");
}

impl Kit {
    /// A client behind a bad network.
    fn far_client(&self, faults: Faults, seed: u64) -> Tenure {
        let world = self.runtime.world();
        let network = self.runtime.clone();
        let faulty =
            Faulty::new((self.connect)(), network, world.clone(), faults, Rng::new(seed), || false);
        Tenure::in_world(Arc::new(faulty), world)
    }

    /// Several clients with slow connections take turns, and are alone inside by their own clocks and fences.
    async fn take_turns(&self, faults: Faults, rounds: u32) {
        let near = self.client();
        let name = self.name("x");
        let _filler = self.how.prepare(&near, &name).await;
        let highest = Arc::new(Mutex::new(0));
        let served = Arc::new(AtomicU32::new(0));
        let mut tasks = Vec::new();
        for seed in 0..3 {
            let client = self.far_client(faults, seed);
            let (kit, name) = (self.clone(), name.clone());
            let (highest, served) = (highest.clone(), served.clone());
            tasks.push(self.runtime.spawn(async move {
                for _ in 0..rounds {
                    let hold = held(kit.how.join(&client, &name, lasting(&client, 1)).await);
                    kit.sleep(Duration::from_millis(5)).await;
                    if hold.is_live() {
                        let mut highest = highest.lock().expect("no panic");
                        assert!(hold.fence().get() > *highest, "used out of turn");
                        *highest = hold.fence().get();
                    }
                    served.fetch_add(1, SeqCst);
                }
            }));
        }
        for task in tasks {
            let served = self.runtime.within(SECOND * 120, task).await;
            served.expect("everyone is served");
        }
        assert_eq!(served.load(SeqCst), 3 * rounds);
    }
}

pub(super) async fn all_are_served_although_every_push_is_lost(kit: Kit) {
    kit.take_turns(Faults { lost_push: 1000, ..Faults::NONE }, 2).await;
}

pub(super) async fn lost_answers_change_nothing(kit: Kit) {
    let time_out = Duration::from_millis(200);
    let bad = Faults { cut: 100, duplicate: 100, lost_push: 100, time_out, ..Faults::NONE };
    kit.take_turns(bad, 4).await;
}
