//! S147: processes that take nonces of one account and are killed and stopped at random moments. A chain
//! that listens to them all checks that none has a nonce that is another's, and that none is left out.
#![allow(clippy::print_stderr, reason = "the figures of a run are worth reading")]

mod chain;
mod worker;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure::Tenure;
use tenure_relay::nonces::Nonces;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Folder, Redis};

use chain::{Chain, Client};
use worker::{SIGN, WALLET, terms};

/// How many work at a time.
const WORKERS: u64 = 4;

/// Not a test: the process that the other tests start.
#[test]
fn worker() {
    if let Ok(sign) = std::env::var(SIGN) {
        worker::work(&sign);
    }
}

#[test]
fn s147_on_a_file() {
    let folder = Folder::new("allocators").unwrap();
    torture(&format!("file:{}", folder.path().join("locks.db").display()), 147);
}

#[test]
fn s147_on_redis() {
    let redis = Redis::build().start().unwrap();
    torture(&redis.url(), 1470);
}

fn kills() -> u64 {
    if std::env::var_os("TENURE_SLOW").is_some() { 1000 } else { 40 }
}

/// A process that is killed and waited for when this is dropped.
struct Worker {
    child: Child,
    ends_at: Instant,
}

impl Worker {
    fn start(url: &str, chain: &Chain, rng: &mut Rng) -> Worker {
        let sign = format!("{url} {} {}", chain.address(), rng.bits());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "allocators::worker", "--nocapture", "--test-threads=1"]);
        command.env(SIGN, sign).stdout(Stdio::null()).stderr(Stdio::inherit());
        let life = rng.micros(100_000, 1_200_000);
        Worker { child: command.spawn().unwrap(), ends_at: Instant::now() + life }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn torture(url: &str, seed: u64) {
    let (chain, mut rng) = (Chain::start(), Rng::new(seed));
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|_| Worker::start(url, &chain, &mut rng)).collect();
    let mut killed = 0;
    while killed < kills() {
        std::thread::sleep(Duration::from_millis(5));
        for worker in &mut workers {
            if Instant::now() < worker.ends_at {
                continue;
            }
            if rng.chance(150) {
                stop_for_a_while(worker, &chain, &mut rng);
                continue;
            }
            *worker = Worker::start(url, &chain, &mut rng);
            killed += 1;
        }
        chain.is_sound();
    }
    drop(workers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(fill_gaps(url, &chain));
    let sent = chain.is_sound();
    assert!(sent > kills() / 2, "only {sent} were sent");
    eprintln!("{killed} kills, {sent} nonces, on {}", url.split(':').next().unwrap_or_default());
}

/// Longer than the others wait for it.
fn stop_for_a_while(worker: &mut Worker, chain: &Chain, rng: &mut Rng) {
    // Said before, so that nobody is judged for what happens meanwhile.
    chain.stops(worker.child.id());
    worker.signal(Signal::STOP);
    // The others continue meanwhile.
    std::thread::sleep(rng.micros(10_000, 4_000_000));
    worker.signal(Signal::CONT);
    worker.ends_at = Instant::now() + Duration::from_millis(500);
}

/// The work of the last process: fills free nonces until nothing is in flight.
async fn fill_gaps(url: &str, chain: &Chain) {
    let tenure = Tenure::connect(url).await.unwrap();
    let client = Client::connect(&chain.address().to_string());
    let nonces = Nonces::with_terms(&tenure, 1, WALLET, client, terms());
    let began = Instant::now();
    loop {
        let standing = nonces.resync().await.unwrap();
        if standing.in_flight.is_empty() && chain.has_no_gap() {
            return;
        }
        for gap in standing.gaps() {
            if let Some(reserved) = nonces.fill(gap).await.unwrap() {
                worker::send(reserved, 0).await;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(30), "a gap lasts: {standing:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
