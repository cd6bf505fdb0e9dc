//! Two processes take the next number from one file: read, add one, write back.
//!
//! This is how a nonce is lost: between reading and writing, the other process reads the same number.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Hold};

use super::environment::Environment;
use super::participant::Participant;
use super::processes::Processes;
use super::record::Record;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "two processes take the next number from one file, over and over",
    lines: [
        r#"let hold = tenure.mutex("wallet:0xab").acquire().await?;"#,
        "take_number(&file)?;",
        "drop(hold);",
    ],
};

/// The file that the processes share.
const FILE: &str = "next-number";
const SLOW: &str = "slow-number";

/// How often a process reports its progress.
const SAY_EVERY: Duration = Duration::from_millis(100);

/// Work that takes longer than the ttl: the number of rounds, and of steps in each, with an extension in between.
const SLOW_ROUNDS: u32 = 3;
const SLOW_TTL: Duration = Duration::from_millis(100);
const STEPS: u32 = 3;
const STEP: Duration = Duration::from_millis(60);
/// How often a round may be repeated.
const MOST_LOST: u32 = 100;

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let counted = count_together(environment, "without")?;
    Ok(counted.seen(Seen::report(counted.brief(), "both read, then both write")))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let counted = count_together(environment, "with")?;
    let slow = count_slowly_together(environment)?;
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

/// The number in the file at the end, and what it should be.
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

fn count_together(environment: &mut Environment<'_>, side: &str) -> Result<Counted, Trouble> {
    let file = environment.folder().join(FILE);
    write_number(&file, 0)?;
    let (count, expected) = (environment.count, 2 * u64::from(environment.count));
    let part = format!("race {side} {count}");
    let mut processes = environment.processes();
    processes.start_all([&part, &part])?;
    processes.tell_all("go");
    until_done(&mut processes, |at| format!("  {side:8} {at} of {expected}"))?;
    drop(processes);
    Ok(Counted { found: read_number(&file)?, expected })
}

fn count_slowly_together(environment: &mut Environment<'_>) -> Result<Counted, Trouble> {
    let record = environment.record(SLOW, "0")?;
    let part = format!("race extended {SLOW_ROUNDS}");
    let mut processes = environment.processes();
    processes.start_all([&part, &part])?;
    processes.tell_all("go");
    until_done(&mut processes, |at| format!("  with     slow work, {at} of {}", 2 * SLOW_ROUNDS))?;
    Ok(Counted { found: number(&record.value()?)?, expected: u64::from(2 * SLOW_ROUNDS) })
}

/// Shows the progress of both until both are done.
fn until_done(
    processes: &mut Processes<'_, '_>,
    shown: impl Fn(u64) -> String,
) -> Result<(), Trouble> {
    let (mut at, mut done) = ([0, 0], 0);
    while done < 2 {
        match processes.hear()? {
            (_, line) if line == "done" => done += 1,
            (index, line) => {
                let Some(reached) = line.strip_prefix("at ") else {
                    return Err(format!("{line:?} was not to come").into());
                };
                at[index] = number(reached)?;
                processes.progress(&shown(at.iter().sum()));
            }
        }
    }
    Ok(())
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let [side, count] = *words else { return Err(no_such_part(words)) };
    let count = number(count)?;
    match side {
        "without" => count_alone(participant, count).await,
        "with" => count_in_turn(participant, count).await,
        "extended" => count_slowly(participant, count).await,
        _ => Err(no_such_part(words)),
    }
}

async fn count_alone(participant: &mut Participant, count: u64) -> Result<(), Trouble> {
    let (file, mut said) = (participant.file(FILE), Instant::now());
    participant.say("ready");
    participant.cue().await;
    for at in 0..count {
        take_number(&file)?;
        say_now_and_then(participant, at, &mut said);
    }
    participant.say("done");
    Ok(())
}

async fn count_in_turn(participant: &mut Participant, count: u64) -> Result<(), Trouble> {
    let tenure = participant.tenure().await?;
    let (file, mut said) = (participant.file(FILE), Instant::now());
    participant.say("ready");
    participant.cue().await;
    for at in 0..count {
        let hold = tenure.mutex("wallet:0xab").acquire().await?;
        take_number(&file)?;
        drop(hold);
        say_now_and_then(participant, at, &mut said);
    }
    participant.say("done");
    Ok(())
}

/// Counts with work that takes longer than the ttl. If a round loses its hold nevertheless, because the machine
/// was too busy to extend it in time, the fence refuses it, and it is repeated.
async fn count_slowly(participant: &mut Participant, rounds: u64) -> Result<(), Trouble> {
    let (tenure, record) = (participant.tenure().await?, participant.record(SLOW));
    participant.say("ready");
    participant.cue().await;
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
        participant.say(&format!("at {counted}"));
    }
    participant.say("done");
    Ok(())
}

/// One round. Returns whether it counted. It may only be refused if its hold is over: if another process was here
/// and this hold is still good, two had it at once.
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

fn say_now_and_then(participant: &Participant, at: u64, said: &mut Instant) {
    if said.elapsed() >= SAY_EVERY {
        *said = Instant::now();
        participant.say(&format!("at {}", at + 1));
    }
}

/// Takes the next number without any lock.
fn take_number(file: &Path) -> Result<(), Trouble> {
    let number = read_number(file)?;
    // For example, a transaction is signed with it here.
    thread::yield_now();
    write_number(file, number + 1)
}

fn read_number(file: &Path) -> Result<u64, Trouble> {
    number(fs::read_to_string(file)?.trim())
}

fn write_number(file: &Path, number: u64) -> Result<(), Trouble> {
    // With a fixed width and in place: a concurrent reader finds a number, not an empty file. The race should be
    // lost because of the processes, not because of how files work.
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    Ok(file.write_all(format!("{number:>10}\n").as_bytes())?)
}

fn number(text: &str) -> Result<u64, Trouble> {
    text.parse().map_err(|_| format!("{text:?} is no number").into())
}
