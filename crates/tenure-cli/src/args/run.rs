//! `tenure run`: its many flags and their values, and what all commands that run a program share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command};
use rustix::process::Signal;
use tenure::engine::Space;

use super::claim::{self, ClaimArgs};
use super::define::{as_is, option, word};
use super::given::Given;
use crate::failure::{BUSY, Failure, USAGE};
use crate::output::{discreet, span, typed};

/// The arguments of `tenure run`, `elect` or `once`.
#[derive(Debug)]
pub(crate) struct Run {
    /// What to hold, and how.
    pub(crate) claim: ClaimArgs,
    /// What to run.
    pub(crate) program: Program,
    /// Why it runs.
    pub(crate) purpose: Purpose,
    /// The exit code if others hold the lock. Zero means: skip silently.
    pub(crate) conflict_exit_code: u8,
    /// How long the command may take to exit after `signal`. Default: a third of the ttl, at most 10 s.
    pub(crate) kill_after: Option<Duration>,
    /// The signal that asks the command to exit.
    pub(crate) signal: Signal,
    /// How long the command may run.
    pub(crate) max_run: Option<Duration>,
    /// What happens when the hold is lost.
    pub(crate) on_lost: OnLost,
    /// What happens to processes that the command leaves running.
    pub(crate) leftovers: Leftovers,
    /// Where to write the result, as JSON.
    pub(crate) json_status: Option<PathBuf>,
}

/// Why a command runs.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// It needs the lock.
    Hold,
    /// It is the work of a leader. If it exits, `restart` campaigns again.
    Lead {
        /// Whether to campaign again.
        restart: bool,
    },
    /// It is done once.
    Once(Work),
}

/// Work that is done once.
#[derive(Debug)]
pub(crate) struct Work {
    /// How long its start and its outcome are remembered.
    pub(crate) keep: Option<Duration>,
    /// Whether to run it again when it was started and never settled.
    pub(crate) rerun: bool,
    /// The content of the work.
    pub(crate) content: Option<Vec<u8>>,
    /// Whether a failed command is remembered, too.
    pub(crate) keep_failures: bool,
}

/// What to run.
#[derive(Debug)]
pub(crate) enum Program {
    /// A program and its arguments. Never empty.
    Words(Vec<OsString>),
    /// A line for the shell.
    Shell(OsString),
}

/// What happens when the hold is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnLost {
    /// The command is stopped before anyone else can get the lock.
    Stop,
    /// A warning is printed; the command goes on.
    Warn,
}

/// What happens to processes that a command leaves running when it exits. A process that started its own session
/// has left, and nobody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leftovers {
    /// The lock is held until they have exited, too.
    Wait,
    /// They are ended, wherever they went.
    End,
    /// They run on without the lock.
    Allow,
}

/// The signals that can be named.
const SIGNALS: [(&str, Signal); 8] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
];

const MORE: &str = "\
Standard input, output and error of CMD are left alone, and tenure exits with CMD's exit code. CMD gets
TENURE_NAME, TENURE_KIND and TENURE_FENCE in its environment.

  tenure run backup -- ./backup.sh           wait for the lock, then run
  tenure run -n -E 0 report -- ./report.sh   in cron: skip silently if it is still running elsewhere
  tenure run -j 3 api -- ./call.sh           at most three at a time

Durations are in seconds, or have a unit: 30, 30s, 500ms, 2h. Exit codes: `tenure help exit-codes`.";

pub(super) fn define() -> Command {
    Command::new("run")
        .about("Run a command while holding a lock")
        .override_usage(
            "tenure run [OPTIONS] <NAME> -- <CMD>...\n       tenure run [OPTIONS] <NAME> -c <LINE>",
        )
        .after_help(MORE)
        .args(claim::define())
        .arg(option(
            "conflict-exit-code",
            Some('E'),
            "N",
            "Exit code if others hold it; 0 skips silently [default: 75]",
        ))
        .args(define_program())
        .arg(define_max_run())
        .arg(option(
            "max-hold",
            None,
            "D",
            "Stop CMD and release the lock when it has been held this long",
        ))
        .arg(option(
            "hold-for",
            None,
            "D",
            "Keep the lock at least this long, even if CMD exits earlier",
        ))
        .arg(option(
            "on-lost",
            None,
            "WHAT",
            "If the lock is lost: `stop` CMD in time, or only `warn` [default: stop]",
        ))
}

