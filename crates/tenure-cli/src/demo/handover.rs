//! One of three workers works, and the others stand by: it is told to end, the next takes over; that one
//! is killed, the last takes over.
//!
//! Without tenure it is a lock as it is often written, with the same ttl: released when its worker is told
//! to end, renewed at half of the ttl, looked at again at half of the ttl by whoever waits. The times are
//! for reading: how good they are depends on the machine. The proof is that both happened, and that every
//! worker started its work once, when the one before had ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::worker::States;
use tenure::{Term, Work};
use tokio::signal::unix::{SignalKind, signal};

use super::crew::Crew;
use super::naive::Naive;
use super::player::{Player, say};
use super::record::Record;
use super::stage::{Stage, random};
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
/// How often a worker without tenure renews, and how often the others look.
const LOOK: Duration = Duration::from_millis(1500);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    stage.record(JOURNAL, "")?;
    let mut crew = start(stage, "without")?;
    let (told, killed) = hand_over_twice(&mut crew)?;
    let more = format!(
        "until the next one works; a lock lasts {}, and the others look every {}",
        measured(TTL),
        measured(LOOK)
    );
    Ok(seen(told, killed, |brief| Seen::report(brief, more)))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let at_once = stage.engine.at_once;
    let record = stage.record(JOURNAL, "")?;
    let mut crew = start(stage, "with")?;
    let (told, killed) = hand_over_twice(&mut crew)?;
    crew.signal(WORKERS - 1, Signal::TERM)?;
    // Whoever was told first may be heard only now.
    let states = loop {
        match crew.hear()? {
            (worker, line) if worker == WORKERS - 1 && line.starts_with("done") => break line,
            (_, line) if line.starts_with("done") => {}
            (_, line) => return Err(format!("{line:?} was not to come").into()),
        }
    };
    drop(crew);
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
fn start<'s, 'w>(stage: &'s mut Stage<'w>, side: &str) -> Result<Crew<'s, 'w>, Trouble> {
    let mut crew = stage.crew();
    crew.start_all((0..WORKERS).map(|number| format!("handover {side} {number}")))?;
    for worker in 0..WORKERS {
        crew.tell(worker, "go");
        crew.expect(worker, if worker == 0 { "works" } else { "waits" })?;
    }
    Ok(crew)
}

/// Ends the one that works, politely and then not, and says how long it took until another one did.
fn hand_over_twice(crew: &mut Crew<'_, '_>) -> Result<(Duration, Duration), Trouble> {
    crew.progress("           the worker is told to end");
    let (told, second) = hand_over(crew, 0, Signal::TERM)?;
    crew.progress("           the next one is killed");
    let (killed, _) = hand_over(crew, second, Signal::KILL)?;
    Ok((told, killed))
}

fn hand_over(
    crew: &mut Crew<'_, '_>,
    worker: usize,
    signal: Signal,
) -> Result<(Duration, usize), Trouble> {
    let since = Instant::now();
    crew.signal(worker, signal)?;
    loop {
        match crew.hear()? {
            (next, line) if line == "works" => return Ok((since.elapsed(), next)),
            // Whoever was told to end says so, perhaps when the next one works already.
            (_, line) if line.starts_with("done") => {}
            (_, line) => return Err(format!("{line:?} was not to come").into()),
        }
    }
}

pub(super) async fn work(player: &mut Player, words: &[&str]) -> Result<(), Trouble> {
    match *words {
        ["without", _] => naively(player).await,
        ["with", name] => in_turn(player, name).await,
        _ => Err(no_such_part(words)),
    }
}

async fn naively(player: &mut Player) -> Result<(), Trouble> {
    let lock = Naive::new(player.file(LOCK));
    let mut told_to_end = signal(SignalKind::terminate())?;
    player.say("ready");
    player.cue().await;
    if !lock.take(Some(TTL))? {
        player.say("waits");
        // It was started at any time: when it looks next is up to chance.
        tokio::time::sleep(LOOK.mul_f64(random() as f64 / u64::MAX as f64)).await;
        while !lock.take(Some(TTL))? {
            tokio::time::sleep(LOOK).await;
        }
    }
    player.say("works");
    while tokio::time::timeout(LOOK, told_to_end.recv()).await.is_err() {
        lock.renew(TTL)?;
    }
    lock.release();
    player.say("done");
    Ok(())
}

async fn in_turn(player: &mut Player, name: &str) -> Result<(), Trouble> {
    let tenure = player.tenure().await?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    player.say("ready");
    player.cue().await;
    let job = Job { name: name.to_owned(), journal: player.record(JOURNAL) };
    let worker = tenure.worker("resource-worker").ttl(TTL).owner(name);
    let (stopper, states) = (worker.stopper(), worker.states());
    tokio::spawn(async move {
        told_to_end.recv().await;
        stopper.stop();
    });
    let seen = tokio::spawn(follow(states));
    tenure.announce("resource-worker", name);
    worker.run(job).await?; // job.start() when it leads, job.stop() after stopper.stop()
    player.say(&format!("done {}", seen.await?.join(", ")));
    Ok(())
}

/// The states that it was in, when it is in none any more.
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
        // Noted before it is said: whoever has said it may be killed, and not in the middle of a note.
        self.journal.note(&format!("{} starts", self.name))?;
        say("works");
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Trouble> {
        self.journal.note(&format!("{} stops", self.name))?;
        // So that whoever follows the states can see this one.
        tokio::task::yield_now().await;
        Ok(())
    }
}
