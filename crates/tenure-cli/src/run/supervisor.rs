//! The supervisor: it waits in line, holds and renews the lock, starts the command, supervises it and releases.
//!
//! It is a separate process with its own process group and name, so that what ends `tenure` (Ctrl-C, `kill -9`,
//! `pkill tenure`) does not end it: the lock must not be released before the command has ended, and the supervisor
//! is responsible for both.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Pid, getpid, set_child_subreaper, setpgid};
use tenure::{Hold, Options, Released};

use super::channel::Message;
use super::command::Command;
use super::events::{Event, Events};
use super::forward::Forwarding;
use super::held::{Held, Settling};
use super::loss::Loss;
use super::registry::{self, Entry};
use super::report::{MAX_RUN, Outcome, Report, late, not_started};
use super::shared_state::SharedState;
use super::supervise::{self, CommandResult, Limits, StopReason, Supervision};
use super::terminal::Terminal;
use super::{clock, log, signals, stdio};
use crate::args::Run;
use crate::args::claim::Kind;
use crate::args::run::{Program, Purpose};
use crate::engine;
use crate::failure::{Failure, INTERNAL};
use crate::output::quoted;
use crate::settings::Settings;
use crate::system::{self, Inherited};
use crate::within;

/// The name of this process for `ps` and `pkill`.
const NAME: &std::ffi::CStr = c"hold-supervisor";
/// How long a candidate whose command has exited leaves the lead to others.
const RESTART: Duration = Duration::from_secs(1);

/// What the supervisor has from before the fork.
pub(super) struct Start<'a> {
    pub(super) run: &'a Run,
    pub(super) settings: &'a Settings,
    pub(super) foreground: Pid,
    pub(super) guard: Pid,
    pub(super) link: UnixStream,
    pub(super) shared: SharedState,
    pub(super) wake_guard: OwnedFd,
    pub(super) inherited: Inherited,
    pub(super) status: Option<File>,
}

/// Supervises until everything is over, and returns the exit code.
pub(super) fn supervise_run(start: Start<'_>) -> u8 {
    let Start { run, settings, foreground, guard, link, shared, wake_guard, inherited, status } =
        start;
    let mut publisher = Publisher { settings, status };
    let runtime =
        set_apart(foreground).map_err(|error| broken(&error)).and_then(|()| engine::runtime());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(failure) => {
            let report = publisher.publish(Report::not_run(Outcome::Failed, failure));
            let _ = (&link).write_all(&report.message(false).to_bytes());
            return report.exit;
        }
    };
    let code = runtime.block_on(async {
        let events = match Events::new(foreground, link, wake_guard, inherited) {
            Ok(events) => events,
            Err((error, link)) => {
                let report = publisher.publish(Report::not_run(Outcome::Failed, broken(&error)));
                let _ = (&link).write_all(&report.message(false).to_bytes());
                return report.exit;
            }
        };
        let mut supervisor = Supervisor {
            run,
            settings,
            events,
            guard,
            shared,
            inherited,
            paused: false,
            passing: None,
        };
        let (mut report, kept) = supervisor.go().await;
        shared.set_over();
        supervisor.pass_on(&mut report).await;
        let report = publisher.publish(report);
        supervisor.events.tell(report.message(kept.is_some()));
        if let Some(kept) = kept {
            drop(publisher);
            kept.linger(&mut supervisor.events).await;
        }
        report.exit
    });
    // A DNS lookup that hangs must not keep us.
    runtime.shutdown_background();
    code
}

/// Where a report goes.
struct Publisher<'a> {
    settings: &'a Settings,
    status: Option<File>,
}

impl Publisher<'_> {
    fn publish(&mut self, report: Report) -> Report {
        report.publish(self.settings.error_paint(), self.status.as_mut());
        report
    }
}

/// Moves out of reach of signals that are meant for the foreground.
fn set_apart(foreground: Pid) -> io::Result<()> {
    setpgid(None, None)?;
    set_child_subreaper(Some(getpid()))?;
    // Failing to change the name is no reason to stop.
    let _ = rustix::thread::set_name(NAME);
    system::retitle(&format!("{} of {foreground}", NAME.to_string_lossy()));
    Ok(())
}

