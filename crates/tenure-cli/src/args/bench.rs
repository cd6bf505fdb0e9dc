//! `tenure bench`: what to measure, and for how long.

use std::time::Duration;

use clap::{Arg, ArgAction, Command};

use super::define::option;
use super::given::Given;
use crate::failure::Failure;

/// What to measure.
#[derive(Debug)]
pub(crate) enum Bench {
    /// Measure these parts, each for this long.
    Measure(Vec<Part>, Duration),
    /// Be one of the processes of a run, configured by standard input.
    Work,
}

/// The parts of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// One task acquires and releases a lock that nobody else wants.
    Pairs,
    /// Many tasks acquire and release, each with its own name.
    Names,
    /// Several processes want one name.
    Contended,
    /// Many wait, and nothing happens.
    Idle,
    /// A holder is killed.
    Recovery,
}

/// The parts in order, with a description.
const PARTS: [(&str, Part, &str); 5] = [
    ("pairs", Part::Pairs, "one task acquires and releases an uncontended lock"),
    ("names", Part::Names, "64 tasks do the same, each with its own lock"),
    (
        "contended",
        Part::Contended,
        "4 processes compete for one lock: hand-overs, fairness, hand-off latency",
    ),
    ("idle", Part::Idle, "200 waiters in 4 processes behind one holder: what idle waiting costs"),
    ("recovery", Part::Recovery, "a holder is killed: how soon the next waiter gets the lock"),
];

/// How long a part takes by default, so that all of them take less than half a minute, even if each is measured
/// twice.
const SECONDS: u64 = 2;

const MORE: &str = "
Runs at full speed on the engine of --url, under its own names, and leaves nothing behind. On an engine that
is in production use, others will notice.

Hand-off latency is the time from the release call until the next waiter sees its grant. On redis:// without
TLS, a naive lock is measured for comparison: SET NX PX, a script that deletes the key if the owner matches,
and a retry every 100 ms.

Waiters send a keep-alive every 20 s: `--part idle --seconds 60` includes these.";

impl Part {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        PARTS.iter().find(|(_, part, _)| *part == self).map_or("", |(name, ..)| name)
    }
}

pub(super) fn define() -> Command {
    let parts = PARTS.iter().map(|(name, _, measures)| format!("  {name:<10} {measures}\n"));
    Command::new("bench")
        .about("Measure the engine: latency, throughput, hand-off, fairness, recovery")
        .after_help(format!("Parts:\n{}{MORE}", parts.collect::<String>()))
        .arg(option("part", None, "NAME", "Measure only this part [default: all of them]"))
        .arg(option("seconds", None, "N", "Duration of each part in seconds, 1 to 60 [default: 2]"))
        .arg(Arg::new(WORKER).long(WORKER).action(ArgAction::SetTrue).hide(true))
}

/// The argument that a process of a run is started with. The rest comes through standard input, because everyone
/// can see arguments.
pub(crate) const WORKER: &str = "worker";

impl Bench {
    pub(super) fn read(given: &Given<'_>) -> Result<Bench, Failure> {
        if given.is_on_command_line(WORKER) {
            return Ok(Bench::Work);
        }
        let seconds = given.number("seconds", 1..=60)?.unwrap_or(SECONDS);
        let part = given.choice("part", &PARTS.map(|(name, part, _)| (name, part)))?;
        let parts = match part {
            Some(part) => vec![part.value],
            None => PARTS.map(|(_, part, _)| part).to_vec(),
        };
        Ok(Bench::Measure(parts, Duration::from_secs(seconds)))
    }
}
