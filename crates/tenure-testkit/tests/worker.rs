//! Workers on every engine, and in processes that are stopped and killed.

mod outages;
mod processes;
use crate::fixtures::Site;
use crate::postgres_site::PostgresSite;
use crate::working;

use std::time::Duration;

use tenure::worker::State;
use tenure::{Tenure, Worker};
use tenure_testkit::servers::{self, Folder};
use working::{Call, How, TestWork, until};

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Long enough that even a third of it is longer than a busy machine keeps a thread waiting.
const TTL: Duration = ms(3000);

/// Two clients of the same engine, and the server that must outlive them.
struct FileSite {
    one: Tenure,
    two: Tenure,
    _keep: Box<dyn std::any::Any + Send>,
}

impl FileSite {
    async fn memory() -> FileSite {
        let one = Tenure::connect("memory:").await.unwrap();
        FileSite { two: one.clone(), one, _keep: Box::new(()) }
    }

    async fn file() -> FileSite {
        let folder = Folder::new("worker").unwrap();
        let url = format!("file:{}", folder.path().join("locks.db").display());
        FileSite::at(&url, Box::new(folder)).await
    }

    async fn postgres() -> FileSite {
        let site = <PostgresSite as Site>::new();
        FileSite::at(&site.url(), Box::new(site)).await
    }

    async fn redis() -> FileSite {
        let server = servers::Redis::build().start().unwrap();
        FileSite::at(&server.url(), Box::new(server)).await
    }

    async fn at(url: &str, keep: Box<dyn std::any::Any + Send>) -> FileSite {
        let (one, two) = (Tenure::connect(url).await.unwrap(), Tenure::connect(url).await.unwrap());
        FileSite { one, two, _keep: keep }
    }

    fn first(&self) -> Worker {
        self.one.worker("reports").ttl(TTL)
    }

    fn second(&self) -> Worker {
        self.two.worker("reports").ttl(TTL)
    }

    /// Waits until a claim is in line.
    async fn someone_waits(&self) {
        let waits = async {
            let line =
                |views: Vec<tenure::View>| views.first().map_or(0, |view| view.waiters.len());
            while line(self.one.list("reports").await.unwrap()) == 0 {
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::time::timeout(ms(20_000), waits).await.expect("one in line");
    }
}

/// Each scenario is a test on each engine.
macro_rules! on_every_engine {
    ($($scenario:ident),* $(,)?) => {
        mod memory { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() { super::$scenario(super::FileSite::memory().await).await }
        )* }
        mod file { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() { super::$scenario(super::FileSite::file().await).await }
        )* }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() { super::$scenario(super::FileSite::postgres().await).await }
        )* }
        mod redis { $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $scenario() { super::$scenario(super::FileSite::redis().await).await }
        )* }
    };
}

on_every_engine! {
    the_next_leads_at_once_when_one_stops,
    work_is_started_once_a_term,
    a_start_that_does_not_work_out_gives_another_its_chance,
    a_stop_that_does_not_work_out_leaves_the_term_to_run_out,
}

async fn the_next_leads_at_once_when_one_stops(site: FileSite) {
    let long = ms(60_000);
    let (one, two) = (TestWork::new().takes(ms(100)), TestWork::new());
    let first = one.work(site.first().ttl(long));
    first.reaches(State::Working).await;
    let second = two.work(site.second().ttl(long));
    site.someone_waits().await;
    assert_eq!(two.calls(), []);
    first.ends().await;
    // The ttl of a minute plays no part in it.
    two.started(1).await;
    assert_eq!(one.calls(), [Call::Start(one.terms()[0]), Call::Stop { in_time: true }]);
    assert!(two.terms()[0] > one.terms()[0]);
    second.ends().await;
}

async fn work_is_started_once_a_term(site: FileSite) {
    let work = TestWork::new();
    let running = work.work(site.first().ttl(ms(900)));
    running.reaches(State::Working).await;
    // Three ttls: about nine renewals.
    tokio::time::sleep(ms(2700)).await;
    assert_eq!(running.states.current(), State::Working);
    assert_eq!(work.calls().len(), 1, "{:?}", work.calls());
    running.ends().await;
    assert_eq!(work.calls().len(), 2);
}

async fn a_start_that_does_not_work_out_gives_another_its_chance(site: FileSite) {
    for how in [How::Fails, How::Panics, How::Hangs] {
        let (bad, good) = (TestWork::new().starts(&[how; 99]), TestWork::new());
        let first = bad.work(site.first().start_within(ms(300)));
        bad.started(1).await;
        let second = good.work(site.second());
        second.reaches(State::Working).await;
        assert!(matches!(bad.calls()[..], [Call::Start(_), Call::Stop { in_time: true }, ..]));
        second.ends().await;
        let before = bad.terms().len();
        until("the first tries again", || bad.terms().len() > before).await;
        first.ends().await;
        let (starts, calls) = (bad.terms().len(), bad.calls());
        assert_eq!(calls.len(), 2 * starts, "{how:?}: {calls:?}");
    }
}

async fn a_stop_that_does_not_work_out_leaves_the_term_to_run_out(site: FileSite) {
    for how in [How::Fails, How::Panics, How::Hangs] {
        let (bad, good) = (TestWork::new().stops(&[how]), TestWork::new());
        let first = bad.work(site.first().stop_within(ms(200)));
        bad.started(1).await;
        first.ends().await;
        let leader = site.two.election("reports").leader().await.unwrap();
        assert_eq!(leader.map(|leader| leader.term), Some(bad.terms()[0]), "{how:?}");
        let second = good.work(site.second());
        good.started(1).await;
        assert!(good.terms()[0] > bad.terms()[0]);
        second.ends().await;
    }
}
