//! The supervisor in line: from the request to a hold with its full ttl, or out of the line again.

use std::time::Duration;

use tenure::engine::Space;
use tenure::{Begun, ErrorKind, Options, Outcome, Tenure};

use super::held::{Held, Settling};
use super::log;
use super::report::{Outcome as Ended, Report, other_content, unsettled};
use super::supervisor::{Cancelled, Supervisor, shown};
use super::tree;
use crate::args::Run;
use crate::args::run::Purpose;
use crate::claim::{self, origin};
use crate::engine;
use crate::names;
use crate::output::quoted;
use crate::settings::Settings;
use crate::waiting::Waiting;
use crate::within;

/// How long leaving the line may take: an engine that does not answer forgets us anyway.
const LEAVING: Duration = Duration::from_secs(3);

/// How long a candidate waits before it asks again after the engine could not be reached.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The result of an attempt to acquire.
enum Attempt {
    /// It is held.
    Held(Held),
    /// There is nothing to run.
    Over(Report),
    /// The work was done before.
    Done(Outcome),
}

impl Supervisor<'_> {
    /// Waits in line until it holds the lock.
    pub(super) async fn acquire(&mut self, tenure: &Tenure) -> Result<(Held, Options), Report> {
        let (run, settings) = (self.run, self.settings);
        let failed = |failure| Report::not_run(Ended::Failed, failure);
        let options = self.options(tenure);
        run.kill_after(options.ttl).map_err(failed)?;
        let checked = tenure.clone().with_defaults(options.clone());
        checked.map_err(|error| failed(engine::failure(&error, settings)))?;
        let within = within::refuse(&run.claim, run.space(), options.wait, tenure, settings);
        within.await.map_err(failed)?;
        log::asked(run, &options, settings);
        // `hold_for` is handled by us, so that the foreground need not wait for it.
        let mut asked = options.clone();
        asked.hold_for = Duration::ZERO;
        let me = Some(options.details());
        let waiting = Waiting::new(tenure, settings, &run.claim.name, run.space(), me);
        let mut complained = false;
        loop {
            let claim = async {
                tokio::select! {
                    biased;
                    asked = ask(run, settings, tenure, asked.clone()) => Ok(asked),
                    stuck = within::watch(&run.claim, run.space(), &options, tenure, settings) => Err(stuck),
                    never = waiting.announce() => match never {},
                }
            };
            let asked = match self.unless_cancelled(claim).await {
                Ok(asked) => asked.map_err(failed)?,
                Err(cancelled) => return Err(cancelled.report()),
            };
            let error = match asked {
                Ok(Attempt::Held(held)) => match self.make_full(held, &options).await? {
                    Ok(held) => {
                        self.say_got(&held, &waiting);
                        return Ok((held, options));
                    }
                    Err(error) => error,
                },
                Ok(Attempt::Over(report)) => return Err(report),
                Ok(Attempt::Done(outcome)) => return Err(self.replay(&outcome)),
                Err(error) => error,
            };
            match error.kind() {
                // The turn came too late to be taken.
                ErrorKind::Lost => {}
                _ if run.leads() && error.is_retryable() => {
                    self.say_unreachable(&error, &mut complained);
                    let pause = tokio::time::sleep(ASK_AGAIN);
                    self.unless_cancelled(pause).await.map_err(Cancelled::report)?;
                }
                _ => return Err(self.not_granted(&error, tenure).await),
            }
        }
    }

    /// A pushed turn lasts only for its first life, which may be shorter than the time that the command gets to
    /// exit. It is renewed before the command is started, not after.
    async fn make_full(
        &mut self,
        held: Held,
        options: &Options,
    ) -> Result<tenure::Result<Held>, Report> {
        if held.remaining() >= options.ttl * 2 / 3 {
            return Ok(Ok(held));
        }
        // A little of `max_hold` has passed already.
        let longest = options.max_hold.map(|limit| limit.saturating_sub(Duration::from_millis(50)));
        let ttl = longest.map_or(options.ttl, |longest| options.ttl.min(longest));
        let extended = self.unless_cancelled(held.extend(ttl)).await;
        let not = match extended {
            Ok(Ok(())) => return Ok(Ok(held)),
            Ok(Err(error)) => Ok(Err(error)),
            Err(off) => Err(off.report()),
        };
        // Nothing was run, so the work of a once did not happen.
        held.let_go(Settling::NotDone).await;
        not
    }

    fn say_got(&self, held: &Held, waiting: &Waiting<'_>) {
        log::granted(self.run, held.fence().get());
        match held {
            Held::Term(term) => {
                let name = quoted(&self.run.claim.name);
                self.settings.notes().say(&format!("leading {name}, term {}", term.number()));
            }
            _ => waiting.got(held.fence()),
        }
    }

    fn say_unreachable(&self, error: &tenure::Error, complained: &mut bool) {
        if !std::mem::replace(complained, true) {
            let (name, said) = (quoted(&self.run.claim.name), engine::reason(error));
            let note = format!("cannot campaign for {name}, retrying: {said}");
            self.settings.notes().say(&note);
        }
    }

    fn options(&self, tenure: &Tenure) -> Options {
        let (run, foreground) = (self.run, tree::number(self.events.foreground).unsigned_abs());
        let ttl = run.claim.ttl.unwrap_or(tenure.defaults().ttl);
        let mut about = origin(foreground);
        about.push(("cmd", shown(&run.program)));
        about.push(("ttl", humantime::format_duration(ttl).to_string()));
        let mut options = run.claim.options(tenure, &about);
        if !matches!(run.purpose, Purpose::Hold) {
            // The next leader does not wait, and neither do those who wait for an outcome.
            options.hold_for = Duration::ZERO;
        }
        if run.claim.owner.is_none() {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            options.details_mut().owner = format!("{host}:{foreground}");
        }
        options
    }

    async fn not_granted(&self, error: &tenure::Error, tenure: &Tenure) -> Report {
        let busy = matches!(error.kind(), ErrorKind::WaitOver | ErrorKind::Full);
        let exit = self.run.conflict_exit_code;
        if busy && exit == 0 {
            return Report::quiet(Ended::Busy, exit);
        }
        let (purpose, claim) = (&self.run.purpose, &self.run.claim);
        let mut failure = match (purpose, error.kind()) {
            (Purpose::Hold, _) => claim.refused(error, tenure, self.settings).await,
            (Purpose::Once(_), ErrorKind::Conflict) => other_content(&claim.name),
            _ => engine::failure(error, self.settings),
        };
        if !busy {
            return Report::not_run(Ended::Failed, failure);
        }
        failure.exit = exit;
        Report::not_run(Ended::Busy, failure)
    }

    /// Waits until the engine knows that we left, within limits.
    pub(super) async fn leave(&mut self, tenure: &Tenure) {
        let _ = self.unless_hurried(tokio::time::timeout(LEAVING, tenure.close())).await;
    }
}

