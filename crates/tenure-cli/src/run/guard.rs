//! The guard: the parent of the supervisor, and the last one that is there to end a command.
//!
//! Whoever kills `tenure` and its supervisor together leaves the guard. It has its own session and name, keeps
//! nothing open and reacts to no signal. When the supervisor dies, its children become children of the guard, which
//! kills them. The guard also kills the command when the supervisor lets the deadline of the lock pass.

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

/// What `ps` and `pkill` know this process by.
const NAME: &std::ffi::CStr = c"hold-guard";
/// How often what must be gone is looked at.
pub(super) const OFTEN: Duration = Duration::from_millis(5);
/// How often the guard looks without being told to, where it cannot be told.
const SELDOM: Duration = Duration::from_millis(200);

/// Makes this process the guard, before it starts the supervisor: what the supervisor leaves comes here.
pub(super) fn adopt_orphans() {
    // Without it the foreground still adopts them.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Stands guard over a supervisor until that has ended, and nothing is left that it should have ended.
pub(super) fn stand_guard(
    foreground: Pid,
    supervisor: Pid,
    shared: SharedState,
    wake_guard: &OwnedFd,
) {
    // Not before the supervisor was started: that stays in the session of the terminal.
    let _ = setsid();
    // A name that cannot be changed is no reason to stop.
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
        // An old kernel, or no descriptor to spare: then it has to look by itself.
        let blind = life.is_none().then_some(SELDOM);
        wait(&mut watched, left.into_iter().chain(blind).min());
        let _ = rustix::io::read(wake_guard, &mut [0; 8]);
    }
}

/// Kills the command if the supervisor has let its deadline pass: it was stopped, or cannot go on.
pub(super) fn kill_if_overdue(supervisor: Pid, shared: SharedState) {
    if shared.deadline().is_none_or(|at| clock::now() < at) {
        return;
    }
    shared.set_killed_for_it(true);
    kill_group(shared, supervisor);
    for process in tree::below(supervisor) {
        // One that cannot be killed is still there when we look again.
        let _ = process.signal(Signal::KILL);
    }
    // It has to see to the rest.
    let _ = kill_process(supervisor, Signal::CONT);
}

/// Kills the command's group, if the command is a child of `parent`: then its number is no other's.
pub(super) fn kill_group(shared: SharedState, parent: Pid) {
    let Some(command) = shared.command() else { return };
    if tree::look(command).is_some_and(|process| process.parent == tree::number(parent)) {
        let _ = kill_process_group(command, Signal::KILL);
    }
}

/// Whatever it says, there is no harm in looking.
fn wait(watched: &mut [PollFd<'_>], at_most: Option<Duration>) {
    let at_most = at_most.and_then(|left| Timespec::try_from(left).ok());
    let _ = poll(watched, at_most.as_ref());
}
