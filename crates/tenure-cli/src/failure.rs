//! How commands fail: one form for all errors, and one table of exit codes.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::output::Paint;

/// Exit codes of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exit(pub(crate) u8);

/// Success.
pub(crate) const OK: Exit = Exit(0);
/// The answer is no: not held, nothing broken, a proof that failed.
pub(crate) const NO: u8 = 1;
/// The arguments are invalid. The codes from here to 78 are those of `sysexits.h`.
pub(crate) const USAGE: u8 = 64;
/// The engine cannot be reached, or cannot serve now.
pub(crate) const UNREACHABLE: u8 = 69;
/// A bug in tenure, or a failure of the machine.
pub(crate) const INTERNAL: u8 = 70;
/// The engine's file cannot be created.
pub(crate) const CANNOT_CREATE: u8 = 73;
/// The output cannot be written.
pub(crate) const OUTPUT: u8 = 74;
/// Others hold it.
pub(crate) const BUSY: u8 = 75;
/// The work of a once was started, and its outcome is unknown.
pub(crate) const UNSETTLED: u8 = 76;
/// Permission denied.
pub(crate) const DENIED: u8 = 77;
/// A variable or the URL has an invalid value.
pub(crate) const CONFIGURATION: u8 = 78;

/// Every exit code with its meaning, for the help, the manual and `explain`.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("any", "`run`, `elect`, `once`: CMD's own exit code, unchanged"),
    ("0", "success"),
    ("1", "the answer is no: not held, no leader, nothing broken, a check that failed"),
    ("64", "invalid arguments, or arguments that contradict other users of the name"),
    ("69", "the engine is unreachable, or cannot serve requests now"),
    ("70", "a bug in tenure or a fault of the machine: please report it"),
    ("73", "the state file cannot be created"),
    ("74", "the output cannot be written"),
    (
        "75",
        "busy: others hold the lock, and `-n` was given or the wait timed out (`run -E N` sets another code)",
    ),
    ("76", "unsettled: the work of a `once` was started, and nobody knows how it ended"),
    ("77", "permission denied: the engine refuses this user"),
    ("78", "an invalid variable or URL"),
    ("79", "the lock was lost while CMD was running, and CMD was stopped"),
    ("124", "CMD was stopped because it reached `--max-run`"),
    ("126", "CMD cannot be executed"),
    ("127", "CMD was not found"),
    ("128+N", "CMD or tenure was ended by signal N"),
];

/// Why a command stopped early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The reader of the output has gone, as with `head`. This is not a failure.
    ReaderLeft,
    /// The command failed.
    Failed(Failure),
}

/// What went wrong, why, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: u8,
    /// Its code in the table of `explain`, if it has one.
    pub(crate) code: Option<&'static str>,
    /// What went wrong.
    pub(crate) what: String,
    /// Why it did.
    pub(crate) why: String,
    /// What the reader can do about it.
    pub(crate) help: String,
}

impl Failure {
    /// A failure without a code.
    pub(crate) fn new(
        exit: u8,
        what: impl Into<String>,
        why: impl Into<String>,
        help: impl Into<String>,
    ) -> Failure {
        Failure { exit, code: None, what: what.into(), why: why.into(), help: help.into() }
    }

    /// Adds a code.
    pub(crate) fn code(mut self, code: &'static str) -> Failure {
        self.code = Some(code);
        self
    }

    /// The three lines, with colour or without.
    pub(crate) fn text(&self, paint: Paint) -> String {
        let Failure { what, why, help, .. } = self;
        let error = match self.code {
            Some(code) => format!("error[{code}]:"),
            None => "error:".to_owned(),
        };
        let (error, next) = (paint.bad(&error), paint.strong("help:"));
        format!("{error} {what}\n{why}\n{next} {help}\n")
    }
}

impl Stop {
    /// Prints the failure, and returns the exit code.
    pub(crate) fn report(self, paint: Paint) -> ExitCode {
        match self {
            Stop::ReaderLeft => ExitCode::SUCCESS,
            Stop::Failed(failure) => {
                // If standard error is gone, too, only the exit code is left.
                let _ = io::stderr().write_all(failure.text(paint).as_bytes());
                ExitCode::from(failure.exit)
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Paint::PLAIN))
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
        Stop::Failed(Failure::new(
            OUTPUT,
            "cannot write the output",
            error.to_string(),
            "check where standard output goes: is the disk full?",
        ))
    }
}

impl From<Exit> for ExitCode {
    fn from(Exit(code): Exit) -> ExitCode {
        ExitCode::from(code)
    }
}
