//! Supervises the command while it runs: it exits in time, or is stopped with everything it started.
//!
//! The local deadline of the hold decides. When only the time is left that the command gets to exit, it is asked to;
//! and it is killed early enough that nothing of it is left at the deadline. After the machine or this process was
//! suspended, that deadline is checked first.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tenure::{Ended, Hold, Lost, Options};

use super::channel::Message;
use super::clock;
use super::command::{Change, Command, Ending};
use super::events::{Event, Events};
use super::loss::Loss;
use super::shared_state::SharedState;
use super::terminal::Terminal;
use super::tree;
use crate::args::run::{Leftovers, OnLost};
use crate::system;

/// How often a kill is repeated until nothing is left.
const AGAIN: Duration = Duration::from_millis(10);
/// How often to check processes that the command left running, if their end is not signalled.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long killed processes may take to disappear before that is reported.
pub(super) const STUCK: Duration = Duration::from_secs(2);

/// The time limits of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The signal that asks the command to exit.
    pub(super) signal: Signal,
    /// How long it may then take.
    pub(super) kill_after: Duration,
    /// How long before the deadline everything must be gone.
    pub(super) margin: Duration,
    /// How long it may run.
    pub(super) max_run: Option<Duration>,
    /// What happens when the hold is lost.
    pub(super) on_lost: OnLost,
    /// What happens to processes that are left running when the command has exited.
    pub(super) leftovers: Leftovers,
}

impl Limits {
    /// When the other processes kill a command that nobody has stopped, if its hold ends at `deadline`.
    pub(super) fn gone_by(&self, deadline: Duration) -> Option<Duration> {
        (self.on_lost == OnLost::Stop).then(|| deadline.saturating_sub(self.margin / 2))
    }

    /// The margin for a hold with that ttl: dying takes time, too.
    pub(super) fn margin(kill_after: Duration, ttl: Duration) -> Duration {
        (kill_after / 10).max(Duration::from_millis(100)).min(ttl / 4)
    }
}

/// Why a command was stopped.
#[derive(Clone, Debug)]
pub(super) enum StopReason {
    /// The hold is lost.
    Lost(Loss),
    /// The foreground was killed.
    ForegroundGone,
    /// It ran for `--max-run`.
    MaxRun,
}

/// The result of a command.
pub(super) struct CommandResult {
    /// How the command ended.
    pub(super) ending: Ending,
    /// Why it was stopped, if it was.
    pub(super) stopped: Option<StopReason>,
    /// The loss that was only a warning.
    pub(super) warned: Option<Loss>,
    /// Whether someone wanted it to exit, by a signal or by a key.
    pub(super) told_to_end: bool,
}

/// A command that is being stopped.
struct Stop {
    /// `None` if it has exited, and only what it left running is stopped.
    why: Option<StopReason>,
    kill_at: Duration,
    said: bool,
}

pub(super) struct Supervision<'a> {
    pub(super) command: Command,
    pub(super) hold: &'a Hold,
    pub(super) options: &'a Options,
    pub(super) limits: Limits,
    pub(super) events: &'a mut Events,
    pub(super) terminal: Terminal,
    pub(super) shared: SharedState,
    /// Reports a loss while the command runs on.
    pub(super) say: &'a dyn Fn(&Loss),
    /// Prints a note.
    pub(super) note: &'a dyn Fn(&str),
}

/// The part of the supervision that changes.
struct State {
    started: Duration,
    lost: Option<Ended>,
    stop: Option<Stop>,
    warned: Option<Loss>,
    /// The signals that were passed on.
    handed: Vec<i32>,
    /// The foreground was told that the command is stopped.
    told: bool,
    /// The command had the terminal, or wanted it, when it was stopped.
    wants_terminal: bool,
    /// The command has exited, and since then what it left running is waited for.
    waits_since: Option<Duration>,
    /// That was printed.
    waiting_is_said: bool,
}

