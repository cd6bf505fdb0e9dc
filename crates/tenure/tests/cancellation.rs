//! Whatever is dropped, at any moment, leaves nothing behind, and the next in line is served.

use crate::fixtures;

use std::future::Future;
use std::sync::{Arc, Barrier, mpsc};
use std::task::Poll;
use std::thread;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{Asking, is_free, memory, ms, now, poll_once, soon, view, waiting};
use tenure::{ErrorKind, Released, Tenure};

/// A way to acquire, and what somebody else must hold so that it waits.
struct Case {
    label: &'static str,
    block: fn(&Tenure) -> Asking,
    ask: fn(&Tenure) -> Asking,
}

const CASES: [Case; 9] = [
    Case {
        label: "mutex",
        block: |tenure| Box::pin(tenure.mutex("a").acquire()),
        ask: |tenure| Box::pin(tenure.mutex("a").acquire()),
    },
    Case {
        label: "mutex, joined",
        block: |tenure| Box::pin(tenure.mutex("a").acquire()),
        ask: |tenure| Box::pin(tenure.mutex("a").join()),
    },
    Case {
        label: "semaphore",
        block: |tenure| Box::pin(tenure.semaphore("a", 3).acquire_many(2)),
        ask: |tenure| Box::pin(tenure.semaphore("a", 3).acquire_many(2)),
    },
    Case {
        label: "semaphore, joined",
        block: |tenure| Box::pin(tenure.semaphore("a", 3).acquire_many(3)),
        ask: |tenure| Box::pin(tenure.semaphore("a", 3).join()),
    },
    Case {
        label: "read",
        block: |tenure| Box::pin(tenure.rwlock("a").write()),
        ask: |tenure| Box::pin(tenure.rwlock("a").read()),
    },
    Case {
        label: "write",
        block: |tenure| Box::pin(tenure.rwlock("a").read()),
        ask: |tenure| Box::pin(tenure.rwlock("a").write()),
    },
    Case {
        label: "all, and the first is taken",
        block: |tenure| Box::pin(tenure.mutex("a").acquire()),
        ask: |tenure| Box::pin(tenure.all(["a", "b", "c"]).acquire()),
    },
    Case {
        label: "all, and the last is taken",
        block: |tenure| Box::pin(tenure.mutex("c").acquire()),
        ask: |tenure| Box::pin(tenure.all(["a", "b", "c"]).acquire()),
    },
    Case {
        label: "all, and all are taken",
        block: |tenure| Box::pin(tenure.all(["a", "b"]).acquire()),
        ask: |tenure| Box::pin(tenure.all(["b", "a"]).acquire()),
    },
];

/// Three clients of one engine: one that is in the way, one whose acquire is dropped, one that comes next.
struct Scene {
    engine: Arc<ControlledEngine>,
    tenure: Tenure,
    victim: Tenure,
}

impl Scene {
    fn new() -> Scene {
        let engine = ControlledEngine::new();
        let victim = Tenure::with_engine(engine.clone());
        let mut options = victim.defaults();
        options.details_mut().owner = "victim".into();
        let victim = victim.with_defaults(options).unwrap();
        Scene { tenure: Tenure::with_engine(engine.clone()), victim, engine }
    }

    /// Polls the acquire `polls` times and drops it; what is in its way is released after `freed_after` polls.
    /// Returns whether the acquire was done by then.
    fn drop_at(&self, case: &Case, freed_after: usize, polls: usize) -> bool {
        let mut blocker = Some(now((case.block)(&self.tenure)).unwrap());
        let mut victim = (case.ask)(&self.victim);
        let mut next = None;
        let mut done = None;
        for poll in 0..polls {
            if poll == freed_after {
                blocker = None;
            }
            if poll == 1 {
                next = Some(self.next(case));
            }
            if let Poll::Ready(hold) = poll_once(&mut victim) {
                done = Some(hold.unwrap());
                break;
            }
        }
        let completed = done.is_some();
        let next = next.unwrap_or_else(|| self.next(case));
        drop((victim, done));
        let at = format!("{}, freed after {freed_after}, dropped after {polls}", case.label);
        self.expect_no_victim(&at);
        drop(blocker);
        let served = now(next).unwrap();
        assert!(served.is_live(), "{at}");
        drop(served);
        assert_eq!(now(self.tenure.list("")).unwrap(), [], "{at}");
        completed
    }

    fn next(&self, case: &Case) -> Asking {
        let mut next = (case.ask)(&self.tenure);
        // It may be served at once, and must then not be polled again.
        match poll_once(&mut next) {
            Poll::Ready(hold) => Box::pin(async { hold }),
            Poll::Pending => next,
        }
    }

    fn expect_no_victim(&self, at: &str) {
        for view in now(self.tenure.list("")).unwrap() {
            let holders = view.holders.iter().map(|holder| &holder.details);
            let waiters = view.waiters.iter().map(|waiter| &waiter.details);
            let mut owners = holders.chain(waiters).map(|details| details.owner.as_str());
            assert!(!owners.any(|owner| owner == "victim"), "{at}: {view:?}");
        }
    }
}

#[test]
fn an_acquire_dropped_at_any_await_point_leaves_the_line() {
    let scene = Scene::new();
    for late in 0..3 {
        scene.engine.answer_late(late);
        for case in &CASES {
            for freed_after in 0..8 {
                let polls = (0..64).find(|polls| scene.drop_at(case, freed_after, *polls));
                let polls = polls.unwrap_or_else(|| panic!("{} never ends", case.label));
                assert!(polls > freed_after, "{}: it did not have to wait", case.label);
            }
        }
    }
}

