//! The stolen lock: a holder is paused past its ttl, another one gets the lock, and the first continues
//! as if nothing had happened.
//!
//! No lock can prevent that: a process can be stopped between any two lines, and here one is. The resource it
//! writes to can refuse it, by the fence; and its release frees nothing that is not its own.

use std::time::Duration;

use rustix::process::Signal;
use tenure::Released;

use super::environment::Environment;
use super::naive::Naive;
use super::participant::Participant;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a holder is stopped past its ttl, and goes on when another one has the lock",
    lines: [
        "if fence < self.highest {",
        "    return false; // whoever this is, a later holder was here",
        "}",
    ],
};

const TABLE: &str = "table-7";
const LOCK: &str = "table-7.lock";
/// How long Ada's lock lasts; she is stopped for longer.
const TTL: Duration = Duration::from_millis(300);
/// How often to check whether a file has expired.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let Ending { guest, cid, .. } = steal(environment, "without")?;
    let (brief, more) = match (&*guest, &*cid) {
        ("Ada", "inside") => (
            "the late write won",
            "Ben had the table and now it is Ada's; her release freed Ben's lock, and Cid is in",
        ),
        ("Ada", _) => ("the late write won", "Ben had the table, and now it is Ada's"),
        _ => ("went well, by luck", ""),
    };
    Ok(Seen::report(brief, more))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let Ending { ada, guest, ben, cid } = steal(environment, "with")?;
    let held = (&*ada, &*guest, &*ben, &*cid) == ("refused Late", "Ben", "InTime", "busy");
    let (brief, released) = match ada.split_once(' ') {
        Some(("refused", released)) => ("late write refused", released),
        Some((_, released)) => ("the late write won", released),
        None => ("unclear", &*ada),
    };
    let keeps = if cid == "busy" { "still holds it" } else { "no longer holds it" };
    let more = format!(
        "the table is {guest}'s, Ada's release says {released}, Ben {keeps} and releases {ben}"
    );
    Ok(Seen::check(held, brief, more))
}

/// The state after everyone was done.
struct Ending {
    /// What happened to Ada's write and to her release.
    ada: String,
    /// Who has the table.
    guest: String,
    /// The result of Ben's release.
    ben: String,
    /// Whether someone else was let in while Ben was there.
    cid: String,
}

fn steal(environment: &mut Environment<'_>, side: &str) -> Result<Ending, Trouble> {
    let [ada, ben, cid] = [0, 1, 2];
    let record = environment.record(TABLE, "")?;
    let mut processes = environment.processes();
    processes.start_all(["Ada", "Ben", "Cid"].map(|name| format!("stolen {side} {name}")))?;
    processes.tell(ada, "go");
    processes.expect(ada, "holds")?;
    processes.signal(ada, Signal::STOP)?;
    processes.progress(&format!("  {side:8} Ada has it, and is stopped"));
    processes.tell(ben, "go");
    processes.expect(ben, "holds")?;
    processes.progress(&format!("  {side:8} Ben has it, and Ada goes on"));
    processes.signal(ada, Signal::CONT)?;
    processes.tell(ada, "go on");
    let ada = processes.expect(ada, "done")?;
    processes.tell(cid, "go");
    let cid = processes.expect(cid, "done")?;
    processes.tell(ben, "go on");
    let ben = processes.expect(ben, "done")?;
    Ok(Ending { ada, guest: record.value()?, ben, cid })
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let said = match *words {
        ["without", name] => naively(participant, name).await?,
        ["with", name] => in_turn(participant, name).await?,
        _ => return Err(no_such_part(words)),
    };
    participant.say(&format!("done {said}"));
    Ok(())
}

/// Takes the lock, writes and frees it, without considering that it may be late.
async fn naively(participant: &mut Participant, name: &str) -> Result<String, Trouble> {
    let (table, lock) = (participant.record(TABLE), Naive::new(participant.file(LOCK)));
    participant.say("ready");
    participant.cue().await;
    let ttl = if name == "Ada" { TTL } else { Duration::from_secs(60) };
    if name == "Cid" {
        return Ok(if lock.take(Some(ttl))? { "inside" } else { "busy" }.to_owned());
    }
    while !lock.take(Some(ttl))? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if name == "Ben" {
        table.write(name, name)?;
    }
    participant.say("holds");
    participant.cue().await;
    if name == "Ada" {
        table.write(name, name)?;
    }
    lock.release();
    Ok("wrote".to_owned())
}

async fn in_turn(participant: &mut Participant, name: &str) -> Result<String, Trouble> {
    let (tenure, table) = (participant.tenure().await?, participant.record(TABLE));
    let lock = tenure.mutex("table:7").owner(name);
    participant.say("ready");
    participant.cue().await;
    if name == "Cid" {
        let inside = lock.try_acquire().await?.is_some();
        return Ok(if inside { "inside" } else { "busy" }.to_owned());
    }
    if name == "Ben" {
        let hold = lock.acquire().await?;
        if !table.write_by_fence(name, name, hold.fence())? {
            return Err("the table refused the one who holds the lock".into());
        }
        participant.say("holds");
        participant.cue().await;
        return Ok(format!("{:?}", hold.release().await?));
    }
    let hold = lock.ttl(TTL).acquire().await?;
    participant.say("holds");
    participant.cue().await;
    // She was stopped, and does not know it: nothing is checked before the write.
    let written = table.write_by_fence(name, name, hold.fence())?;
    let released: Released = hold.release().await?;
    Ok(format!("{} {released:?}", if written { "written" } else { "refused" }))
}
