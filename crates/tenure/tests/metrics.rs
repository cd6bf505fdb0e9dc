//! What is counted, and that the gauges return to zero whatever happens.

use crate::fixtures;
use crate::meters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use fixtures::controlled_engine::ControlledEngine;
use fixtures::log_recorder::{keep, written};
use fixtures::{ms, now, soon, until, waiting};
use meters::{described, of, sum, told, values};
use tenure::engine::{ClaimId, Ended, Job, Moment, SystemWorld, World};
use tenure::metrics::{METRICS, MetricKind, describe};
use tenure::{Done, Error, ErrorKind, OnOutage, Released, Result, Tenure};

fn counted() -> Tenure {
    counted_with(ControlledEngine::new())
}

fn counted_with(engine: Arc<ControlledEngine>) -> Tenure {
    meters::keep();
    Tenure::with_engine(engine)
}

/// Each test has a group of its own, because the recorder is the process's.
fn in_group<'a>(group: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("group", group), ("engine", "memory")], more].concat()
}

fn asks(group: &str, outcome: &str) -> f64 {
    sum("tenure_acquisitions_total", &in_group(group, &[("outcome", outcome)]))
}

fn gauge(name: &str, group: &str) -> f64 {
    sum(name, &[("group", group)])
}

/// Checks the holds and waiters of the group now. Waits for them, because the watchdog may report last.
#[track_caller]
fn holds_and_waiters(group: &str, held: f64, waiters: f64) {
    until(&format!("{held} held and {waiters} waiting in {group}"), || {
        (gauge("tenure_held", group), gauge("tenure_waiters", group)) == (held, waiters)
    });
}

#[tokio::test]
async fn every_acquire_is_counted_by_its_outcome() {
    let tenure = counted();
    let hold = tenure.mutex("asks:1").acquire().await.unwrap();
    assert!(tenure.mutex("asks:1").try_acquire().await.unwrap().is_none());
    assert!(soon(tenure.mutex("asks:1").wait(ms(5)).acquire()).await.is_err());
    drop(waiting(tenure.mutex("asks:1").join()));
    assert!(tenure.mutex("asks:1").ttl(ms(1)).acquire().await.is_err());
    assert!(tenure.semaphore("asks:1", 3).acquire().await.is_err());
    let next = waiting(tenure.mutex("asks:1").join());
    drop(hold);
    drop(now(next).unwrap());
    let outcomes = ["granted", "busy", "timeout", "cancelled", "error"];
    assert_eq!(outcomes.map(|outcome| asks("asks", outcome)), [2.0, 1.0, 1.0, 1.0, 2.0]);
    let waits = values("tenure_wait_seconds", &in_group("asks", &[("outcome", "timeout")]));
    assert!(waits.len() == 1 && waits[0] >= 0.005, "{waits:?}");
    assert_eq!(
        values("tenure_wait_seconds", &in_group("asks", &[("outcome", "granted")])).len(),
        2
    );
}

/// A world that can run out of random bytes.
#[derive(Debug, Default)]
struct NoMoreIds(AtomicBool);

impl World for NoMoreIds {
    fn now(&self) -> Moment {
        SystemWorld.now()
    }

    fn mint(&self) -> Result<ClaimId> {
        match self.0.load(SeqCst) {
            true => Err(Error::new(ErrorKind::Internal, "no random bytes are left")),
            false => SystemWorld.mint(),
        }
    }

    fn start(&self, job: Job) -> std::io::Result<()> {
        SystemWorld.start(job)
    }
}

