//! `tenure run`: a command runs while a name is held, and never without. `tenure elect` is the same
//! with a term, again and again; `tenure once` with work whose outcome is kept.
//!
//! Three processes share the work. The *front* is what the shell started; its child is the *guard*; the
//! guard's child is the *keeper*, which holds the name and starts the command. If the front is killed, the
//! keeper stops the command and then releases; if the keeper is killed, the guard kills all that the
//! command started, and the front does so if the guard was killed, too. If all three are killed at once,
//! the command itself dies with the keeper, and what it started is killed by whoever is about to start a
//! command next on this host (`registry`).
//!
//! - `front`, `guard`, `keeper`: the three; `link` is what they share; `line` is where the keeper waits,
//!   and `before` what it waits for when it holds.
//! - `held` is what it holds; `settle` what it says of work that is done once, `record` what is kept of
//!   that, `passing` where it is read from.
//! - `watch` decides when the command is stopped; `command`, `tree` and `terminal` are what it needs.
//! - `events`, `signals`, `clock`: what the keeper hears. `report`, `loss`: what is said in the end, `log`
//!   all along.

mod before;
mod clock;
mod command;
mod events;
mod front;
mod guard;
mod held;
mod keeper;
mod line;
mod link;
mod log;
mod loss;
mod passing;
mod quiet;
mod record;
mod registry;
mod report;
mod settle;
mod signals;
mod terminal;
mod tree;
mod watch;

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::getpid;

use crate::args::Run;
use crate::args::run::Purpose;
use crate::failure::{CANNOT_CREATE, Exit, Failure, INTERNAL, Stop};
use crate::output::{clean, quoted};
use crate::settings::Settings;
use crate::system::{self, Forked};
use front::{Ended, Front};
use keeper::Start;
use link::Slate;
use report::{Outcome, Report};

/// How the command of a once ended, as an exit code and in words, and how many bytes it wrote, if its
/// outcome is one of ours.
pub(crate) fn remembered(outcome: &[u8]) -> Option<(u8, String, u64)> {
    let record = record::Record::read(outcome)?;
    Some((record.ending.exit_code(), record.ending.to_string(), record.written.whole()))
}

/// Runs a command while holding a name. Called before this process has a thread or a runtime.
pub(crate) fn run(run: &Run, settings: &Settings) -> Result<Exit, Stop> {
    let mut status = run.json_status.as_deref().map(open_status).transpose()?;
    let ended = split(run, settings, &mut status).map_err(|error| {
        let help = "check the limits of this process (`ulimit -a`)";
        Failure::new(INTERNAL, "cannot supervise the command", error.to_string(), help)
    })?;
    match ended {
        Ended::Done(code) => Ok(Exit(code)),
        Ended::KeeperDied(signal) => {
            let mut failure = keeper_died(run, signal);
            if let Purpose::Once(_) = run.purpose {
                failure.why.push_str("; the work is unsettled if it was started");
            }
            let report = Report::not_run(Outcome::Failed, failure);
            report.publish(settings.error_paint(), status.as_mut());
            Ok(Exit(report.exit))
        }
    }
}

/// Becomes three. Guard and keeper do not return from here.
fn split(run: &Run, settings: &Settings, status: &mut Option<File>) -> io::Result<Ended> {
    let slate = Slate::new()?;
    let (to_keeper, link) = link::pair()?;
    // Tells the guard that there is a deadline on the slate.
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let front = getpid();
    let adopts = front::adopt();
    // Before the fork, so that there is no moment in which a signal is lost.
    let inherited = system::take_signals()?;
    match system::fork()? {
        Forked::Child => {
            drop(to_keeper);
            let status = status.take();
            guard::adopt_orphans();
            let guard = getpid();
            match system::fork() {
                Ok(Forked::Child) => {
                    slate.set_keeper(getpid());
                    let start =
                        Start { run, settings, front, guard, link, slate, bell, inherited, status };
                    std::process::exit(keeper::keep(start).into())
                }
                Ok(Forked::Parent(keeper)) => {
                    slate.set_keeper(keeper);
                    drop((link, status));
                    guard::stand(front, keeper, slate, &bell);
                    std::process::exit(0)
                }
                // The front hears that nobody is at the other end.
                Err(_) => std::process::exit(1),
            }
        }
        Forked::Parent(guard) => {
            drop(link);
            quiet::let_go_of_input_and_output();
            Ok(Front::new(guard, to_keeper, slate, inherited, adopts)?.watch())
        }
    }
}

/// Opened before anything is run: a place that cannot be written to is said at once.
fn open_status(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| {
        let shown = clean(&path.to_string_lossy());
        Failure::new(
            CANNOT_CREATE,
            format!("cannot write the status to {shown}"),
            format!("{error}; nothing was run"),
            "choose a file that this user can write to",
        )
    })
}

fn keeper_died(run: &Run, signal: Option<i32>) -> Failure {
    let name = quoted(&run.asking.name);
    let why = "it held the lock and supervised the command; the command was killed with everything it \
               started";
    match signal {
        Some(signal) => Failure::new(
            signals::exit_code(signal),
            format!("the supervisor of {name} was ended by {}", signals::name(signal)),
            why,
            "the lock is free when its ttl expires; do not kill processes called hold-supervisor or hold-guard",
        ),
        None => Failure::new(
            INTERNAL,
            format!("the supervisor of {name} crashed"),
            why,
            "the lock is free when its ttl expires; please report what was written above",
        ),
    }
}
