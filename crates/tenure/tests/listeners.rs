//! Listeners are foreign code: they may block and panic, and no lock is lost because of that.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod fixtures;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "fixtures/metrics_recorder.rs"]
mod meters;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::task::{Context, Wake, Waker};
use std::thread;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{ms, now, soon, until};
use tenure::Tenure;
use tenure::engine::Ended;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// There is one listener for the process, so the tests run one by one.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Listener).unwrap());
    meters::keep();
    ONE.lock().await
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mood {
    Kind,
    /// Blocks every thread of the library that reports something.
    Blocks,
    Panics,
}

static MOOD: Mutex<Mood> = Mutex::new(Mood::Kind);
static CHANGED: Condvar = Condvar::new();
/// How many spans were closed, or would have been.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// The reported events, by name.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Puts the listener in a mood for as long as this lives.
struct In;

fn in_mood(mood: Mood) -> In {
    *MOOD.lock().unwrap() = mood;
    In
}

impl Drop for In {
    fn drop(&mut self) {
        *MOOD.lock().unwrap() = Mood::Kind;
        CHANGED.notify_all();
    }
}

fn listen() {
    // Threads of tests are named after the test; those of the library begin with its name.
    let ours = thread::current().name().is_some_and(|name| name.starts_with("tenure"));
    let mood = *MOOD.lock().unwrap();
    match mood {
        Mood::Panics if ours => panic!("a listener that panics"),
        Mood::Blocks if ours => {
            let blocks = |mood: &mut Mood| *mood == Mood::Blocks;
            drop(CHANGED.wait_while(MOOD.lock().unwrap(), blocks));
        }
        _ => {}
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tenure"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        listen();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        listen();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        listen();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            if field.name() == "event" {
                TOLD.lock().unwrap().push(format!("{value:?}").trim_matches('"').to_owned());
            }
        });
    }

    fn enter(&self, _: &Id) {
        listen();
    }

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        listen();
        id.clone()
    }

    fn try_close(&self, _: Id) -> bool {
        CLOSED.fetch_add(1, SeqCst);
        listen();
        true
    }
}

fn told(event: &str) -> usize {
    TOLD.lock().unwrap().iter().filter(|known| *known == event).count()
}

/// A hold is renewed for several ttls, and when it is lost its owner hears of it.
async fn lives_on(mood: Mood) {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = now(tenure.mutex("a").ttl(ms(600)).acquire()).unwrap();
    let mood = in_mood(mood);
    let before = engine.renewals();
    until("six renewals", || engine.renewals() >= before + 6);
    assert!(hold.is_live());
    engine.be_deaf();
    let closed = CLOSED.load(SeqCst);
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    if *MOOD.lock().unwrap() == Mood::Panics {
        until("its span was closed", || CLOSED.load(SeqCst) > closed);
    }
    drop(mood);
}

#[tokio::test]
async fn a_listener_that_blocks_stops_neither_renewals_nor_news_of_a_loss() {
    let _alone = alone().await;
    let before = told("lock.lost");
    lives_on(Mood::Blocks).await;
    until("what was held back is told", || told("lock.lost") > before);
}

#[tokio::test]
async fn a_listener_that_panics_stops_neither_renewals_nor_news_of_a_loss() {
    let _alone = alone().await;
    lives_on(Mood::Panics).await;
}

/// What does not fit is dropped, and counted; whatever lasts as long as the holds ends all the same.
#[tokio::test]
async fn what_a_slow_listener_misses_is_counted_and_gauges_come_back() {
    let _alone = alone().await;
    let tenure = Tenure::with_engine(ControlledEngine::new());
    let ask = |i: u32| tenure.mutex(format!("many:{i}")).ttl(ms(900)).renew(false);
    let blocked = in_mood(Mood::Blocks);
    let holds: Vec<_> = (0..6_000).map(|i| now(ask(i).acquire()).unwrap()).collect();
    for hold in &holds {
        assert_eq!(soon(hold.lost()).await, Ended::Expired);
    }
    let missed = || meters::sum("tenure_reports_dropped_total", &[]);
    assert_eq!((told("reports.dropped"), missed()), (0, 0.0));
    drop(blocked);
    until("it is said that some were dropped", || told("reports.dropped") == 1);
    assert!(missed() >= 1_000.0, "{}", missed());
    let held = || meters::sum("tenure_held", &[("group", "many")]);
    until("all gauges are back", || held() == 0.0);
}

/// An engine that panics on the watchdog's thread costs one try, and no hold.
#[tokio::test]
async fn an_engine_that_panics_once_loses_nothing() {
    let _alone = alone().await;
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = now(tenure.mutex("a").ttl(ms(900)).acquire()).unwrap();
    engine.panic_once();
    until("it has panicked", || told("watchdog.panicked") >= 1);
    let before = engine.renewals();
    until("three renewals", || engine.renewals() >= before + 3);
    assert!(hold.is_live());
}

struct Bomb(AtomicBool);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        panic!("a waker that panics");
    }
}

#[tokio::test]
async fn a_waker_that_panics_harms_nobody_else() {
    let _alone = alone().await;
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let brief = now(tenure.mutex("a").ttl(ms(100)).renew(false).acquire()).unwrap();
    let other = now(tenure.mutex("b").ttl(ms(900)).acquire()).unwrap();
    let bomb = Arc::new(Bomb(AtomicBool::new(false)));
    let waker = Waker::from(bomb.clone());
    let mut lost = Box::pin(brief.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let loss = soon(brief.lost());
    assert_eq!(loss.await, Ended::Expired);
    until("the waker was woken", || bomb.0.load(SeqCst));
    let before = engine.renewals();
    until("three renewals", || engine.renewals() >= before + 3);
    assert!(other.is_live());
}