/// Makes the claim that the command needs.
async fn ask(
    run: &Run,
    settings: &Settings,
    tenure: &Tenure,
    options: Options,
) -> tenure::Result<Attempt> {
    let name = settings.full_name(&run.claim.name);
    let work = match &run.purpose {
        Purpose::Hold => {
            let hold = run.claim.join(tenure, settings, options).await?;
            return Ok(Attempt::Held(Held::Lock(hold)));
        }
        Purpose::Lead { .. } => {
            let term = tenure.election(name).options(options).campaign().await?;
            return Ok(Attempt::Held(Held::Term(term)));
        }
        Purpose::Once(work) => work,
    };
    let mut once = tenure.once(&name).options(options).rerun(work.rerun);
    if let Some(keep) = work.keep {
        once = once.keep(keep);
    }
    if let Some(content) = &work.content {
        once = once.content(content);
    }
    Ok(match once.begin().await? {
        Begun::Mine(work) => Attempt::Held(Held::Work(work)),
        Begun::Replayed(outcome) => Attempt::Done(outcome),
        Begun::Unsettled => {
            Attempt::Over(Report::not_run(Ended::Unsettled, unsettled(&run.claim.name)))
        }
        Begun::InProgress(_) => {
            let view = names::look(tenure, Space::Once, &name).await.ok().flatten();
            let said = "others are running it".to_owned();
            let busy = claim::busy(&run.claim.name, run.claim.wait, said, view.as_ref());
            Attempt::Over(Report::not_run(Ended::Busy, busy))
        }
    })
}