impl Supervision<'_> {
    /// Runs until the command has exited or, if it had to be stopped, until nothing is left of it.
    pub(super) async fn run(mut self) -> CommandResult {
        self.shared.set_command(Some(self.command.pid()));
        let mut state = State {
            started: clock::now(),
            lost: None,
            stop: None,
            warned: None,
            handed: Vec::new(),
            told: false,
            wants_terminal: false,
            waits_since: None,
            waiting_is_said: false,
        };
        let mut lost = self.hold.lost();
        loop {
            let (changes, alone) = self.command.look();
            if self.command.ended().is_some() {
                self.shared.set_command(None);
            }
            changes.into_iter().for_each(|change| self.saw(change, &mut state));
            if self.shared.killed_for_it() {
                // The foreground has started to kill; make sure that nothing is left.
                self.stop(Some(StopReason::Lost(Loss::Unresponsive)), Duration::ZERO, &mut state);
            }
            self.look_at_hold(&mut state);
            self.look_at_time(&mut state);
            if let Some(ending) = self.command.ended()
                && self.nothing_is_left(alone, &mut state)
            {
                return self.over(ending, state);
            }
            self.kill_if_due(&mut state);
            self.set_alarm(&state);
            self.next(&mut state, &mut lost).await;
        }
    }

    /// Whether nothing is left that would have to end before the hold does.
    fn nothing_is_left(&mut self, alone: bool, state: &mut State) -> bool {
        if alone || state.stop.is_some() {
            return alone;
        }
        let left = match self.limits.leftovers {
            Leftovers::Allow => return true,
            Leftovers::End => {
                self.stop(None, self.limits.kill_after, state);
                return false;
            }
            Leftovers::Wait => self.command.leftovers(),
        };
        if left.is_empty() {
            return true;
        }
        // The foreground has the keys again, and passes on what they mean.
        self.terminal.take_back(false);
        let since = *state.waits_since.get_or_insert_with(clock::now);
        if !state.waiting_is_said && clock::now() > since + STUCK {
            state.waiting_is_said = true;
            (self.note)(&format!(
                "the command has exited, and the lock stays held for the processes it left running: {} \
                 (see --leftovers)",
                tree::shown(&left)
            ));
        }
        false
    }

    fn over(&mut self, ending: Ending, state: State) -> CommandResult {
        self.shared.set_deadline(None);
        // A command that was ended may have left the terminal in any state.
        let abrupt = state.stop.is_some() || matches!(ending, Ending::Signal(_));
        self.terminal.take_back(abrupt);
        let told_to_end = is_told(ending, &state.handed);
        let (stopped, warned) = (state.stop.and_then(|stop| stop.why), state.warned);
        CommandResult { ending, stopped, warned, told_to_end }
    }

    /// Waits for something to happen.
    async fn next(&mut self, state: &mut State, lost: &mut Lost) {
        tokio::select! {
            ended = lost, if state.lost.is_none() => state.lost = Some(ended),
            event = self.events.next() => match event {
                Event::Signal(signal) => self.hand_on(signal, state),
                Event::ForegroundGone => self.stop(Some(StopReason::ForegroundGone), self.limits.kill_after, state),
                Event::Child | Event::Alarm => {}
            },
        }
    }

    /// Passes a signal on to the command's group.
    fn hand_on(&mut self, number: i32, state: &mut State) {
        let Some(signal) = system::signal(number) else { return };
        if number == libc::SIGCONT {
            state.told = false;
            if state.wants_terminal {
                self.terminal.lend(self.command.pid());
            }
        }
        self.command.signal(signal);
        if !state.handed.contains(&number) {
            state.handed.push(number);
        }
        let stops = self.command.is_stopped() || state.waits_since.is_some();
        if number == libc::SIGTSTP && stops {
            self.tell_stopped(number, false, state);
        }
    }

    fn tell_stopped(&self, signal: i32, all: bool, state: &mut State) {
        state.told = true;
        self.events.tell(Message::Stopped { signal: signal as u8, all });
    }

    /// The command was stopped or continued.
    fn saw(&mut self, change: Change, state: &mut State) {
        match change {
            // It receives nothing while it is stopped, and has no time to lose.
            Change::Stopped(_) if state.stop.is_some() => self.command.signal(Signal::CONT),
            Change::Stopped(signal) => {
                let reads = matches!(signal, libc::SIGTTIN | libc::SIGTTOU);
                if reads && self.terminal.lend(self.command.pid()) {
                    self.command.signal(Signal::CONT);
                    return;
                }
                let had_it = self.terminal.take_back(false);
                state.wants_terminal = had_it || reads;
                self.tell_stopped(signal, had_it, state);
            }
            Change::Continued if state.told => {
                // Not by the foreground, which would have told us.
                state.told = false;
                if !self.events.foreground_is_gone() {
                    let _ = kill_process(self.events.foreground, Signal::CONT);
                }
            }
            Change::Continued => {}
        }
    }

    /// Stops the command if the hold is lost, or will be before the command could exit.
    fn look_at_hold(&mut self, state: &mut State) {
        let Limits { kill_after, margin, on_lost, .. } = self.limits;
        let remaining = self.hold.remaining();
        let until_kill = remaining.saturating_sub(margin);
        let (loss, left) = match &state.lost {
            Some(Ended::Expired) => (Loss::Ended(Ended::Expired), Duration::ZERO),
            Some(ended) => (Loss::Ended(ended.clone()), kill_after),
            None if on_lost == OnLost::Warn || remaining > kill_after.max(margin) => return,
            None => (Loss::running_out(self.hold, remaining, self.options), until_kill),
        };
        if on_lost == OnLost::Warn {
            if state.warned.is_none() && state.stop.is_none() {
                (self.say)(&loss);
                state.warned = Some(loss);
            }
            return;
        }
        if let Some(stop) = &mut state.stop {
            // It is being stopped for another reason, and now has less time.
            stop.kill_at = stop.kill_at.min(clock::now() + left);
        } else if self.command.ended().is_none() || state.waits_since.is_some() {
            self.stop(Some(StopReason::Lost(loss)), left, state);
        }
    }

    fn look_at_time(&mut self, state: &mut State) {
        let Some(max_run) = self.limits.max_run else { return };
        if state.stop.is_none() && clock::now() >= state.started.saturating_add(max_run) {
            self.stop(Some(StopReason::MaxRun), self.limits.kill_after, state);
        }
    }

    /// Asks the command and everything it started to exit, within `left`.
    fn stop(&mut self, why: Option<StopReason>, left: Duration, state: &mut State) {
        if state.stop.is_some() {
            return;
        }
        let kill_at = clock::now() + left;
        if !left.is_zero() {
            self.command.signal_all(self.limits.signal);
        }
        state.stop = Some(Stop { why, kill_at, said: false });
    }

    /// Kills what is left when its time is over; repeatedly, because a killed process may just have started
    /// another.
    fn kill_if_due(&mut self, state: &mut State) {
        let Some(stop) = &mut state.stop else { return };
        let now = clock::now();
        if now < stop.kill_at {
            return;
        }
        self.command.signal_all(Signal::KILL);
        if !stop.said && now > stop.kill_at + STUCK {
            stop.said = true;
            (self.note)(&format!(
                "these processes were killed and have not exited: {}; they belong to another user, or wait \
                 for a device",
                tree::shown(&self.command.left())
            ));
        }
    }

    /// Sets the time of the next check, for our alarm and for the foreground.
    fn set_alarm(&mut self, state: &State) {
        let Limits { kill_after, margin, max_run, on_lost, .. } = self.limits;
        let now = clock::now();
        let deadline = now + self.hold.remaining();
        let slack = margin / 2;
        let (next, gone_by) = match &state.stop {
            Some(stop) if now < stop.kill_at => (Some(stop.kill_at), Some(stop.kill_at + slack)),
            Some(_) => (Some(now + AGAIN), Some(now + AGAIN + slack)),
            None => {
                let stays = on_lost == OnLost::Stop;
                let look = stays.then(|| deadline.saturating_sub(kill_after.max(margin)));
                let ends = max_run.map(|max_run| state.started.saturating_add(max_run));
                let left = state.waits_since.map(|_| now + LOOK_AGAIN);
                let next = look.into_iter().chain(ends).chain(left).min();
                (next, self.limits.gone_by(deadline))
            }
        };
        // Without an alarm nothing would be stopped in time.
        if self.events.alarm.set(next).is_err() {
            (self.note)("cannot set the alarm; the foreground process takes over");
        }
        set_deadline(gone_by, self.shared, self.events);
    }
}

