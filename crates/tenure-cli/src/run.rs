//! `tenure run`: a command runs while a lock is held, and never without it. `tenure elect` does the same with a
//! leader's terms, repeatedly; `tenure once` does it with work whose outcome is kept.
//!
//! # The processes
//!
//! ```text
//! shell
//! └─ tenure run                 the foreground process: signals, job control, exit code
//!    └─ hold-guard              the guard: kills what a dead supervisor leaves behind
//!       └─ hold-supervisor      the supervisor: waits, holds, renews, starts and stops the command, releases
//!          └─ CMD               in a process group of its own, with everything that it starts
//! ```
//!
//! Each is a separate process so that no single kill can leave a command running without its lock:
//!
//! | killed | who acts | what happens |
//! |---|---|---|
//! | the foreground process | supervisor | stops CMD with everything it started, then releases |
//! | the supervisor | guard | kills everything that CMD started; the lock expires with its ttl |
//! | the guard | nobody has to | the supervisor goes on; the foreground process takes the place of the guard |
//! | foreground and supervisor | guard | as above |
//! | guard and supervisor | foreground | kills everything that CMD started |
//! | foreground and guard | supervisor | stops CMD, then releases |
//! | all three | the kernel, then the next `tenure` | CMD dies with its parent (`PR_SET_PDEATHSIG`); what it started is killed by whoever is about to start a command next on this host (`registry`) |
//! | CMD | supervisor | waits for what CMD left running, or ends it (`--leftovers`), then releases |
//!
//! A supervisor that is stopped (SIGSTOP) or gets no CPU time is as bad as a dead one: it writes the deadline of the
//! lock into memory that all three share, and the guard and the foreground process kill CMD when it passes.
//!
//! # The files
//!
//! - `foreground`, `guard`, `supervisor`: one file per process. `channel` is the socket between foreground and
//!   supervisor, `shared_state` the memory that all three share.
//! - The supervisor, in order: `acquire` waits for the lock, `prepare` for what must be over before the command
//!   starts, `supervise` decides when the command is stopped, `once` settles work that is done once. `held` is what
//!   it holds: a lock, a term or a run.
//! - `command` starts the command and signals it, `tree` finds its processes, `terminal` lends it the terminal,
//!   `forward` passes on what it writes, `record` is what is kept of that, `stdio` closes what we inherited.
//! - `events`, `signals`, `clock`: what wakes the supervisor up. `registry`: which commands run on this host.
//! - `report` and `loss`: what is said in the end; `log`: what is logged on the way.

mod acquire;
mod channel;
mod clock;
mod command;
mod events;
mod foreground;
mod forward;
mod guard;
mod held;
mod log;
mod loss;
mod once;
mod prepare;
mod record;
mod registry;
mod report;
mod shared_state;
mod signals;
mod stdio;
mod supervise;
mod supervisor;
mod terminal;
mod tree;

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
use foreground::{Ended, Foreground};
use report::{Outcome, Report};
use shared_state::SharedState;
use supervisor::Start;

/// How the command of a once ended, as an exit code and in words, and how many bytes it wrote, if the outcome is
/// one of ours.
pub(crate) fn remembered(outcome: &[u8]) -> Option<(u8, String, u64)> {
    let record = record::Record::read(outcome)?;
    Some((record.ending.exit_code(), record.ending.to_string(), record.written.whole()))
}

/// Runs a command while holding a lock. Must be called before this process has a thread or a runtime.
pub(crate) fn run(run: &Run, settings: &Settings) -> Result<Exit, Stop> {
    let mut status = run.json_status.as_deref().map(open_status).transpose()?;
    let ended = split(run, settings, &mut status).map_err(|error| {
        let help = "check the limits of this process (`ulimit -a`)";
        Failure::new(INTERNAL, "cannot supervise the command", error.to_string(), help)
    })?;
    match ended {
        Ended::Done(code) => Ok(Exit(code)),
        Ended::SupervisorDied(signal) => {
            let mut failure = supervisor_died(run, signal);
            if let Purpose::Once(_) = run.purpose {
                failure.why.push_str("; the work is unsettled if it was started");
            }
            let report = Report::not_run(Outcome::Failed, failure);
            report.publish(settings.error_paint(), status.as_mut());
            Ok(Exit(report.exit))
        }
    }
}

/// Splits into three processes. Guard and supervisor do not return from here.
fn split(run: &Run, settings: &Settings, status: &mut Option<File>) -> io::Result<Ended> {
    let shared = SharedState::new()?;
    let (to_supervisor, link) = channel::pair()?;
    // Tells the guard that there is a deadline in the shared state.
    let wake_guard = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let foreground = getpid();
    let adopts = foreground::adopt();
    // Before the fork, so that no signal is ever lost.
    let inherited = system::take_signals()?;
    match system::fork()? {
        Forked::Child => {
            drop(to_supervisor);
            let status = status.take();
            guard::adopt_orphans();
            let guard = getpid();
            match system::fork() {
                Ok(Forked::Child) => {
                    shared.set_supervisor(getpid());
                    let start = Start {
                        run,
                        settings,
                        foreground,
                        guard,
                        link,
                        shared,
                        wake_guard,
                        inherited,
                        status,
                    };
                    std::process::exit(supervisor::supervise_run(start).into())
                }
                Ok(Forked::Parent(supervisor)) => {
                    shared.set_supervisor(supervisor);
                    drop((link, status));
                    guard::stand_guard(foreground, supervisor, shared, &wake_guard);
                    std::process::exit(0)
                }
                // The foreground notices that the other end is closed.
                Err(_) => std::process::exit(1),
            }
        }
        Forked::Parent(guard) => {
            drop(link);
            stdio::let_go_of_input_and_output();
            Ok(Foreground::new(guard, to_supervisor, shared, inherited, adopts)?.watch())
        }
    }
}

/// Opened before anything runs, so that a path that cannot be written is reported at once.
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

fn supervisor_died(run: &Run, signal: Option<i32>) -> Failure {
    let name = quoted(&run.claim.name);
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
