//! The guard: the parent of the keeper, and the last one that is there to end a command.
//!
//! Whoever kills `tenure` and its keeper together leaves the guard. It has a session and a name of its own,
//! holds nothing open and hears no signal. All that loses its parent when the keeper dies becomes a child
//! of the guard, which kills it; and it kills the command when the keeper lets the deadline of the hold
//! pass.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, setsid, waitpid,
};

use super::link::Slate;
use super::{clock, quiet, registry, tree};
use crate::system;

/// What `ps` and `pkill` know this process by.
const NAME: &std::ffi::CStr = c"hold-guard";
/// How often what must be gone is looked at.
pub(super) const OFTEN: Duration = Duration::from_millis(5);
/// How often the guard looks without being told to, where it cannot be told.
const SELDOM: Duration = Duration::from_millis(200);

/// Makes this process the guard, before it starts the keeper: what the keeper leaves comes here.
pub(super) fn adopt_orphans() {
    // Without it the front still adopts them.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Stands guard over a keeper until that has ended, and nothing is left that it should have ended.
pub(super) fn stand(front: Pid, keeper: Pid, slate: Slate, bell: &OwnedFd) {
    // Not before the keeper was started: that stays in the session of the terminal.
    let _ = setsid();
    // A name that cannot be changed is no reason to stop.
    let _ = rustix::thread::set_name(NAME);
    system::retitle(&format!("{} of {front}", NAME.to_string_lossy()));
    quiet::let_go_of_everything();
    let run = registry::name(keeper);
    let ended = watch(keeper, slate, bell);
    if slate.is_over() {
        return;
    }
    slate.set_keeper_ended_by(ended);
    tree::end_below(getpid(), || wait(&mut [], Some(OFTEN)));
    registry::forget(run.as_deref());
}

/// Watches until the keeper has ended; returns the signal that ended it.
fn watch(keeper: Pid, slate: Slate, bell: &OwnedFd) -> Option<i32> {
    let life = pidfd_open(keeper, PidfdFlags::empty()).ok();
    loop {
        match waitpid(Some(keeper), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return status.terminating_signal(),
            Ok(None) => {}
            Err(_) => return None,
        }
        stand_in(keeper, slate);
        let left = slate.deadline().map(|at| at.saturating_sub(clock::now()).max(OFTEN));
        let mut watched = vec![PollFd::new(bell, PollFlags::IN)];
        watched.extend(life.as_ref().map(|life| PollFd::new(life, PollFlags::IN)));
        // An old kernel, or no descriptor to spare: then it has to look by itself.
        let blind = life.is_none().then_some(SELDOM);
        wait(&mut watched, left.into_iter().chain(blind).min());
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }
}

/// Kills the command if the keeper has let its deadline pass: it was stopped, or cannot go on.
pub(super) fn stand_in(keeper: Pid, slate: Slate) {
    if slate.deadline().is_none_or(|at| clock::now() < at) {
        return;
    }
    slate.set_stood_in(true);
    kill_group(slate, keeper);
    for process in tree::below(keeper) {
        // One that cannot be killed is still there when we look again.
        let _ = process.signal(Signal::KILL);
    }
    // It has to see to the rest.
    let _ = kill_process(keeper, Signal::CONT);
}

/// Kills the command's group, if the command is a child of `parent`: then its number is no other's.
pub(super) fn kill_group(slate: Slate, parent: Pid) {
    let Some(command) = slate.command() else { return };
    if tree::look(command).is_some_and(|process| process.parent == tree::number(parent)) {
        let _ = kill_process_group(command, Signal::KILL);
    }
}

/// Whatever it says, there is no harm in looking.
fn wait(watched: &mut [PollFd<'_>], at_most: Option<Duration>) {
    let at_most = at_most.and_then(|left| Timespec::try_from(left).ok());
    let _ = poll(watched, at_most.as_ref());
}
