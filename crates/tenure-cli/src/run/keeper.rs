//! The keeper: it stands in line, holds, renews, starts the command, watches over it, releases.
//!
//! It is a process of its own, with a group and a name of its own, so that what ends `tenure` (a key in
//! the terminal, `kill -9`, `pkill tenure`) does not end it: the hold must not end before the command
//! has, and it is the keeper that sees to both.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, getpid, set_child_subreaper, setpgid};
use tenure::{ErrorKind, Hold, Options, Released, Tenure};

use super::command::Command;
use super::events::{Event, Events};
use super::link::{News, Slate};
use super::loss::Loss;
use super::report::{MAX_RUN, Outcome, Report, not_started};
use super::terminal::Terminal;
use super::watch::{Limits, Watch, Watched, Why};
use super::{clock, quiet, signals, tree};
use crate::args::Run;
use crate::args::claim::Kind;
use crate::args::run::Program;
use crate::asking::origin;
use crate::engine;
use crate::failure::{Failure, INTERNAL};
use crate::output::quoted;
use crate::settings::Settings;
use crate::system::{self, Inherited};
use crate::waiting::Waiting;

/// How long the way out of the line may take: an engine that does not answer forgets us by itself.
const LEAVING: Duration = Duration::from_secs(2);
/// What `ps` and `pkill` know this process by.
const NAME: &std::ffi::CStr = c"hold-keeper";

/// What the keeper has from before the fork.
pub(super) struct Start<'a> {
    pub(super) run: &'a Run,
    pub(super) settings: &'a Settings,
    pub(super) front: Pid,
    pub(super) link: UnixStream,
    pub(super) slate: Slate,
    pub(super) inherited: Inherited,
    pub(super) status: Option<File>,
}

/// Keeps until all is over, and returns the exit code.
pub(super) fn keep(start: Start<'_>) -> u8 {
    let Start { run, settings, front, link, slate, inherited, mut status } = start;
    let paint = settings.error_paint();
    let runtime = set_apart(front).map_err(|error| broken(&error)).and_then(|()| engine::runtime());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(failure) => {
            let report = Report::not_run(Outcome::Failed, failure);
            report.publish(paint, status.as_mut());
            return report.exit;
        }
    };
    let code = runtime.block_on(async {
        let events = match Events::new(front, link, inherited) {
            Ok(events) => events,
            Err(error) => {
                let report = Report::not_run(Outcome::Failed, broken(&error));
                report.publish(paint, status.as_mut());
                return report.exit;
            }
        };
        let mut keeper = Keeper { run, settings, events, slate, inherited, paused: false };
        let (report, kept) = keeper.go().await;
        report.publish(paint, status.as_mut());
        drop(status);
        let lingers = kept.is_some();
        keeper.events.tell(News::Done { code: report.exit, lingers });
        if let Some(kept) = kept {
            kept.linger(&mut keeper.events).await;
        }
        report.exit
    });
    // A look-up that hangs must not keep us.
    runtime.shutdown_background();
    code
}

/// Out of the reach of what is meant for the front.
fn set_apart(front: Pid) -> io::Result<()> {
    setpgid(None, None)?;
    set_child_subreaper(Some(getpid()))?;
    // A name that cannot be changed is no reason to stop.
    let _ = rustix::thread::set_name(NAME);
    system::retitle(&format!("{} of {front}", NAME.to_string_lossy()));
    Ok(())
}

fn broken(error: &io::Error) -> Failure {
    let help = "see the limits of this process (`ulimit -a`)";
    Failure::new(INTERNAL, "the command cannot be watched over", error.to_string(), help)
}

struct Keeper<'a> {
    run: &'a Run,
    settings: &'a Settings,
    events: Events,
    slate: Slate,
    inherited: Inherited,
    /// The front was stopped: nothing is started until it goes on.
    paused: bool,
}

/// Why the keeper does not go on.
enum CalledOff {
    /// By this signal.
    Signal(i32),
    /// The front was killed.
    FrontGone,
}

impl CalledOff {
    fn report(self) -> Report {
        match self {
            CalledOff::Signal(signal) => Report::called_off(signal),
            CalledOff::FrontGone => Report::called_off(libc::SIGKILL),
        }
    }
}

/// A hold that outlives its command.
struct Kept {
    hold: Hold,
    until: Duration,
}