fn broken(error: &io::Error) -> Failure {
    let help = "check the limits of this process (`ulimit -a`)";
    Failure::new(INTERNAL, "cannot supervise the command", error.to_string(), help)
}

pub(super) struct Supervisor<'a> {
    pub(super) run: &'a Run,
    pub(super) settings: &'a Settings,
    pub(super) events: Events,
    guard: Pid,
    shared: SharedState,
    inherited: Inherited,
    /// The foreground was stopped: nothing is started until it is continued.
    pub(super) paused: bool,
    /// Forwards the output, if it is not the command's own.
    pub(super) passing: Option<Forwarding>,
}

/// Why the supervisor stops waiting.
pub(super) enum Cancelled {
    /// By this signal.
    Signal(i32),
    /// The foreground was killed.
    ForegroundGone,
}

impl Cancelled {
    pub(super) fn report(self) -> Report {
        match self {
            Cancelled::Signal(signal) => Report::cancelled(signal),
            Cancelled::ForegroundGone => Report::cancelled(libc::SIGKILL),
        }
    }
}

/// What is left to do after everything was reported.
enum Rest {
    /// The hold is kept for a while.
    Kept(Kept),
    /// It is released: the engine can be told that this process needs nothing any more.
    SignOff,
    /// The engine does not answer.
    Nothing,
}

/// A hold that outlives its command.
struct Kept {
    hold: Held,
    until: Duration,
}

