//! Workers that are told to stop, or killed, with their engine and without it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::servers::Redis;

use super::{Example, after, ask, everywhere};

/// Its work stops at once and the process ends, without waiting for the engine and before the term is over. Nobody has
/// heard that it resigned, so it must not say so.
#[test]
fn a_worker_that_is_told_to_stop_without_its_engine_ends_soon_and_has_not_resigned() {
    for down in [Redis::kill, Redis::pause] {
        let redis = Redis::build().start().unwrap();
        let mut worker = Example::command("worker");
        let worker = Example::spawn(worker.env("TENURE_URL", redis.url()).env("PORT", "0"));
        worker.says("doing some heavy work");
        down(&redis).unwrap();
        let told = Instant::now();
        worker.signal(Signal::TERM);
        let said = worker.ends();
        let took = told.elapsed();
        assert!(took < Duration::from_secs(8), "it took {took:?} of a term of 10 s: {said:#?}");
        let place = |words: &str| said.iter().position(|line| line.contains(words));
        let (stopped, unheard) =
            (place("work has stopped"), place("the engine did not answer; the term ends"));
        assert!(stopped.is_some() && stopped < unheard, "{said:#?}");
        assert!(said.last().unwrap().contains("done"), "{said:#?}");
        for event in ["leader.resigned", "RELEASED"] {
            assert_eq!(place(event), None, "{event}: {said:#?}");
        }
    }
}

#[test]
fn the_other_worker_takes_over_when_one_is_told_to_stop_and_when_one_is_killed() {
    everywhere(|place| {
        let start = || {
            let mut worker = Example::command("worker");
            Example::spawn(worker.env("TENURE_URL", &place.url).env("PORT", "0"))
        };
        let first = start();
        let line = first.says("listening on");
        let (id, port) =
            (after(&line, "worker=").to_owned(), after(&line, "127.0.0.1:").to_owned());
        first.says("trying to lead");
        let line = first.says("doing some heavy work");
        assert_eq!(after(&line, "worker="), id, "its id is on every line");
        assert_eq!(ask(&port, "GET /", "", "").1, format!("{id} is working\n"));
        assert!(ask(&port, "GET /health", "", "").0.contains("200 OK"));
        first.says("RENEWED resource-worker");
        let second = start();
        let line = second.says("worker.standby");
        assert_eq!(after(&line, "leader="), id, "it says for whom it waits");

        first.signal(Signal::TERM);
        let said = first.ends();
        let order = ["takes no more requests", "work has stopped", "leader.resigned", "done"];
        let at = order.map(|words| said.iter().position(|line| line.contains(words)));
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{at:?} in {said:#?}");
        second.says("doing some heavy work");

        let third = start();
        third.says("worker.standby");
        second.signal(Signal::KILL);
        drop(second);
        third.says("doing some heavy work");
        third.signal(Signal::INT);
        third.says("done");
    });
}
