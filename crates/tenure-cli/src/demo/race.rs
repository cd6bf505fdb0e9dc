//! Two processes take the next number from one file: read, add one, write back.
//!
//! It is how a nonce is lost: between reading and writing, the other one reads the same number.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Hold};

use super::crew::Crew;
use super::player::Player;
use super::record::Record;
use super::stage::Stage;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "two processes take the next number from one file, over and over",
    lines: [
        r#"let hold = tenure.mutex("wallet:0xab").acquire().await?;"#,
        "take_number(&file)?;",
        "drop(hold);",
    ],
};

/// What the processes share.
const FILE: &str = "next-number";
const SLOW: &str = "slow-number";

/// How often a process says how far it is.
const SAY_EVERY: Duration = Duration::from_millis(100);

/// Work that takes longer than the ttl: so often, and in so many steps with an extension in between.
const SLOW_ROUNDS: u32 = 3;
const SLOW_TTL: Duration = Duration::from_millis(100);
const STEPS: u32 = 3;
const STEP: Duration = Duration::from_millis(60);
/// How often a round may be played again.
const MOST_LOST: u32 = 100;

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let counted = count_together(stage, "without")?;
    Ok(counted.seen(Seen::report(counted.brief(), "both read, then both write")))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let counted = count_together(stage, "with")?;
    let slow = count_slowly_together(stage)?;
    let more = format!(
        "{}; with a ttl of {} ms and {} ms of work, extended meanwhile: {} of {}",
        if counted.is_right() { "one at a time" } else { "not one at a time" },
        SLOW_TTL.as_millis(),
        (STEP * STEPS).as_millis(),
        slow.found,
        slow.expected
    );
    let seen = Seen::check(counted.is_right() && slow.is_right(), counted.brief(), more);
    let seen = counted.seen(seen).fact("slow_found", slow.found);
    Ok(seen.fact("slow_expected", slow.expected))
}

/// What the file says in the end, and what it should.
struct Counted {
    found: u64,
    expected: u64,
}

impl Counted {
    fn is_right(&self) -> bool {
        self.found == self.expected
    }

    fn brief(&self) -> String {
        let Counted { found, expected } = self;
        format!("{found} of {expected}, {} lost", expected.saturating_sub(*found))
    }

    fn seen(&self, seen: Seen) -> Seen {
        seen.fact("found", self.found).fact("expected", self.expected)
    }
}

fn count_together(stage: &mut Stage<'_>, side: &str) -> Result<Counted, Trouble> {
    let file = stage.folder().join(FILE);
    write_number(&file, 0)?;
    let (count, expected) = (stage.count, 2 * u64::from(stage.count));
    let part = format!("race {side} {count}");
    let mut crew = stage.crew();
    crew.start_all([&part, &part])?;
    crew.tell_all("go");
    until_done(&mut crew, |at| format!("  {side:8} {at} of {expected}"))?;
    drop(crew);
    Ok(Counted { found: read_number(&file)?, expected })
}

fn count_slowly_together(stage: &mut Stage<'_>) -> Result<Counted, Trouble> {
    let record = stage.record(SLOW, "0")?;
    let part = format!("race extended {SLOW_ROUNDS}");
    let mut crew = stage.crew();
    crew.start_all([&part, &part])?;
    crew.tell_all("go");
    until_done(&mut crew, |at| format!("  with     slow work, {at} of {}", 2 * SLOW_ROUNDS))?;
    Ok(Counted { found: number(&record.value()?)?, expected: u64::from(2 * SLOW_ROUNDS) })
}

/// Shows how far both are until both are done.
fn until_done(crew: &mut Crew<'_, '_>, shown: impl Fn(u64) -> String) -> Result<(), Trouble> {
    let (mut at, mut done) = ([0, 0], 0);
    while done < 2 {
        match crew.hear()? {
            (_, line) if line == "done" => done += 1,
            (index, line) => {
                let Some(reached) = line.strip_prefix("at ") else {
                    return Err(format!("{line:?} was not to come").into());
                };
                at[index] = number(reached)?;
                crew.progress(&shown(at.iter().sum()));
            }
        }
    }
    Ok(())
}

