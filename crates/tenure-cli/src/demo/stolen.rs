//! The stolen lock: a holder is paused past its ttl, another one gets the lock, and the first goes on
//! as if nothing had happened.
//!
//! No lock can prevent that: a process can be stopped between any two lines, and here one is. What it
//! writes to can refuse it, by the fence; and its release frees nothing that is not its own.

use std::time::Duration;

use rustix::process::Signal;
use tenure::Released;

use super::naive::Naive;
use super::player::Player;
use super::stage::Stage;
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
/// How often it is looked whether a file is void.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let Ending { guest, cid, .. } = steal(stage, "without")?;
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

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let Ending { ada, guest, ben, cid } = steal(stage, "with")?;
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

/// What was to be seen when all had done what they wanted.
struct Ending {
    /// What became of Ada's write and of her release.
    ada: String,
    /// Whose the table is.
    guest: String,
    /// What Ben's release said.
    ben: String,
    /// Whether someone else was let in while Ben was there.
    cid: String,
}

fn steal(stage: &mut Stage<'_>, side: &str) -> Result<Ending, Trouble> {
    let [ada, ben, cid] = [0, 1, 2];
    let record = stage.record(TABLE, "")?;
    let mut crew = stage.crew();
    crew.start_all(["Ada", "Ben", "Cid"].map(|name| format!("stolen {side} {name}")))?;
    crew.tell(ada, "go");
    crew.expect(ada, "holds")?;
    crew.signal(ada, Signal::STOP)?;
    crew.progress(&format!("  {side:8} Ada has it, and is stopped"));
    crew.tell(ben, "go");
    crew.expect(ben, "holds")?;
    crew.progress(&format!("  {side:8} Ben has it, and Ada goes on"));
    crew.signal(ada, Signal::CONT)?;
    crew.tell(ada, "go on");
    let ada = crew.expect(ada, "done")?;
    crew.tell(cid, "go");
    let cid = crew.expect(cid, "done")?;
    crew.tell(ben, "go on");
    let ben = crew.expect(ben, "done")?;
    Ok(Ending { ada, guest: record.value()?, ben, cid })
}

pub(super) async fn work(player: &mut Player, words: &[&str]) -> Result<(), Trouble> {
    let said = match *words {
        ["without", name] => naively(player, name).await?,
        ["with", name] => in_turn(player, name).await?,
        _ => return Err(no_such_part(words)),
    };
    player.say(&format!("done {said}"));
    Ok(())
}

/// Takes the lock, writes, and frees it: as one does who cannot be late.
async fn naively(player: &mut Player, name: &str) -> Result<String, Trouble> {
    let (table, lock) = (player.record(TABLE), Naive::new(player.file(LOCK)));
    player.say("ready");
    player.cue().await;
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
    player.say("holds");
    player.cue().await;
    if name == "Ada" {
        table.write(name, name)?;
    }
    lock.release();
    Ok("wrote".to_owned())
}

async fn in_turn(player: &mut Player, name: &str) -> Result<String, Trouble> {
    let (tenure, table) = (player.tenure().await?, player.record(TABLE));
    let lock = tenure.mutex("table:7").owner(name);
    player.say("ready");
    player.cue().await;
    if name == "Cid" {
        let inside = lock.try_acquire().await?.is_some();
        return Ok(if inside { "inside" } else { "busy" }.to_owned());
    }
    if name == "Ben" {
        let hold = lock.acquire().await?;
        if !table.write_by_fence(name, name, hold.fence())? {
            return Err("the table refused the one who holds the lock".into());
        }
        player.say("holds");
        player.cue().await;
        return Ok(format!("{:?}", hold.release().await?));
    }
    let hold = lock.ttl(TTL).acquire().await?;
    player.say("holds");
    player.cue().await;
    // She was stopped, and does not know it: nothing is looked at before the write.
    let written = table.write_by_fence(name, name, hold.fence())?;
    let released: Released = hold.release().await?;
    Ok(format!("{} {released:?}", if written { "written" } else { "refused" }))
}
