//! What happens between two steps: an end that comes before its grant, a deadline that passes before anyone has
//! looked, turns that nobody takes.

use crate::fixtures;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Wake};
use std::time::Duration;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{memory, ms, now, poll_once, waiting};
use tenure::engine::*;
use tenure::engines::memory::Memory;
use tenure::{Begun, Released, Tenure};

/// An engine in which an operator is faster than the answer to a claim, and a push is as late as the test wants it.
#[derive(Debug, Default)]
struct Hasty {
    memory: Memory,
    breaks_next: AtomicBool,
    asked: Mutex<Option<ClaimId>>,
    turns: OnceLock<Weak<dyn Turns>>,
}

impl Engine for Hasty {
    fn profile(&self) -> &Profile {
        self.memory.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        self.turns.set(turns.clone()).unwrap();
        self.memory.attach(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        *self.asked.lock().unwrap() = Some(claim.id);
        let answer = self.memory.claim(claim);
        if self.breaks_next.swap(false, SeqCst) {
            let page = now(self.memory.inspect(&Scope::Name(claim.name.clone()))).unwrap();
            let note = Note { by: "ops".into(), reason: "in haste".into() };
            let fence = page.views[0].holders[0].fence;
            assert_eq!(
                now(self.memory.break_hold(&claim.name, fence, &note)).unwrap(),
                Broken::Done
            );
        }
        answer
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        self.memory.renew(shard, batch)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.memory.leave(leave)
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        self.memory.leave_soon(leave, done);
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.memory.resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.memory.break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.memory.forget(name, seen)
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.memory.inspect(scope)
    }

    fn health(&self) -> Step<()> {
        self.memory.health()
    }

    fn close(&self) -> Step<()> {
        self.memory.close()
    }
}

#[test]
fn a_hold_that_is_broken_before_its_grant_is_heard_is_not_live() {
    let engine = Hasty { breaks_next: AtomicBool::new(true), ..Hasty::default() };
    let tenure = Tenure::with_engine(Arc::new(engine));
    let first = now(tenure.mutex("a").renew(false).acquire()).unwrap();
    let second = now(tenure.mutex("a").acquire()).unwrap();
    assert!(!first.is_live(), "two are live: {first:?} and {second:?}");
    assert!(second.is_live());
    assert_eq!(now(first.release()).unwrap(), Released::Late);
}

/// The claim was told to wait after that grant was made: the grant is over, and somebody else may hold by now.
#[test]
fn a_turn_from_before_the_last_answer_is_not_believed() {
    let engine = Arc::new(Hasty::default());
    let tenure = Tenure::with_engine(engine.clone());
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    let mut asking = waiting(tenure.mutex("a").acquire());
    let turns = engine.turns.get().unwrap().upgrade().unwrap();
    let (name, id) = (Name::new(Space::Lock, "a").unwrap(), engine.asked.lock().unwrap().unwrap());
    let push = |fence| {
        let grant = Grant::new(fence, SystemWorld.now(), Duration::from_secs(60), true);
        turns.deliver(&name, &id, Turn::Granted(grant))
    };
    assert!(push(holder.fence()), "its claim is alive, and nothing is to be given back");
    assert!(poll_once(&mut asking).is_pending(), "two hold");
    // Tickets and fences come from the same sequence.
    let next = Fence::new(holder.fence().get() + 100);
    assert!(push(next));
    assert_eq!(now(asking).unwrap().fence(), next);
}

/// Claims that are made through the trait, and whose clients are gone.
#[test]
fn many_turns_that_nobody_takes_pass_on_without_a_deep_stack() {
    let engine = Memory::new();
    let name = Name::new(Space::Lock, "a").unwrap();
    let claim = || Claim::new(name.clone(), SystemWorld.mint().unwrap());
    let first = claim();
    let _ = now(engine.claim(&first)).unwrap();
    for _ in 0..20_000 {
        let _ = now(engine.claim(&claim())).unwrap();
    }
    let _ = now(engine.leave(&Leave::new(name.clone(), first.id))).unwrap();
    assert!(now(engine.inspect(&Scope::Name(name.clone()))).unwrap().views.is_empty());
    assert!(matches!(now(engine.claim(&claim())), Ok(Verdict::Granted(_))));
}

/// A world in which time stands still until told, and which runs no watchdog.
#[derive(Debug, Default)]
struct Still(AtomicU64);

impl World for Still {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(SeqCst))
    }

    fn mint(&self) -> tenure::Result<ClaimId> {
        SystemWorld.mint()
    }

    fn start(&self, _: Job) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_release_after_the_deadline_is_late_even_with_hold_for() {
    let world = Arc::new(Still::default());
    let engine: Arc<dyn Engine> = Arc::new(Memory::in_world(world.clone(), 0));
    let one = Tenure::in_world(engine.clone(), world.clone());
    let two = Tenure::in_world(engine, world.clone());
    let ask = one.mutex("a").ttl(ms(1000)).hold_for(Duration::from_secs(60));
    let hold = now(ask.acquire()).unwrap();
    // The machine slept, and the release comes before the watchdog looks.
    world.0.store(10_000_000_000, SeqCst);
    assert!(now(two.mutex("a").try_acquire()).unwrap().is_some());
    assert_eq!(now(hold.release()).unwrap(), Released::Late);
}

#[test]
fn an_observer_that_is_dropped_leaves_nothing_with_the_hold() {
    static ALIVE: AtomicU64 = AtomicU64::new(0);
    struct Watcher;
    impl Wake for Watcher {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Watcher {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, SeqCst);
        }
    }
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    for _ in 0..1000 {
        ALIVE.fetch_add(2, SeqCst);
        for waker in [Arc::new(Watcher).into(), Arc::new(Watcher).into()] {
            let mut cx = Context::from_waker(&waker);
            let mut lost = pin!(hold.lost());
            assert!(lost.as_mut().poll(&mut cx).is_pending());
            assert!(lost.as_mut().poll(&mut cx).is_pending());
            assert!(pin!(hold.at_risk()).as_mut().poll(&mut cx).is_pending());
        }
    }
    assert_eq!(ALIVE.load(SeqCst), 0, "wakers of futures that are gone");
}

/// The engine recorded that it had begun when it granted it, but nobody has begun.
#[test]
fn a_once_whose_grant_is_heard_too_late_was_not_begun() {
    let engine = ControlledEngine::new();
    engine.answer_late(1);
    let tenure = Tenure::with_engine(engine.clone());
    let asking = waiting(tenure.once("a").ttl(ms(100)).begin());
    engine.answer_late(0);
    // Its caller is stopped for longer than the hold lasts.
    std::thread::sleep(ms(300));
    let begun = now(asking).unwrap();
    assert!(matches!(begun, Begun::Mine(_)), "{begun:?}");
    // A once that another claim began and never settled stays unsettled.
    drop(begun);
    let another = now(tenure.once("a").begin()).unwrap();
    assert!(matches!(another, Begun::Unsettled), "{another:?}");
}
