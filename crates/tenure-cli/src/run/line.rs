//! The keeper in line: from the ask to a hold that lasts, or out of the line again.

use std::sync::Arc;
use std::time::Duration;

use tenure::{ErrorKind, Hold, Options, Tenure};

use super::keeper::{Keeper, shown};
use super::report::{Outcome, Report, already_held};
use super::tree;
use crate::args::Run;
use crate::args::claim::Kind;
use crate::asking::origin;
use crate::engine;
use crate::failure::Failure;
use crate::waiting::Waiting;

/// How long the way out of the line may take: an engine that does not answer forgets us by itself.
const LEAVING: Duration = Duration::from_secs(3);

impl Keeper<'_> {
    /// Stands in line until it holds the name, for as long as a hold lasts.
    pub(super) async fn take(&mut self, tenure: &Tenure) -> Result<(Hold, Options), Report> {
        let (asking, settings) = (&self.run.asking, self.settings);
        let failed = |failure| Report::not_run(Outcome::Failed, failure);
        let options = self.options(tenure);
        self.run.kill_after(options.ttl).map_err(failed)?;
        let checked = tenure.clone().with_defaults(options.clone());
        checked.map_err(|error| failed(engine::failure(&error, settings)))?;
        if let Some(failure) = self.own_hold(tenure, &options).await {
            return Err(failed(failure));
        }
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
                Ok::<Hold, tenure::Error>(hold)
            };
            match self.unless_called_off(acquiring).await {
                Ok(Ok(hold)) => {
                    waiting.got(hold.fence());
                    return Ok((hold, options));
                }
                // The turn came too late to be taken.
                Ok(Err(error)) if error.kind() == ErrorKind::Lost => {}
                Ok(Err(error)) => return Err(self.not_granted(&error, tenure).await),
                Err(off) => return Err(off.report()),
            }
        }
    }

    /// Whether whoever runs this holds the name already, and would wait for itself.
    async fn own_hold(&self, tenure: &Tenure, options: &Options) -> Option<Failure> {
        let Run { asking, .. } = self.run;
        let said = |name| std::env::var(name).ok();
        if said("TENURE_NAME")? != asking.name || options.wait == Some(Duration::ZERO) {
            return None;
        }
        let fence: u64 = said("TENURE_FENCE")?.parse().ok()?;
        let view = tenure.inspect(self.settings.full_name(&asking.name)).await.ok()??;
        let own = view.holders.iter().find(|holder| holder.fence.get() == fence)?;
        let fits = match asking.kind {
            Kind::Lock | Kind::Exclusive => false,
            Kind::Shared | Kind::Slots(_) => own.weight < view.capacity,
        };
        (!fits).then(|| already_held(&asking.name, &own.details.owner))
    }

    fn options(&self, tenure: &Tenure) -> Options {
        let (run, front) = (self.run, tree::number(self.events.front).unsigned_abs());
        let ttl = run.asking.ttl.unwrap_or(tenure.defaults().ttl);
        let mut about = origin(front);
        about.push(("cmd", shown(&run.program)));
        about.push(("ttl", humantime::format_duration(ttl).to_string()));
        let mut options = run.asking.options(tenure, &about);
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

    /// Waits until the engine knows that we left, within reason.
    pub(super) async fn leave(&mut self, tenure: &Tenure) {
        let _ = self.unless_hurried(tokio::time::timeout(LEAVING, tenure.close())).await;
    }
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
