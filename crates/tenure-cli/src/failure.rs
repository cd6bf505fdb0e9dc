//! How a command ends that does not succeed.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The answer is no: here, a proof that failed.
pub(crate) const NO: u8 = 1;
/// The arguments make no sense. This one and those below are the numbers of `sysexits.h`.
pub(crate) const USAGE: u8 = 64;
/// A fault in tenure or in the machine under it.
pub(crate) const INTERNAL: u8 = 70;
/// The output cannot be written.
const OUTPUT: u8 = 74;

/// Why a command stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Whoever read the output has seen enough, as `head` does. That is no failure.
    ReaderLeft,
    /// Something went wrong.
    Failed(Failure),
}

/// What went wrong, why, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: u8,
    /// What went wrong.
    pub(crate) what: String,
    /// Why it did.
    pub(crate) why: String,
    /// What the reader can do about it.
    pub(crate) help: String,
}

impl Stop {
    /// Tells the user, and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Stop::ReaderLeft => ExitCode::SUCCESS,
            Stop::Failed(failure) => {
                // If standard error is gone too, the exit code has to say it all.
                let _ = write!(io::stderr(), "{failure}");
                ExitCode::from(failure.exit)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { what, why, help, .. } = self;
        writeln!(f, "error: {what}\n{why}\nhelp: {help}")
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        if error.kind() == ErrorKind::BrokenPipe {
            return Stop::ReaderLeft;
        }
        Stop::Failed(Failure {
            exit: OUTPUT,
            what: "the output cannot be written".into(),
            why: error.to_string(),
            help: "look where standard output goes: is the disk full?".into(),
        })
    }
}
