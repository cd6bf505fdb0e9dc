//! One of three workers works, and the others stand by. The first is told to stop, and the next takes over;
//! that one is killed, and the last takes over.
//!
//! The side without tenure is a common hand-written lock with the same ttl: released when its worker is told to
//! stop, renewed after half of the ttl, and checked again after half of the ttl by the waiting workers. The
//! times are only shown: they depend on the machine. The proof is that both happened, and that every worker
//! started its work once, when the previous one had ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::worker::States;
use tenure::{Term, Work};
use tokio::signal::unix::{SignalKind, signal};

use super::environment::{Environment, random};
use super::naive::Naive;
use super::participant::{Participant, say};
use super::processes::Processes;
use super::record::Record;
use super::{Act, Played, Seen, Trouble, measured, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a worker is told to end (SIGTERM), the next one is killed (kill -9)",
    lines: [
        r#"let worker = tenure.worker("resource-worker").ttl(TTL).owner(name);"#,
        "let (stopper, states) = (worker.stopper(), worker.states());",
        "worker.run(job).await?; // job.start() when it leads, job.stop() after stopper.stop()",
    ],
};

const WORKERS: usize = 3;
const JOURNAL: &str = "work";
const LOCK: &str = "resource-worker.lock";
/// How long a lock and a term last, on both sides.
const TTL: Duration = Duration::from_secs(3);
/// How often a worker without tenure renews, and how often the others check.
const LOOK: Duration = Duration::from_millis(1500);

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    environment.record(JOURNAL, "")?;
    let mut processes = start(environment, "without")?;
    let (told, killed) = hand_over_twice(&mut processes)?;
    let more = format!(
        "until the next one works; a lock lasts {}, and the others look every {}",
        measured(TTL),
        measured(LOOK)
    );
    Ok(seen(told, killed, |brief| Seen::report(brief, more)))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let at_once = environment.engine.at_once;
    let record = environment.record(JOURNAL, "")?;
    let mut processes = start(environment, "with")?;
    let (told, killed) = hand_over_twice(&mut processes)?;
    processes.signal(WORKERS - 1, Signal::TERM)?;
    // A worker that was told earlier may answer only now.
    let states = loop {
        match processes.hear()? {
            (worker, line) if worker == WORKERS - 1 && line.starts_with("done") => break line,
            (_, line) if line.starts_with("done") => {}
            (_, line) => return Err(format!("{line:?} was not to come").into()),
        }
    };
    drop(processes);
    let journal = record.journal()?;
    let orderly = journal == ["0 starts", "0 stops", "1 starts", "2 starts", "2 stops"];
    let held = orderly && told < TTL && (!at_once || killed < TTL);
    let more = match orderly {
        true => format!(
            "until the next one works; a term lasts {} unless it is renewed; each started once, after the \
             one before; the last was{}",
            measured(TTL),
            states.trim_start_matches("done")
        ),
        false => format!("the work was done so: {}", journal.join(", ")),
    };
    Ok(seen(told, killed, |brief| Seen::check(held, brief, more)))
}

fn seen(told: Duration, killed: Duration, seen: impl FnOnce(String) -> Seen) -> Seen {
    let brief = format!("told: {}, killed: {}", measured(told), measured(killed));
    seen(brief)
        .fact("told_us", told.as_micros() as u64)
        .fact("killed_us", killed.as_micros() as u64)
}

/// Starts the workers; they stand by in the order of their numbers.
fn start<'s, 'w>(
    environment: &'s mut Environment<'w>,
    side: &str,
) -> Result<Processes<'s, 'w>, Trouble> {
    let mut processes = environment.processes();
    processes.start_all((0..WORKERS).map(|number| format!("handover {side} {number}")))?;
    for worker in 0..WORKERS {
        processes.tell(worker, "go");
        processes.expect(worker, if worker == 0 { "works" } else { "waits" })?;
    }
    Ok(processes)
}

/// Ends the working one, first politely and then by force, and returns how long it took until another one
/// worked.
fn hand_over_twice(processes: &mut Processes<'_, '_>) -> Result<(Duration, Duration), Trouble> {
    processes.progress("           the worker is told to end");
    let (told, second) = hand_over(processes, 0, Signal::TERM)?;
    processes.progress("           the next one is killed");
    let (killed, _) = hand_over(processes, second, Signal::KILL)?;
    Ok((told, killed))
}

fn hand_over(
    processes: &mut Processes<'_, '_>,
    worker: usize,
    signal: Signal,
) -> Result<(Duration, usize), Trouble> {
    let since = Instant::now();
    processes.signal(worker, signal)?;
    loop {
        match processes.hear()? {
            (next, line) if line == "works" => return Ok((since.elapsed(), next)),
            // A worker that was told to end reports that, maybe when the next one already works.
            (_, line) if line.starts_with("done") => {}
            (_, line) => return Err(format!("{line:?} was not to come").into()),
        }
    }
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    match *words {
        ["without", _] => naively(participant).await,
        ["with", name] => in_turn(participant, name).await,
        _ => Err(no_such_part(words)),
    }
}

async fn naively(participant: &mut Participant) -> Result<(), Trouble> {
    let lock = Naive::new(participant.file(LOCK));
    let mut told_to_end = signal(SignalKind::terminate())?;
    participant.say("ready");
    participant.cue().await;
    if !lock.take(Some(TTL))? {
        participant.say("waits");
        // It was started at an arbitrary time: when it next checks is up to chance.
        tokio::time::sleep(LOOK.mul_f64(random() as f64 / u64::MAX as f64)).await;
        while !lock.take(Some(TTL))? {
            tokio::time::sleep(LOOK).await;
        }
    }
    participant.say("works");
    while tokio::time::timeout(LOOK, told_to_end.recv()).await.is_err() {
        lock.renew(TTL)?;
    }
    lock.release();
    participant.say("done");
    Ok(())
}

async fn in_turn(participant: &mut Participant, name: &str) -> Result<(), Trouble> {
    let tenure = participant.tenure().await?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    participant.say("ready");
    participant.cue().await;
    let job = Job { name: name.to_owned(), journal: participant.record(JOURNAL) };
    let worker = tenure.worker("resource-worker").ttl(TTL).owner(name);
    let (stopper, states) = (worker.stopper(), worker.states());
    tokio::spawn(async move {
        told_to_end.recv().await;
        stopper.stop();
    });
    let seen = tokio::spawn(follow(states));
    tenure.announce("resource-worker", name);
    worker.run(job).await?; // job.start() when it leads, job.stop() after stopper.stop()
    participant.say(&format!("done {}", seen.await?.join(", ")));
    Ok(())
}

/// The states it went through, once it has ended.
async fn follow(mut states: States) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(state) = states.changed().await {
        seen.push(state.to_string());
    }
    seen
}

struct Job {
    name: String,
    journal: Record,
}

impl Work for Job {
    type Error = Trouble;

    async fn start(&mut self, _: &Term) -> Result<(), Trouble> {
        // Recorded before it is reported: a worker that has reported it may be killed, but not in the middle of a
        // record.
        self.journal.note(&format!("{} starts", self.name))?;
        say("works");
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Trouble> {
        self.journal.note(&format!("{} stops", self.name))?;
        // Lets observers of the states see this one.
        tokio::task::yield_now().await;
        Ok(())
    }
}
