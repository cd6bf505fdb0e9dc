//! A holder is killed in the middle of its work, and another one waits.
//!
//! The times are only shown: they depend on the machine. The proof is that the next one gets the lock, and, on an
//! engine that notices the death of a process, long before the ttl is over.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::environment::Environment;
use super::naive::Naive;
use super::participant::Participant;
use super::{Act, Played, Seen, Trouble, measured, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a holder is killed (kill -9) in the middle of its work",
    lines: [
        r#"let hold = tenure.mutex("report").owner(name).acquire().await?;"#,
        "write_report(participant).await; // kill -9 here",
        "drop(hold); // never reached: the engine sees to it",
    ],
};

const LOCK: &str = "report.lock";
/// How long the next one is given on the side where nobody takes care of it.
const STUCK: Duration = Duration::from_secs(1);
/// How often to check whether the file is gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let mut processes = environment.processes();
    processes.start_all(["crash without first", "crash without second"])?;
    processes.tell(0, "go");
    processes.expect(0, "holds")?;
    processes.tell(1, "go");
    processes.expect(1, "waits")?;
    processes.signal(0, Signal::KILL)?;
    processes.progress("  without  the holder is killed, and the next one waits");
    Ok(match processes.hear_within(STUCK)? {
        None => Seen::report(
            "stuck",
            format!(
                "the lock file is still there after {} s, until someone removes it",
                STUCK.as_secs()
            ),
        ),
        Some(_) => Seen::report("went well, by luck", ""),
    })
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let (ttl, at_once) = (environment.engine.ttl, environment.engine.at_once);
    let mut processes = environment.processes();
    processes.start_all(["crash with first", "crash with second"])?;
    processes.tell(0, "go");
    processes.expect(0, "holds")?;
    processes.tell(1, "go");
    processes.expect(1, "waits")?;
    processes.progress("  with     the holder is killed, and the next one waits");
    let killed = Instant::now();
    processes.signal(0, Signal::KILL)?;
    processes.expect(1, "holds")?;
    let took = killed.elapsed();
    processes.tell(1, "go on");
    processes.expect(1, "done")?;
    let (held, how) = match at_once {
        true => (took < ttl, "without waiting for its ttl"),
        false => (true, "when its ttl expired"),
    };
    let more = format!("{how}, which is {} s", ttl.as_secs());
    let seen = Seen::check(held, format!("the next gets it after {}", measured(took)), more);
    Ok(seen.fact("took_us", took.as_micros() as u64))
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
    participant.say("ready");
    participant.cue().await;
    if !lock.take(None)? {
        participant.say("waits");
        while !lock.take(None)? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    participant.say("holds");
    participant.cue().await;
    lock.release();
    participant.say("done");
    Ok(())
}

async fn in_turn(participant: &mut Participant, name: &str) -> Result<(), Trouble> {
    let tenure = participant.tenure().await?;
    participant.say("ready");
    participant.cue().await;
    tenure.announce("report", name);
    let hold = tenure.mutex("report").owner(name).acquire().await?;
    write_report(participant).await; // kill -9 here
    drop(hold); // never reached: the engine sees to it
    participant.say("done");
    Ok(())
}

async fn write_report(participant: &mut Participant) {
    participant.say("holds");
    participant.cue().await;
}
