//! The other work of workers: they lead, acquire several names at once, and run onces.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tenure::engine::Moment;
use tenure::{Begun, ErrorKind, Released, Result, Run};

use super::{Inside, Play, Worker};
use crate::faulty::Mishap;

/// The known state of the onces, by name.
#[derive(Debug, Default)]
pub(super) struct Onces {
    works: HashMap<String, Work>,
    /// How often the server forgot everything. An answer to an earlier request says nothing any more.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct Work {
    /// How often it was begun, and how many requests were never answered, and may have been granted.
    begun: u32,
    unknown: u32,
    /// The outcomes that callers tried to store, and the one that is known to be stored.
    tried: Vec<Vec<u8>>,
    settled: Option<Vec<u8>>,
}

impl Onces {
    /// The engine has lost its memory, so every once may begin again.
    pub(super) fn forgotten(&mut self) {
        self.forgotten += 1;
        for work in self.works.values_mut() {
            *work =
                Work { unknown: work.unknown + 1, tried: work.tried.clone(), ..Work::default() };
        }
    }
}

impl Worker {
    /// Does one of these, and returns whether it did.
    pub(super) async fn does_other(&mut self, play: &Arc<Play>) -> bool {
        match self.rng.between(0, 11) {
            0 => self.lead(play).await,
            1 => self.take_several(play).await,
            2 => self.do_once(play).await,
            _ => return false,
        }
        true
    }

    fn options(&mut self, play: &Play) -> tenure::Options {
        let mut options = self.tenure.defaults();
        options.ttl = play.scenario.ttl;
        options.wait = self.rng.chance(300).then(|| self.rng.micros(1, 3_000_000));
        options
    }

    /// The errors that a claim may get.
    fn excuse(&self, play: &Play, asked: Moment, error: &tenure::Error) {
        let kind = error.kind();
        // A wait that ends before an answer can have arrived says nothing about others. Of several names, the
        // last may have been claimed at the end of the wait: the error says for how long there was no answer.
        let trip = Duration::from_micros(play.scenario.faults.latency.1) * 2;
        let silent = error.reason().strip_prefix("no answer for ");
        let silent = silent.and_then(|span| humantime::parse_duration(span).ok());
        let wait_is_short = silent.unwrap_or(play.truth.now().since(asked)) <= trip;
        // Of several names, the first may expire while the claim waits for the last.
        let excused = matches!(kind, ErrorKind::WaitOver | ErrorKind::Lost)
            || kind == ErrorKind::Unavailable && (wait_is_short || !play.scenario.strict());
        if !excused {
            play.seen().wrong.push(format!("an ask failed: {error:?}"));
        }
    }

    /// Whether a connection of its client broke since then.
    fn was_cut_off(&self, since: Moment) -> bool {
        let mishaps = self.mishaps.lock().unwrap_or_else(PoisonError::into_inner);
        mishaps.iter().any(|(at, mishap)| *at >= since && *mishap == Mishap::Cut)
    }

    async fn stay(&mut self, play: &Arc<Play>) {
        let span = play.scenario.ttl.as_micros() as u64 / 2;
        for _ in 0..self.rng.between(1, 3) {
            play.check_live();
            self.runtime.sleep(self.rng.micros(0, span)).await;
        }
        play.check_live();
    }

    async fn lead(&mut self, play: &Arc<Play>) {
        let (options, since) = (self.options(play), play.truth.now());
        let name = "e1";
        match self.tenure.election(name).options(options).campaign().await {
            Ok(term) => {
                let term = Arc::new(term);
                let (fence, weak) = (term.number().get(), Arc::downgrade(&term));
                let look = move || weak.upgrade().map(|term| term.is_live());
                play.inside(name, Inside { weight: 1, fence, look: Box::new(look) });
                play.seen().report.led += 1;
                self.stay(play).await;
                if let Some(term) = Arc::into_inner(term).filter(|_| self.rng.chance(500)) {
                    let _ = term.resign().await;
                }
            }
            Err(error) => self.excuse(play, since, &error),
        }
    }

    /// Two of three names, in any order: there is no deadlock.
    async fn take_several(&mut self, play: &Arc<Play>) {
        let (options, since) = (self.options(play), play.truth.now());
        let all = ["a1", "a2", "a3"];
        let first = self.rng.between(0, 2) as usize;
        let names = [all[first], all[(first + self.rng.between(1, 2) as usize) % 3]];
        match self.tenure.all(names).options(options).acquire().await {
            Ok(hold) => {
                let hold = Arc::new(hold);
                let fences: Vec<_> =
                    hold.fences().map(|(name, fence)| (name.to_owned(), fence.get())).collect();
                for (name, fence) in fences {
                    let weak = Arc::downgrade(&hold);
                    let look = move || weak.upgrade().map(|hold| hold.is_live());
                    play.inside(&name, Inside { weight: 1, fence, look: Box::new(look) });
                }
                play.seen().report.several += 1;
                self.stay(play).await;
                if let Some(hold) = Arc::into_inner(hold).filter(|_| self.rng.chance(500)) {
                    let _ = hold.release().await;
                }
            }
            Err(error) => self.excuse(play, since, &error),
        }
    }

