//! How a run ended: its exit code, its messages, and `--json-status`.

use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use super::channel::Message;
use super::command::Ending;
use super::signals;
use crate::failure::{Failure, OUTPUT, UNSETTLED, USAGE};
use crate::output::json::Object;
use crate::output::{Paint, quoted, typed};

/// The hold was lost while the command ran.
pub(super) const LOST: u8 = 79;
/// `--max-run` was reached.
pub(super) const MAX_RUN: u8 = 124;
/// The command cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(super) const NOT_FOUND: u8 = 127;

/// How a run ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) outcome: Outcome,
    pub(super) exit: u8,
    /// How the command ended, if it was started.
    pub(super) command: Option<Ending>,
    /// The fence of the hold, if there was one.
    pub(super) fence: Option<u64>,
    /// What to print.
    pub(super) failure: Option<Failure>,
    /// Whether the command exited without being stopped by us.
    pub(super) by_itself: bool,
    /// The candidate campaigns again, after this long.
    pub(super) again: Option<Duration>,
}

/// How a run ended, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The command ran to completion.
    Ran,
    /// It had run before, and was replayed.
    Replayed,
    /// It was started before, and its outcome is unknown.
    Unsettled,
    /// Others hold it.
    Busy,
    /// The hold was lost.
    Lost,
    /// A signal came before the command was started, or the foreground was killed.
    Signal,
    /// `--max-run` was reached.
    MaxRun,
    /// Something else went wrong.
    Failed,
}

impl Report {
    /// A run whose command was never started.
    pub(super) fn not_run(outcome: Outcome, failure: Failure) -> Report {
        Report { exit: failure.exit, failure: Some(failure), ..Report::quiet(outcome, 0) }
    }

    /// A run that ends without a message.
    pub(super) fn quiet(outcome: Outcome, exit: u8) -> Report {
        let (command, fence, failure) = (None, None, None);
        Report { outcome, exit, command, fence, failure, by_itself: false, again: None }
    }

    /// A run that was called off by a signal.
    pub(super) fn cancelled(signal: i32) -> Report {
        Report::quiet(Outcome::Signal, signals::exit_code(signal))
    }

    /// Prints the message, and writes the status.
    pub(super) fn publish(&self, paint: Paint, status: Option<&mut File>) {
        if let Some(failure) = &self.failure {
            // If standard error is gone, only the exit code is left.
            let _ = io::stderr().write_all(failure.text(paint).as_bytes());
        }
        if let Some(file) = status {
            // A status that cannot be written does not change how the command ended.
            let _ = file.write_all(format!("{}\n", self.json()).as_bytes());
        }
    }

    /// The message for the foreground.
    pub(super) fn message(&self, lingers: bool) -> Message {
        Message::Done { code: self.exit, lingers }
    }

    fn json(&self) -> String {
        let object = Object::versioned().text("outcome", self.outcome.word());
        let object = object.number("exit", self.exit.into());
        let object = match self.command {
            None => object.null("child"),
            Some(Ending::Code(code)) => {
                object.object("child", Object::new().number("code", code.into()).null("signal"))
            }
            Some(Ending::Signal(signal)) => {
                let number = signal.unsigned_abs().into();
                object.object("child", Object::new().null("code").number("signal", number))
            }
        };
        match self.fence {
            None => object.null("fence").end(),
            Some(fence) => object.number("fence", fence).end(),
        }
    }
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Ran => "ran",
            Outcome::Replayed => "replayed",
            Outcome::Unsettled => "unsettled",
            Outcome::Busy => "busy",
            Outcome::Lost => "lost",
            Outcome::Signal => "signal",
            Outcome::MaxRun => "max_run",
            Outcome::Failed => "failed",
        }
    }
}

/// The command could not be started.
pub(super) fn not_started(program: &str, error: &io::Error) -> Failure {
    let program = quoted(program);
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::new(
            NOT_FOUND,
            format!("{program} was not found"),
            "there is no such file, here or in PATH; if it is a script, check its first line. Nothing was \
             run, and nothing is left locked",
            "check the name, or write the full path; for a line of shell, use `-c`",
        );
    }
    let why = format!("{error}. Nothing was run, and nothing is left locked");
    let help = "check that it is a program that this user may execute; `chmod +x` makes a script executable";
    Failure::new(NOT_EXECUTABLE, format!("{program} cannot be executed"), why, help)
}

/// The command exited, but the hold had ended before.
pub(super) fn late(name: &str, exit: u8) -> Failure {
    Failure::new(
        exit,
        format!("released late: {} expired before the command exited", quoted(name)),
        "this machine slept, or `tenure` was stopped, for longer than the ttl; someone else may have \
         held the lock in the meantime",
        "use a longer --ttl; protect what the command writes with the fence: `tenure explain fencing`",
    )
    .code("T013")
}

/// It was started before and never settled.
pub(super) fn unsettled(name: &str) -> Failure {
    Failure::new(
        UNSETTLED,
        format!("unsettled: {} was started and never settled", quoted(name)),
        "the process that ran it was killed or lost the lock: the work may have been done, partly done or not done; \
         nothing was run",
        unsettled_help(name),
    )
    .code("T015")
}

/// The command was ended by a signal, which says nothing about its work.
pub(super) fn left_unsettled(name: &str, signal: i32) -> Failure {
    let by = signals::name(signal);
    Failure::new(
        signals::exit_code(signal),
        format!("unsettled: the command of {} was ended by {by}", quoted(name)),
        "a signal does not tell whether the work was done: it may have been done, partly done or not \
         done",
        unsettled_help(name),
    )
    .code("T015")
}

/// What to do about unsettled work.
pub(super) fn unsettled_help(name: &str) -> String {
    let name = typed(name);
    format!("check whether it was done; `tenure once {name} --rerun -- CMD` runs it again")
}

/// It was started with other content.
pub(super) fn other_content(name: &str) -> Failure {
    Failure::new(
        USAGE,
        format!("different content: {} was started with other content", quoted(name)),
        "the same key means the same work, and this --content differs from the first; nothing was run",
        "use another key for other work, or the content of the first call",
    )
    .code("T023")
}

/// The command's output could not be forwarded.
pub(super) fn not_passed_on(error: &io::Error) -> Failure {
    Failure::new(
        OUTPUT,
        "cannot write the output",
        format!("{error}; the command itself ran to its end"),
        "check where standard output goes: is the disk full? Run it again to replay what is remembered",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_the_same_fields_however_it_ended() {
        let command = Some(Ending::Code(7));
        let ran = Report { command, fence: Some(12), ..Report::quiet(Outcome::Ran, 7) };
        assert_eq!(
            ran.json(),
            r#"{"v":1,"outcome":"ran","exit":7,"child":{"code":7,"signal":null},"fence":12}"#
        );
        let killed = Report { command: Some(Ending::Signal(9)), exit: 137, ..ran };
        assert_eq!(
            killed.json(),
            r#"{"v":1,"outcome":"ran","exit":137,"child":{"code":null,"signal":9},"fence":12}"#
        );
        assert_eq!(
            Report::cancelled(15).json(),
            r#"{"v":1,"outcome":"signal","exit":143,"child":null,"fence":null}"#
        );
    }
}
