//! The work of a worker: it claims, holds, hands over and leaves, and reports what it sees.

use std::sync::Arc;
use std::time::Duration;

use tenure::{ErrorKind, Hold, Tenure};

use super::liveness::Asker;
use super::{Inside, Kind, Play, Running};
use crate::faulty::MishapLog;
use crate::judge::Record;
use crate::rng::Rng;
use crate::runtime::Runtime;
use crate::sim::Process;

pub(super) struct Worker {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) tenure: Tenure,
    /// The faults on the way to the engine.
    pub(super) mishaps: MishapLog,
    /// A client with its own connections, for holds that are handed over.
    pub(super) elsewhere: Tenure,
    pub(super) process: Process,
    pub(super) rng: Rng,
}

impl Worker {
    pub(super) async fn work(mut self, running: Running) {
        let play = running.0.clone();
        for _ in 0..play.scenario.rounds {
            self.runtime.sleep(self.rng.micros(0, 300_000)).await;
            if !self.does_other(&play).await {
                self.round(&play).await;
            }
        }
    }

    async fn round(&mut self, play: &Arc<Play>) {
        let name = format!("n{}", self.rng.between(1, play.scenario.names));
        let capacity = play.scenario.capacity();
        let weight = match play.scenario.kind {
            Kind::RwLock if self.rng.chance(700) => 1,
            Kind::RwLock => capacity,
            _ => self.rng.between(1, u64::from(capacity)) as u32,
        };
        let asked = play.truth.now();
        let asker = play.seen().liveness.asks();
        play.seen().askers.insert(asker, self.process);
        let ask = self.ask(play, &name, weight, asker);
        let patience = match self.rng.chance(200) {
            true => self.rng.micros(0, 2_000_000),
            false => Duration::from_secs(3000),
        };
        let answer = self.runtime.within(patience, ask).await;
        play.seen().liveness.asks_no_more(asker);
        match answer {
            None => play.seen().report.dropped += 1,
            Some(Ok(hold)) => {
                let granted = play.truth.now();
                play.seen().liveness.takes(&name, hold.fence().get());
                let joined = asked + Duration::from_micros(play.scenario.faults.latency.1 + 1);
                let record = Record {
                    process: self.process,
                    name,
                    weight,
                    capacity,
                    asked,
                    joined: joined.min(granted),
                    granted,
                    ended: granted,
                    freed: granted,
                    fence: hold.fence().get(),
                    excused: !play.scenario.strict(),
                };
                self.hold(play, hold, record).await;
            }
            Some(Err(error)) if error.kind() == ErrorKind::WaitOver => {
                play.seen().report.over += 1;
            }
            Some(Err(error)) => {
                // A wait that ends before an answer can have arrived says nothing about others.
                let trip = Duration::from_micros(play.scenario.faults.latency.1) * 2;
                let too_soon = play.truth.now().since(asked) <= trip;
                let excused =
                    error.kind() == ErrorKind::Unavailable && (too_soon || !play.scenario.strict());
                if !excused {
                    play.seen().wrong.push(format!("an ask failed: {error:?}"));
                }
            }
        }
    }

    fn ask(
        &mut self,
        play: &Play,
        name: &str,
        weight: u32,
        asker: Asker,
    ) -> impl Future<Output = tenure::Result<Hold>> + Send + use<> {
        let mut options = self.tenure.defaults();
        options.ttl = play.scenario.ttl;
        options.details_mut().owner = asker.to_string();
        options.renew = self.rng.chance(850);
        options.wait = self.rng.chance(150).then(|| self.rng.micros(1, 3_000_000));
        let max_hold = options.ttl * self.rng.between(1, 3) as u32;
        options.max_hold = self.rng.chance(150).then_some(max_hold);
        let capacity = play.scenario.capacity();
        let future: std::pin::Pin<Box<dyn Future<Output = tenure::Result<Hold>> + Send>> =
            match play.scenario.kind {
                Kind::Mutex => Box::pin(self.tenure.mutex(name).options(options).join()),
                Kind::Semaphore(capacity) => {
                    let semaphore = self.tenure.semaphore(name, capacity).options(options);
                    Box::pin(semaphore.join_many(weight))
                }
                Kind::RwLock if weight == capacity => {
                    Box::pin(self.tenure.rwlock(name).options(options).join_write())
                }
                Kind::RwLock => Box::pin(self.tenure.rwlock(name).options(options).join_read()),
            };
        future
    }

