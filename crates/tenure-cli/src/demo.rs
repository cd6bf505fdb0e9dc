//! `tenure demo`: proofs of what tenure does, run by real processes.
//!
//! Each proof has its own file and two sides, without and with tenure: the same work, and what happened. The side
//! without only reports, because a race may go well by luck; the side with must hold every time. A proof's file has
//! both ends of it: what the demo does, and what its processes do.
//!
//! - `environment`: the folder, the engine, signals. `processes`: the processes as the demo sees them.
//! - `participant`: such a process. `record`: what processes share. `naive`: a lock as it is often written.
//! - `screen`: what is printed.

mod booking;
mod crash;
mod environment;
mod handover;
mod leader;
mod naive;
mod order;
mod participant;
mod processes;
mod race;
mod record;
#[cfg(feature = "relay")]
mod relay;
mod screen;
mod slots;
mod stolen;
mod webhook;

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::args::{Demo, Proof, name_of, proof_named};
use crate::failure::{Exit, Failure, NO, OK, Stop};
use crate::output::json::Object;
use crate::output::{Paint, table};
use crate::settings::Settings;
use environment::{Environment, Interrupted};
use participant::Participant;
pub(crate) use participant::take_part;
use screen::{Mode, Screen};

/// How long a proof waits for anything. A lock that does not work must not make it hang.
const PATIENCE: Duration = Duration::from_secs(30);

const CLOSING: &str = "\
Next: `tenure run hello -- sleep 60` in two terminals, and Ctrl-C in the first.
What a lock cannot do: `tenure explain fencing`.";

