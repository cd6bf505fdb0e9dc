//! A process with several runtimes shares one connection, and none of them can stop the others.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tenure::Tenure;
use tenure_testkit::servers::Redis;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Far below the ttl, and far above the usual time.
const SOON: Duration = Duration::from_secs(12);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn server() -> Redis {
    Redis::build().start().unwrap()
}

/// Acquires and releases. The first time may have to wait until it is noticed that nobody reads.
async fn takes(tenure: &Tenure, name: &str) {
    let held = async {
        let hold = tenure.mutex(name).acquire().await.unwrap();
        hold.release().await.unwrap()
    };
    assert_eq!(timeout(SOON, held).await.expect("in time"), tenure::Released::InTime);
}

#[test]
fn a_runtime_that_is_kept_and_not_polled_stops_nobody() {
    let server = server();
    let first = runtime();
    let tenure = first.block_on(async {
        let tenure = Tenure::connect(&server.url()).await.unwrap();
        takes(&tenure, "first").await;
        tenure
    });
    // It still exists, but nobody polls it.
    for number in 0..3 {
        let other = runtime();
        other.block_on(async {
            for name in 0..10 {
                takes(&tenure, &format!("{number}:{name}")).await;
            }
        });
    }
    // It continues where it was.
    first.block_on(takes(&tenure, "last"));
}

/// A thread whose own runtime used the connection first, and is blocked from then on until the sender is dropped.
fn blocked(url: &str) -> (Tenure, mpsc::Sender<()>, thread::JoinHandle<()>) {
    let (give, given) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel::<()>();
    let url = url.to_owned();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            let tenure = Tenure::connect(&url).await.unwrap();
            takes(&tenure, "first").await;
            give.send(tenure.clone()).unwrap();
            // No task should do this, and some do.
            let _ = blocked.recv();
            takes(&tenure, "last").await;
        });
    });
    (given.recv().unwrap(), unblock, thread)
}

#[test]
fn one_blocked_worker_of_many_stops_no_lock_of_the_others() {
    let server = server();
    let (tenure, unblock, first) = blocked(&server.url());
    let others = (0..3).map(|number| {
        let tenure = tenure.clone();
        thread::spawn(move || {
            runtime().block_on(async {
                for name in 0..10 {
                    takes(&tenure, &format!("{number}:{name}")).await;
                }
                // And a name that all of them want.
                takes(&tenure, "shared").await;
            });
        })
    });
    let others: Vec<_> = others.collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    drop(unblock);
    first.join().unwrap();
}

/// Nobody sends anything meanwhile: a claim that waits for a push would look by itself after 20 s at the earliest.
#[test]
fn a_turn_is_heard_although_the_runtime_that_would_hear_it_is_blocked() {
    let server = server();
    let (tenure, unblock, first) = blocked(&server.url());
    let elsewhere = runtime();
    elsewhere.block_on(async {
        let other = Tenure::connect(&server.url()).await.unwrap();
        let ask = |tenure: &Tenure| tenure.mutex("x").ttl(Duration::from_secs(120));
        let hold = ask(&other).acquire().await.unwrap();
        let next = tokio::spawn(ask(&tenure).join());
        let waits = async {
            while other.inspect("x").await.unwrap().unwrap().waiters.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SOON, waits).await.expect("it stands in line");
        hold.release().await.unwrap();
        let next = timeout(SOON, next).await.expect("its turn").unwrap().unwrap();
        next.release().await.unwrap();
    });
    drop(unblock);
    first.join().unwrap();
}