/// What to run, and how to end it.
pub(super) fn define_program() -> [Arg; 7] {
    let default = "a third of the ttl, at most 10s";
    let kill_after =
        format!("How long CMD may take to exit before it is killed [default: {default}]");
    [
        option("shell", Some('c'), "LINE", "Run this line with `sh -c` instead of a command"),
        option("renew-every", None, "D", "Renewal interval [default: a third of the ttl]"),
        option("kill-after", Some('k'), "D", &kill_after),
        option("signal", None, "SIG", "Signal that asks CMD to exit [default: TERM]"),
        option(
            "leftovers",
            None,
            "WHAT",
            "If CMD leaves processes running: `wait` for them, `end` them or `allow` them [default: wait]",
        ),
        option("json-status", None, "FILE", "Write the outcome to FILE, as JSON"),
        word("command", "CMD", "Command and its arguments, after `--`")
            .num_args(1..)
            .value_parser(as_is())
            .trailing_var_arg(true)
            .allow_hyphen_values(true),
    ]
}

pub(super) fn define_max_run() -> Arg {
    option("max-run", None, "D", "Stop CMD when it has run this long; exit code 124")
}

impl Run {
    /// `words` is the whole command line, for a suggestion that uses the user's own words.
    pub(super) fn read(given: &Given<'_>, words: &[OsString]) -> Result<Run, Failure> {
        let program = Program::read(given, words, "run NAME")?;
        let mut claim = ClaimArgs::read(given)?;
        claim.max_hold = given.some_time("max-hold")?;
        claim.hold_for = given.duration("hold-for")?;
        let code = given.number("conflict-exit-code", 0..=255)?;
        let on_lost = [("stop", OnLost::Stop), ("warn", OnLost::Warn)];
        Ok(Run {
            conflict_exit_code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(BUSY),
            max_run: given.some_time("max-run")?,
            on_lost: given.choice("on-lost", &on_lost)?.map_or(OnLost::Stop, |found| found.value),
            ..Run::new(given, claim, program, Purpose::Hold)?
        })
    }

    /// With the arguments that [`define_program`] defines.
    pub(super) fn new(
        given: &Given<'_>,
        mut claim: ClaimArgs,
        program: Program,
        purpose: Purpose,
    ) -> Result<Run, Failure> {
        claim.renew_every = given.some_time("renew-every")?;
        let run = Run {
            program,
            purpose,
            conflict_exit_code: BUSY,
            kill_after: given.duration("kill-after")?,
            signal: read_signal(given)?,
            max_run: None,
            on_lost: OnLost::Stop,
            leftovers: read_leftovers(given)?,
            json_status: given.bytes("json-status").map(|found| PathBuf::from(found.value)),
            claim,
        };
        // Known mistakes are reported before the engine is asked.
        if let Some(ttl) = run.claim.ttl {
            run.kill_after(ttl)?;
        }
        Ok(run)
    }

    /// The space of its name.
    pub(crate) fn space(&self) -> Space {
        match self.purpose {
            Purpose::Hold => Space::Lock,
            Purpose::Lead { .. } => Space::Election,
            Purpose::Once(_) => Space::Once,
        }
    }

    /// Whether it campaigns, for ever.
    pub(crate) fn leads(&self) -> bool {
        matches!(self.purpose, Purpose::Lead { .. })
    }

    /// How long the command may take to exit, if the hold lasts `ttl`.
    pub(crate) fn kill_after(&self, ttl: Duration) -> Result<Duration, Failure> {
        let Some(kill_after) = self.kill_after else {
            return Ok((ttl / 3).min(Duration::from_secs(10)));
        };
        if ttl < kill_after.saturating_mul(3) {
            let (long, short) = (whole(kill_after.saturating_mul(3)), whole(ttl / 3));
            return Err(Failure::new(
                USAGE,
                format!("ttl {} is too short for kill-after {}", span(ttl), span(kill_after)),
                "the command could outlive the lock; the ttl must be at least three times kill-after",
                format!("`--ttl {long}` or `--kill-after {short}`"),
            )
            .code("T014"));
        }
        Ok(kill_after)
    }
}

