//! Between the grant and the start of the command: what the supervisor waits for while it already holds the lock.

use std::time::Duration;

use tenure::{Ended, Hold, Options};

use super::loss::Loss;
use super::report::{Outcome, Report};
use super::supervise::STUCK;
use super::supervisor::{Cancelled, Supervisor};
use super::{clock, registry, tree};

/// How often to check until abandoned processes are gone.
const ABANDONED: Duration = Duration::from_millis(5);

impl Supervisor<'_> {
    /// A job that was stopped before its start is started when it is continued.
    pub(super) async fn until_not_paused(
        &mut self,
        hold: &Hold,
        options: &Options,
    ) -> Result<(), Report> {
        while self.paused {
            let event = tokio::select! {
                event = self.events.next() => event,
                ended = hold.lost() => return Err(self.lost_before_start(ended, hold, options)),
            };
            if let Some(off) = self.heed(event) {
                return Err(off.report());
            }
        }
        Ok(())
    }

    /// Ends what is left of commands whose `tenure` was killed: one of them may have held this lock.
    pub(super) async fn until_nothing_is_abandoned(
        &mut self,
        hold: &Hold,
        options: &Options,
    ) -> Result<(), Report> {
        let began = clock::now();
        let mut said = false;
        loop {
            let left = registry::end_abandoned();
            if left.is_empty() {
                return Ok(());
            }
            if !said && clock::now() > began + STUCK {
                said = true;
                let left = tree::shown(&left);
                self.settings.notes().say(&format!(
                    "waiting for processes of a command whose tenure was killed: {left}; they were killed, \
                     and have not exited"
                ));
            }
            let waited = tokio::select! {
                waited = self.unless_cancelled(tokio::time::sleep(ABANDONED)) => waited,
                ended = hold.lost() => return Err(self.lost_before_start(ended, hold, options)),
            };
            waited.map_err(Cancelled::report)?;
        }
    }

    fn lost_before_start(&self, ended: Ended, hold: &Hold, options: &Options) -> Report {
        let (name, fence) = (&self.run.claim.name, hold.fence().get());
        let failure = Loss::Ended(ended).failure(name, fence, options.ttl, true);
        let again = self.run.leads().then_some(Duration::ZERO);
        Report { again, ..Report::not_run(Outcome::Lost, failure) }
    }
}
