//! A provider delivers the same webhook to four processes at once, and once more later: look whether it
//! was processed, charge, take note.
//!
//! All four have looked before one has taken note. With `once` the first one charges, the others wait for
//! what it left, and everyone gives the provider the same answer, whenever it asks.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::Done;

use super::crew::Crew;
use super::player::Player;
use super::stage::Stage;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "the same webhook comes to four processes at once, and again later",
    lines: [
        r#"let once = tenure.once("webhook:42").keep(MINUTE); // or a day: as late as it can come again"#,
        "let done = once.run(async |_run| charge(player).await).await??;",
        "let (Done::Ran(receipt) | Done::Replayed(receipt)) = done else { return Err(busy()) };",
    ],
};

const PROCESSES: usize = 4;
const ACCOUNT: &str = "account";
/// How long it is remembered: the demo leaves nothing behind for longer.
const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let Ending { charges, answers } = deliver_twice(stage, "without")?;
    let more = format!("all looked before one took note; {} different answers", answers.len());
    let seen = Seen::report(format!("charged {}", times(charges)), more);
    Ok(seen.fact("charges", charges as u64).fact("answers", answers.len() as u64))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let Ending { charges, answers } = deliver_twice(stage, "with")?;
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

fn deliver_twice(stage: &mut Stage<'_>, side: &str) -> Result<Ending, Trouble> {
    let record = stage.record(ACCOUNT, "")?;
    let mut crew = stage.crew();
    crew.start_all((0..PROCESSES).map(|_| format!("webhook {side}")))?;
    let mut answers = BTreeSet::new();
    crew.progress(&format!("  {side:8} delivered to all"));
    deliver(&mut crew, side == "without", &mut answers)?;
    crew.progress(&format!("  {side:8} delivered again"));
    deliver(&mut crew, false, &mut answers)?;
    drop(crew);
    Ok(Ending { charges: record.journal()?.len(), answers })
}

/// Delivers to all, and hears all answers. Whoever is about to charge may go on when it is the only one,
/// or when all are about to.
fn deliver(
    crew: &mut Crew<'_, '_>,
    together: bool,
    answers: &mut BTreeSet<String>,
) -> Result<(), Trouble> {
    crew.tell_all("deliver");
    let (mut about_to, mut answered) = (Vec::new(), 0);
    while answered < PROCESSES {
        match crew.hear()? {
            (index, line) if line == "charges" => about_to.push(index),
            (_, line) => {
                let answer = line.strip_prefix("answers ");
                let answer = answer.ok_or_else(|| format!("{line:?} was not to come"))?;
                answers.insert(answer.to_owned());
                answered += 1;
            }
        }
        if !together || about_to.len() == PROCESSES {
            about_to.drain(..).for_each(|index| crew.tell(index, "charge"));
        }
    }
    Ok(())
}

pub(super) async fn work(player: &mut Player, words: &[&str]) -> Result<(), Trouble> {
    let with = match *words {
        ["without"] => false,
        ["with"] => true,
        _ => return Err(no_such_part(words)),
    };
    if with {
        player.tenure().await?;
    }
    player.say("ready");
    loop {
        player.cue().await;
        let receipt = if with { in_turn(player).await? } else { naively(player).await? };
        player.say(&format!("answers {receipt}"));
    }
}

async fn naively(player: &mut Player) -> Result<String, Trouble> {
    let processed = player.record(ACCOUNT).value()?;
    if !processed.is_empty() {
        return Ok(processed);
    }
    let receipt = charge(player).await?;
    player.record(ACCOUNT).change(|value, _| value.clone_from(&receipt))?;
    Ok(receipt)
}

async fn in_turn(player: &mut Player) -> Result<String, Trouble> {
    let tenure = player.tenure().await?;
    let once = tenure.once("webhook:42").keep(MINUTE); // or a day: as late as it can come again
    let done = once.run(async |_run| charge(player).await).await??;
    let (Done::Ran(receipt) | Done::Replayed(receipt)) = done else { return Err(busy()) };
    Ok(String::from_utf8_lossy(&receipt).into_owned())
}

fn busy() -> Trouble {
    "nobody says what became of it".into()
}

/// Charges, and returns the number of the charge.
async fn charge(player: &mut Player) -> Result<String, Trouble> {
    player.say("charges");
    player.cue().await;
    player.record(ACCOUNT).change(|_, journal| {
        let receipt = format!("receipt {}", journal.len() + 1);
        journal.push(receipt.clone());
        receipt
    })
}