/// One promise of tenure, shown with and without it.
struct Act {
    /// What is shown, in one sentence.
    title: &'static str,
    /// The lines of Rust that make the difference. The proof runs these very lines.
    lines: [&'static str; 3],
}

/// The result of one side; an error means that it could not be completed.
type Played = Result<Seen, Trouble>;
type Trouble = Box<dyn Error + Send + Sync>;

/// What happened on one side.
#[derive(Debug)]
struct Seen {
    /// The result in a few words, for the table.
    brief: String,
    /// Additional text.
    more: String,
    /// Whether the promise was kept.
    held: bool,
    /// The same in numbers.
    facts: Vec<(&'static str, u64)>,
}

/// The results of a proof.
struct Row {
    proof: Proof,
    without: Seen,
    with: Seen,
    took: Duration,
}

/// Runs the proofs, prints the results, and fails if one of them did not hold.
pub(crate) fn run(demo: &Demo, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let began = Instant::now();
    let mode = Mode::of_stdout(settings.json.value, settings.quiet.value);
    let mut environment = Environment::new(settings, demo.count, Screen::new(out, mode))?;
    environment.screen.line(&opening(&environment, settings))?;
    let (mut rows, paint) = (Vec::new(), settings.paint());
    for &proof in &demo.proofs {
        match play(proof, &mut environment, paint)? {
            Ok(row) => rows.push(row),
            Err(Interrupted(signal)) => {
                environment.screen.clear()?;
                return Ok(Exit(128 + signal));
            }
        }
    }
    print_table(&rows, paint, &mut environment.screen)?;
    judge(&rows)?;
    let (count, took) = (rows.len(), began.elapsed().as_secs_f64());
    environment.screen.line(&format!("\n{count} of {count} held, in {took:.1} s.\n{CLOSING}"))?;
    Ok(OK)
}

fn opening(environment: &Environment<'_>, settings: &Settings) -> String {
    let engine = match environment.is_own() {
        true => "a temporary file, without a server".to_owned(),
        false => settings.address.shown(),
    };
    format!("What locks prevent, shown by real processes on {engine}.\n")
}

/// Runs both sides of a proof, and prints a line for each as soon as it is known.
fn play(
    proof: Proof,
    environment: &mut Environment<'_>,
    paint: Paint,
) -> io::Result<Result<Row, Interrupted>> {
    let (began, act) = (Instant::now(), act_of(proof));
    environment.screen.line(&format!("{}: {}", paint.strong(&name_of(proof)), act.title))?;
    let mut sides = Vec::new();
    for (side, play) in [("without", without as fn(_, &mut _) -> _), ("with", with)] {
        environment.screen.progress(&format!("  {side:8} …"));
        let seen = match play(proof, environment) {
            Ok(seen) => seen,
            Err(trouble) => match trouble.downcast::<Interrupted>() {
                Ok(interrupted) => return Ok(Err(*interrupted)),
                Err(trouble) => Seen::failed(&trouble),
            },
        };
        environment.screen.line(&format!("  {side:8} {seen}"))?;
        sides.push(seen);
    }
    for line in act.lines {
        environment.screen.line(&format!("           | {line}"))?;
    }
    environment.screen.line("")?;
    let (Some(with), Some(without)) = (sides.pop(), sides.pop()) else {
        return Err(io::Error::other("a side is missing"));
    };
    let row = Row { proof, without, with, took: began.elapsed() };
    environment.screen.object(row.object())?;
    Ok(Ok(row))
}

fn act_of(proof: Proof) -> Act {
    match proof {
        Proof::Race => race::ACT,
        Proof::Booking => booking::ACT,
        Proof::Stolen => stolen::ACT,
        Proof::Crash => crash::ACT,
        Proof::Slots => slots::ACT,
        Proof::Order => order::ACT,
        Proof::Handover => handover::ACT,
        Proof::Leader => leader::ACT,
        Proof::Webhook => webhook::ACT,
        #[cfg(feature = "relay")]
        Proof::Relay => relay::ACT,
    }
}

fn without(proof: Proof, environment: &mut Environment<'_>) -> Played {
    match proof {
        Proof::Race => race::without(environment),
        Proof::Booking => booking::without(environment),
        Proof::Stolen => stolen::without(environment),
        Proof::Crash => crash::without(environment),
        Proof::Slots => slots::without(environment),
        Proof::Order => order::without(environment),
        Proof::Handover => handover::without(environment),
        Proof::Leader => leader::without(environment),
        Proof::Webhook => webhook::without(environment),
        #[cfg(feature = "relay")]
        Proof::Relay => relay::without(environment),
    }
}

fn with(proof: Proof, environment: &mut Environment<'_>) -> Played {
    match proof {
        Proof::Race => race::with(environment),
        Proof::Booking => booking::with(environment),
        Proof::Stolen => stolen::with(environment),
        Proof::Crash => crash::with(environment),
        Proof::Slots => slots::with(environment),
        Proof::Order => order::with(environment),
        Proof::Handover => handover::with(environment),
        Proof::Leader => leader::with(environment),
        Proof::Webhook => webhook::with(environment),
        #[cfg(feature = "relay")]
        Proof::Relay => relay::with(environment),
    }
}

/// The work of a process in a proof.
async fn work(words: &[&str], participant: &mut Participant) -> Result<(), Trouble> {
    let Some((name, rest)) = words.split_first() else { return Err(no_such_part(words)) };
    match proof_named(name).ok_or_else(|| no_such_part(words))? {
        Proof::Race => race::work(participant, rest).await,
        Proof::Booking => booking::work(participant, rest).await,
        Proof::Stolen => stolen::work(participant, rest).await,
        Proof::Crash => crash::work(participant, rest).await,
        Proof::Slots => slots::work(participant, rest).await,
        Proof::Order => order::work(participant, rest).await,
        Proof::Handover => handover::work(participant, rest).await,
        Proof::Leader => leader::work(participant, rest).await,
        Proof::Webhook => webhook::work(participant, rest).await,
        #[cfg(feature = "relay")]
        Proof::Relay => relay::work(participant, rest).await,
    }
}

fn no_such_part(words: &[&str]) -> Trouble {
    format!("there is no part {:?}", words.join(" ")).into()
}

fn print_table(rows: &[Row], paint: Paint, screen: &mut Screen<'_>) -> io::Result<()> {
    let heading = ["PROOF", "WITHOUT", "WITH", "VERDICT"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let verdict = if row.held() { "held".to_owned() } else { paint.bad("FAILED") };
        let (without, with) = (row.without.brief.clone(), row.with.brief.clone());
        [name_of(row.proof), without, with, verdict]
    });
    let (mut text, rows) = (Vec::new(), std::iter::once(heading).chain(cells));
    table::print(&rows.collect::<Vec<_>>(), paint, &mut text)?;
    screen.line(String::from_utf8_lossy(&text).trim_end())
}

/// One failed proof fails the demo, no matter what the others showed.
fn judge(rows: &[Row]) -> Result<(), Failure> {
    let failed = rows.iter().filter(|row| !row.held()).map(|row| name_of(row.proof));
    let failed: Vec<_> = failed.collect();
    let Some(first) = failed.first() else { return Ok(()) };
    Err(Failure::new(
        NO,
        format!("{} of {} proofs failed: {}", failed.len(), rows.len(), failed.join(", ")),
        "the lines above show what happened; it is not what tenure promises",
        format!("run it alone with `tenure demo {first}`; if it fails again, please report it"),
    ))
}

/// A measured time.
fn measured(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

impl Row {
    fn held(&self) -> bool {
        self.without.held && self.with.held
    }

    fn object(&self) -> Object {
        Object::versioned()
            .text("proof", &name_of(self.proof))
            .flag("held", self.held())
            .object("without", self.without.object())
            .object("with", self.with.object())
            .millis("took_ms", self.took)
    }
}

impl Seen {
    /// A result that is only reported.
    fn report(brief: impl Into<String>, more: impl Into<String>) -> Seen {
        Seen::check(true, brief, more)
    }

    /// A result that tenure promises, and whether it was kept.
    fn check(held: bool, brief: impl Into<String>, more: impl Into<String>) -> Seen {
        Seen { brief: brief.into(), more: more.into(), held, facts: Vec::new() }
    }

    fn failed(trouble: &Trouble) -> Seen {
        Seen::check(false, "did not finish", trouble.to_string())
    }

    /// Adds a number.
    fn fact(mut self, key: &'static str, value: u64) -> Seen {
        self.facts.push((key, value));
        self
    }

    fn object(&self) -> Object {
        let seen = Object::new().text("seen", &self.brief).text("more", &self.more);
        self.facts.iter().fold(seen, |seen, (key, value)| seen.number(key, *value))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.more.as_str() {
            "" => f.write_str(&self.brief),
            more => write!(f, "{}: {more}", self.brief),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(proof: Proof, held: bool) -> Row {
        let seen = |held| Seen::check(held, "a", "b").fact("n", 7);
        Row { proof, without: seen(true), with: seen(held), took: Duration::from_millis(5) }
    }

    #[test]
    fn one_failed_proof_fails_the_demo_and_is_named() {
        judge(&[row(Proof::Race, true), row(Proof::Stolen, true)]).unwrap();
        let failure = judge(&[row(Proof::Race, true), row(Proof::Stolen, false)]).unwrap_err();
        assert_eq!(failure.exit, 1);
        assert_eq!(failure.what, "1 of 2 proofs failed: stolen");
        assert!(failure.help.contains("tenure demo stolen"), "{failure}");
    }

    #[test]
    fn a_proof_is_an_object() {
        assert_eq!(
            row(Proof::Race, false).object().end(),
            r#"{"v":1,"proof":"race","held":false,"without":{"seen":"a","more":"b","n":7},"with":{"seen":"a","more":"b","n":7},"took_ms":5}"#
        );
    }

    /// The lines that are printed are the ones that the proof runs.
    #[test]
    fn the_lines_that_are_shown_are_those_that_are_played() {
        for (act, source) in [
            (race::ACT, include_str!("demo/race.rs")),
            (booking::ACT, include_str!("demo/booking.rs")),
            (stolen::ACT, include_str!("demo/record.rs")),
            (crash::ACT, include_str!("demo/crash.rs")),
            (slots::ACT, include_str!("demo/slots.rs")),
            (order::ACT, include_str!("demo/order.rs")),
            (handover::ACT, include_str!("demo/handover.rs")),
            (leader::ACT, include_str!("demo/leader.rs")),
            (webhook::ACT, include_str!("demo/webhook.rs")),
            #[cfg(feature = "relay")]
            (relay::ACT, include_str!("demo/relay.rs")),
        ] {
            for line in act.lines {
                let played = source.lines().filter(|played| played.trim() == line.trim()).count();
                assert!(played > 0, "{line}");
            }
        }
    }
}