/// A hold without the engine needs a new id, which cannot be made here.
#[tokio::test]
async fn a_claim_that_waited_and_cannot_continue_without_the_engine_is_reported_and_counted() {
    keep();
    meters::keep();
    let (engine, world) = (ControlledEngine::new(), Arc::new(NoMoreIds::default()));
    let tenure = Tenure::in_world(engine.clone(), world.clone());
    engine.be_unreachable();
    let claim = waiting(tenure.mutex("alone:1").on_outage(OnOutage::Open).join());
    world.0.store(true, SeqCst);
    let error = soon(claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    let outcomes = ["error", "cancelled", "granted"];
    assert_eq!(outcomes.map(|outcome| asks("alone", outcome)), [1.0, 0.0, 0.0]);
    assert!(written("alone:1", "lock.failed").fields["reason"].contains("no random bytes"));
    holds_and_waiters("alone", 0.0, 0.0);
}

#[tokio::test]
async fn kinds_are_told_apart() {
    let tenure = counted();
    drop(tenure.mutex("kinds:1").acquire().await.unwrap());
    drop(tenure.semaphore("kinds:2", 1).acquire().await.unwrap());
    drop(tenure.rwlock("kinds:3").read().await.unwrap());
    drop(tenure.rwlock("kinds:3").write().await.unwrap());
    let kinds = ["lock", "sem", "rwlock"];
    let count = |kind| sum("tenure_acquisitions_total", &in_group("kinds", &[("kind", kind)]));
    assert_eq!(kinds.map(count), [1.0, 1.0, 2.0]);
}

#[tokio::test]
async fn gauges_come_back_to_zero_whatever_happens() {
    let engine = ControlledEngine::new();
    let tenure = counted_with(engine.clone());
    let ask = |name: &str| tenure.mutex(format!("zero:{name}"));
    // Released, dropped, and given up.
    let (one, two) = (now(ask("1").acquire()).unwrap(), now(ask("2").acquire()).unwrap());
    let line = [waiting(ask("1").join()), waiting(ask("1").join()), waiting(ask("2").join())];
    holds_and_waiters("zero", 2.0, 3.0);
    drop(line);
    holds_and_waiters("zero", 2.0, 0.0);
    drop(one);
    let _ = two.release().await.unwrap();
    holds_and_waiters("zero", 0.0, 0.0);
    // Handed over, kept for a while, broken, detached and attached.
    let (hold, next) = (now(ask("1").acquire()).unwrap(), waiting(ask("1").join()));
    drop(hold);
    let next = now(next).unwrap();
    holds_and_waiters("zero", 1.0, 0.0);
    tenure.break_hold("zero:1", next.fence(), "test").await.unwrap();
    holds_and_waiters("zero", 0.0, 0.0);
    let detached = now(ask("3").acquire()).unwrap().detach().await.unwrap();
    holds_and_waiters("zero", 0.0, 0.0);
    let attached = tenure.attach(&detached).await.unwrap();
    holds_and_waiters("zero", 1.0, 0.0);
    drop(attached);
    drop(now(ask("4").hold_for(ms(50)).acquire()).unwrap());
    holds_and_waiters("zero", 0.0, 0.0);
    // Run out, with a guard that somebody still has.
    let brief = now(ask("5").ttl(ms(60)).renew(false).acquire()).unwrap();
    soon(brief.lost()).await;
    holds_and_waiters("zero", 0.0, 0.0);
    assert_eq!(soon(brief.release()).await.unwrap(), Released::Late);
    // A release that is never answered, and a connection that is closed.
    let stuck = now(ask("6").ttl(ms(60)).acquire()).unwrap();
    engine.shut();
    drop(stuck);
    holds_and_waiters("zero", 0.0, 0.0);
    engine.open();
    let (last, next) = (now(ask("7").acquire()).unwrap(), waiting(ask("7").join()));
    holds_and_waiters("zero", 1.0, 1.0);
    soon(tenure.close()).await;
    assert!(soon(next).await.is_err());
    holds_and_waiters("zero", 0.0, 0.0);
    drop(last);
    holds_and_waiters("zero", 0.0, 0.0);
}

/// In the local line a process counts each waiter once, before it asks the engine and after.
#[test]
fn waiters_in_the_local_line_are_counted() {
    meters::keep();
    let tenure = now(Tenure::connect("memory:?on_outage=local")).unwrap();
    let hold = now(tenure.mutex("own:1").acquire()).unwrap();
    let mut line: Vec<_> = (0..3).map(|_| waiting(tenure.mutex("own:1").join())).collect();
    holds_and_waiters("own", 1.0, 3.0);
    drop(line.pop());
    holds_and_waiters("own", 1.0, 2.0);
    drop(hold);
    let next = now(line.remove(0)).unwrap();
    holds_and_waiters("own", 1.0, 1.0);
    drop((line, next));
    holds_and_waiters("own", 0.0, 0.0);
}

#[tokio::test]
async fn a_hold_is_measured_with_its_end() {
    let tenure = counted();
    let lengths = |end| values("tenure_hold_seconds", &in_group("ends", &[("end", end)]));
    let lost = |reason| sum("tenure_lost_total", &in_group("ends", &[("reason", reason)]));
    drop(tenure.mutex("ends:1").acquire().await.unwrap());
    let brief = tenure.mutex("ends:2").ttl(ms(60)).renew(false).acquire().await.unwrap();
    assert_eq!(soon(brief.lost()).await, Ended::Expired);
    let broken = tenure.mutex("ends:3").acquire().await.unwrap();
    tenure.break_hold("ends:3", broken.fence(), "test").await.unwrap();
    let capped = tenure.mutex("ends:4").ttl(ms(700)).max_hold(ms(800)).acquire().await.unwrap();
    assert_eq!(soon(capped.lost()).await, Ended::MaxHold);
    until("all ends", || {
        ["released", "expired", "broken", "lost"].iter().all(|end| lengths(end).len() == 1)
    });
    assert!(lengths("expired")[0] >= 0.05 && lengths("lost")[0] >= 0.8, "{:?}", told());
    assert_eq!(["expired", "broken", "max_hold"].map(lost), [1.0; 3]);
    assert_eq!(sum("tenure_max_hold_releases_total", &in_group("ends", &[])), 1.0);
    assert_eq!(sum("tenure_breaks_total", &in_group("ends", &[])), 1.0);
    assert_eq!(sum("tenure_expired_before_release_total", &in_group("ends", &[])), 0.0);
    let _ = soon(brief.release()).await.unwrap();
    assert_eq!(sum("tenure_expired_before_release_total", &in_group("ends", &[])), 1.0);
    assert_eq!(lengths("expired").len(), 1, "a hold that was lost is measured once");
}

#[tokio::test]
async fn renewals_are_counted_with_what_was_left() {
    let engine = ControlledEngine::new();
    let tenure = counted_with(engine.clone());
    let hold = tenure.mutex("renewed:1").ttl(ms(600)).acquire().await.unwrap();
    let count =
        |outcome| sum("tenure_renewals_total", &in_group("renewed", &[("outcome", outcome)]));
    until("a renewal", || count("renewed") >= 1.0);
    let margins = values("tenure_renewal_margin_ratio", &in_group("renewed", &[]));
    assert!(margins.iter().all(|share| (0.0..=1.0).contains(share)), "{margins:?}");
    engine.be_deaf();
    soon(hold.lost()).await;
    assert!(count("unanswered") >= 1.0);
}

/// A turn that was pushed is renewed soon, however long its ttl: that says nothing about margins.
#[tokio::test]
async fn a_first_life_has_no_margin() {
    let tenure = counted();
    let hold = now(tenure.mutex("first:1").acquire()).unwrap();
    let next = waiting(tenure.mutex("first:1").join());
    drop(hold);
    let next = now(next).unwrap();
    let renewed = || sum("tenure_renewals_total", &in_group("first", &[("outcome", "renewed")]));
    until("the first renewal", || renewed() == 1.0);
    assert_eq!(values("tenure_renewal_margin_ratio", &in_group("first", &[])), [0.0; 0]);
    drop(next);
}

#[tokio::test]
async fn the_oldest_hold_and_the_oldest_wait_are_reported_on_request() {
    let tenure = counted();
    let ages = || {
        tenure.measure_ages();
        ["tenure_oldest_hold_seconds", "tenure_oldest_wait_seconds"].map(|name| gauge(name, "aged"))
    };
    let hold = now(tenure.mutex("aged:1").acquire()).unwrap();
    until("a hold that is older than 20 ms", || ages()[0] > 0.02);
    assert_eq!(ages()[1], 0.0);
    let line = waiting(tenure.mutex("aged:1").join());
    until("a wait that is older than 20 ms", || ages()[1] > 0.02);
    let [oldest, wait] = ages();
    assert!(oldest > wait, "{oldest} {wait}");
    drop((line, hold));
    assert_eq!(ages(), [0.0, 0.0]);
}

#[tokio::test]
async fn leaders_and_onces_are_counted() {
    let tenure = counted();
    let term = tenure.election("led").campaign().await.unwrap();
    let led = |name| sum(name, &[("election", "led")]);
    assert_eq!(led("tenure_leader"), 1.0);
    assert_eq!(led("tenure_leader_term"), term.number().get() as f64);
    let _ = term.resign().await.unwrap();
    assert_eq!((led("tenure_leader"), led("tenure_leader_transitions_total")), (0.0, 1.0));

    let run = async |content: &'static str| {
        let work = async |_: &tenure::Run| Ok::<_, ()>("done");
        tenure.once("job:1").content(content).run(work).await
    };
    assert!(matches!(run("a").await.unwrap(), Ok(Done::Ran(_))));
    assert!(matches!(run("a").await.unwrap(), Ok(Done::Replayed(_))));
    assert!(run("b").await.is_err());
    let began = tenure.once("job:2").begin().await.unwrap();
    let busy = tenure.once("job:2").wait(ms(0)).run(async |_| Ok::<_, ()>("done")).await.unwrap();
    assert!(matches!(busy, Ok(Done::InProgress(_))));
    drop(began);
    let unsettled = tenure.once("job:2").run(async |_| Ok::<_, ()>("done")).await.unwrap();
    assert!(matches!(unsettled, Ok(Done::Unsettled)));
    assert!(tenure.once("job:3").run(async |_| Err::<&str, _>("no")).await.unwrap().is_err());
    let count = |outcome| sum("tenure_once_total", &[("group", "job"), ("outcome", outcome)]);
    let outcomes = ["ran", "replayed", "mismatch", "in_flight", "unsettled", "undone"];
    assert_eq!(outcomes.map(count), [1.0; 6]);
}

/// Every reported metric is in the table, with exactly the labels of the table, and described.
#[tokio::test]
async fn what_is_reported_matches_the_table() {
    let tenure = counted();
    let hold = tenure.mutex("table:1").acquire().await.unwrap();
    drop(waiting(tenure.mutex("table:1").join()));
    tenure.measure_ages();
    drop(hold);
    describe();
    assert_eq!(described().len(), METRICS.len());
    for (name, kind, number) in told() {
        let known = METRICS.iter().find(|metric| metric.name == name);
        let known = known.unwrap_or_else(|| panic!("{name} is not in the table"));
        let is = match known.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        assert_eq!(kind, is, "{name}");
        let mut labels = known.labels.to_vec();
        labels.sort_unstable();
        assert_eq!(number.labels.keys().collect::<Vec<_>>(), labels, "{name}");
        assert_eq!(described()[&name], known.help);
    }
    assert!(!of("tenure_held", &in_group("table", &[("kind", "lock")])).is_empty());
}