impl Supervisor<'_> {
    /// From the first request to the last. With `hold_for`, the hold may have to be kept after that.
    async fn go(&mut self) -> (Report, Option<Kept>) {
        let connecting = engine::connect_guarded(self.settings, self.guard);
        let tenure = match self.unless_cancelled(connecting).await {
            Ok(Ok(tenure)) => tenure,
            Ok(Err(failure)) => return (Report::not_run(Outcome::Failed, failure), None),
            Err(off) => return (off.report(), None),
        };
        loop {
            let (hold, options) = match self.acquire(&tenure).await {
                Ok(taken) => taken,
                Err(report) => {
                    self.leave(&tenure).await;
                    return (report, None);
                }
            };
            let (mut report, rest) = self.hold_and_run(hold, &options).await;
            if let Some(pause) = report.again {
                match self.campaign_again(&report, pause).await {
                    Ok(()) => continue,
                    Err(off) => report = off,
                }
            }
            match rest {
                Rest::Kept(kept) => return (report, Some(kept)),
                Rest::SignOff => self.leave(&tenure).await,
                Rest::Nothing => {}
            }
            return (report, None);
        }
    }

    /// Reports how the term ended, and waits until it is time for the next one.
    async fn campaign_again(&mut self, report: &Report, pause: Duration) -> Result<(), Report> {
        report.publish(self.settings.error_paint(), None);
        let name = quoted(&self.run.claim.name);
        let how = report.command.map_or(String::new(), |ending| format!("the command {ending}; "));
        self.settings.notes().say(&format!("{how}campaigning for {name} again"));
        let paused = self.unless_cancelled(tokio::time::sleep(pause)).await;
        paused.map_err(Cancelled::report)
    }

    async fn hold_and_run(&mut self, hold: Held, options: &Options) -> (Report, Rest) {
        let since = clock::now();
        let fence = hold.fence().get();
        let ran = async {
            self.until_not_paused(&hold, options).await?;
            self.until_nothing_is_abandoned(&hold, options).await?;
            self.run_command(&hold, options).await
        };
        let ran = ran.await;
        let (mut report, lasted) = match ran {
            Ok(result) => (self.judge(result, &hold, options), hold.is_live()),
            Err(report) => (report, true),
        };
        report.fence = Some(fence);
        let until = since + options.hold_for;
        let started = report.command.is_some();
        if started && lasted && clock::now() < until {
            return (report, Rest::Kept(Kept { hold, until }));
        }
        let settling = self.settle(&mut report).await;
        let released = self.unless_hurried(hold.let_go(settling)).await.flatten();
        log::released(self.run, released.as_ref());
        match released {
            Some(Released::InTime) => (report, Rest::SignOff),
            _ => {
                if lasted && report.failure.is_none() {
                    let name = quoted(&self.run.claim.name);
                    self.settings.notes().say(&format!(
                        "the engine did not confirm the release of {name}: it stays locked until its \
                         ttl expires"
                    ));
                }
                (report, Rest::Nothing)
            }
        }
    }

    async fn run_command(
        &mut self,
        hold: &Hold,
        options: &Options,
    ) -> Result<CommandResult, Report> {
        let run = self.run;
        let kill_after = run.kill_after(options.ttl).unwrap_or_default();
        let limits = Limits {
            signal: run.signal,
            kill_after,
            margin: Limits::margin(kill_after, options.ttl),
            max_run: run.max_run,
            on_lost: run.on_lost,
            leftovers: run.leftovers,
        };
        let mut terminal = Terminal::new(self.events.foreground);
        let note = Entry::create();
        // Before the command runs: no matter what happens to this process from then on, the command is killed in
        // time.
        self.shared.set_killed_for_it(false);
        let gone_by = limits.gone_by(clock::now() + hold.remaining());
        supervise::set_deadline(gone_by, self.shared, &self.events);
        let command = match self.start(hold, &note, &mut terminal) {
            Ok(command) => command,
            Err(error) => {
                self.shared.set_deadline(None);
                note.remove();
                let failure = not_started(&shown(&run.program), &error);
                return Err(Report::not_run(Outcome::Failed, failure));
            }
        };
        note.started(command.pid());
        log::started(run, command.pid());
        if !run.leads() {
            // From now on only the command has its input and output: if it closes its output, readers must not
            // wait for us. A leader may start another command later.
            stdio::let_go_of_input_and_output();
        }
        let (settings, fence) = (self.settings, hold.fence().get());
        let say = |loss: &Loss| {
            let warning = loss.failure(&run.claim.name, fence, options.ttl, false);
            let report = Report::not_run(Outcome::Lost, warning);
            report.publish(settings.error_paint(), None);
        };
        let remark = |text: &str| settings.notes().say(text);
        let supervision = Supervision {
            command,
            hold,
            options,
            limits,
            events: &mut self.events,
            terminal,
            shared: self.shared,
            say: &say,
            note: &remark,
        };
        let result = supervision.run().await;
        note.remove();
        Ok(result)
    }

    fn start(&mut self, hold: &Hold, note: &Entry, terminal: &mut Terminal) -> io::Result<Command> {
        let run = self.run;
        let mut variables = vec![
            ("TENURE_NAME", run.claim.name.clone()),
            ("TENURE_KIND", word(run).to_owned()),
            ("TENURE_FENCE", hold.fence().to_string()),
            (within::VARIABLE, within::with(run.space(), hold.name(), hold.fence().get())),
            (registry::VARIABLE, note.run.clone()),
        ];
        if run.leads() {
            variables.push(("TENURE_TERM", hold.fence().to_string()));
        }
        // It is a setting, too: a default must not become an explicit value for a run within this one.
        if let Some(owner) = &run.claim.owner {
            variables.push(("TENURE_OWNER", owner.clone()));
        }
        let mut output = None;
        if let Purpose::Once(_) = run.purpose {
            let (passing, ends) = Forwarding::start()?;
            (self.passing, output) = (Some(passing), Some(ends));
        }
        Command::start(&run.program, variables, self.inherited, terminal, output)
    }

    /// The report for a command that ran.
    fn judge(&self, result: CommandResult, hold: &Hold, options: &Options) -> Report {
        log::ended(self.run, result.ending);
        let again = self.again(&result);
        let CommandResult { ending, stopped, warned, .. } = result;
        let by_itself = stopped.is_none();
        let (outcome, exit, failure) = match stopped {
            None if warned.is_some() => (Outcome::Lost, ending.exit_code(), None),
            None if !hold.is_live() => {
                let exit = ending.exit_code();
                (Outcome::Lost, exit, Some(late(&self.run.claim.name, exit)))
            }
            None => (Outcome::Ran, ending.exit_code(), None),
            Some(StopReason::ForegroundGone) => {
                (Outcome::Signal, signals::exit_code(libc::SIGKILL), None)
            }
            Some(StopReason::MaxRun) => (Outcome::MaxRun, MAX_RUN, Some(self.ran_too_long())),
            Some(StopReason::Lost(loss)) => {
                let (name, fence) = (&self.run.claim.name, hold.fence().get());
                let failure = loss.failure(name, fence, options.ttl, true);
                (Outcome::Lost, failure.exit, Some(failure))
            }
        };
        Report { outcome, exit, command: Some(ending), fence: None, failure, by_itself, again }
    }

    /// How long until a candidate campaigns again. One whose command exits must not hurry: the next one may exit
    /// as soon.
    fn again(&self, result: &CommandResult) -> Option<Duration> {
        let Purpose::Lead { restart } = self.run.purpose else { return None };
        match result.stopped {
            _ if result.told_to_end => None,
            Some(StopReason::Lost(_)) => Some(Duration::ZERO),
            None if restart => Some(RESTART),
            _ => None,
        }
    }

    fn ran_too_long(&self) -> Failure {
        let max_run = crate::output::span(self.run.max_run.unwrap_or_default());
        Failure::new(
            MAX_RUN,
            format!("{} was stopped after {max_run}", quoted(&shown(&self.run.program))),
            "it reached --max-run",
            "raise --max-run if it needs longer",
        )
    }

    /// Waits for `work`, unless a signal ends the wait or the foreground is killed.
    pub(super) async fn unless_cancelled<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Cancelled> {
        let mut work = std::pin::pin!(work);
        loop {
            let event = tokio::select! {
                biased;
                event = self.events.next() => event,
                done = &mut work => return Ok(done),
            };
            if let Some(off) = self.heed(event) {
                return Err(off);
            }
        }
    }

    /// Waits for `work`, the last thing to do, unless a signal shows that nobody can wait for it. It does not
    /// matter if the foreground is killed in the meantime.
    pub(super) async fn unless_hurried<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let event = tokio::select! {
                event = self.events.next() => event,
                done = &mut work => return Some(done),
            };
            if let Some(Cancelled::Signal(_)) = self.heed(event) {
                return None;
            }
        }
    }

    /// What an event means while no command runs.
    pub(super) fn heed(&mut self, event: Event) -> Option<Cancelled> {
        match event {
            Event::ForegroundGone => return Some(Cancelled::ForegroundGone),
            Event::Signal(signal) if signals::is_an_end(signal) => {
                return Some(Cancelled::Signal(signal));
            }
            Event::Signal(libc::SIGCONT) => self.paused = false,
            Event::Signal(libc::SIGTSTP) => {
                self.paused = true;
                self.events.tell(Message::Stopped { signal: libc::SIGTSTP as u8, all: false });
            }
            Event::Signal(_) | Event::Child | Event::Alarm => {}
        }
        None
    }
}