pub(super) async fn work(player: &mut Player, words: &[&str]) -> Result<(), Trouble> {
    let [side, count] = *words else { return Err(no_such_part(words)) };
    let count = number(count)?;
    match side {
        "without" => count_alone(player, count).await,
        "with" => count_in_turn(player, count).await,
        "extended" => count_slowly(player, count).await,
        _ => Err(no_such_part(words)),
    }
}

async fn count_alone(player: &mut Player, count: u64) -> Result<(), Trouble> {
    let (file, mut said) = (player.file(FILE), Instant::now());
    player.say("ready");
    player.cue().await;
    for at in 0..count {
        take_number(&file)?;
        say_now_and_then(player, at, &mut said);
    }
    player.say("done");
    Ok(())
}

async fn count_in_turn(player: &mut Player, count: u64) -> Result<(), Trouble> {
    let tenure = player.tenure().await?;
    let (file, mut said) = (player.file(FILE), Instant::now());
    player.say("ready");
    player.cue().await;
    for at in 0..count {
        let hold = tenure.mutex("wallet:0xab").acquire().await?;
        take_number(&file)?;
        drop(hold);
        say_now_and_then(player, at, &mut said);
    }
    player.say("done");
    Ok(())
}

/// Counts with work that takes longer than the ttl. A round that lost its hold all the same, because
/// the machine was too busy to extend it in time, is refused by the fence and played again.
async fn count_slowly(player: &mut Player, rounds: u64) -> Result<(), Trouble> {
    let (tenure, record) = (player.tenure().await?, player.record(SLOW));
    player.say("ready");
    player.cue().await;
    let (mut counted, mut lost) = (0, 0);
    while counted < rounds {
        let ask = tenure.mutex("wallet:0xcd").ttl(SLOW_TTL).renew(false);
        let hold = ask.acquire().await?;
        match count_once(&hold, &record).await? {
            true => counted += 1,
            false => lost += 1,
        }
        if lost > MOST_LOST {
            return Err(format!("a hold was lost {lost} times although it was extended").into());
        }
        drop(hold);
        player.say(&format!("at {counted}"));
    }
    player.say("done");
    Ok(())
}

/// One round; says whether it counted. Only a hold that is over may be refused: if another one was
/// here meanwhile and this one is still good, two had it at once.
async fn count_once(hold: &Hold, record: &Record) -> Result<bool, Trouble> {
    let refused = || match hold.is_live() {
        true => Err("two processes had it at once".into()),
        false => Ok(false),
    };
    let Some(read) = record.read_by_fence(hold.fence())? else { return refused() };
    for step in 1..=STEPS {
        tokio::time::sleep(STEP).await;
        if step < STEPS {
            match hold.extend(SLOW_TTL).await {
                Err(error) if error.kind() == ErrorKind::Lost => return Ok(false),
                extended => extended?,
            }
        }
    }
    let next = (number(&read)? + 1).to_string();
    match record.write_by_fence("a process", &next, hold.fence())? {
        true => Ok(true),
        false => refused(),
    }
}

fn say_now_and_then(player: &Player, at: u64, said: &mut Instant) {
    if said.elapsed() >= SAY_EVERY {
        *said = Instant::now();
        player.say(&format!("at {}", at + 1));
    }
}

/// Takes the next number, as one does who is alone.
fn take_number(file: &Path) -> Result<(), Trouble> {
    let number = read_number(file)?;
    // Here a transaction is signed with it, say.
    thread::yield_now();
    write_number(file, number + 1)
}

fn read_number(file: &Path) -> Result<u64, Trouble> {
    number(fs::read_to_string(file)?.trim())
}

fn write_number(file: &Path, number: u64) -> Result<(), Trouble> {
    // Of one width and in place: who reads at the same time finds a number, and not an empty file.
    // The race is to be lost by what the processes do, and not by how files work.
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    Ok(file.write_all(format!("{number:>10}\n").as_bytes())?)
}

fn number(text: &str) -> Result<u64, Trouble> {
    text.parse().map_err(|_| format!("{text:?} is no number").into())
}
