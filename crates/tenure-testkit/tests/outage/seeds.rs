//! The production core on virtual time, with outages that begin and end as the seed says.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::{Engine, Scope, Space};
use tenure::engines::memory::Memory;
use tenure::{OnOutage, Protection, Tenure};
use tenure_testkit::faulty::{Faults, Faulty};
use tenure_testkit::rng::Rng;
use tenure_testkit::sim::{OUTSIDE, Sim};
use tenure_testkit::stage::Stage;

/// What one process does: tasks that ask for the same names, count who is inside, and look at fences.
struct Process {
    stage: Arc<dyn Stage>,
    tenure: Tenure,
    /// Of each name, how many are inside and the highest fence.
    seen: Mutex<HashMap<String, (u32, u64)>>,
    wrong: Arc<Mutex<Vec<String>>>,
    alone: Arc<AtomicU32>,
    running: Arc<AtomicU32>,
}

const TTL: Duration = Duration::from_secs(3);

impl Process {
    async fn work(self: Arc<Process>, mut rng: Rng) {
        for _ in 0..rng.between(2, 6) {
            self.stage.sleep(rng.micros(0, 1_500_000)).await;
            let name = format!("n{}", rng.between(1, 2));
            let mutex = self.tenure.mutex(&name).ttl(TTL).on_outage(OnOutage::Local);
            let mutex = if rng.chance(200) { mutex.max_hold(TTL * 2) } else { mutex };
            let ask = mutex.join();
            let patience = if rng.chance(100) { rng.micros(0, 2_000_000) } else { TTL * 600 };
            match self.stage.within(patience, ask).await {
                None => continue,
                Some(Err(error)) => self.wrong(format!("an ask failed: {error}")),
                Some(Ok(hold)) => {
                    let fence = hold.fence().get();
                    if hold.protection() != Protection::Engine {
                        self.alone.fetch_add(1, SeqCst);
                    }
                    self.enter(&name, fence);
                    let max = hold.remaining().as_micros() as u64 / 2;
                    self.stage.sleep(rng.micros(0, max.max(1))).await;
                    self.seen.lock().unwrap().get_mut(&name).unwrap().0 -= 1;
                    drop(hold);
                }
            }
        }
        self.running.fetch_sub(1, SeqCst);
    }

    fn enter(&self, name: &str, fence: u64) {
        let mut seen = self.seen.lock().unwrap();
        let (inside, highest) = seen.entry(name.to_owned()).or_default();
        *inside += 1;
        if *inside > 1 {
            self.wrong(format!("{name}: {inside} of one process are inside"));
        }
        if fence <= *highest {
            self.wrong(format!("{name}: fence {fence} after {highest}"));
        }
        *highest = fence;
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }
}

/// How many were granted without the engine, or what was wrong.
fn play(seed: u64) -> Result<u32, String> {
    let sim = Sim::new(seed);
    let truth = sim.process(OUTSIDE);
    let engine = Arc::new(Memory::in_world(truth.world(), 0));
    let (wrong, alone) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicU32::new(0)));
    let (w, a, s) = (wrong.clone(), alone.clone(), sim.clone());
    let main = async move {
        let mut rng = s.rng();
        let running = Arc::new(AtomicU32::new(0));
        let down = Arc::new(AtomicBool::new(false));
        for process in 1..=rng.between(1, 2) as u32 {
            s.set_clock(
                process,
                Duration::from_secs(rng.between(0, 1000)),
                rng.between(9_970, 10_030),
            );
            let stage = s.process(process);
            let faults =
                Faults { latency: (100, 20_000), time_out: Duration::from_secs(2), ..Faults::NONE };
            let cut = down.clone();
            let own: Arc<dyn Engine> = engine.clone();
            let faulty =
                Faulty::new(own, truth.clone(), stage.world(), faults, rng.fork(), move || {
                    cut.load(SeqCst)
                });
            let tenure = Tenure::in_world(Arc::new(faulty), stage.world());
            let (seen, wrong, alone) = (Mutex::default(), w.clone(), a.clone());
            let running = running.clone();
            let one =
                Arc::new(Process { stage: stage.clone(), tenure, seen, wrong, alone, running });
            for _ in 0..rng.between(2, 4) {
                one.running.fetch_add(1, SeqCst);
                stage.start(Box::pin(one.clone().work(rng.fork())));
            }
        }
        while running.load(SeqCst) > 0 {
            truth.sleep(rng.micros(100_000, 4_000_000)).await;
            down.fetch_xor(true, SeqCst);
        }
        down.store(false, SeqCst);
        truth.sleep(TTL * 3 + Duration::from_secs(190)).await;
        let all =
            Scope::Prefix { space: Space::Lock, prefix: String::new(), after: None, limit: 9 };
        let left = engine.inspect(&all).await.expect("memory answers");
        if !left.views.is_empty() {
            w.lock().unwrap().push(format!("left behind: {left:?}"));
        }
    };
    if let Err(stuck) = sim.run(Duration::from_secs(3600), main) {
        wrong.lock().unwrap().push(format!("{stuck:?}: someone waits for what never comes"));
    }
    let wrong = wrong.lock().unwrap();
    if wrong.is_empty() { Ok(alone.load(SeqCst)) } else { Err(format!("seed {seed}: {wrong:#?}")) }
}

#[test]
fn every_seed_with_outages_keeps_each_process_in_order() {
    let mut alone = 0;
    for seed in 0..1500 {
        alone += play(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    // The seeds must have met what they are for.
    assert!(alone > 1500, "{alone}");
}