impl Kept {
    /// Keeps the name taken after the foreground has exited, until its time is over or someone ends this process.
    /// Then it exits without a release, and the name stays taken for the rest of the ttl.
    async fn linger(self, events: &mut Events) {
        stdio::let_go_of_everything();
        // Nobody who waits for what this process started should wait for this.
        let _ = rustix::process::setsid();
        let mut lost = self.hold.lost();
        loop {
            if clock::now() >= self.until {
                self.hold.let_go(Settling::Open).await;
                return;
            }
            let _ = events.alarm.set(Some(self.until));
            tokio::select! {
                _ = &mut lost => return,
                event = events.next() => if let Event::Signal(signal) = event
                    && signals::is_an_end(signal) { return std::mem::forget(self.hold) },
            }
        }
    }
}

/// The kind of the name, which the command finds in TENURE_KIND.
pub(super) fn word(run: &Run) -> &'static str {
    match (&run.purpose, run.claim.kind) {
        (Purpose::Lead { .. }, _) => "leader",
        (Purpose::Once(_), _) => "once",
        (Purpose::Hold, Kind::Lock) => "lock",
        (Purpose::Hold, Kind::Shared | Kind::Exclusive) => "rwlock",
        (Purpose::Hold, Kind::Slots(_)) => "sem",
    }
}

/// The program as others see it: without its arguments, which may contain secrets.
pub(super) fn shown(program: &Program) -> String {
    match program {
        Program::Words(words) => words.first().map(|word| word.to_string_lossy()),
        Program::Shell(_) => Some("sh -c".into()),
    }
    .unwrap_or_default()
    .into_owned()
}
