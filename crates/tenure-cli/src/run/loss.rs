//! How a hold is lost, and the failure for it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Ended, Hold, Options};

use super::report::LOST;
use crate::failure::Failure;
use crate::output::{clean, quoted, span};

/// Why a hold is lost, or will be before the command could exit.
#[derive(Clone, Debug)]
pub(super) enum Loss {
    /// It has ended, although there was time left by our clock.
    Ended(Ended),
    /// It was not renewed for so long that the command had to be stopped, for this reason.
    RunningOut { unrenewed: Duration, why: Option<String> },
    /// It reaches `max_hold`.
    MaxHold(Duration),
    /// The supervisor was not running, and the foreground has killed the command in its place.
    Unresponsive,
}

impl Loss {
    /// The loss of a hold with only `remaining` left: too little.
    pub(super) fn running_out(hold: &Hold, remaining: Duration, options: &Options) -> Loss {
        let why = match pin!(hold.at_risk()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(risk) => Some(risk.to_string()),
            Poll::Pending => None,
        };
        match options.max_hold {
            Some(max_hold) if why.is_none() && options.renew => Loss::MaxHold(max_hold),
            _ => Loss::RunningOut { unrenewed: options.ttl.saturating_sub(remaining), why },
        }
    }

    /// Whether someone else may hold the lock already.
    pub(super) fn has_passed_on(&self) -> bool {
        matches!(self, Loss::Ended(_))
    }

    /// The failure. `stopped`: the command did not outlive the hold.
    pub(super) fn failure(&self, name: &str, fence: u64, ttl: Duration, stopped: bool) -> Failure {
        let (how, why) = match self {
            Loss::Ended(Ended::Broken(note)) => {
                let how = format!("broken by {}: {}", clean(&note.by), quoted(&note.reason));
                (how, "an operator ended the hold, and the next holder may have started".to_owned())
            }
            Loss::Ended(Ended::Expired) => (
                format!("its ttl of {} expired", span(ttl)),
                "this machine slept, or this process was stopped, and could not react in time"
                    .to_owned(),
            ),
            Loss::Ended(ended) => {
                let how = clean(&ended.to_string());
                (how, "the engine ended the hold, and the next holder may have started".to_owned())
            }
            Loss::Unresponsive => (
                "its supervisor did not act by the deadline".to_owned(),
                "the process hold-supervisor was stopped, or got no CPU time".to_owned(),
            ),
            Loss::MaxHold(limit) => {
                let how = format!("it reached its max-hold of {}", span(*limit));
                (how, "nobody may hold it for longer".to_owned())
            }
            Loss::RunningOut { unrenewed, why } => {
                let how =
                    format!("last successful renewal {} ago, ttl {}", span(*unrenewed), span(ttl));
                let why = match why {
                    Some(why) => format!("renewals failed: {}", clean(why)),
                    None => "the lock is not renewed: `renew` is off".to_owned(),
                };
                (how, why)
            }
        };
        let (then, help) = match (stopped, self.has_passed_on()) {
            (true, true) => ("the command was stopped", FENCE),
            (true, false) => {
                ("the command was stopped before anyone else could get the lock", ENGINE)
            }
            (false, _) => ("the command continues without it (--on-lost warn)", FENCE),
        };
        let what = format!("LOST {} (fence {fence}): {how}", quoted(name));
        Failure::new(LOST, what, format!("{why}; {then}"), help).code("T012")
    }
}

const FENCE: &str = "protect what the command writes with the fence: `tenure explain fencing`";
const ENGINE: &str =
    "check the engine (`tenure doctor`), or use a longer --ttl; protect writes with the fence";

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::engine::Note;

    #[test]
    fn what_is_said_names_who_broke_it_and_cannot_harm_a_terminal() {
        let note = Note { by: "ops\x1b[2J".into(), reason: "it \"hangs\"".into() };
        let failure =
            Loss::Ended(Ended::Broken(note)).failure("a", 7, Duration::from_secs(30), true);
        assert_eq!(failure.what, r#"LOST "a" (fence 7): broken by ops\u{1b}[2J: "it \"hangs\"""#);
        assert_eq!((failure.exit, failure.code), (79, Some("T012")));
        assert!(failure.why.ends_with("the command was stopped"), "{}", failure.why);
    }

    #[test]
    fn renewals_that_fail_are_named_with_their_reason_and_age() {
        let why = Some("connection reset".into());
        let loss = Loss::RunningOut { unrenewed: Duration::from_secs(21), why };
        let failure = loss.failure("a", 7, Duration::from_secs(30), true);
        assert_eq!(failure.what, r#"LOST "a" (fence 7): last successful renewal 21s ago, ttl 30s"#);
        let why = "renewals failed: connection reset; the command was stopped before anyone else could \
                   get the lock";
        assert_eq!(failure.why, why);
    }
}
