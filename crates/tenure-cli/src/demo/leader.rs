//! Every instance has a cron job: each tick reaches all of them, and one should run it.
//!
//! The leader is killed twice in between. The times are only shown: they depend on the machine. The proof is that
//! each tick was run once, by the leader at that time, and that terms rose.

use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure::Term;

use super::environment::Environment;
use super::participant::Participant;
use super::processes::Processes;
use super::{Act, Played, Seen, Trouble, measured, no_such_part};

pub(super) const ACT: Act = Act {
    title: "a cron job on three instances; the one that leads is killed (kill -9), twice",
    lines: [
        r#"let campaign = tenure.election("cron").value(name).campaign();"#,
        "let term = stand_by(campaign, participant).await?; // only one gets beyond this line at a time",
        "run_jobs(&term, participant).await?; // while term.is_live(), with term.number() for its writes",
    ],
};

const INSTANCES: usize = 3;
/// How many ticks there are between two events.
const TICKS: usize = 3;
const JOURNAL: &str = "jobs";

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let record = environment.record(JOURNAL, "")?;
    let mut processes = environment.processes();
    processes.start_all((0..INSTANCES).map(|number| format!("leader without {number}")))?;
    for tick in 0..TICKS {
        processes.progress(&format!("  without  tick {tick}"));
        processes.tell_all(&tick.to_string());
        (0..INSTANCES).try_for_each(|index| processes.expect(index, "ran").map(drop))?;
    }
    drop(processes);
    let runs = record.journal()?.len();
    let seen = Seen::report(format!("{runs} runs for {TICKS} ticks"), "every instance runs it");
    Ok(seen.fact("runs", runs as u64).fact("ticks", TICKS as u64))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let (ttl, at_once) = (environment.engine.ttl, environment.engine.at_once);
    let record = environment.record(JOURNAL, "")?;
    let mut processes = environment.processes();
    processes.start_all((0..INSTANCES).map(|number| format!("leader with {number}")))?;
    processes.tell_all("campaign");
    let (mut leader, mut gaps) = (leads(&mut processes)?, Vec::new());
    let mut alive: Vec<_> = (0..INSTANCES).collect();
    for round in 0..INSTANCES {
        for tick in 0..TICKS {
            tell_tick(&mut processes, &alive, leader, round * TICKS + tick)?;
        }
        if round + 1 < INSTANCES {
            processes.progress("  with     the leader is killed");
            let killed = Instant::now();
            processes.signal(leader, Signal::KILL)?;
            alive.retain(|index| *index != leader);
            leader = leads(&mut processes)?;
            gaps.push(killed.elapsed());
        }
    }
    processes.tell(leader, "end");
    processes.expect(leader, "done")?;
    drop(processes);
    let found = Found::read(&record.journal()?);
    let longest = gaps.into_iter().max().unwrap_or_default();
    let held = found.is_right() && (!at_once || longest < ttl);
    let more = match found.is_right() {
        true => format!("{INSTANCES} leaders one after the other, the next after {}", gap(longest)),
        false => format!("the terms of the runs were {:?}", found.terms),
    };
    let (runs, ticks) = (found.ticks.len(), INSTANCES * TICKS);
    let seen = Seen::check(held, format!("{runs} runs for {ticks} ticks"), more);
    Ok(seen
        .fact("runs", runs as u64)
        .fact("ticks", ticks as u64)
        .fact("gap_us", longest.as_micros() as u64))
}

fn gap(longest: Duration) -> String {
    format!("{} at most", measured(longest))
}

/// Waits until someone leads.
fn leads(processes: &mut Processes<'_, '_>) -> Result<usize, Trouble> {
    match processes.hear()? {
        (index, line) if line == "leads" => Ok(index),
        (_, line) => Err(format!("{line:?} was not to come").into()),
    }
}

