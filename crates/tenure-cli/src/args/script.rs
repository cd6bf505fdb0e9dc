//! `tenure acquire`, `renew`, `release` and `check`: holds for scripts.

use clap::Command;

use super::claim;
use super::define::{option, word};
use super::given::Given;
use crate::claimed::Claimed;
use crate::failure::{Failure, USAGE};

const SCRIPT: &str = "\
Prints the claim, a secret, by which `renew`, `release` and `check` know the hold. Nobody renews it but you:

  TENURE_CLAIM=$(tenure acquire deploy --ttl 5m) || exit; export TENURE_CLAIM
  …
  tenure release deploy

`tenure run` does all of this for one command, and stops it when the hold is lost.";

/// The commands for scripts.
pub(super) fn define_commands() -> [Command; 4] {
    let about = |name: &'static str, about: &'static str| {
        Command::new(name)
            .about(about)
            .after_help("The claim is taken from TENURE_CLAIM; with `-`, from standard input.")
            .arg(word("name", "NAME", "What is held").required(true))
            .arg(word("claim", "-", "Read the claim from standard input"))
    };
    [
        Command::new("acquire")
            .about("Hold a name for a script, and print the claim")
            .after_help(SCRIPT)
            .args(claim::define()),
        about("renew", "Make what was acquired last longer; exit code 1 if it has ended").arg(
            option(
                "ttl",
                Some('t'),
                "D",
                "How long it lasts from now, if that is longer than its ttl",
            ),
        ),
        about("release", "Release what was acquired; exit code 1 if it had ended before"),
        about("check", "Ask whether what was acquired is still held; exit code 1 if not"),
    ]
}

/// Which hold is meant, and where its claim is.
pub(super) fn read_claimed(given: &Given<'_>) -> Result<Claimed, Failure> {
    let name = given.name()?;
    match given.all("claim").first() {
        None => Ok(Claimed { name, from_stdin: false }),
        Some(dash) if dash == "-" => Ok(Claimed { name, from_stdin: true }),
        // Not even repeated here: it may be the secret.
        Some(_) => Err(Failure::new(
            USAGE,
            "the claim does not belong on the command line",
            "others can see it there, in the list of processes",
            "set TENURE_CLAIM, or pipe it in with `-` for it",
        )),
    }
}