#[test]
fn a_try_dropped_before_its_answer_leaves_nothing() {
    let scene = Scene::new();
    scene.engine.answer_late(2);
    for polls in 0..3 {
        let mut attempt = Box::pin(scene.victim.mutex("a").try_acquire());
        for _ in 0..polls {
            assert!(poll_once(&mut attempt).is_pending());
        }
        drop(attempt);
        assert!(is_free(&scene.tenure, "a"), "dropped after {polls}");
    }
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn pause(&mut self) {
        (0..self.below(400)).for_each(|_| std::hint::spin_loop());
    }
}

#[test]
fn an_acquire_dropped_at_the_instant_of_its_turn_passes_it_on() {
    let tenure = memory();
    let barrier = Arc::new(Barrier::new(2));
    let (send, victims) = mpsc::channel::<Asking>();
    let (tell, dropped) = mpsc::channel();
    let dropper = {
        let barrier = barrier.clone();
        thread::spawn(move || {
            let mut random = Random(7);
            for mut victim in victims {
                let last_look = random.below(2) == 0;
                barrier.wait();
                random.pause();
                // A turn that came in time is taken, and dropped as a hold.
                if last_look {
                    let _ = poll_once(&mut victim);
                }
                drop(victim);
                tell.send(()).unwrap();
            }
        })
    };
    let mut random = Random(1);
    for round in 0..2_000 {
        let holder = now(tenure.mutex("a").acquire()).unwrap();
        let victim = waiting(tenure.mutex("a").join());
        let next = waiting(tenure.mutex("a").join());
        send.send(victim).unwrap();
        barrier.wait();
        random.pause();
        drop(holder);
        dropped.recv().unwrap();
        let served = now(next).unwrap();
        let line = view(&tenure, "a");
        assert_eq!((line.holders.len(), line.waiters.len()), (1, 0), "round {round}: {line:?}");
        assert_eq!(line.holders[0].fence, served.fence());
        drop(served);
        assert!(is_free(&tenure, "a"), "round {round}");
    }
    drop(send);
    dropper.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_acquires_dropped_at_random_leave_an_empty_line() {
    let tenure = memory();
    let mut random = Random(3);
    let mut tasks = Vec::new();
    for _ in 0..1_000 {
        let (ask, patience) = (tenure.mutex("a"), ms(random.below(8)));
        tasks.push(tokio::spawn(async move {
            let asked = tokio::time::timeout(patience, ask.acquire()).await;
            // Held for an instant, so that turns and the ends of waits coincide.
            tokio::task::yield_now().await;
            asked.is_ok_and(|hold| hold.unwrap().is_live())
        }));
    }
    let mut served = 0;
    for task in tasks {
        served += u32::from(soon(task).await.unwrap());
    }
    assert!(served > 0);
    assert_eq!(tenure.list("").await.unwrap(), []);
    assert!(is_free(&tenure, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_at_the_instant_of_its_turn_leaves_nothing() {
    let tenure = memory();
    for round in 0..200 {
        let holder = soon(tenure.mutex("a").acquire()).await.unwrap();
        let waiter = tokio::spawn(tenure.mutex("a").wait(ms(2)).join());
        let mut random = Random(round);
        tokio::task::spawn_blocking(move || {
            thread::sleep(std::time::Duration::from_micros(1_500 + random.below(1_000)));
            drop(holder);
        })
        .await
        .unwrap();
        match soon(waiter).await.unwrap() {
            Ok(hold) => drop(hold),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WaitOver, "{error}"),
        }
        assert_eq!(tenure.list("").await.unwrap(), [], "round {round}");
    }
}

#[test]
fn a_release_that_is_dropped_after_one_poll_still_happens() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    engine.shut();
    let release = waiting(hold.release());
    drop(release);
    assert!(!is_free_now(&tenure), "the engine has not heard of it yet");
    engine.open();
    assert!(is_free_now(&tenure));
}

/// Without taking it: a hold would have to be given back through `leave`.
fn is_free_now(tenure: &Tenure) -> bool {
    now(tenure.inspect("a")).unwrap().is_none()
}

#[test]
fn a_release_that_was_never_polled_happens_by_drop() {
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    drop(hold.release());
    assert!(is_free(&tenure, "a"));
}

#[test]
fn a_run_that_is_dropped_drops_the_work_and_releases() {
    let tenure = memory();
    let (inside, outside) = mpsc::channel::<()>();
    let run = waiting(tenure.mutex("a").run(async move |_| {
        let _inside = inside;
        std::future::pending::<()>().await;
    }));
    assert!(!is_free(&tenure, "a"));
    drop(run);
    assert_eq!(outside.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the work is gone");
    assert!(is_free(&tenure, "a"));
}

/// `hold_for` is about holds; nobody ever had this one.
#[test]
fn a_joined_claim_that_is_dropped_unpolled_is_not_kept_for_hold_for() {
    let tenure = memory();
    let unpolled: Box<dyn Future<Output = _>> =
        Box::new(tenure.mutex("a").hold_for(ms(60_000)).join());
    drop(unpolled);
    assert!(is_free(&tenure, "a"));
}

/// What `all` took before it gave up was never handed out, so `hold_for` does not keep it.
#[test]
fn an_all_that_fails_half_way_is_not_kept_for_hold_for() {
    let tenure = memory();
    let blocker = now(tenure.mutex("b").acquire()).unwrap();
    let tried = now(tenure.all(["a", "b"]).hold_for(ms(60_000)).try_acquire()).unwrap();
    assert!(tried.is_none());
    drop(waiting(tenure.all(["a", "b"]).hold_for(ms(60_000)).acquire()));
    assert!(is_free(&tenure, "a"));
    assert_eq!(now(blocker.release()).unwrap(), Released::InTime);
}
