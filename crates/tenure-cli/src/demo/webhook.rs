//! A provider delivers the same webhook to four processes at once, and once more later: check whether it
//! was processed, charge, record it.
//!
//! All four check before one records it. With `once` the first one charges, the others wait for its outcome, and
//! everyone gives the provider the same answer, whenever it asks.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::Done;

use super::environment::Environment;
use super::participant::Participant;
use super::processes::Processes;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "the same webhook comes to four processes at once, and again later",
    lines: [
        r#"let once = tenure.once("webhook:42").keep(MINUTE); // or a day: as late as it can come again"#,
        "let done = once.run(async |_run| charge(participant).await).await??;",
        "let (Done::Ran(receipt) | Done::Replayed(receipt)) = done else { return Err(busy()) };",
    ],
};

const PROCESSES: usize = 4;
const ACCOUNT: &str = "account";
/// How long it is remembered: the demo leaves nothing behind for longer.
const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let Ending { charges, answers } = deliver_twice(environment, "without")?;
    let more = format!("all looked before one took note; {} different answers", answers.len());
    let seen = Seen::report(format!("charged {}", times(charges)), more);
    Ok(seen.fact("charges", charges as u64).fact("answers", answers.len() as u64))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let Ending { charges, answers } = deliver_twice(environment, "with")?;
    let held = charges == 1 && answers.len() == 1;
    let more = match answers.first() {
        Some(answer) if held => {
            format!("all {} deliveries were answered {answer:?}", 2 * PROCESSES)
        }
        _ => format!("{} different answers", answers.len()),
    };
    let seen = Seen::check(held, format!("charged {}", times(charges)), more);
    Ok(seen.fact("charges", charges as u64).fact("answers", answers.len() as u64))
}

fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

struct Ending {
    charges: usize,
    answers: BTreeSet<String>,
}

fn deliver_twice(environment: &mut Environment<'_>, side: &str) -> Result<Ending, Trouble> {
    let record = environment.record(ACCOUNT, "")?;
    let mut processes = environment.processes();
    processes.start_all((0..PROCESSES).map(|_| format!("webhook {side}")))?;
    let mut answers = BTreeSet::new();
    processes.progress(&format!("  {side:8} delivered to all"));
    deliver(&mut processes, side == "without", &mut answers)?;
    processes.progress(&format!("  {side:8} delivered again"));
    deliver(&mut processes, false, &mut answers)?;
    drop(processes);
    Ok(Ending { charges: record.journal()?.len(), answers })
}

/// Delivers to all, and collects all answers. A process that is about to charge may continue when it is the only
/// one, or when all are about to.
fn deliver(
    processes: &mut Processes<'_, '_>,
    together: bool,
    answers: &mut BTreeSet<String>,
) -> Result<(), Trouble> {
    processes.tell_all("deliver");
    let (mut about_to, mut answered) = (Vec::new(), 0);
    while answered < PROCESSES {
        match processes.hear()? {
            (index, line) if line == "charges" => about_to.push(index),
            (_, line) => {
                let answer = line.strip_prefix("answers ");
                let answer = answer.ok_or_else(|| format!("{line:?} was not to come"))?;
                answers.insert(answer.to_owned());
                answered += 1;
            }
        }
        if !together || about_to.len() == PROCESSES {
            about_to.drain(..).for_each(|index| processes.tell(index, "charge"));
        }
    }
    Ok(())
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let with = match *words {
        ["without"] => false,
        ["with"] => true,
        _ => return Err(no_such_part(words)),
    };
    if with {
        participant.tenure().await?;
    }
    participant.say("ready");
    loop {
        participant.cue().await;
        let receipt = if with { in_turn(participant).await? } else { naively(participant).await? };
        participant.say(&format!("answers {receipt}"));
    }
}

async fn naively(participant: &mut Participant) -> Result<String, Trouble> {
    let processed = participant.record(ACCOUNT).value()?;
    if !processed.is_empty() {
        return Ok(processed);
    }
    let receipt = charge(participant).await?;
    participant.record(ACCOUNT).change(|value, _| value.clone_from(&receipt))?;
    Ok(receipt)
}

async fn in_turn(participant: &mut Participant) -> Result<String, Trouble> {
    let tenure = participant.tenure().await?;
    let once = tenure.once("webhook:42").keep(MINUTE); // or a day: as late as it can come again
    let done = once.run(async |_run| charge(participant).await).await??;
    let (Done::Ran(receipt) | Done::Replayed(receipt)) = done else { return Err(busy()) };
    Ok(String::from_utf8_lossy(&receipt).into_owned())
}

fn busy() -> Trouble {
    "nobody says what became of it".into()
}

/// Charges, and returns the number of the charge.
async fn charge(participant: &mut Participant) -> Result<String, Trouble> {
    participant.say("charges");
    participant.cue().await;
    participant.record(ACCOUNT).change(|_, journal| {
        let receipt = format!("receipt {}", journal.len() + 1);
        journal.push(receipt.clone());
        receipt
    })
}
