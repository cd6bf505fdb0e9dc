//! One of many does the work, and another takes over, whatever the callbacks and the engine do.

use crate::fixtures;
use crate::working;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{memory, ms, soon};
use tenure::worker::State;
use tenure::{ErrorKind, Tenure, Worker};
use working::{Call, How, TestWork, until};

/// Longer than a busy machine keeps a thread waiting, and so is a third of it.
const TTL: std::time::Duration = ms(3000);

fn worker(tenure: &Tenure) -> Worker {
    tenure.worker("reports").ttl(TTL)
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_the_work_first_and_then_the_next_leads_at_once() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let (one, two) = (TestWork::new().takes(ms(50)), TestWork::new());
    let first = one.work(worker(&tenure).ttl(ms(60_000)));
    first.reaches(State::Working).await;
    let second = two.work(worker(&tenure).ttl(ms(60_000)));
    second.reaches(State::Acquiring).await;
    until("the second stands in line", || {
        let seen = tenure.list("reports");
        fixtures::now(seen).unwrap().first().is_some_and(|view| view.waiters.len() == 1)
    })
    .await;
    assert_eq!(two.calls(), []);
    // Nothing can be released: the term stays taken although the work has ended.
    engine.shut();
    first.stopper.stop();
    first.reaches(State::Releasing).await;
    assert_eq!(one.calls().last(), Some(&Call::Stop { in_time: true }));
    assert_eq!(two.calls(), []);
    engine.open();
    // The ttl is a minute, and `reaches` waits for seconds.
    second.reaches(State::Working).await;
    first.ends().await;
    two.started(1).await;
    assert!(two.terms()[0] > one.terms()[0]);
    second.ends().await;
    assert_eq!(one.calls().len(), 2);
    assert_eq!(two.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_started_once_a_term_however_often_it_is_renewed() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let work = TestWork::new();
    let running = work.work(worker(&tenure).ttl(ms(900)));
    running.reaches(State::Working).await;
    until("ten renewals", || engine.renewals() >= 10).await;
    assert_eq!(work.calls().len(), 1, "{:?}", work.calls());
    running.ends().await;
    assert_eq!(work.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_is_undone_and_another_gets_its_chance() {
    for how in [How::Fails, How::Panics, How::Hangs] {
        let tenure = memory();
        let (bad, good) = (TestWork::new().starts(&[how; 99]), TestWork::new());
        let first = bad.work(worker(&tenure).start_within(ms(300)));
        // An observer of its states need not see one that is over at once.
        until("the first tries", || !bad.terms().is_empty()).await;
        let second = good.work(worker(&tenure));
        second.reaches(State::Working).await;
        assert!(matches!(bad.calls()[..], [Call::Start(_), Call::Stop { in_time: true }, ..]));
        // It waits in line again, behind the one that works.
        first.reaches(State::Acquiring).await;
        second.ends().await;
        let before = bad.terms().len();
        until("the first tries again", || bad.terms().len() > before).await;
        first.ends().await;
        let calls = bad.calls();
        let (starts, stops) = (bad.terms().len(), calls.len() - bad.terms().len());
        assert_eq!(starts, stops, "{how:?}: {calls:?}");
        assert!(bad.terms().is_sorted(), "{calls:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_stop_blocks_nothing_and_its_term_is_left_to_run_out() {
    for how in [How::Fails, How::Panics, How::Hangs] {
        let engine = ControlledEngine::new();
        let tenure = Tenure::with_engine(engine.clone());
        let (bad, good) = (TestWork::new().stops(&[how]), TestWork::new());
        let first = bad.work(worker(&tenure).ttl(ms(1500)).stop_within(ms(200)));
        first.reaches(State::Working).await;
        let held = tenure.election("reports").leader().await.unwrap().unwrap();
        first.ends().await;
        // Its work may still run: it was not released, and nobody else leads.
        assert_eq!(engine.leaves(), 0, "{how:?}");
        let still = tenure.election("reports").leader().await.unwrap();
        assert!(still.is_none_or(|leader| leader.term == held.term), "{how:?}");
        // But nobody renews it: the next leads when it has run out.
        let second = good.work(worker(&tenure));
        second.reaches(State::Working).await;
        assert_eq!(engine.leaves(), 0, "{how:?}");
        second.ends().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_could_not_be_stopped_is_not_the_end_of_the_worker() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let work = TestWork::new().stops(&[How::Hangs]);
    let running = work.work(worker(&tenure).ttl(ms(1500)).stop_within(ms(200)));
    running.reaches(State::Working).await;
    engine.be_deaf();
    until("it was to be stopped", || work.calls().len() == 2).await;
    engine.hear_again();
    work.started(2).await;
    running.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_renewals_recover_in_time_the_work_hears_nothing_of_it() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let work = TestWork::new();
    let running = work.work(worker(&tenure));
    running.reaches(State::Working).await;
    for _ in 0..3 {
        engine.be_deaf();
        running.reaches(State::AtRisk).await;
        engine.hear_again();
        running.reaches(State::Working).await;
    }
    assert_eq!(work.calls().len(), 1, "{:?}", work.calls());
    running.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_renewals_do_not_recover_the_work_has_ended_before_the_term_does() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let work = TestWork::new().takes(ms(200));
    let running = work.work(worker(&tenure));
    running.reaches(State::Working).await;
    engine.be_deaf();
    running.reaches(State::AtRisk).await;
    running.reaches(State::Pausing).await;
    until("the work was stopped", || work.calls().len() == 2).await;
    assert_eq!(work.calls()[1..], [Call::Stop { in_time: true }]);
    engine.hear_again();
    work.started(2).await;
    running.ends().await;
    assert!(work.terms()[1] > work.terms()[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_is_broken_ends_the_work_and_another_one_begins_it_again() {
    let tenure = memory();
    let work = TestWork::new();
    let running = work.work(worker(&tenure));
    running.reaches(State::Working).await;
    work.started(1).await;
    let term = work.terms()[0];
    soon(tenure.election("reports").break_term(term, "to see what happens")).await.unwrap();
    work.started(2).await;
    let [first, second] = work.terms()[..] else { panic!("{:?}", work.calls()) };
    assert!(second > first);
    let calls = [Call::Start(first), Call::Stop { in_time: false }, Call::Start(second)];
    assert_eq!(work.calls(), calls);
    running.ends().await;
}

/// A pushed turn is shorter than it takes to stop the work, until its first renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_with_a_short_first_life_is_renewed_before_the_work_begins() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let long = || worker(&tenure).ttl(ms(30_000)).stop_within(ms(10_000));
    let (one, two) = (TestWork::new(), TestWork::new());
    let first = one.work(long());
    first.reaches(State::Working).await;
    let second = two.work(long());
    second.reaches(State::Acquiring).await;
    first.ends().await;
    second.reaches(State::Working).await;
    two.started(1).await;
    let leads = tenure.election("reports").leader().await.unwrap().unwrap();
    assert_eq!([leads.term], two.terms()[..]);
    assert_eq!(second.states.current(), State::Working);
    assert_eq!(engine.leaves(), 1, "it is the turn that was pushed, and not another one");
    second.ends().await;
    assert_eq!(two.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_in_line_stops_at_once_and_leaves_it() {
    let tenure = memory();
    let term = soon(tenure.election("reports").campaign()).await.unwrap();
    let work = TestWork::new();
    let running = work.work(worker(&tenure));
    running.reaches(State::Acquiring).await;
    running.ends().await;
    soon(term.resign()).await.unwrap();
    assert_eq!(work.calls(), []);
    let next = soon(tenure.election("reports").try_campaign()).await.unwrap();
    assert!(next.is_some(), "nobody is left in the line");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_told_to_stop_before_it_ran_does_not_begin() {
    let tenure = memory();
    let (worker, work) = (worker(&tenure), TestWork::new());
    worker.stopper().stop();
    let mut states = worker.states();
    soon(worker.run(work.clone())).await.unwrap();
    assert_eq!(states.current(), State::Idle);
    assert_eq!(soon(states.changed()).await, None, "it is gone");
    assert_eq!(work.calls(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_dropped_leaves_its_term_to_run_out() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let work = TestWork::new();
    let running = work.work(worker(&tenure).ttl(ms(1000)));
    work.started(1).await;
    running.task.abort();
    assert!(soon(running.task).await.unwrap_err().is_cancelled());
    assert_eq!(work.calls().len(), 1, "nothing was called");
    assert_eq!(engine.leaves(), 0, "its work may still run");
    let next = TestWork::new();
    let second = next.work(worker(&tenure));
    second.reaches(State::Working).await;
    second.ends().await;
}

#[tokio::test]
async fn bounds_that_make_no_sense_are_refused() {
    let tenure = memory();
    for (worker, says) in [
        (worker(&tenure).stop_within(ms(1600)), "stop_within 1.6s is above half of the ttl 3s"),
        (worker(&tenure).stop_within(ms(0)), "stop_within is zero"),
        (worker(&tenure).start_within(ms(0)), "start_within is zero"),
        (
            worker(&tenure).stop_within(ms(1500)).renew_every(ms(1400)),
            "renew_every 1.4s and stop_within 1.5s leave less than a sixth of the ttl 3s",
        ),
        (worker(&tenure).ttl(ms(1)), "the ttl 1ms is out of range"),
        (tenure.worker(""), "name"),
    ] {
        let refused = soon(worker.run(TestWork::new())).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenure_that_is_closed_ends_the_worker_after_its_work() {
    let tenure = memory();
    let work = TestWork::new();
    let running = work.work(worker(&tenure));
    work.started(1).await;
    tenure.close().await;
    let ended = soon(running.task).await.unwrap().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Closed);
    assert_eq!(work.calls()[1..], [Call::Stop { in_time: false }]);
    assert_eq!(running.states.current(), State::Idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_can_see_which_worker_leads_and_one_process_can_have_several() {
    let tenure = memory();
    let (one, two) = (worker(&tenure), tenure.worker("mails").with_id("both"));
    let id = one.id().to_owned();
    let (one, two) = (TestWork::new().work(one), TestWork::new().work(two));
    one.reaches(State::Working).await;
    two.reaches(State::Working).await;
    let leader = tenure.election("reports").leader().await.unwrap().unwrap();
    assert_eq!(leader.value, Some(id));
    let leader = tenure.election("mails").leader().await.unwrap().unwrap();
    assert_eq!(leader.value.as_deref(), Some("both"));
    one.ends().await;
    two.ends().await;
}