/// A duration as it can be typed: in whole seconds, or less than one.
fn whole(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{}ms", span.as_millis()),
        seconds => format!("{seconds}s"),
    }
}

impl Program {
    /// `begin` is the beginning of such a command line: `run NAME`.
    pub(super) fn read(
        given: &Given<'_>,
        words: &[OsString],
        begin: &str,
    ) -> Result<Program, Failure> {
        let command = given.all("command");
        // The command is the end of the line, word for word, so its start is known.
        let start = words.len() - command.len();
        let marked = start > 0 && words[start - 1] == "--";
        let line = given.is_on_command_line("shell");
        match given.bytes("shell") {
            Some(found) if command.is_empty() => return Ok(Program::Shell(found.value)),
            Some(_) if line => {
                return Err(Failure::new(
                    USAGE,
                    "two commands given",
                    "there is a line after -c and a command after `--`",
                    "remove one of them; with -c, put everything into the line",
                ));
            }
            // A line in a variable is a default; the command line wins.
            _ => {}
        }
        if command.is_empty() {
            return Err(no_command(given, words, begin));
        }
        match marked {
            true => Ok(Program::Words(command)),
            false => Err(unmarked(words, start)),
        }
    }
}

/// The failure for a command without `--` before it.
fn unmarked(words: &[OsString], start: usize) -> Failure {
    let (before, after) = (shown(&words[1..start]), shown(&words[start..]));
    Failure::new(
        USAGE,
        "no command after `--`",
        format!("`tenure {before} {after}` needs `--`, so that flags of the command are not taken for flags of tenure"),
        format!("`tenure {before} -- {after}`"),
    )
    .code("T001")
}

/// The failure if there is no command, or no name before it.
fn no_command(given: &Given<'_>, words: &[OsString], begin: &str) -> Failure {
    let name = given.bytes("name").map(|found| found.value).unwrap_or_default();
    let name = shown(std::slice::from_ref(&name));
    let nameless = words.iter().rev().nth(1).is_some_and(|word| word == "--");
    let (what, why, help) = if nameless {
        let why = "a name is required: commands with the same name exclude each other";
        ("no name before `--`", why, format!("`tenure {begin} -- {name}`"))
    } else if name.contains('/') {
        let why = "the first argument is the name of the lock; the command comes after `--`";
        ("no command after `--`", why, format!("`tenure {begin} -- {name}`"))
    } else {
        let why = "there is no command to run";
        let verb = begin.split(' ').next().unwrap_or_default();
        (
            "no command after `--`",
            why,
            format!("`tenure {verb} {name} -- CMD`, or `tenure {verb} {name} -c LINE`"),
        )
    };
    Failure::new(USAGE, what, why, help).code("T001")
}

/// Words as they can be typed again.
fn shown(words: &[OsString]) -> String {
    let words = words.iter().map(|word| typed(&discreet(&word.to_string_lossy())));
    words.collect::<Vec<_>>().join(" ")
}

fn read_leftovers(given: &Given<'_>) -> Result<Leftovers, Failure> {
    let words = [("wait", Leftovers::Wait), ("end", Leftovers::End), ("allow", Leftovers::Allow)];
    Ok(given.choice("leftovers", &words)?.map_or(Leftovers::Wait, |found| found.value))
}

fn read_signal(given: &Given<'_>) -> Result<Signal, Failure> {
    let Some(found) = given.text("signal")? else { return Ok(Signal::TERM) };
    let name = found.value.to_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known =
        |(word, signal): &(&str, Signal)| *word == name || signal.as_raw().to_string() == name;
    SIGNALS.iter().find(|known_as| known(known_as)).map(|(_, signal)| *signal).ok_or_else(|| {
        let words: Vec<_> = SIGNALS.iter().map(|(word, _)| *word).collect();
        let why = format!("possible values: {}", words.join(", "));
        given.unreadable("signal", std::ffi::OsStr::new(&found.value), &why, "TERM")
    })
}

