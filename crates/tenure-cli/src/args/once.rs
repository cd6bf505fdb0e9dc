//! `tenure once`: work that is done once.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Command;

use super::claim::{ClaimArgs, Wait, define_about, define_wait};
use super::define::{flag, option, word};
use super::given::Given;
use super::run::{Program, Purpose, Run, Work, define_max_run, define_program};
use crate::failure::Failure;

const MORE: &str = "\
The first caller runs CMD, and its output passes through. If CMD exits with 0, its output is kept for --keep
(24 hours by default): callers within that time get the same output and exit code 0, and run nothing. Callers
that come while CMD is running wait for it.

A CMD that fails, with an exit code other than 0, counts as not done: it is not remembered, and the next caller
runs it (--keep-failures remembers it, too). If CMD is ended by a signal, the lock is lost or tenure is killed,
nobody can know whether the work was done: it is unsettled. Later callers get exit code 76, and nobody runs it
again without --rerun.

The record has room for 64 KiB. Of a longer output, the last part is kept, and a replay says so. CMD writes to
pipes, not to a terminal; output and errors are replayed in the order in which they were read from the pipes.

  tenure once webhook:42 --content @body.json -- ./charge.sh
  tenure once \"nightly:$(date +%F)\" -- ./nightly.sh          on every host; one of them runs it";

pub(super) fn define() -> Command {
    let content = "Input of the work, or @FILE; the same key with other content is refused";
    Command::new("once")
        .about("Run a command until it has succeeded once; later callers get its output replayed")
        .override_usage(
            "tenure once [OPTIONS] <KEY> -- <CMD>...\n       tenure once [OPTIONS] <KEY> -c <LINE>",
        )
        .after_help(MORE)
        .arg(word("name", "KEY", "Key that identifies the work").required(true))
        .arg(option("keep", None, "D", "How long the outcome is remembered [default: 24h]"))
        .arg(flag(
            "rerun",
            None,
            "Run it again if it was started but never settled (at least once)",
        ))
        .arg(flag("keep-failures", None, "Also remember a CMD that fails"))
        .arg(option("content", None, "TEXT", content))
        .args(define_wait())
        .args(define_about())
        .args(define_program())
        .arg(define_max_run())
}

/// `words` is the whole command line.
pub(super) fn read(given: &Given<'_>, words: &[OsString]) -> Result<Run, Failure> {
    let program = Program::read(given, words, "once KEY")?;
    let claim = ClaimArgs { wait: Wait::read(given)?, ..ClaimArgs::read_about(given)? };
    let work = Work {
        keep: given.some_time("keep")?,
        rerun: given.flag("rerun")?.value,
        content: read_content(given)?,
        keep_failures: given.flag("keep-failures")?.value,
    };
    let max_run = given.some_time("max-run")?;
    Ok(Run { max_run, ..Run::new(given, claim, program, Purpose::Once(work))? })
}

/// Text, or the contents of a file.
fn read_content(given: &Given<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let Some(found) = given.bytes("content") else { return Ok(None) };
    let Some(path) = found.value.as_bytes().strip_prefix(b"@") else {
        return Ok(Some(found.value.into_vec()));
    };
    let read = std::fs::read(OsStr::from_bytes(path));
    let unreadable = |error: std::io::Error| {
        given.unreadable("content", &found.value, &error.to_string(), "@body.json")
    };
    read.map(Some).map_err(unreadable)
}
