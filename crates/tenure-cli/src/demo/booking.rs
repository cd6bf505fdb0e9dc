//! Two guests book the same table at the same time: check whether it is free, take the payment, write.
//!
//! Both check before one writes. With a lock, the second is told at once that someone is about to book it, and
//! never reaches the database.

use std::time::{Duration, Instant};

use super::environment::Environment;
use super::participant::Participant;
use super::processes::Processes;
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
/// How long a booking takes between checking and writing.
const PAYMENT: Duration = Duration::from_millis(300);

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let ending = book_together(environment, "without")?;
    let more = format!("both saw it free; it is {}'s now", ending.guest);
    Ok(Seen::report(format!("{} guests booked it", ending.winners.len()), more)
        .fact("winners", ending.winners.len() as u64))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let ending = book_together(environment, "with")?;
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
    /// The guests who were told that the table is theirs.
    winners: Vec<&'static str>,
    /// The guest in the database.
    guest: String,
    journal: Vec<String>,
}

fn book_together(environment: &mut Environment<'_>, side: &str) -> Result<Ending, Trouble> {
    let record = environment.record(TABLE, "")?;
    let mut processes = environment.processes();
    processes.start_all(GUESTS.map(|guest| format!("booking {side} {guest}")))?;
    processes.progress(&format!("  {side:8} both ask"));
    let asked = Instant::now();
    processes.tell_all("book");
    let inside = sort_out(&mut processes)?;
    processes.progress(&format!("  {side:8} the payment takes its time"));
    processes.wait(PAYMENT.saturating_sub(asked.elapsed()))?;
    let mut winners = Vec::new();
    for index in inside {
        processes.tell(index, "write");
        if processes.expect(index, "done")? == "booked" {
            winners.push(GUESTS[index]);
        }
    }
    Ok(Ending { winners, guest: record.value()?, journal: record.journal()? })
}

/// Waits until both have reported, and returns those that are about to write.
fn sort_out(processes: &mut Processes<'_, '_>) -> Result<Vec<usize>, Trouble> {
    let mut inside = Vec::new();
    for _ in GUESTS {
        match processes.hear()? {
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

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    let booked = match *words {
        ["without", guest] => {
            participant.say("ready");
            participant.cue().await;
            book(participant, guest).await?
        }
        ["with", guest] => book_in_turn(participant, guest).await?,
        _ => return Err(no_such_part(words)),
    };
    participant.say(match booked {
        Booked::Yes => "done booked",
        Booked::Taken => "done taken",
        Booked::Busy => "done busy",
    });
    Ok(())
}

async fn book_in_turn(participant: &mut Participant, guest: &str) -> Result<Booked, Trouble> {
    let tenure = participant.tenure().await?;
    participant.say("ready");
    participant.cue().await;
    let Some(hold) = tenure.mutex("table:12").try_acquire().await? else {
        return Ok(Booked::Busy); // someone is about to: answer 409, or ask again later
    };
    let booked = book(participant, guest).await?;
    drop(hold);
    Ok(booked)
}

async fn book(participant: &mut Participant, guest: &str) -> Result<Booked, Trouble> {
    let table = participant.record(TABLE);
    if !table.read(guest)?.is_empty() {
        return Ok(Booked::Taken);
    }
    participant.say("pays");
    participant.cue().await;
    table.write(guest, guest)?;
    Ok(Booked::Yes)
}