/// Tells the others when the command must be gone. If they did not have a deadline, this wakes them.
pub(super) fn set_deadline(gone_by: Option<Duration>, shared: SharedState, events: &Events) {
    if shared.set_deadline(gone_by) {
        events.tell(Message::DeadlineSet);
    }
}

/// Whether a command that ended like this was told to. Ctrl-C goes to the group that has the terminal, which may
/// be the command alone; a signal such as SIGHUP may mean anything to it, unless it ended by that.
fn is_told(ending: Ending, handed: &[i32]) -> bool {
    let ends = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT];
    handed.iter().any(|signal| ends.contains(signal) || ending == Ending::Signal(*signal))
        || ending == Ending::Signal(libc::SIGINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_dies_by_itself_was_not_told_to() {
        let (hup, term) = (libc::SIGHUP, libc::SIGTERM);
        for (ending, handed, told) in [
            (Ending::Code(0), &[][..], false),
            (Ending::Code(1), &[hup, libc::SIGUSR1, libc::SIGWINCH], false),
            (Ending::Signal(libc::SIGSEGV), &[hup], false),
            (Ending::Signal(hup), &[hup], true),
            (Ending::Code(0), &[term], true),
            (Ending::Signal(libc::SIGKILL), &[hup, term], true),
            (Ending::Signal(libc::SIGINT), &[], true),
            (Ending::Signal(term), &[], false),
        ] {
            assert_eq!(is_told(ending, handed), told, "{ending:?} {handed:?}");
        }
    }
}
