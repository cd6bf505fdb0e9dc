//! `tenure elect` and `tenure leader`: become leader, and show who leads.

use std::ffi::OsString;

use clap::Command;

use super::claim::{ClaimArgs, define_about, said};
use super::define::{flag, option, word};
use super::given::Given;
use super::run::{Program, Purpose, Run, define_program};
use crate::failure::Failure;

const ELECT: &str = "\
CMD runs only while this candidate is the leader. If the term is lost, CMD and everything it started are
stopped before anyone else can become the leader, and the candidate campaigns again, indefinitely. Signals are
forwarded to CMD. When CMD exits, the term is resigned at once, and tenure exits with CMD's exit code.
With --restart, a CMD that exits on its own resigns the term, and the candidate campaigns again after one second.

CMD gets TENURE_NAME, TENURE_KIND, TENURE_TERM and TENURE_FENCE (the same number) in its environment. The
number increases with every term: use it to reject writes of earlier leaders.

  tenure elect cron --value web-3 -- ./scheduler    one instance runs it; if it fails, another takes over
  tenure leader cron                                show the leader";

const LEADER: &str = "\
With --watch, it shows the current leader and then every change, until interrupted. It polls the engine, so a
term that begins and ends between two polls is not shown.";

pub(super) fn define() -> [Command; 2] {
    [define_elect(), define_leader()]
}

fn define_elect() -> Command {
    Command::new("elect")
        .about("Run a command while this candidate is the leader; campaign again after every loss")
        .override_usage(
            "tenure elect [OPTIONS] <NAME> -- <CMD>...\n       tenure elect [OPTIONS] <NAME> -c <LINE>",
        )
        .after_help(ELECT)
        .arg(word("name", "NAME", "Name of the election").required(true))
        .arg(option("value", None, "TEXT", "Text that everyone can read about the leader, such as its address"))
        .arg(flag("restart", None, "Campaign again when CMD exits on its own"))
        .args(define_about())
        .arg(option("max-hold", None, "D", "Stop CMD and resign the term when it has lasted this long"))
        .args(define_program())
}

fn define_leader() -> Command {
    Command::new("leader")
        .about("Show the leader; exit code 1 if there is none")
        .after_help(LEADER)
        .arg(word("name", "NAME", "Name of the election").required(true))
        .arg(flag("watch", None, "Keep running, and show every change"))
}

/// `words` is the whole command line.
pub(super) fn read(given: &Given<'_>, words: &[OsString]) -> Result<Run, Failure> {
    let program = Program::read(given, words, "elect NAME")?;
    let value = said(given, "value")?;
    let max_hold = given.some_time("max-hold")?;
    let claim = ClaimArgs { value, max_hold, ..ClaimArgs::read_about(given)? };
    let restart = given.flag("restart")?.value;
    Run::new(given, claim, program, Purpose::Lead { restart })
}