    /// Uses the hold for a while, and checks each time that it is alone.
    async fn hold(&mut self, play: &Arc<Play>, hold: Hold, mut record: Record) {
        let hold = Arc::new(hold);
        {
            let mut seen = play.seen();
            seen.report.granted += 1;
            if play.scenario.strict() && !hold.is_live() {
                seen.wrong.push(format!("{}: a hold was dead on arrival", record.name));
            }
        }
        play.excuse(&record.name, record.fence);
        let (weight, fence, weak) = (record.weight, record.fence, Arc::downgrade(&hold));
        let look = move || weak.upgrade().map(|hold| hold.is_live());
        play.inside(&record.name, Inside { weight, fence, look: Box::new(look) });
        let longest = if self.rng.chance(200) { 3 } else { 1 };
        for _ in 0..self.rng.between(1, 3) {
            if !self.effect(play, &hold, &mut record) {
                break;
            }
            if self.rng.chance(100) {
                let _ = hold.extend(play.scenario.ttl).await;
            }
            let span = play.scenario.ttl.as_micros() as u64 * longest / 2;
            self.runtime.sleep(self.rng.micros(0, span)).await;
        }
        self.effect(play, &hold, &mut record);
        let hold = match (Arc::into_inner(hold), self.rng.chance(150)) {
            (Some(hold), true) => self.pass_on(play, hold, &mut record).await,
            (hold, _) => hold,
        };
        record.freed = play.truth.now();
        if hold.is_some() {
            play.seen().liveness.leaves(&record.name, record.fence);
        }
        play.seen().history.push(record);
        match hold {
            Some(hold) if self.rng.chance(667) => drop(hold.release().await),
            hold => drop(hold),
        }
    }

    /// Detaches the hold, and continues it with another client or the same one.
    async fn pass_on(&mut self, play: &Arc<Play>, hold: Hold, record: &mut Record) -> Option<Hold> {
        let since = play.truth.now();
        let detached = hold.detach().await.ok()?;
        let span = play.scenario.ttl.as_micros() as u64 * 6 / 5;
        self.runtime.sleep(self.rng.micros(0, span)).await;
        let to = if self.rng.chance(700) { &self.elsewhere } else { &self.tenure };
        let attached = to.attach(&detached).await;
        let ended = play.truth.now();
        let mut seen = play.seen();
        match attached {
            Ok(hold) => {
                seen.report.passed_on += 1;
                drop(seen);
                self.effect(play, &hold, record);
                Some(hold)
            }
            Err(error) => {
                // Until its ttl has nearly run out, only an operator can have ended it.
                let broken = seen.broken.contains(&(record.name.clone(), record.fence));
                let forgotten = seen.memory_of(record.fence) < seen.restarts.len();
                let too_early = ended < since + play.scenario.ttl * 4 / 5 && !broken && !forgotten;
                if error.kind() != ErrorKind::Unavailable && too_early {
                    let wrong = format!("{}: a detached hold was gone: {error}", record.name);
                    seen.wrong.push(wrong);
                }
                None
            }
        }
    }

    /// One use of the protected resource. Returns whether the hold was live.
    fn effect(&self, play: &Play, hold: &Hold, record: &mut Record) -> bool {
        play.check_live();
        let mut seen = play.seen();
        if !hold.is_live() {
            seen.report.lost += 1;
            return false;
        }
        record.ended = play.truth.now();
        let fence = hold.fence().get();
        let broken = seen.broken.contains(&(record.name.clone(), fence));
        // If the server forgot the hold, the holder is told within its ttl; until then only the fence protects.
        let forgotten = seen.memory_of(fence) < seen.restarts.len();
        if record.weight == record.capacity && !broken && !forgotten {
            let highest = seen.used.entry(record.name.clone()).or_default();
            if fence < *highest {
                let wrong = format!("{}: fence {fence} was used after {highest}", record.name);
                seen.wrong.push(wrong);
            } else {
                *highest = fence;
            }
        }
        true
    }
}