impl Keeper<'_> {
    /// From the first contact to the last. With `hold_for`, the hold may have to be kept after that.
    async fn go(&mut self) -> (Report, Option<Kept>) {
        let connecting = engine::connect_guarded(self.settings, self.events.front);
        let tenure = match self.unless_called_off(connecting).await {
            Ok(Ok(tenure)) => tenure,
            Ok(Err(failure)) => return (Report::not_run(Outcome::Failed, failure), None),
            Err(off) => return (off.report(), None),
        };
        let (hold, options) = match self.take(&tenure).await {
            Ok(taken) => taken,
            Err(report) => {
                self.leave(&tenure).await;
                return (report, None);
            }
        };
        self.hold_and_run(hold, &options).await
    }

    /// Stands in line until it holds the name, for as long as a hold lasts.
    async fn take(&mut self, tenure: &Tenure) -> Result<(Hold, Options), Report> {
        let (asking, settings) = (&self.run.asking, self.settings);
        let failed = |failure| Report::not_run(Outcome::Failed, failure);
        let options = self.options(tenure);
        self.run.kill_after(options.ttl).map_err(failed)?;
        let checked = tenure.clone().with_defaults(options.clone());
        checked.map_err(|error| failed(engine::failure(&error, settings)))?;
        // A hold that is kept is kept by us, so that the front need not wait for it.
        let mut asked = options.clone();
        asked.hold_for = Duration::ZERO;
        let waiting = Waiting::new(tenure, settings, &asking.name, Some(&options.details));
        loop {
            let joined = asking.join(tenure, settings, asked.clone());
            let acquiring = async {
                let hold = tokio::select! {
                    hold = joined => hold?,
                    never = waiting.announce() => match never {},
                };
                make_full(&hold, &options).await?;
                Ok(hold)
            };
            match self.unless_called_off(acquiring).await {
                Ok(Ok(hold)) => {
                    waiting.got(hold.fence());
                    return Ok((hold, options));
                }
                // The turn came too late to be taken.
                Ok(Err(error)) if tenure::Error::kind(&error) == ErrorKind::Lost => {}
                Ok(Err(error)) => return Err(self.not_granted(&error, tenure).await),
                Err(off) => return Err(off.report()),
            }
        }
    }

    fn options(&self, tenure: &Tenure) -> Options {
        let (run, front) = (self.run, tree::number(self.events.front).unsigned_abs());
        let mut about = origin(front);
        let mut options = run.asking.options(tenure, &[]);
        about.push(("cmd", shown(&run.program)));
        about.push(("ttl", humantime::format_duration(options.ttl).to_string()));
        options = run.asking.options(tenure, &about);
        if run.asking.owner.is_none() {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Arc::make_mut(&mut options.details).owner = format!("{host}:{front}");
        }
        options
    }

    async fn not_granted(&self, error: &tenure::Error, tenure: &Tenure) -> Report {
        let busy = matches!(error.kind(), ErrorKind::WaitOver | ErrorKind::Full);
        let exit = self.run.conflict_exit_code;
        if busy && exit == 0 {
            let outcome = Outcome::Busy;
            return Report { outcome, exit, command: None, fence: None, failure: None };
        }
        let mut failure = self.run.asking.refused(error, tenure, self.settings).await;
        if !busy {
            return Report::not_run(Outcome::Failed, failure);
        }
        failure.exit = exit;
        Report::not_run(Outcome::Busy, failure)
    }

    /// Waits until the engine knows that we left, within reason: a second signal ends it.
    async fn leave(&mut self, tenure: &Tenure) {
        let bounded = tokio::time::timeout(LEAVING, tenure.close());
        let _ = self.unless_called_off(bounded).await;
    }

    async fn hold_and_run(&mut self, hold: Hold, options: &Options) -> (Report, Option<Kept>) {
        let since = clock::now();
        let fence = hold.fence().get();
        let ran = match self.until_not_paused(&hold, options).await {
            Ok(()) => self.run_command(&hold, options).await,
            Err(report) => Err(report),
        };
        let (mut report, lasted) = match ran {
            Ok(watched) => (self.judge(watched, &hold, options), hold.is_live()),
            Err(report) => (report, true),
        };
        report.fence = Some(fence);
        let until = since + options.hold_for;
        let started = report.command.is_some();
        if started && lasted && clock::now() < until {
            return (report, Some(Kept { hold, until }));
        }
        self.release(hold, lasted, &mut report).await;
        (report, None)
    }

    /// A job that was stopped before it began begins when it goes on.
    async fn until_not_paused(&mut self, hold: &Hold, options: &Options) -> Result<(), Report> {
        while self.paused {
            let event = tokio::select! {
                event = self.events.next() => event,
                ended = hold.lost() => {
                    let (name, fence) = (&self.run.asking.name, hold.fence().get());
                    let failure = Loss::Ended(ended).failure(name, fence, options.ttl, true);
                    return Err(Report::not_run(Outcome::Lost, failure));
                }
            };
            if let Some(off) = self.heed(event) {
                return Err(off.report());
            }
        }
        Ok(())
    }

    async fn run_command(&mut self, hold: &Hold, options: &Options) -> Result<Watched, Report> {
        let run = self.run;
        let variables = [
            ("TENURE_NAME", run.asking.name.clone()),
            ("TENURE_KIND", word(run.asking.kind).to_owned()),
            ("TENURE_FENCE", hold.fence().to_string()),
            ("TENURE_OWNER", options.details.owner.clone()),
        ];
        let mut terminal = Terminal::new(self.events.front);
        let started = Command::start(&run.program, variables, self.inherited, &mut terminal);
        let command = started.map_err(|error| {
            Report::not_run(Outcome::Failed, not_started(&shown(&run.program), &error))
        })?;
        // What the command reads and writes is its own from now on: if it closes its output, whoever
        // reads that must not wait for us.
        quiet::let_go_of_input_and_output();
        let kill_after = run.kill_after(options.ttl).unwrap_or_default();
        let limits = Limits {
            signal: run.signal,
            kill_after,
            margin: Limits::margin(kill_after, options.ttl),
            max_run: run.max_run,
            on_lost: run.on_lost,
        };
        let (settings, fence) = (self.settings, hold.fence().get());
        let say = |loss: &Loss| {
            let warning = loss.failure(&run.asking.name, fence, options.ttl, false);
            let report = Report::not_run(Outcome::Lost, warning);
            report.publish(settings.error_paint(), None);
        };
        let note = |text: &str| settings.notes().say(text);
        let watch = Watch {
            command,
            hold,
            options,
            limits,
            events: &mut self.events,
            terminal,
            slate: self.slate,
            say: &say,
            note: &note,
        };
        Ok(watch.watch().await)
    }

    /// What a command that ran comes to.
    fn judge(&self, watched: Watched, hold: &Hold, options: &Options) -> Report {
        let Watched { ending, stopped, warned } = watched;
        let (outcome, exit, failure) = match stopped {
            None if warned.is_some() => (Outcome::Lost, ending.exit_code(), None),
            None => (Outcome::Ran, ending.exit_code(), None),
            Some(Why::FrontGone) => (Outcome::Signal, signals::exit_code(libc::SIGKILL), None),
            Some(Why::MaxRun) => (Outcome::MaxRun, MAX_RUN, Some(self.ran_too_long())),
            Some(Why::Lost(loss)) => {
                let (name, fence) = (&self.run.asking.name, hold.fence().get());
                let failure = loss.failure(name, fence, options.ttl, true);
                (Outcome::Lost, failure.exit, Some(failure))
            }
        };
        Report { outcome, exit, command: Some(ending), fence: None, failure }
    }

    fn ran_too_long(&self) -> Failure {
        let max_run = crate::output::span(self.run.max_run.unwrap_or_default());
        Failure::new(
            MAX_RUN,
            format!("{} was stopped after {max_run}", quoted(&shown(&self.run.program))),
            "it ran for --max-run",
            "raise --max-run if it needs longer",
        )
    }

    /// Releases, and says so if the hold did not last until then.
    async fn release(&mut self, hold: Hold, lasted: bool, report: &mut Report) {
        let name = quoted(&self.run.asking.name);
        // Whoever cannot wait for it has a signal to send.
        let released = match self.unless_called_off(released(hold)).await {
            Ok(Some(released)) => released,
            Ok(None) | Err(_) => Released::Late,
        };
        if released == Released::Late && lasted && report.failure.is_none() {
            self.settings.notes().say(&format!(
                "the engine did not confirm the release of {name}: it stays taken until its ttl is over"
            ));
        }
    }

    /// Waits for `work`, unless a signal ends the wait or the front is killed.
    async fn unless_called_off<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, CalledOff> {
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

    /// What an event means while no command runs.
    fn heed(&mut self, event: Event) -> Option<CalledOff> {
        match event {
            Event::FrontGone => return Some(CalledOff::FrontGone),
            Event::Signal(signal) if signals::is_an_end(signal) => {
                return Some(CalledOff::Signal(signal));
            }
            Event::Signal(libc::SIGCONT) => self.paused = false,
            Event::Signal(libc::SIGTSTP) => {
                self.paused = true;
                self.events.tell(News::Stopped { signal: libc::SIGTSTP as u8, all: false });
            }
            Event::Signal(_) | Event::Child | Event::Rung => {}
        }
        None
    }
}

