//! `tenure bench`: what to measure, and for how long.

use std::time::Duration;

use clap::{Arg, ArgAction, Command};

use super::define::option;
use super::given::Given;
use crate::failure::Failure;

/// What to measure.
#[derive(Debug)]
pub(crate) enum Bench {
    /// Measure these parts, each for so long.
    Measure(Vec<Part>, Duration),
    /// Be one of the processes of a run, as standard input says.
    Work,
}

/// The parts that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// One task acquires and releases, and nobody else wants it.
    Pairs,
    /// Many tasks do, each with its own name.
    Names,
    /// Several processes want one name.
    Contended,
    /// Many wait, and nothing happens.
    Idle,
    /// A holder is killed.
    Recovery,
}

/// The parts, in order, with what they measure.
const PARTS: [(&str, Part, &str); 5] = [
    ("pairs", Part::Pairs, "one task acquires and releases a name that nobody else wants"),
    ("names", Part::Names, "64 tasks do, each with a name of its own"),
    ("contended", Part::Contended, "4 processes want one name: hand-overs, fairness, hand-off"),
    ("idle", Part::Idle, "200 wait in 4 processes behind one hold: what that costs"),
    ("recovery", Part::Recovery, "a holder is killed: how soon the next has it"),
];

/// How long a part takes unless told otherwise, so that all of them stay below half a minute, also
/// where each is measured twice.
const SECONDS: u64 = 2;

const MORE: &str = "
It works on the engine that --url names, at full speed, under names of its own of which nothing stays.
Where real locks are kept, others feel that.

A hand-off is the time from the release that one asks for until the next in line sees its grant. Where
the engine is redis:// without TLS, a naive lock is measured beside it: SET NX PX, a script that deletes
by owner, and another try every 100 ms.

Who waits says every 20 s that it still does: `--part idle --seconds 60` has that in it.";

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
        .arg(option("part", None, "NAME", "The one part to measure [default: all of them]"))
        .arg(option("seconds", None, "N", "How long each part takes, 1 to 60 [default: 2]"))
        .arg(Arg::new(WORKER).long(WORKER).action(ArgAction::SetTrue).hide(true))
}

/// What a process of a run is started with. Which one it is comes by standard input: arguments can
/// be seen by everyone.
pub(crate) const WORKER: &str = "worker";

impl Bench {
    pub(super) fn read(given: &Given<'_>) -> Result<Bench, Failure> {
        if given.is_spoken(WORKER) {
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
