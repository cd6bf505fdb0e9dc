//! `tenure acquire`, `renew`, `release` and `check`: locks for scripts.

use clap::Command;

use super::claim;
use super::define::{option, word};
use super::given::Given;
use crate::detached_claim::DetachedClaim;
use crate::failure::{Failure, USAGE};

const SCRIPT: &str = "\
Prints the claim: a secret that identifies the hold to `renew`, `release` and `check`. The lock is not renewed
unless you do:

  TENURE_CLAIM=$(tenure acquire deploy --ttl 5m) || exit; export TENURE_CLAIM
  …
  tenure release deploy

`tenure run` does all of this for a single command, and stops the command if the lock is lost.";

/// The commands for scripts.
pub(super) fn define_commands() -> [Command; 4] {
    let about = |name: &'static str, about: &'static str| {
        Command::new(name)
            .about(about)
            .after_help("The claim is read from TENURE_CLAIM, or with `-` from standard input.")
            .arg(word("name", "NAME", "Name of the lock").required(true))
            .arg(word("claim", "-", "Read the claim from standard input"))
    };
    [
        Command::new("acquire")
            .about("Acquire a lock for a script, and print the claim")
            .after_help(SCRIPT)
            .args(claim::define()),
        about("renew", "Renew an acquired lock; exit code 1 if it is no longer held").arg(option(
            "ttl",
            Some('t'),
            "D",
            "How long it lasts from now, if longer than its ttl",
        )),
        about("release", "Release an acquired lock; exit code 1 if it was no longer held"),
        about("check", "Check whether an acquired lock is still held; exit code 1 if not"),
    ]
}

/// The name of the hold, and where to read its claim from.
pub(super) fn read_claim(given: &Given<'_>) -> Result<DetachedClaim, Failure> {
    let name = given.name()?;
    match given.all("claim").first() {
        None => Ok(DetachedClaim { name, from_stdin: false }),
        Some(dash) if dash == "-" => Ok(DetachedClaim { name, from_stdin: true }),
        // Not even repeated here: it may be the secret.
        Some(_) => Err(Failure::new(
            USAGE,
            "do not pass the claim on the command line",
            "other users can see it there, in the process list",
            "set TENURE_CLAIM, or pipe it in and pass `-`",
        )),
    }
}