/// Sends the tick to all that are alive, and collects what they did with it.
fn tell_tick(
    processes: &mut Processes<'_, '_>,
    alive: &[usize],
    leader: usize,
    tick: usize,
) -> Result<(), Trouble> {
    processes.progress(&format!("  with     tick {tick}"));
    for &index in alive {
        processes.tell(index, &tick.to_string());
        processes.expect(index, if index == leader { "ran" } else { "idle" })?;
    }
    Ok(())
}

/// The contents of the journal: a tick and a term for each run.
struct Found {
    ticks: Vec<usize>,
    terms: Vec<u64>,
}

impl Found {
    fn read(journal: &[String]) -> Found {
        let pair = |line: &String| -> Option<(usize, u64)> {
            let (tick, term) = line.split_once(' ')?;
            Some((tick.parse().ok()?, term.parse().ok()?))
        };
        let (ticks, terms) = journal.iter().filter_map(pair).unzip();
        Found { ticks, terms }
    }

    /// Each tick once and in order; those of each leader by one term, which is higher than those before.
    fn is_right(&self) -> bool {
        let rises = |terms: &[u64]| match terms {
            [one, next] => one < next,
            _ => false,
        };
        let of_leaders: Vec<_> = self.terms.chunks(TICKS).map(|terms| terms[0]).collect();
        self.ticks.iter().copied().eq(0..INSTANCES * TICKS)
            && self.terms.chunks(TICKS).all(|terms| terms.iter().all(|term| *term == terms[0]))
            && of_leaders.windows(2).all(rises)
    }
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    match *words {
        ["without", _] => everywhere(participant).await,
        ["with", name] => lead(participant, name).await,
        _ => Err(no_such_part(words)),
    }
}

async fn everywhere(participant: &mut Participant) -> Result<(), Trouble> {
    participant.say("ready");
    loop {
        let tick = participant.cue().await;
        participant.record(JOURNAL).note(&format!("{tick} 0"))?;
        participant.say("ran");
    }
}

async fn lead(participant: &mut Participant, name: &str) -> Result<(), Trouble> {
    let tenure = participant.tenure().await?;
    participant.say("ready");
    participant.cue().await;
    let campaign = tenure.election("cron").value(name).campaign();
    let term = stand_by(campaign, participant).await?; // only one gets beyond this line at a time
    run_jobs(&term, participant).await?; // while term.is_live(), with term.number() for its writes
    let _ = term.resign().await?;
    participant.say("done");
    Ok(())
}

/// Waits for the term. A tick that arrives in the meantime is for another instance.
async fn stand_by(
    campaign: impl Future<Output = tenure::Result<Term>>,
    participant: &mut Participant,
) -> Result<Term, Trouble> {
    let mut campaign = pin!(campaign);
    loop {
        tokio::select! {
            biased;
            term = &mut campaign => {
                participant.say("leads");
                return Ok(term?);
            }
            _ = participant.cue() => participant.say("idle"),
        }
    }
}

async fn run_jobs(term: &Term, participant: &mut Participant) -> Result<(), Trouble> {
    while term.is_live() {
        let tick = participant.cue().await;
        if tick == "end" {
            return Ok(());
        }
        participant.record(JOURNAL).note(&format!("{tick} {}", term.number()))?;
        participant.say("ran");
    }
    Err("the term was lost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_that_is_run_twice_or_by_an_old_term_is_seen() {
        let journal = |terms: [u64; 9]| -> Vec<String> {
            terms.iter().enumerate().map(|(tick, term)| format!("{tick} {term}")).collect()
        };
        let mut right = journal([3, 3, 3, 5, 5, 5, 9, 9, 9]);
        assert!(Found::read(&right).is_right());
        assert!(!Found::read(&journal([3, 3, 3, 5, 5, 5, 4, 4, 4])).is_right());
        assert!(!Found::read(&journal([3, 3, 3, 3, 5, 5, 9, 9, 9])).is_right());
        right.push("8 9".into());
        assert!(!Found::read(&right).is_right());
        assert!(!Found::read(&[]).is_right());
    }
}
