//! The production core on virtual time, with outages that begin and end as the seed says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::{Engine, Scope, Space};
use tenure::engines::memory::Memory;
use tenure::{Hold, OnOutage, Protection, Tenure};
use tenure_testkit::faulty::{Faults, Faulty};
use tenure_testkit::rng::Rng;
use tenure_testkit::runtime::Runtime;
use tenure_testkit::sim::{OUTSIDE, Sim};

const TTL: Duration = Duration::from_secs(3);

/// What all processes of a seed have seen.
#[derive(Default)]
struct Seen {
    wrong: Mutex<Vec<String>>,
    running: AtomicU32,
    /// How many were granted without the engine, and how many with it after that.
    alone: AtomicU32,
    back: AtomicU32,
}

impl Seen {
    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }
}

/// Tasks that claim the same names, count who is inside, and check fences.
struct Process {
    runtime: Arc<dyn Runtime>,
    tenure: Tenure,
    /// For each name, how many are inside and the highest fence.
    names: Mutex<HashMap<String, (u32, u64)>>,
    was_alone: AtomicBool,
    seen: Arc<Seen>,
}

impl Process {
    async fn work(self: Arc<Process>, mut rng: Rng) {
        for _ in 0..rng.between(2, 6) {
            self.runtime.sleep(rng.micros(0, 1_500_000)).await;
            let name = format!("n{}", rng.between(1, 2));
            let mutex = self.tenure.mutex(&name).ttl(TTL).on_outage(OnOutage::Local);
            let mutex = if rng.chance(200) { mutex.max_hold(TTL * 2) } else { mutex };
            let ask = mutex.join();
            let patience = if rng.chance(100) { rng.micros(0, 2_000_000) } else { TTL * 600 };
            match self.runtime.within(patience, ask).await {
                None => {}
                Some(Err(error)) => self.seen.wrong(format!("an ask failed: {error}")),
                Some(Ok(hold)) => {
                    self.enter(&name, &hold);
                    let half = hold.remaining().as_micros() as u64 / 2;
                    self.runtime.sleep(rng.micros(0, half.max(1))).await;
                    self.names.lock().unwrap().get_mut(&name).unwrap().0 -= 1;
                }
            }
        }
        self.seen.running.fetch_sub(1, SeqCst);
    }

    fn enter(&self, name: &str, hold: &Hold) {
        if hold.protection() != Protection::Engine {
            self.seen.alone.fetch_add(1, SeqCst);
            self.was_alone.store(true, SeqCst);
        } else if self.was_alone.load(SeqCst) {
            self.seen.back.fetch_add(1, SeqCst);
        }
        let mut names = self.names.lock().unwrap();
        let (inside, highest) = names.entry(name.to_owned()).or_default();
        let fence = hold.fence().get();
        *inside += 1;
        if *inside > 1 {
            self.seen.wrong(format!("{name}: {inside} of one process are inside"));
        }
        let right = match hold.protection() {
            Protection::Engine => fence > *highest,
            _ => fence == *highest,
        };
        if !right {
            self.seen.wrong(format!("{name}: fence {fence} after {highest}"));
        }
        *highest = fence;
    }
}

struct Play {
    sim: Sim,
    truth: Arc<dyn Runtime>,
    engine: Arc<Memory>,
    down: Arc<AtomicBool>,
    seen: Arc<Seen>,
}

impl Play {
    fn start_process(&self, process: u32, rng: &mut Rng) {
        let offset = Duration::from_secs(rng.between(0, 1000));
        self.sim.set_clock(process, offset, rng.between(9_970, 10_030));
        let runtime = self.sim.process(process);
        let faults = Faults { latency: (100, 20_000), ..Faults::NONE };
        let (engine, down): (Arc<dyn Engine>, _) = (self.engine.clone(), self.down.clone());
        let is_down = move || down.load(SeqCst);
        let (network, world) = (self.truth.clone(), runtime.world());
        let faulty = Faulty::new(engine, network, world, faults, rng.fork(), is_down);
        let one = Arc::new(Process {
            runtime: runtime.clone(),
            tenure: Tenure::in_world(Arc::new(faulty), runtime.world()),
            names: Mutex::default(),
            was_alone: AtomicBool::new(false),
            seen: self.seen.clone(),
        });
        for _ in 0..rng.between(2, 4) {
            self.seen.running.fetch_add(1, SeqCst);
            runtime.start(Box::pin(one.clone().work(rng.fork())));
        }
    }

    async fn run(self) {
        let mut rng = self.sim.rng();
        for process in 1..=rng.between(1, 2) as u32 {
            self.start_process(process, &mut rng);
        }
        while self.seen.running.load(SeqCst) > 0 {
            self.truth.sleep(rng.micros(100_000, 4_000_000)).await;
            self.down.fetch_xor(true, SeqCst);
        }
        self.down.store(false, SeqCst);
        // A hold ends with its ttl; a place, and a trace of a claim, within a minute.
        self.truth.sleep(TTL * 3 + Duration::from_secs(190)).await;
        let prefix = String::new();
        let all = Scope::Prefix { space: Space::Lock, prefix, after: None, limit: 9 };
        let left = self.engine.inspect(&all).await.expect("memory answers");
        if !left.views.is_empty() {
            self.seen.wrong(format!("left behind: {left:?}"));
        }
    }
}

fn play(seed: u64) -> Arc<Seen> {
    let (sim, seen) = (Sim::new(seed), Arc::<Seen>::default());
    let truth = sim.process(OUTSIDE);
    let engine = Arc::new(Memory::in_world(truth.world(), 0));
    let (down, kept) = (Arc::default(), seen.clone());
    let play = Play { sim: sim.clone(), truth, engine, down, seen };
    if let Err(stuck) = sim.run(Duration::from_secs(3600), play.run()) {
        kept.wrong(format!("{stuck:?}: someone waits for what never comes"));
    }
    kept
}

#[test]
fn every_seed_with_outages_keeps_each_process_in_order() {
    let (mut alone, mut back) = (0, 0);
    for seed in 0..1500 {
        let seen = play(seed);
        let wrong = seen.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        alone += seen.alone.load(SeqCst);
        back += seen.back.load(SeqCst);
    }
    // The seeds must have covered the cases that they are for.
    assert!(alone > 1500 && back > 500, "{alone} without the engine, {back} with it again");
}
