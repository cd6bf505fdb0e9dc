//! Many tasks and names while the server is killed, hung and restored: this process never has two holders inside, and
//! no hold without the engine has a higher fence than the last one with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Hold, Protection, Tenure};

use super::policies::connect_with;
use crate::redis_site::*;

#[derive(Default)]
struct Seen {
    /// Weight inside, and the highest fence, of each name.
    names: Mutex<HashMap<String, (u32, u64)>>,
    by_engine: AtomicU64,
    by_this_process: AtomicU64,
    most: AtomicU64,
}

impl Seen {
    fn enter(&self, name: &str, hold: &Hold, exclusive: bool) {
        match hold.protection() {
            Protection::Engine => self.by_engine.fetch_add(1, SeqCst),
            _ => self.by_this_process.fetch_add(1, SeqCst),
        };
        let mut names = self.names.lock().unwrap();
        let (inside, highest) = names.entry(name.to_owned()).or_default();
        *inside += 1;
        self.most.fetch_max(u64::from(*inside), SeqCst);
        if exclusive {
            assert_eq!(*inside, 1, "{name}: two of this process are inside");
            let fence = hold.fence().get();
            match hold.protection() {
                Protection::Engine => assert!(fence > *highest, "{name}: {fence} after {highest}"),
                _ => assert_eq!(fence, *highest, "{name}: not that of the last from the engine"),
            }
            *highest = fence;
        } else {
            assert!(*inside <= 3, "{name}: {inside} of 3 are inside");
        }
    }

    fn leave(&self, name: &str) {
        self.names.lock().unwrap().get_mut(name).unwrap().0 -= 1;
    }
}

async fn work(tenure: Tenure, seen: Arc<Seen>, stop: Arc<AtomicBool>, number: u64) {
    let mut round = number;
    while !stop.load(SeqCst) {
        round += 7;
        let exclusive = !round.is_multiple_of(4);
        let name = format!("{}{}", if exclusive { "m" } else { "s" }, round % 5);
        let ttl = ms(800 + 400 * (round % 3));
        let asked = match (exclusive, round.is_multiple_of(3)) {
            (true, true) => tenure.mutex(&name).ttl(ttl).try_acquire().await,
            (true, false) => tenure.mutex(&name).ttl(ttl).acquire().await.map(Some),
            (false, _) => tenure.semaphore(&name, 3).ttl(ttl).acquire().await.map(Some),
        };
        let Some(hold) = asked.expect("nobody is turned away for want of an engine") else {
            pause(ms(5)).await;
            continue;
        };
        seen.enter(&name, &hold, exclusive);
        // Now and then it is longer than the ttl, at random points.
        let span = if round.is_multiple_of(11) { ms(300) } else { ms(round % 7) };
        pause(span).await;
        seen.leave(&name);
        match round % 3 {
            0 => drop(hold),
            // Nobody waits for the answer.
            1 => drop(tokio::time::timeout(Duration::from_millis(1), hold.release()).await),
            _ => drop(hold),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn this_process_never_has_two_holders_whatever_happens_to_the_server() {
    let server = server();
    let tenure = connect_with(&server, "local").await;
    let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..24)
        .map(|number| tokio::spawn(work(tenure.clone(), seen.clone(), stop.clone(), number)))
        .collect();
    for round in 0..4 {
        let before = seen.by_engine.load(SeqCst);
        until("the engine grants", async || seen.by_engine.load(SeqCst) > before + 20).await;
        if round % 2 == 0 {
            server.kill().unwrap()
        } else {
            server.pause().unwrap()
        }
        let before = seen.by_this_process.load(SeqCst);
        let alone = async || seen.by_this_process.load(SeqCst) > before + 50;
        until("this process goes on alone", alone).await;
        if round % 2 == 0 { server.restart().unwrap() } else { server.resume().unwrap() }
    }
    let before = seen.by_engine.load(SeqCst);
    until("the engine grants again", async || seen.by_engine.load(SeqCst) > before + 20).await;
    stop.store(true, SeqCst);
    for worker in workers {
        soon(worker).await.unwrap();
    }
    assert_eq!(seen.most.load(SeqCst), 3, "the semaphores were never full");
    // Nothing is left behind, there or here.
    for number in 0..5 {
        let name = format!("m{number}");
        until_free(&tenure, &name).await;
        assert!(soon(tenure.mutex(&name).try_acquire()).await.unwrap().is_some());
    }
}
