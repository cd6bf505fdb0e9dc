//! `tenure once`: work that is done once.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Command;

use super::claim::{Asking, Wait, define_about, define_wait};
use super::define::{flag, option, word};
use super::given::Given;
use super::run::{Program, Purpose, Run, Work, define_max_run, define_program};
use crate::failure::Failure;

const MORE: &str = "\
The first one runs CMD, and its output passes through. When CMD ends with 0, its output is kept for --keep
(24 h): whoever comes within that time gets the same output and 0, and runs nothing. Those who come while it
runs wait for it.

A CMD that fails, with an exit code other than 0, says that it did not happen: it is not remembered, and the
next one runs it (--keep-failures remembers it, too). A CMD that is ended by a signal, a lost hold or a killed
tenure says nothing: the work is unsettled, which is exit code 76 for all that come later, and nobody runs it
again unless they say --rerun.

The record has room for 64 KiB. Of a longer output the last part is kept, and a replay says so. CMD writes to
pipes, not to a terminal; output and errors are replayed in the order in which they were read from these.

  tenure once webhook:42 --content @body.json -- ./charge.sh
  tenure once \"nightly:$(date +%F)\" -- ./nightly.sh          on every host; one of them runs it";

pub(super) fn define() -> Command {
    let content = "What it is done with, or @FILE; the same key with other content is refused";
    Command::new("once")
        .about("Run a command once; later and elsewhere, replay its output and its exit code")
        .override_usage(
            "tenure once [OPTIONS] <KEY> -- <CMD>...\n       tenure once [OPTIONS] <KEY> -c <LINE>",
        )
        .after_help(MORE)
        .arg(word("name", "KEY", "What the work is called").required(true))
        .arg(option("keep", None, "D", "How long it is remembered [default: 24h]"))
        .arg(flag("rerun", None, "Run it again if it was started and never settled: at least once"))
        .arg(flag("keep-failures", None, "Remember a CMD that fails, too"))
        .arg(option("content", None, "TEXT", content))
        .args(define_wait())
        .args(define_about())
        .args(define_program())
        .arg(define_max_run())
}

/// `words` is the whole command line.
pub(super) fn read(given: &Given<'_>, words: &[OsString]) -> Result<Run, Failure> {
    let program = Program::read(given, words, "once KEY")?;
    let asking = Asking { wait: Wait::read(given)?, ..Asking::read_about(given)? };
    let work = Work {
        keep: given.some_time("keep")?,
        rerun: given.flag("rerun")?.value,
        content: read_content(given)?,
        keep_failures: given.flag("keep-failures")?.value,
    };
    let max_run = given.some_time("max-run")?;
    Ok(Run { max_run, ..Run::new(given, asking, program, Purpose::Once(work))? })
}

/// Text, or what is in a file.
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
