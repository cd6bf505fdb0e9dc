//! `tenure top`: what to show, and how often.

use std::time::Duration;

use clap::Command;

use super::define::{flag, option, word};
use super::given::Given;
use crate::failure::Failure;

/// What to show.
#[derive(Debug)]
pub(crate) struct Top {
    /// Only names that begin with this.
    pub(crate) prefix: String,
    /// The time between two frames.
    pub(crate) interval: Duration,
    /// Whether to print one frame and exit.
    pub(crate) once: bool,
}

const MORE: &str = "\
Keys: q quits, / filters, s sorts (trouble, name, wait, held), enter shows the details of a name, w shows who
waits on whom, b breaks a hold after showing what that means, space pauses, ? lists all keys.";

pub(super) fn define() -> Command {
    Command::new("top")
        .about("Show a live view of all locks, who holds them and who waits")
        .after_help(MORE)
        .arg(word("prefix", "PREFIX", "Only show names that begin with this"))
        .arg(option("interval", None, "D", "Polling interval [default: 1s]"))
        .arg(flag("once", None, "Print one frame as plain text, without a terminal"))
}

impl Top {
    pub(super) fn read(given: &Given<'_>) -> Result<Top, Failure> {
        Ok(Top {
            prefix: given.word("prefix")?.unwrap_or_default(),
            interval: given.some_time("interval")?.unwrap_or(Duration::from_secs(1)),
            once: given.flag("once")?.value,
        })
    }
}
