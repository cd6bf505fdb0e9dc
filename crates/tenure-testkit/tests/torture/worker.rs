//! A worker: a process that acquires, holds, writes and leaves, and keeps a journal of it.

use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tenure::engine::Moment;
use tenure::{ErrorKind, Hold, Result, Tenure};
use tenure_testkit::rng::Rng;

use crate::journal::{Event, Journal, now};
use crate::queued;
use crate::requests::{self, LockRequest};
use crate::resource::Resource;

/// How many tasks ask at the same time.
const TASKS: u64 = 12;
/// How often a long section checks whether it still holds.
const GLANCE: Duration = Duration::from_millis(20);

/// The settings of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) url: String,
    pub(crate) journal: PathBuf,
    pub(crate) seed: u64,
    pub(crate) longest_ttl: Duration,
}

impl Orders {
    const VARIABLES: [&str; 4] =
        ["TENURE_WORKER_URL", "TENURE_WORKER_JOURNAL", "TENURE_WORKER_SEED", "TENURE_WORKER_TTL"];

    /// The variables in which they are passed on.
    pub(crate) fn to_env(&self) -> [(&'static str, String); 4] {
        let [url, journal, seed, ttl] = Orders::VARIABLES;
        [
            (url, self.url.clone()),
            (journal, self.journal.display().to_string()),
            (seed, self.seed.to_string()),
            (ttl, self.longest_ttl.as_millis().to_string()),
        ]
    }

    /// Returns `None` in a process that is no worker.
    pub(crate) fn from_env() -> Option<Orders> {
        let [url, journal, seed, ttl] = Orders::VARIABLES.map(|name| std::env::var(name).ok());
        let number = |text: Option<String>| text?.parse().ok();
        Some(Orders {
            url: url?,
            journal: journal?.into(),
            seed: number(seed)?,
            longest_ttl: Duration::from_millis(number(ttl)?),
        })
    }
}

/// How a worker connects to its engine, which may write in its journal.
pub(crate) type Door = fn(String, Arc<Journal>) -> Pin<Box<dyn Future<Output = Result<Tenure>>>>;

/// Works until the process that started it closes its standard input, or is gone.
pub(crate) fn run(orders: Orders, door: Door) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(work(orders, door));
}

struct WorkerState {
    tenure: Tenure,
    journal: Arc<Journal>,
    resource: Resource,
    longest_ttl: Duration,
    asked: AtomicU64,
    stop: Arc<AtomicBool>,
}

async fn work(orders: Orders, door: Door) {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, Relaxed);
    });
    let journal = Arc::new(Journal::create(&orders.journal).expect("a journal"));
    queued::record(journal.clone());
    let Some(tenure) = connect(&orders.url, door, &journal, &stop).await else { return };
    let folder = orders.journal.parent().expect("a journal is in a folder");
    let state = Arc::new(WorkerState {
        tenure,
        journal,
        resource: Resource::new(folder),
        longest_ttl: orders.longest_ttl,
        asked: AtomicU64::new(0),
        stop,
    });
    let mut rng = Rng::new(orders.seed);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (state, mut rng) = (state.clone(), rng.fork());
            tokio::spawn(async move {
                while !state.stop.load(Relaxed) {
                    state.turn(&mut rng).await;
                }
            })
        })
        .collect();
    for task in tasks {
        if let Err(panic) = task.await {
            state.journal.write(0, &Event::Failed { what: panic.to_string() });
        }
    }
    state.tenure.close().await;
    state.journal.write(0, &Event::Done);
}

/// A worker that is started while the server is away keeps trying until it is back.
async fn connect(
    url: &str,
    door: Door,
    journal: &Arc<Journal>,
    stop: &AtomicBool,
) -> Option<Tenure> {
    loop {
        match door(url.to_owned(), journal.clone()).await {
            Ok(tenure) => return Some(tenure),
            Err(error) if error.kind() != ErrorKind::Unavailable => {
                journal.write(0, &Event::Failed { what: error.to_string() });
                return None;
            }
            Err(_) if stop.load(Relaxed) => {
                journal.write(0, &Event::Done);
                return None;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

impl WorkerState {
    async fn turn(&self, rng: &mut Rng) {
        let serial = self.asked.fetch_add(1, Relaxed) + 1;
        let ask = LockRequest::random(rng, self.longest_ttl, serial);
        let (patient, name) = (ask.is_patient(), ask.name.to_owned());
        self.journal.write(serial, &Event::Asked { at: now(), patient, ttl: ask.ttl, name });
        match ask.send(&self.tenure).await {
            Ok(Some(hold)) => self.section(serial, &ask, hold, rng).await,
            Ok(None) => self.journal.write(serial, &Event::GaveUp { at: now() }),
            Err(error) => {
                let kind = error.kind();
                if !matches!(kind, ErrorKind::WaitOver | ErrorKind::Unavailable) {
                    self.journal.write(serial, &Event::Failed { what: error.to_string() });
                }
                self.journal.write(serial, &Event::GaveUp { at: now() });
                if kind == ErrorKind::Unavailable {
                    tokio::time::sleep(rng.micros(1_000, 20_000)).await;
                }
            }
        }
        tokio::time::sleep(rng.micros(0, 3_000)).await;
    }

    async fn section(&self, serial: u64, ask: &LockRequest, hold: Hold, rng: &mut Rng) {
        // The clock is read before the remaining time, so that a pause between them makes the deadline earlier.
        let at = now();
        let mut deadline = at + hold.remaining();
        let (fence, weight, capacity) = (hold.fence().get(), ask.weight, ask.capacity);
        let acquired = Event::Acquired { at, deadline, fence, weight, capacity };
        self.journal.write(serial, &acquired);
        let length = requests::length(rng);
        let over = now() + length;
        if ask.is_alone() && hold.is_live() {
            // Long enough for pauses to fall in here: then only the fence protects.
            tokio::time::sleep(length / 2).await;
            let accepted = self.resource.write(ask.name, fence).expect("a file to write to");
            self.journal.write(serial, &Event::Wrote { accepted, live: hold.is_live() });
        }
        self.stay(serial, &hold, &mut deadline, over).await;
        let at = now();
        self.journal.write(serial, &Event::Left { at, live: hold.is_live() });
        if rng.chance(850) {
            // Late releases are those of lost holds, which are in the journal.
            let _ = hold.release().await;
        }
    }

    /// Holds until the section is over or the hold is lost, and records how long it is good.
    async fn stay(&self, serial: u64, hold: &Hold, deadline: &mut Moment, over: Moment) {
        while hold.is_live() {
            let left = now().until(over);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(GLANCE)).await;
            // A lost hold has nothing left, and the clock has moved on.
            let (looked, left) = (now(), hold.remaining());
            let longer = looked + left;
            if !left.is_zero() && longer > *deadline + GLANCE {
                *deadline = longer;
                self.journal.write(serial, &Event::Extended { deadline: longer });
            }
        }
    }
}
