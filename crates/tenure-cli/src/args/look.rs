//! `tenure ls`, `show`, `watch`, `wait`, `break`, `forget` and `doctor`: inspecting names and the engine, and
//! intervening.

use clap::{Arg, ArgAction, Command};
use tenure::Fence;
use tenure::engine::Space;

use super::Named;
use super::define::{flag, only_on_command_line, option, word};
use super::given::Given;
use crate::commands::break_hold::Break;
use crate::commands::forget::Forget;
use crate::failure::{Failure, USAGE};

const WATCH: &str = "\
Events: `held` and `waiting` for what is there at the start; then `granted`, `released` (by its holder, by
expiry or by a break), `queued` and `left`. Renewals are not shown. It polls the engine, so whatever begins and
ends between two polls is not shown.";

const DOCTOR: &str = "\
Checks what locks depend on: settings, permissions, capacity, latency. It takes no lock and changes nothing.
A warning is a weakness that you should know about; a problem means that locks are unreliable or do not work.";

const SETUP: &str = "\
Run it as the owner of the database. It is one transaction, and changes nothing that is up to date. Other roles then need
GRANT USAGE ON SCHEMA tenure, tenure_v1. Other engines need no setup.";

pub(super) fn define_commands() -> impl Iterator<Item = Command> {
    about_names().into_iter().chain(about_engines())
}

fn about_names() -> [Command; 6] {
    let prefix = || word("prefix", "PREFIX", "Only show names that begin with this");
    let name =
        || word("name", "NAME", "Name of the lock or election, or key of a once").required(true);
    [
        Command::new("ls").about("List all locks, who holds them and who waits").arg(prefix()),
        Command::new("show")
            .about("Show who holds a lock and who waits for it, or the record of a once; exit code 1 if there is none")
            .arg(name())
            .arg(kind()),
        Command::new("watch")
            .about("Show events as they happen")
            .after_help(WATCH)
            .arg(prefix())
            .arg(option("interval", None, "D", "Polling interval [default: 250ms]")),
        Command::new("wait")
            .about("Wait until a lock is free, without taking it")
            .arg(name())
            .arg(kind())
            .arg(
                flag("no-wait", Some('n'), "Only check: exit code 75 if it is not free")
                    .conflicts_with("wait"),
            )
            .arg(option(
                "wait",
                Some('w'),
                "D",
                "Wait at most this long, then exit with code 75",
            )),
        Command::new("break")
            .about("End a hold by force; without --fence, only show what that would mean")
            .after_help("A break must be deliberate: --kind, --fence, --reason and --end-sessions cannot be set by variables.")
            .arg(name())
            .arg(kind())
            .arg(only_on_command_line("fence", "N", "Fence of the hold to break, as shown by `tenure show`"))
            .arg(only_on_command_line("reason", "TEXT", "Reason, for the holder and the log"))
            .arg(
                Arg::new("end-sessions")
                    .long("end-sessions")
                    .action(ArgAction::SetTrue)
                    .help("On Postgres, also end the sessions whose transactions keep the hold (`tenure.guard`)"),
            ),
        Command::new("forget")
            .about("Forget the record of a once; without --fence, only show what that would mean")
            .after_help("Forgetting must be deliberate: --fence and --done cannot be set by variables.")
            .arg(word("name", "KEY", "Key of the work, as given to `tenure once`").required(true))
            .arg(only_on_command_line("fence", "N", "Fence of the record to forget, as shown by `tenure show`"))
            .arg(
                Arg::new("done")
                    .long("done")
                    .action(ArgAction::SetTrue)
                    .help("Forget it even if it was done: it will be done a second time"),
            ),
    ]
}

fn about_engines() -> [Command; 2] {
    [
        Command::new("doctor")
            .about("Check whether the engine is fit for locks; exit code 1 if it is not")
            .after_help(DOCTOR)
            .arg(engine())
            .arg(flag("brief", None, "Print one line, for health checks")),
        Command::new("setup")
            .about("Create the tables and functions that postgres:// needs; safe to run again")
            .after_help(SETUP)
            .arg(engine())
            .arg(flag("print", None, "Print the SQL and run nothing")),
    ]
}

/// The engine, for commands that are about it and about no name.
fn engine() -> Arg {
    word(
        "engine",
        "URL",
        "URL of the engine [default: --url or TENURE_URL]; put a password into TENURE_URL only",
    )
}

/// The values of `--kind`. A semaphore and a read-write lock are in the same space as a lock.
const KINDS: [(&str, Space); 5] = [
    ("lock", Space::Lock),
    ("sem", Space::Lock),
    ("rwlock", Space::Lock),
    ("leader", Space::Election),
    ("once", Space::Once),
];

/// Without a variable, because `run` sets TENURE_KIND for its command.
fn kind() -> Arg {
    only_on_command_line(
        "kind",
        "KIND",
        "Which one is meant if several have this name: lock, leader or once",
    )
}

pub(super) fn read_named(given: &Given<'_>) -> Result<Named, Failure> {
    let given = given.without_variables();
    let space = given.choice("kind", &KINDS)?.map(|found| found.value);
    Ok(Named { name: given.name()?, space })
}

pub(super) fn read_break(given: &Given<'_>) -> Result<Break, Failure> {
    let named = read_named(given)?;
    let given = given.without_variables();
    let reason = given.text("reason")?.map(|found| found.value);
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let meant = match (given.number("fence", 1..=(1 << 53))?, reason) {
        (Some(fence), Some(reason)) => Some((Fence::new(fence), reason)),
        (Some(_), None) => {
            return Err(Failure::new(
                USAGE,
                "a break needs a reason",
                "it is shown to the holder and logged",
                "add `--reason \"…\"`",
            ));
        }
        (None, _) => None,
    };
    let ends_sessions = given.is_on_command_line("end-sessions");
    Ok(Break { named, meant, ends_sessions })
}

pub(super) fn read_forget(given: &Given<'_>) -> Result<Forget, Failure> {
    let given = given.without_variables();
    Ok(Forget {
        name: given.name()?,
        fence: given.number("fence", 1..=(1 << 53))?.map(Fence::new),
        done: given.is_on_command_line("done"),
    })
}
