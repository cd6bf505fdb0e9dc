//! The guard: the parent of the supervisor, and the last process that can end a command.
//!
//! Killing `tenure` and its supervisor together does not kill the guard: it has its own session and name, keeps
//! no files open and reacts to no signal. When the supervisor dies, its children become children of the guard,
//! which kills them. The guard also kills the command when the supervisor lets the deadline of the lock pass.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, setsid, waitpid,
};

use super::shared_state::SharedState;
use super::{clock, registry, stdio, tree};
use crate::system;

/// The name of this process for `ps` and `pkill`.
const NAME: &std::ffi::CStr = c"hold-guard";
/// How often to check whether everything is gone.
pub(super) const OFTEN: Duration = Duration::from_millis(5);
/// How often the guard checks on its own, if it cannot be notified.
const SELDOM: Duration = Duration::from_millis(200);

/// Makes this process the guard, before it starts the supervisor: orphans of the supervisor become its children.
pub(super) fn adopt_orphans() {
    // If this fails, the foreground still adopts them.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Guards a supervisor until it has exited, and no process that it should have ended is left.
pub(super) fn stand_guard(
    foreground: Pid,
    supervisor: Pid,
    shared: SharedState,
    wake_guard: &OwnedFd,
) {
    // Not before the supervisor was started, which must stay in the session of the terminal.
    let _ = setsid();
    // Failing to change the name is no reason to stop.
    let _ = rustix::thread::set_name(NAME);
    system::retitle(&format!("{} of {foreground}", NAME.to_string_lossy()));
    stdio::let_go_of_everything();
    let run = registry::name(supervisor);
    let ended = watch(supervisor, shared, wake_guard);
    if shared.is_over() {
        return;
    }
    shared.set_supervisor_ended_by(ended);
    tree::end_below(getpid(), || wait(&mut [], Some(OFTEN)));
    registry::forget(run.as_deref());
}

/// Watches until the supervisor has ended; returns the signal that ended it.
fn watch(supervisor: Pid, shared: SharedState, wake_guard: &OwnedFd) -> Option<i32> {
    let life = pidfd_open(supervisor, PidfdFlags::empty()).ok();
    loop {
        match waitpid(Some(supervisor), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return status.terminating_signal(),
            Ok(None) => {}
            Err(_) => return None,
        }
        kill_if_overdue(supervisor, shared);
        let left = shared.deadline().map(|at| at.saturating_sub(clock::now()).max(OFTEN));
        let mut watched = vec![PollFd::new(wake_guard, PollFlags::IN)];
        watched.extend(life.as_ref().map(|life| PollFd::new(life, PollFlags::IN)));
        // On an old kernel, or without a spare descriptor, it has to check on its own.
        let blind = life.is_none().then_some(SELDOM);
        wait(&mut watched, left.into_iter().chain(blind).min());
        let _ = rustix::io::read(wake_guard, &mut [0; 8]);
    }
}

/// Kills the command if the supervisor has let its deadline pass: it was stopped, or cannot continue.
pub(super) fn kill_if_overdue(supervisor: Pid, shared: SharedState) {
    if shared.deadline().is_none_or(|at| clock::now() < at) {
        return;
    }
    shared.set_killed_for_it(true);
    kill_group(shared, supervisor);
    for process in tree::below(supervisor) {
        // A process that could not be killed is found again at the next check.
        let _ = process.signal(Signal::KILL);
    }
    // The supervisor must take care of the rest.
    let _ = kill_process(supervisor, Signal::CONT);
}

/// Kills the command's group, if the command is a child of `parent`: then its pid cannot have been reused.
pub(super) fn kill_group(shared: SharedState, parent: Pid) {
    let Some(command) = shared.command() else { return };
    if tree::look(command).is_some_and(|process| process.parent == tree::number(parent)) {
        let _ = kill_process_group(command, Signal::KILL);
    }
}

/// Checking once too often does no harm.
fn wait(watched: &mut [PollFd<'_>], at_most: Option<Duration>) {
    let at_most = at_most.and_then(|left| Timespec::try_from(left).ok());
    let _ = poll(watched, at_most.as_ref());
}
