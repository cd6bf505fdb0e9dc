//! `tenure demo`: proofs of what tenure does, played within this process on `memory:`.
//!
//! Each proof has a file of its own and two sides, without and with: the same work, done by the same
//! threads or tasks, and what was seen of it. The side without only reports, because a race may go
//! well by luck; the side with must hold every time. Here is what is the same for all: the stage that
//! they are played on, what is printed, and the table at the end.

mod handover;
mod late;
mod order;
mod race;
mod slots;
mod table;

use std::collections::hash_map::RandomState;
use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tenure::Tenure;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::args::{self, Demo};
use crate::failure::{Failure, INTERNAL, NO, Stop};
use table::Row;

/// How long a side may take. A lock that does not work must not make the demo hang.
const LONGEST: Duration = Duration::from_secs(30);

const OPENING: &str =
    "What a lock changes, played in this process on `memory:`. There is no server to set up.";
const CLOSING: &str = "Next: README.md has your first lock in Rust, and what a lock cannot do.";

/// One thing that tenure promises, with and without it.
struct Act {
    /// What is played, in one sentence.
    title: &'static str,
    /// The lines of Rust that make the difference. They stand in the proof's own code as well.
    lines: [&'static str; 3],
    /// The work without tenure, or with it used in a way that gives its promise away.
    without: fn(&Stage) -> Played,
    /// The work with it.
    with: fn(&Stage) -> Played,
}

/// What became of one side; an error means that it could not be played to its end.
type Played = Result<Seen, Trouble>;
type Trouble = Box<dyn Error + Send + Sync>;

/// What was seen of one side.
#[derive(Debug)]
struct Seen {
    /// What was seen, in a few words: all that the table has room for.
    brief: String,
    /// What there is to say besides.
    more: String,
    /// Whether it is what was promised.
    held: bool,
}

/// What proofs are played on.
struct Stage {
    tenure: Tenure,
    runtime: Runtime,
    count: u32,
}

/// Plays the proofs, prints what was seen, and fails if one of them did not hold.
pub(crate) fn run(demo: &Demo, out: &mut dyn Write) -> Result<(), Stop> {
    let began = Instant::now();
    let stage = Stage::new(demo.count)?;
    writeln!(out, "{OPENING}\n")?;
    let mut rows = Vec::new();
    for &proof in &demo.proofs {
        rows.push(play(args::name_of(proof), &act_of(proof), &stage, out)?);
    }
    table::print(&rows, out)?;
    judge(&rows)?;
    let (count, took) = (rows.len(), began.elapsed().as_secs_f64());
    writeln!(out, "\n{count} of {count} held, in {took:.1} s.")?;
    writeln!(out, "{CLOSING}")?;
    Ok(())
}

fn act_of(proof: args::Proof) -> Act {
    match proof {
        args::Proof::Race => race::ACT,
        args::Proof::Order => order::ACT,
        args::Proof::Slots => slots::ACT,
        args::Proof::Late => late::ACT,
        args::Proof::Handover => handover::ACT,
    }
}

/// Plays both sides of a proof, with a line for each as soon as it is known.
fn play(name: String, act: &Act, stage: &Stage, out: &mut dyn Write) -> io::Result<Row> {
    writeln!(out, "{name}: {}", act.title)?;
    let without = (act.without)(stage).unwrap_or_else(Seen::failed);
    writeln!(out, "  without  {without}")?;
    let with = (act.with)(stage).unwrap_or_else(Seen::failed);
    writeln!(out, "  with     {with}")?;
    act.lines.iter().try_for_each(|line| writeln!(out, "           | {line}"))?;
    writeln!(out)?;
    let held = without.held && with.held;
    Ok(Row { name, without: without.brief, with: with.brief, held })
}

/// One failed proof fails the demo, whatever the others showed.
fn judge(rows: &[Row]) -> Result<(), Failure> {
    let failed: Vec<_> = rows.iter().filter(|row| !row.held).map(|row| &*row.name).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    Err(Failure::new(
        NO,
        format!("{} of {} proofs failed: {}", failed.len(), rows.len(), failed.join(", ")),
        "what was seen is in the lines above, and is not what tenure promises",
        format!("play it alone with `tenure demo {first}`; if it fails again, report it"),
    ))
}

/// Waits for all tasks; the first trouble ends the rest.
async fn all_done(mut tasks: JoinSet<Result<(), Trouble>>) -> Result<(), Trouble> {
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

/// A random number, from what the standard library seeds its hash tables with.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Stage {
    fn new(count: u32) -> Result<Stage, Failure> {
        let fault = |what: &str, error: &dyn Error| {
            let help = "see the limits of this process (`ulimit -a`)";
            Failure::new(INTERNAL, what, error.to_string(), help)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.map_err(|error| fault("the runtime cannot be started", &error))?;
        let connected = runtime.block_on(async {
            let tenure = Tenure::connect("memory:").await?;
            let mut options = tenure.defaults();
            options.wait = Some(LONGEST);
            tenure.with_defaults(options)
        });
        let tenure = connected.map_err(|error| fault("`memory:` cannot be opened", &error))?;
        Ok(Stage { tenure, runtime, count })
    }

    /// Plays a side that is made of tasks.
    fn play<T>(&self, side: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let bounded = async { tokio::time::timeout(LONGEST, side).await };
        self.runtime.block_on(bounded).unwrap_or_else(|_| {
            Err(format!("it was not over after {} s", LONGEST.as_secs()).into())
        })
    }
}

impl Seen {
    /// Something to report, whatever it is.
    fn report(brief: impl Into<String>, more: impl Into<String>) -> Seen {
        Seen::check(true, brief, more)
    }

    /// Something that tenure promises, and whether it was kept.
    fn check(held: bool, brief: impl Into<String>, more: impl Into<String>) -> Seen {
        Seen { brief: brief.into(), more: more.into(), held }
    }

    fn failed(trouble: Trouble) -> Seen {
        Seen::check(false, "not played to its end", trouble.to_string())
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

    fn row(name: &str, held: bool) -> Row {
        Row { name: name.into(), without: "a".into(), with: "b".into(), held }
    }

    #[test]
    fn one_failed_proof_fails_the_demo_and_is_named() {
        judge(&[row("race", true), row("late", true)]).unwrap();
        let failure = judge(&[row("race", true), row("late", false)]).unwrap_err();
        assert_eq!(failure.exit, 1);
        assert_eq!(failure.what, "1 of 2 proofs failed: late");
        assert!(failure.help.contains("tenure demo late"), "{failure}");
    }

    #[test]
    fn a_side_that_breaks_off_is_a_failed_proof() {
        let act = Act {
            title: "breaks off",
            lines: [""; 3],
            without: |_| Ok(Seen::report("fine", "")),
            with: |_| Err("the floor gave way".into()),
        };
        let mut out = Vec::new();
        let row = play("x".into(), &act, &Stage::new(1).unwrap(), &mut out).unwrap();
        assert!(!row.held);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("not played to its end: the floor gave way"), "{out}");
    }

    /// The lines that are shown are not written for show: the proof runs them.
    #[test]
    fn the_lines_that_are_shown_are_those_that_are_played() {
        for (act, source) in [
            (race::ACT, include_str!("demo/race.rs")),
            (order::ACT, include_str!("demo/order.rs")),
            (slots::ACT, include_str!("demo/slots.rs")),
            (late::ACT, include_str!("demo/late.rs")),
            (handover::ACT, include_str!("demo/handover.rs")),
        ] {
            for line in act.lines {
                let played = source.lines().filter(|played| played.trim() == line.trim()).count();
                assert!(played > 0, "{line}");
            }
        }
    }
}