    async fn do_once(&mut self, play: &Arc<Play>) {
        let name = format!("o{}", self.rng.between(1, 2));
        let (options, since) = (self.options(play), play.truth.now());
        // Until the answer arrives, the outcome is unknown.
        play.once(&name, |work| work.unknown += 1);
        let asked = play.seen().onces.forgotten;
        // The answer may arrive long after it was given.
        let settled = play.seen().onces.works.get(&name).is_some_and(|work| work.settled.is_some());
        let begun = self.tenure.once(&name).options(options).begin().await;
        let outdated = play.seen().onces.forgotten != asked;
        let unheard = matches!(&begun, Err(error) if error.kind() == ErrorKind::Unavailable);
        // Or one of its requests was never answered, and may have been granted.
        // Or a claim that gave up was granted, and is stopped before it can leave, or leaves so late that the
        // engine takes it for dead.
        let gave_up = matches!(&begun, Err(_) | Ok(Begun::InProgress(_)));
        let in_time = play.truth.now().since(since) < play.scenario.ttl;
        let left = !gave_up || !play.scenario.nemesis && in_time;
        let certain = !outdated && !unheard && left && !self.was_cut_off(since);
        play.once(&name, |work| work.unknown -= u32::from(certain));
        match begun {
            // The holder stored or will store an outcome that nobody can check.
            Ok(_) if outdated => {}
            Ok(Begun::Mine(run)) => self.run_once(play, &name, run, asked).await,
            Ok(Begun::Replayed(outcome)) => {
                let mut seen = play.seen();
                seen.report.replayed += 1;
                let work = seen.onces.works.entry(name.clone()).or_default();
                let is_known = work.tried.iter().any(|tried| **tried == *outcome);
                let other = work.settled.as_ref().filter(|left| ***left != *outcome).is_some();
                if !is_known || other {
                    let wrong = format!("{name}: an outcome that nobody left: {outcome:?}");
                    seen.wrong.push(wrong);
                }
            }
            Ok(Begun::Unsettled) => {
                let mut seen = play.seen();
                seen.report.unsettled += 1;
                let work = seen.onces.works.entry(name.clone()).or_default();
                let unbegun = work.begun == 0 && work.unknown == 0;
                if settled {
                    seen.wrong.push(format!("{name}: unsettled, although an outcome was left"));
                }
                if unbegun {
                    seen.wrong.push(format!("{name}: unsettled, and nobody has begun it"));
                }
            }
            Ok(Begun::InProgress(_)) => {}
            Err(error) => self.excuse(play, since, &error),
        }
    }

    async fn run_once(&mut self, play: &Arc<Play>, name: &str, run: Run, asked: u64) {
        play.once(name, |work| work.begun += 1);
        {
            let mut seen = play.seen();
            seen.report.ran += 1;
            let work = seen.onces.works.entry(name.to_owned()).or_default();
            if work.begun > 1 || work.settled.is_some() {
                seen.wrong.push(format!("{name}: was begun a second time"));
            }
        }
        let run = Arc::new(run);
        let (fence, weak) = (run.fence().get(), Arc::downgrade(&run));
        let look = move || weak.upgrade().map(|run| run.hold().is_live());
        play.inside(name, Inside { weight: 1, fence, look: Box::new(look) });
        self.stay(play).await;
        let Some(run) = Arc::into_inner(run) else { return };
        match self.rng.between(0, 9) {
            // It is unsettled.
            0 => drop(run),
            // It was undone: another caller may begin it, as if this run had not happened.
            1 => {
                play.once(name, |work| (work.begun, work.unknown) = (0, work.unknown + 1));
                let _: Result<_> = run.undo().await;
            }
            _ => {
                let outcome = format!("{name} by {fence}").into_bytes();
                play.once(name, |work| work.tried.push(outcome.clone()));
                let left = matches!(run.settle(&outcome).await, Ok(Released::InTime));
                if left && play.seen().onces.forgotten == asked {
                    play.once(name, |work| work.settled = Some(outcome));
                }
            }
        }
    }
}

impl Play {
    fn once(&self, name: &str, change: impl FnOnce(&mut Work)) {
        change(self.seen().onces.works.entry(name.to_owned()).or_default());
    }

    pub(super) fn inside(&self, name: &str, inside: Inside) {
        let mut seen = self.seen();
        let live = seen.live.entry(name.to_owned()).or_default();
        live.retain(|inside| (inside.look)().is_some());
        live.push(inside);
    }
}
