//! A holder is killed in the middle of its work, and another one waits.
//!
//! The times are for reading: how good they are depends on the machine. The proof is that the next one
//! has it, and on an engine that hears of it long before the ttl is over.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::naive::Naive;
use super::player::Player;
use super::stage::Stage;
use super::{Act, Played, Seen, Trouble, measured, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a holder is killed (kill -9) in the middle of its work",
    lines: [
        r#"let hold = tenure.mutex("report").owner(name).acquire().await?;"#,
        "write_report(player).await; // kill -9 here",
        "drop(hold); // never reached: the engine sees to it",
    ],
};

const LOCK: &str = "report.lock";
/// How long the next one is given where nobody sees to it.
const STUCK: Duration = Duration::from_secs(1);
/// How often it is looked whether the file is gone.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let mut crew = stage.crew();
    crew.start_all(["crash without first", "crash without second"])?;
    crew.tell(0, "go");
    crew.expect(0, "holds")?;
    crew.tell(1, "go");
    crew.expect(1, "waits")?;
    crew.signal(0, Signal::KILL)?;
    crew.progress("  without  the holder is killed, and the next one waits");
    Ok(match crew.hear_within(STUCK)? {
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

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let (ttl, at_once) = (stage.engine.ttl, stage.engine.at_once);
    let mut crew = stage.crew();
    crew.start_all(["crash with first", "crash with second"])?;
    crew.tell(0, "go");
    crew.expect(0, "holds")?;
    crew.tell(1, "go");
    crew.expect(1, "waits")?;
    crew.progress("  with     the holder is killed, and the next one waits");
    let killed = Instant::now();
    crew.signal(0, Signal::KILL)?;
    crew.expect(1, "holds")?;
    let took = killed.elapsed();
    crew.tell(1, "go on");
    crew.expect(1, "done")?;
    let (held, how) = match at_once {
        true => (took < ttl, "without waiting for its ttl"),
        false => (true, "when its ttl expired"),
    };
    let more = format!("{how}, which is {} s", ttl.as_secs());
    let seen = Seen::check(held, format!("the next gets it after {}", measured(took)), more);
    Ok(seen.fact("took_us", took.as_micros() as u64))
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
    if !lock.take(None)? {
        player.say("waits");
        while !lock.take(None)? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    player.say("holds");
    player.cue().await;
    lock.release();
    player.say("done");
    Ok(())
}

async fn in_turn(player: &mut Player, name: &str) -> Result<(), Trouble> {
    let tenure = player.tenure().await?;
    player.say("ready");
    player.cue().await;
    tenure.announce("report", name);
    let hold = tenure.mutex("report").owner(name).acquire().await?;
    write_report(player).await; // kill -9 here
    drop(hold); // never reached: the engine sees to it
    player.say("done");
    Ok(())
}

async fn write_report(player: &mut Player) {
    player.say("holds");
    player.cue().await;
}
