//! Two processes take the next number from one file: read, add one, write back.
//!
//! It is how a nonce is lost: between reading and writing, the other one reads the same number. A file
//! that is being written may also be found empty.

use std::fmt;
use std::fs;
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

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let Counted { found, expected, torn } = count_together(stage, "without")?;
    let lost = expected.saturating_sub(found);
    let more = match torn {
        0 => "both read, then both write".to_owned(),
        _ => format!("both read, then both write; {torn} times the file was half written"),
    };
    let seen = Seen::report(format!("{found} of {expected}, {lost} lost"), more);
    Ok(seen.fact("found", found).fact("expected", expected).fact("torn", torn))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let Counted { found, expected, torn } = count_together(stage, "with")?;
    let (slow, slow_expected) = count_slowly_together(stage)?;
    let (total, ttl) = ((STEP * STEPS).as_millis(), SLOW_TTL.as_millis());
    let more = format!(
        "one at a time; with a ttl of {ttl} ms and {total} ms of work, extended meanwhile: \
         {slow} of {slow_expected}"
    );
    let held = (found, torn, slow) == (expected, 0, slow_expected);
    let lost = expected.saturating_sub(found);
    let seen = Seen::check(held, format!("{found} of {expected}, {lost} lost"), more);
    let seen = seen.fact("found", found).fact("expected", expected).fact("torn", torn);
    Ok(seen.fact("extended", slow).fact("extended_expected", slow_expected))
}

/// What the file says in the end, what it should, and how often it could not be read.
struct Counted {
    found: u64,
    expected: u64,
    torn: u64,
}

fn count_together(stage: &mut Stage<'_>, side: &str) -> Result<Counted, Trouble> {
    let file = stage.folder().join(FILE);
    fs::write(&file, "0")?;
    let (count, expected) = (stage.count, 2 * u64::from(stage.count));
    let part = format!("race {side} {count}");
    let mut crew = stage.crew();
    crew.start_all([&part, &part])?;
    crew.tell_all("go");
    let torn = until_done(&mut crew, |at| format!("  {side:8} {at} of {expected}"))?;
    drop(crew);
    Ok(Counted { found: read_number(&file)?, expected, torn })
}

fn count_slowly_together(stage: &mut Stage<'_>) -> Result<(u64, u64), Trouble> {
    let record = stage.record(SLOW, "0")?;
    let part = format!("race extended {SLOW_ROUNDS}");
    let mut crew = stage.crew();
    crew.start_all([&part, &part])?;
    crew.tell_all("go");
    until_done(&mut crew, |at| format!("  with     slow work, {at} of {}", 2 * SLOW_ROUNDS))?;
    Ok((number(&record.value()?)?, u64::from(2 * SLOW_ROUNDS)))
}

/// Shows how far both are until both are done, and returns the sum of what they say then.
fn until_done(crew: &mut Crew<'_, '_>, shown: impl Fn(u64) -> String) -> Result<u64, Trouble> {
    let (mut at, mut done, mut sum) = ([0, 0], 0, 0);
    while done < 2 {
        let (index, line) = crew.hear()?;
        match line.split_once(' ') {
            Some(("at", reached)) => at[index] = number(reached)?,
            Some(("done", said)) => (done, sum) = (done + 1, sum + number(said)?),
            _ => return Err(format!("{line:?} was not to come").into()),
        }
        crew.progress(&shown(at.iter().sum()));
    }
    Ok(sum)
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
    let file = player.file(FILE);
    let (mut torn, mut said) = (0, Instant::now());
    player.say("ready");
    player.cue().await;
    for at in 0..count {
        match take_number(&file) {
            Err(trouble) if trouble.is::<Torn>() => torn += 1,
            taken => taken?,
        }
        say_now_and_then(player, at, &mut said);
    }
    player.say(&format!("done {torn}"));
    Ok(())
}

async fn count_in_turn(player: &mut Player, count: u64) -> Result<(), Trouble> {
    let (tenure, file) = (player.tenure().await?, player.file(FILE));
    let mut said = Instant::now();
    player.say("ready");
    player.cue().await;
    for at in 0..count {
        let hold = tenure.mutex("wallet:0xab").acquire().await?;
        take_number(&file)?;
        drop(hold);
        say_now_and_then(player, at, &mut said);
    }
    player.say("done 0");
    Ok(())
}

/// Counts with work that takes longer than the ttl. A round that lost its hold all the same, because
/// the machine was too busy to extend it in time, is refused by the fence and played again.
async fn count_slowly(player: &mut Player, rounds: u64) -> Result<(), Trouble> {
    let (tenure, record) = (player.tenure().await?, player.record(SLOW));
    player.say("ready");
    player.cue().await;
    let (mut counted, mut again) = (0, 0);
    while counted < rounds {
        let ask = tenure.mutex("wallet:0xcd").ttl(SLOW_TTL).renew(false);
        let hold = ask.acquire().await?;
        match count_once(&hold, &record).await? {
            true => counted += 1,
            false => again += 1,
        }
        drop(hold);
        player.say(&format!("at {counted}"));
    }
    player.say(&format!("done {again}"));
    Ok(())
}

async fn count_once(hold: &Hold, record: &Record) -> Result<bool, Trouble> {
    let Some(read) = record.read_by_fence(hold.fence())? else { return Ok(false) };
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
    record.write_by_fence("a worker", &next, hold.fence())
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
    Ok(fs::write(file, (number + 1).to_string())?)
}

fn read_number(file: &Path) -> Result<u64, Trouble> {
    let text = fs::read_to_string(file)?;
    text.parse().map_err(|_| Torn(text).into())
}

fn number(text: &str) -> Result<u64, Trouble> {
    text.parse().map_err(|_| format!("{text:?} is no number").into())
}

/// The file was read while it was being written.
#[derive(Debug)]
struct Torn(String);

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file says {:?}, which is no number: it is being written", self.0)
    }
}

impl std::error::Error for Torn {}
