//! The work of a once in the supervisor: how it is settled, and how it is replayed.

use tenure::Outcome as Kept;

use super::command::Ending;
use super::forward::Forwarding;
use super::held::Settling;
use super::record::Record;
use super::report::{Outcome, Report, left_unsettled, not_passed_on, unsettled_help};
use super::supervisor::Supervisor;
use crate::args::run::Purpose;

impl Supervisor<'_> {
    /// How to settle work that ended like this.
    pub(super) async fn settle(&mut self, report: &mut Report) -> Settling {
        let Purpose::Once(work) = &self.run.purpose else { return Settling::NotDone };
        // A command that could not be started did not happen.
        let Some(ending) = report.command else { return Settling::NotDone };
        let written = match &mut self.passing {
            Some(passing) => passing.written().await,
            None => Default::default(),
        };
        match ending {
            // A command that was stopped may have been anywhere in its work.
            _ if !report.by_itself => {}
            Ending::Code(code) if code != 0 && !work.keep_failures => return Settling::NotDone,
            Ending::Signal(_) if !work.keep_failures => {}
            _ => return Settling::Done(Record { ending, written }.to_bytes()),
        }
        self.say_unsettled(report, ending);
        Settling::Open
    }

    fn say_unsettled(&self, report: &mut Report, ending: Ending) {
        let name = &self.run.claim.name;
        match (&mut report.failure, ending) {
            (Some(failure), _) => {
                failure.why.push_str("; the work is unsettled");
                failure.help = unsettled_help(name);
            }
            (None, Ending::Signal(signal)) => report.failure = Some(left_unsettled(name, signal)),
            (None, Ending::Code(_)) => {}
        }
    }

    /// Writes again what the command wrote when it ran.
    pub(super) fn replay(&mut self, outcome: &Kept) -> Report {
        let Record { ending, written } = Record::from_bytes(outcome);
        if let Some((left, whole)) = written.cut() {
            self.settings.notes().say(&format!(
                "the output was too long to be kept: these are the last {left} of {whole} bytes"
            ));
        }
        let mut report = Report::quiet(Outcome::Replayed, ending.exit_code());
        report.command = Some(ending);
        match Forwarding::again(written) {
            Ok(passing) => self.passing = Some(passing),
            Err(error) => fail(&mut report, &error),
        }
        report
    }

    /// Waits until all output is forwarded, unless a signal shows that nobody wants it.
    pub(super) async fn pass_on(&mut self, report: &mut Report) {
        let Some(passing) = self.passing.take() else { return };
        if let Some(Some(error)) = self.unless_hurried(passing.passed()).await
            && report.failure.is_none()
        {
            fail(report, &error);
        }
    }
}

fn fail(report: &mut Report, error: &std::io::Error) {
    let failure = not_passed_on(error);
    (report.exit, report.failure) = (failure.exit, Some(failure));
}
