//! Two guests book the same table at the same time: look whether it is free, take the payment, write.
//!
//! Both have looked before one has written. With a lock the second is told at once that someone is
//! about to book it, and never comes near the database.

use std::time::{Duration, Instant};

use super::crew::Crew;
use super::player::Player;
use super::stage::Stage;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "two processes book the same table within 300 ms",
    lines: [
        r#"let Some(hold) = tenure.mutex("table:12").try_acquire().await? else {"#,
        "    return Ok(Booked::Busy); // someone is about to: answer 409, or ask again later",
        "};",
    ],
};

const TABLE: &str = "table-12";
const GUESTS: [&str; 2] = ["Ada", "Ben"];
/// How long a booking takes between looking and writing.
const PAYMENT: Duration = Duration::from_millis(300);

pub(super) fn without(stage: &mut Stage<'_>) -> Played {
    let ending = book_together(stage, "without")?;
    let more = format!("both saw it free; it is {}'s now", ending.guest);
    Ok(Seen::report(format!("{} guests booked it", ending.winners.len()), more)
        .fact("winners", ending.winners.len() as u64))
}

pub(super) fn with(stage: &mut Stage<'_>) -> Played {
    let ending = book_together(stage, "with")?;
    let Ending { winners, guest, journal } = &ending;
    let touched = |name: &&str| journal.iter().any(|line| line.starts_with(*name));
    let idle: Vec<_> = GUESTS.into_iter().filter(|name| !touched(name)).collect();
    let (held, more) = match (&winners[..], &idle[..]) {
        ([winner], [loser]) if winner == guest => {
            (true, format!("{winner} has it, and {loser} never touched the database"))
        }
        _ => (false, format!("the database saw: {}", journal.join(", "))),
    };
    let brief = match winners.len() {
        1 => "1 guest booked it".to_owned(),
        many => format!("{many} guests booked it"),
    };
    Ok(Seen::check(held, brief, more).fact("winners", winners.len() as u64))
}

struct Ending {
    /// Whoever was told that the table is theirs.
    winners: Vec<&'static str>,
    /// Whose it is by the database.
    guest: String,
    journal: Vec<String>,
}

fn book_together(stage: &mut Stage<'_>, side: &str) -> Result<Ending, Trouble> {
    let record = stage.record(TABLE, "")?;
    let mut crew = stage.crew();
    crew.start_all(GUESTS.map(|guest| format!("booking {side} {guest}")))?;
    crew.progress(&format!("  {side:8} both ask"));
    let asked = Instant::now();
    crew.tell_all("book");
    let inside = sort_out(&mut crew)?;
    crew.progress(&format!("  {side:8} the payment takes its time"));
    crew.wait(PAYMENT.saturating_sub(asked.elapsed()))?;
    let mut winners = Vec::new();
    for index in inside {
        crew.tell(index, "write");
        if crew.expect(index, "done")? == "booked" {
            winners.push(GUESTS[index]);
        }
    }
    Ok(Ending { winners, guest: record.value()?, journal: record.journal()? })
}

/// Hears from both how far they came, and returns those that are about to write.
fn sort_out(crew: &mut Crew<'_, '_>) -> Result<Vec<usize>, Trouble> {
    let mut inside = Vec::new();
    for _ in GUESTS {
        match crew.hear()? {
            (index, line) if line == "pays" => inside.push(index),
            (_, line) if line == "done busy" || line == "done taken" => {}
            (_, line) => return Err(format!("{line:?} was not to come").into()),
        }
    }
    Ok(inside)
}

enum Booked {
    Yes,
    Taken,
    Busy,
}

pub(super) async fn work(player: &mut Player, words: &[&str]) -> Result<(), Trouble> {
    let booked = match *words {
        ["without", guest] => {
            player.say("ready");
            player.cue().await;
            book(player, guest).await?
        }
        ["with", guest] => book_in_turn(player, guest).await?,
        _ => return Err(no_such_part(words)),
    };
    player.say(match booked {
        Booked::Yes => "done booked",
        Booked::Taken => "done taken",
        Booked::Busy => "done busy",
    });
    Ok(())
}

async fn book_in_turn(player: &mut Player, guest: &str) -> Result<Booked, Trouble> {
    let tenure = player.tenure().await?;
    player.say("ready");
    player.cue().await;
    let Some(hold) = tenure.mutex("table:12").try_acquire().await? else {
        return Ok(Booked::Busy); // someone is about to: answer 409, or ask again later
    };
    let booked = book(player, guest).await?;
    drop(hold);
    Ok(booked)
}

async fn book(player: &mut Player, guest: &str) -> Result<Booked, Trouble> {
    let table = player.record(TABLE);
    if !table.read(guest)?.is_empty() {
        return Ok(Booked::Taken);
    }
    player.say("pays");
    player.cue().await;
    table.write(guest, guest)?;
    Ok(Booked::Yes)
}
