//! A server that goes away and comes back.

use tenure::Tenure;
use tenure::worker::State;
use tenure_testkit::servers::Redis;

use super::working::{Call, TestWork};
use super::{TTL, ms};

fn server() -> Redis {
    Redis::build().start().unwrap()
}

async fn connect(server: &Redis) -> Tenure {
    Tenure::connect(&server.url()).await.unwrap()
}

/// The outage, and how it ends.
async fn work_ends_in_time_and_begins_again(down: fn(&Redis), up: fn(&Redis)) {
    let server = server();
    let (one, two) = (connect(&server).await, connect(&server).await);
    let (work, other) = (TestWork::new().takes(ms(200)), TestWork::new().takes(ms(200)));
    let first = work.work(one.worker("reports").ttl(TTL));
    work.started(1).await;
    let second = other.work(two.worker("reports").ttl(TTL));
    second.reaches(State::Acquiring).await;
    down(&server);
    first.reaches(State::AtRisk).await;
    first.reaches(State::Pausing).await;
    first.reaches(State::Releasing).await;
    // Without an answer from the server, and before the term was over.
    assert_eq!(work.calls()[1..], [Call::Stop { in_time: true }]);
    tokio::time::sleep(TTL).await;
    up(&server);
    // One of the two works again, in a later term.
    super::until("someone works", || work.terms().len() + other.terms().len() == 2).await;
    let terms = [work.terms(), other.terms()].concat();
    assert!(terms[1] > terms[0], "{terms:?}");
    first.ends().await;
    second.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_ends_before_its_term_when_the_server_hangs() {
    let (down, up) = (|s: &Redis| s.pause().unwrap(), |s: &Redis| s.resume().unwrap());
    work_ends_in_time_and_begins_again(down, up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_ends_before_its_term_when_the_server_dies() {
    let (down, up) = (|s: &Redis| s.kill().unwrap(), |s: &Redis| s.restart().unwrap());
    work_ends_in_time_and_begins_again(down, up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_for_a_moment_is_not_noticed_by_the_work() {
    let server = server();
    let tenure = connect(&server).await;
    let work = TestWork::new();
    // A busy machine takes less than half of the time after which its work would be stopped.
    let running = work.work(tenure.worker("reports").ttl(ms(12_000)).stop_within(ms(1000)));
    work.started(1).await;
    server.pause().unwrap();
    running.reaches(State::AtRisk).await;
    server.resume().unwrap();
    running.reaches(State::Working).await;
    assert_eq!(work.calls().len(), 1, "{:?}", work.calls());
    running.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_tries_for_ever_while_there_is_no_server() {
    let server = server();
    let tenure = connect(&server).await;
    server.kill().unwrap();
    let work = TestWork::new();
    let running = work.work(tenure.worker("reports").ttl(TTL));
    for _ in 0..2 {
        running.reaches(State::Waiting).await;
        running.reaches(State::Acquiring).await;
    }
    assert_eq!(work.calls(), []);
    server.restart().unwrap();
    work.started(1).await;
    running.ends().await;
}
