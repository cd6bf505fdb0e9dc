//! `tenure bench`: how fast an engine is, how evenly it serves, what waiting costs, and what happens
//! when a holder dies.
//!
//! `parts` measures, in tasks of this process and in others (`processes` starts them, `worker` is what they
//! do); `figures` computes the results, `report` prints them. `naive` is the lock for comparison.

mod figures;
mod lock;
mod naive;
mod parts;
mod processes;
mod progress;
mod report;
mod worker;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::args::{Bench, Part};
use crate::engine;
use crate::failure::{Exit, Failure, INTERNAL, NO, OK, Stop};
use crate::output::clean;
use crate::settings::Settings;
use crate::signals;
use lock::{Lock, Which};
use parts::{Scene, TTL};
use progress::Progress;
use report::{Figure, Measured};

/// Measures, or runs as one of the processes that are measured.
pub(crate) fn run(asked: &Bench, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    match asked {
        Bench::Work => engine::runtime()?.block_on(worker::run(settings, out)),
        Bench::Measure(parts, length) => {
            runtime()?.block_on(measure(parts, *length, settings, out))
        }
    }
}

/// A runtime like that of a program that serves many at a time.
fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().enable_all().build().map_err(|error| {
        let help = "check the limits of this process (`ulimit -a`)";
        Failure::new(INTERNAL, "cannot start the runtime", error.to_string(), help)
    })
}

async fn measure(
    parts: &[Part],
    length: Duration,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let settings = Arc::new(settings.clone());
    let interrupted = signals::interrupted()?;
    let lock = Lock::connect(Which::Tenure, &settings, TTL).await?;
    let (naive, no_naive) = compared_with(&settings, length).await;
    let steps = parts.len() * if naive.is_some() { 2 } else { 1 };
    let mut scene = Scene::new(settings.clone(), length, naive.clone());
    let mut run = Run { lock, naive, no_naive, measured: Vec::new() };
    let progress = Progress::start(steps, length, settings.quiet.value);
    let ended = tokio::select! {
        biased;
        signal = interrupted => Ok(Some(signal)),
        done = run.play(parts, &mut scene, &progress, out) => done.map(|()| None),
    };
    drop(progress);
    scene.end().await;
    let heading = run.heading(&settings, length).await;
    run.lock.close().await;
    if !settings.json.value && !run.measured.is_empty() {
        report::print(&run.measured, &heading, settings.paint(), out)?;
    }
    match ended? {
        Some(signal) => Ok(Exit(128 + signal)),
        None => run.verdict().map_err(Stop::from),
    }
}

/// The naive lock, or why there is none.
async fn compared_with(
    settings: &Arc<Settings>,
    length: Duration,
) -> (Option<Lock>, Option<String>) {
    if !settings.address.scheme().is_some_and(|scheme| scheme.starts_with("redis")) {
        return (None, None);
    }
    // It is not renewed, and others wait behind it for a whole part.
    match Lock::connect(Which::Naive, settings, length + TTL).await {
        Ok(naive) => (Some(naive), None),
        Err(failure) => (None, Some(format!("no naive lock beside it: {}", failure.why))),
    }
}

/// One run, and its results so far.
struct Run {
    lock: Lock,
    naive: Option<Lock>,
    /// Why there is no naive lock although one could be expected.
    no_naive: Option<String>,
    measured: Vec<Measured>,
}

impl Run {
    async fn play(
        &mut self,
        parts: &[Part],
        scene: &mut Scene,
        progress: &Progress,
        out: &mut dyn Write,
    ) -> Result<(), Stop> {
        for part in parts {
            progress.step(part.name());
            let mut left_out = self.no_naive.clone();
            let tenure = scene.measure(*part, &self.lock).await?;
            if tenure.is_none() {
                left_out = Some("this engine has no other processes".into());
            }
            let mut naive = None;
            if let Some(lock) = &self.naive {
                progress.step(&format!("{}, naive", part.name()));
                match scene.measure(*part, lock).await {
                    Ok(figures) => naive = figures,
                    Err(failure) => left_out = Some(format!("{}: {}", failure.what, failure.why)),
                }
            }
            let tenure = tenure.unwrap_or_default();
            let measured = Measured { part: *part, tenure, naive, left_out };
            if scene.settings.json.value {
                let engine = scene.settings.address.shown();
                writeln!(out, "{}", measured.object(&engine, scene.length).end())?;
                out.flush()?;
            }
            self.measured.push(measured);
        }
        Ok(())
    }

    /// What was measured, and on what kind of machine.
    async fn heading(&self, settings: &Settings, length: Duration) -> String {
        let engine = clean(&settings.address.shown());
        let trip = match self.lock.tenure() {
            Some(tenure) => tenure.health().await.ok(),
            None => None,
        };
        let trip = trip.map(|trip| format!(" ({:.2} ms)", trip.as_secs_f64() * 1e3));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        let (trip, seconds) = (trip.unwrap_or_default(), length.as_secs());
        format!("engine {engine}{trip}, {seconds} s a part, {cpus} CPUs, load {load} at the end")
    }

    /// Figures are neither good nor bad, but two holders at a time are a fault.
    fn verdict(&self) -> Result<Exit, Failure> {
        let all = self.measured.iter().flat_map(|measured| &measured.tenure);
        if all.into_iter().any(|figure: &Figure| figure.is_some("overlaps")) {
            return Err(Failure::new(
                NO,
                "two held one name at the same time",
                "a grant was seen before the release of the hold before it was asked for",
                "please report it, with the engine and its version",
            ));
        }
        Ok(OK)
    }
}

/// A random number, from the seeds of the standard library's hash tables.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