/// Parses a command line for `run`, for tests.
#[cfg(test)]
pub(crate) fn read(line: &str, variables: &super::Variables) -> Result<Run, Failure> {
    let words = std::iter::once("tenure").chain(line.split_whitespace()).map(OsString::from);
    match super::parse(words.collect(), variables)? {
        super::Invocation::Run(_, super::Command::Run(run)) => Ok(*run),
        other => panic!("{line}: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::{Kind, Wait};
    use super::*;

    fn parsed(line: &str) -> Run {
        with(line, &[])
    }

    fn with(line: &str, variables: &'static [(&str, &str)]) -> Run {
        let look = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(*value))
        };
        read(line, &look).unwrap_or_else(|failure| panic!("{line}: {failure}"))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_not_said_has_its_default() {
        let run = parsed("run backup -- ./x.sh -v --json");
        let Program::Words(words) = &run.program else { panic!("{run:?}") };
        assert_eq!(*words, ["./x.sh", "-v", "--json"]);
        assert_eq!((run.claim.kind, run.claim.wait), (Kind::Lock, Wait::Unsaid));
        assert_eq!((run.claim.ttl, run.max_run, run.conflict_exit_code), (None, None, 75));
        assert_eq!((run.signal, run.on_lost), (Signal::TERM, OnLost::Stop));
        assert_eq!(run.leftovers, Leftovers::Wait);
        assert_eq!(run.kill_after(SECOND * 30).unwrap(), SECOND * 10);
        assert_eq!(run.kill_after(SECOND * 6).unwrap(), SECOND * 2);
    }

    #[test]
    fn everything_can_be_said() {
        let run = parsed(
            "run -w 1m30s --max-waiters 7 -j 3 -E 0 -t 60 -k 500ms --signal sigint --max-hold 2h --max-run 1h \
             --renew-every 5s --hold-for 40s --on-lost warn --leftovers end --owner ada --meta a=b --meta c=d=e --json-status s x -c ls",
        );
        assert!(matches!(&run.program, Program::Shell(line) if line == "ls"), "{run:?}");
        let ClaimArgs { name, kind, wait, ttl, max_hold, hold_for, owner, meta, .. } = &run.claim;
        assert_eq!((&**name, *kind, *wait), ("x", Kind::Slots(3), Wait::Limit(SECOND * 90)));
        assert_eq!((*ttl, *max_hold), (Some(SECOND * 60), Some(SECOND * 7200)));
        assert_eq!((*hold_for, owner.as_deref()), (Some(SECOND * 40), Some("ada")));
        assert_eq!(run.claim.renew_every, Some(SECOND * 5));
        assert_eq!(run.claim.max_waiters, Some(7));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(*meta, [pair("a", "b"), pair("c", "d=e")]);
        assert_eq!((run.conflict_exit_code, run.signal), (0, Signal::INT));
        assert_eq!((run.max_run, run.on_lost), (Some(SECOND * 3600), OnLost::Warn));
        assert_eq!(run.leftovers, Leftovers::End);
        assert_eq!(run.kill_after(SECOND * 60).unwrap(), SECOND / 2);
        assert_eq!(run.json_status, Some("s".into()));
    }

    #[test]
    fn variables_stand_in_for_flags_and_the_command_line_wins() {
        let set = &[("TENURE_NO_WAIT", "1"), ("TENURE_META", "a=b,c=d"), ("TENURE_SIGNAL", "2")];
        let run = with("run x -- true", set);
        assert_eq!((run.claim.wait, run.signal), (Wait::No, Signal::INT));
        assert_eq!(run.claim.meta.len(), 2);
        let run = with("run -w 5 --signal TERM --meta e=f x -- true", set);
        assert_eq!((run.claim.wait, run.signal), (Wait::Limit(SECOND * 5), Signal::TERM));
        assert_eq!(run.claim.meta, [("e".to_owned(), "f".to_owned())]);
        let run = with("run -w forever x -- true", set);
        assert_eq!(run.claim.wait, Wait::Forever);
        let run = with("run x -- true", &[("TENURE_SHELL", "ls"), ("TENURE_NAME", "outer")]);
        assert!(matches!(run.program, Program::Words(_)), "{run:?}");
        assert_eq!(run.claim.name, "x");
    }

    #[test]
    fn a_second_mark_belongs_to_the_command() {
        let run = parsed("run x -- git log -- file");
        assert!(matches!(&run.program, Program::Words(words) if words.len() == 4), "{run:?}");
        let run = parsed("run x -- -c ls");
        assert!(matches!(&run.program, Program::Words(words) if words[0] == "-c"), "{run:?}");
    }
}