impl Kept {
    /// Keeps the name taken after the front has gone, until its time is over or somebody ends this. It
    /// then ends without a release: what is left of the ttl stands in.
    async fn linger(self, events: &mut Events) {
        quiet::let_go_of_everything();
        let mut lost = self.hold.lost();
        loop {
            if clock::now() >= self.until {
                released(self.hold).await;
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

/// Releases, for as long as the hold itself can last: after that there is nothing to release.
async fn released(hold: Hold) -> Option<Released> {
    let longest = hold.remaining() + Duration::from_secs(1);
    tokio::time::timeout(longest, hold.release()).await.ok()?.ok()
}

/// A turn that was pushed lasts for its first life only, which may be less than the command gets to
/// end. It is renewed before the command is started, not after.
async fn make_full(hold: &Hold, options: &Options) -> tenure::Result<()> {
    if hold.remaining() >= options.ttl * 2 / 3 {
        return Ok(());
    }
    // Of a limit a little is gone already.
    let longest = options.max_hold.map(|limit| limit.saturating_sub(Duration::from_millis(50)));
    hold.extend(longest.map_or(options.ttl, |longest| options.ttl.min(longest))).await
}

/// What the name is, as the command finds it in TENURE_KIND.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Shared => "shared",
        Kind::Exclusive => "exclusive",
        Kind::Slots(_) => "sem",
    }
}

/// The program as others see it: without its arguments, in which there may be secrets.
fn shown(program: &Program) -> String {
    match program {
        Program::Words(words) => words.first().map(|word| word.to_string_lossy()),
        Program::Shell(_) => Some("sh -c".into()),
    }
    .unwrap_or_default()
    .into_owned()
}
