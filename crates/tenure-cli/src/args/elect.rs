//! `tenure elect` and `tenure leader`: being the one, and asking who is.

use std::ffi::OsString;

use clap::Command;

use super::claim::{Asking, define_about, said};
use super::define::{flag, option, word};
use super::given::Given;
use super::run::{Program, Purpose, Run, define_program};
use crate::failure::Failure;

const ELECT: &str = "\
CMD runs only while this candidate leads. When the term is lost, CMD is stopped with all it started before
anyone else can lead, and the candidate campaigns again, for ever. A signal is handed on to CMD; when CMD
ends, by that or by itself, the term is resigned at once and its exit code comes back. With --restart a CMD
that ends by itself resigns, and the candidate campaigns again after a second.

CMD finds TENURE_NAME, TENURE_KIND, TENURE_TERM and TENURE_FENCE (the same number) in its environment.
Terms rise: guard what CMD writes with the number.

  tenure elect cron --value web-3 -- ./scheduler    one of the fleet runs it; another takes over
  tenure leader cron                                who it is";

const LEADER: &str = "\
With --watch it begins with who leads now and goes on until it is ended. It looks again and again, so that a
term which begins and ends between two looks is not seen.";

pub(super) fn define() -> [Command; 2] {
    [define_elect(), define_leader()]
}

fn define_elect() -> Command {
    Command::new("elect")
        .about("Run a command only while leading; campaign again after every loss")
        .override_usage(
            "tenure elect [OPTIONS] <NAME> -- <CMD>...\n       tenure elect [OPTIONS] <NAME> -c <LINE>",
        )
        .after_help(ELECT)
        .arg(word("name", "NAME", "What to lead").required(true))
        .arg(option("value", None, "TEXT", "What everyone can read of the leader, such as its address"))
        .arg(flag("restart", None, "Campaign again when CMD ends by itself"))
        .args(define_about())
        .arg(option("max-hold", None, "D", "Give the term up, and stop CMD, when it has lasted so long"))
        .args(define_program())
}

fn define_leader() -> Command {
    Command::new("leader")
        .about("Show who leads; exit code 1 if nobody does")
        .after_help(LEADER)
        .arg(word("name", "NAME", "Which election").required(true))
        .arg(flag("watch", None, "Show every change"))
}

/// `words` is the whole command line.
pub(super) fn read(given: &Given<'_>, words: &[OsString]) -> Result<Run, Failure> {
    let program = Program::read(given, words, "elect NAME")?;
    let value = said(given, "value")?;
    let max_hold = given.some_time("max-hold")?;
    let asking = Asking { value, max_hold, ..Asking::read_about(given)? };
    let restart = given.flag("restart")?.value;
    Run::new(given, asking, program, Purpose::Lead { restart })
}
