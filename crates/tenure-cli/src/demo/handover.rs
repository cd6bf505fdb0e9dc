//! One of three processes works, and the others stand by: it is told to end, the next takes over; that
//! one is killed, the last takes over.
//!
//! The times are for reading: how good they are depends on the machine. The proof is that both
//! happened, and that every worker started its work once, when the one before had ended.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::crew::Crew;
use super::naive::Naive;
use super::player::Player;
use super::stage::Stage;
use super::{Act, Played, Seen, Trouble, measured, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a worker is told to end (SIGTERM), the next one is killed (kill -9)",
    lines: [
        r#"let hold = tenure.mutex("resource-worker").owner(name).acquire().await?;"#,
        "work_until(&mut told_to_end, name, player).await?;",
        "hold.release().await?; // the next one is told by push, not by asking again",
    ],
};

const WORKERS: usize = 3;
const JOURNAL: &str = "work";
const LOCK: &str = "resource-worker.lock";
/// A worker without tenure: how long its lock lasts, and how often the others look.
const NAIVE_TTL: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(250);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    stage.record(JOURNAL, "")?;
    let mut crew = start(stage, "without")?;
    let (told, killed) = hand_over_twice(&mut crew)?;
    let more = format!(
        "until the next one works: a lock lasts {} ms, and the others look every {} ms",
        NAIVE_TTL.as_millis(),
        RETRY.as_millis()
    );
    Ok(seen(told, killed, |brief| Seen::report(brief, more)))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let (ttl, at_once) = (stage.engine.ttl, stage.engine.at_once);
    let record = stage.record(JOURNAL, "")?;
    let mut crew = start(stage, "with")?;
    let (told, killed) = hand_over_twice(&mut crew)?;
    crew.signal(WORKERS - 1, Signal::TERM)?;
    crew.expect(WORKERS - 1, "done")?;
    drop(crew);
    let journal = record.journal()?;
    let orderly = journal == ["0 starts", "0 stops", "1 starts", "2 starts", "2 stops"];
    let held = orderly && told < ttl && (!at_once || killed < ttl);
    let more = match orderly {
        true => "until the next one works; each started once, after the one before".to_owned(),
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
            (_, line) if line == "done" => {}
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
    player.say("ready");
    player.cue().await;
    if !lock.take(Some(NAIVE_TTL))? {
        player.say("waits");
        while !lock.take(Some(NAIVE_TTL))? {
            tokio::time::sleep(RETRY).await;
        }
    }
    player.say("works");
    loop {
        tokio::time::sleep(NAIVE_TTL / 3).await;
        lock.renew(NAIVE_TTL)?;
    }
}

async fn in_turn(player: &mut Player, name: &str) -> Result<(), Trouble> {
    let tenure = player.tenure().await?;
    let mut told_to_end = signal(SignalKind::terminate())?;
    player.say("ready");
    player.cue().await;
    tenure.announce("resource-worker", name);
    let hold = tenure.mutex("resource-worker").owner(name).acquire().await?;
    work_until(&mut told_to_end, name, player).await?;
    hold.release().await?; // the next one is told by push, not by asking again
    player.say("done");
    Ok(())
}

async fn work_until(end: &mut Signals, name: &str, player: &Player) -> Result<(), Trouble> {
    let journal = player.record(JOURNAL);
    // Noted before it is said: whoever has said it may be killed, and not in the middle of a note.
    journal.note(&format!("{name} starts"))?;
    player.say("works");
    end.recv().await;
    journal.note(&format!("{name} stops"))
}
