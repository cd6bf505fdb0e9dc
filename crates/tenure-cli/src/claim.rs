//! Makes a claim from the arguments, and the error if it is refused.

use std::pin::Pin;
use std::time::Duration;

use tenure::engine::Space;
use tenure::{Error, ErrorKind, Hold, Options, Tenure, View};

use crate::args::claim::{ClaimArgs, Kind, Wait};
use crate::engine;
use crate::facts;
use crate::failure::{BUSY, Failure, USAGE};
use crate::output::{clean, precise, quoted, span, typed};
use crate::settings::Settings;

/// A claim that waits in line.
pub(crate) type Joined = Pin<Box<dyn Future<Output = tenure::Result<Hold>> + Send>>;

/// The longest text that the library keeps, in bytes.
const LONGEST_TEXT: usize = 256;
/// How long it may take to find out who holds a name that was not acquired.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

impl ClaimArgs {
    /// The options of the claim, with the engine's defaults for what was not given. `more` are details that
    /// tenure adds under its own keys.
    pub(crate) fn options(&self, tenure: &Tenure, more: &[(&str, String)]) -> Options {
        let mut options = tenure.defaults();
        options.ttl = self.ttl.unwrap_or(options.ttl);
        options.max_waiters = self.max_waiters.or(options.max_waiters);
        options.renew_every = self.renew_every.or(options.renew_every);
        options.max_hold = self.max_hold.or(options.max_hold);
        options.hold_for = self.hold_for.unwrap_or(options.hold_for);
        options.wait = match self.wait {
            Wait::Unsaid => options.wait,
            Wait::No => Some(Duration::ZERO),
            Wait::Limit(limit) => Some(limit),
            Wait::Forever => None,
        };
        let details = options.details_mut();
        if let Some(owner) = &self.owner {
            details.owner.clone_from(owner);
        }
        details.reason.clone_from(&self.reason);
        details.value.clone_from(&self.value);
        details.meta.clone_from(&self.meta);
        details.meta.extend(more.iter().map(|(key, value)| ((*key).to_owned(), fitted(value))));
        options
    }

    /// Takes the place in line now, and returns a future that waits for the turn.
    pub(crate) fn join(&self, tenure: &Tenure, settings: &Settings, options: Options) -> Joined {
        let name = settings.full_name(&self.name);
        match self.kind {
            Kind::Lock => Box::pin(tenure.mutex(name).options(options).join()),
            Kind::Shared => Box::pin(tenure.rwlock(name).options(options).join_read()),
            Kind::Exclusive => Box::pin(tenure.rwlock(name).options(options).join_write()),
            Kind::Slots(slots) => Box::pin(tenure.semaphore(name, slots).options(options).join()),
        }
    }

    /// The failure for a claim that was refused: who holds the name, or how others use it.
    pub(crate) async fn refused(
        &self,
        error: &Error,
        tenure: &Tenure,
        settings: &Settings,
    ) -> Failure {
        let view = match error.kind() {
            ErrorKind::WaitOver | ErrorKind::Conflict => {
                // The wait is over: do not wait for a slow engine as well.
                let seen = tenure.inspect(settings.full_name(&self.name));
                let seen = tokio::time::timeout(LONGEST_LOOK, seen).await;
                seen.ok().and_then(|seen| seen.ok().flatten())
            }
            _ => None,
        };
        match (error.kind(), view) {
            (ErrorKind::WaitOver, view) => {
                busy(&self.name, self.wait, engine::reason(error), view.as_ref())
            }
            (ErrorKind::Conflict, Some(view)) => self.clash(&view, engine::reason(error)),
            _ => engine::failure(error, settings),
        }
    }

    fn clash(&self, view: &View, said: String) -> Failure {
        let (name, there) = (quoted(&self.name), view.capacity);
        let show = format!("use another name, or see `tenure show {}`", typed(&self.name));
        let asked = match self.kind {
            Kind::Slots(slots) if facts::kind(view) == "sem" => {
                return Failure::new(
                    USAGE,
                    format!("number of slots differs: {name} has {there}, you asked for {slots}"),
                    "all users of a name must use the same number",
                    format!("use `-j {there}`, or another name"),
                )
                .code("T020");
            }
            Kind::Slots(_) => "a semaphore (-j)",
            Kind::Shared => "a read-write lock (-s)",
            Kind::Exclusive => "a read-write lock (-x)",
            Kind::Lock => "a lock",
        };
        let (is, help) = match facts::kind(view) {
            "rwlock" => {
                ("a read-write lock", format!("use -s or -x, as its other users do; or {show}"))
            }
            "sem" => ("a semaphore", format!("use `-j {there}`; or {show}")),
            _ => ("a lock", show),
        };
        if asked.starts_with(is) {
            // It has changed since: only the library's error is left.
            return Failure::new(
                USAGE,
                format!("others use {name} in a different way"),
                said,
                help,
            );
        }
        Failure::new(
            USAGE,
            format!("kind mismatch: {name} is {is}, you asked for {asked}"),
            "a name keeps its kind as long as anyone uses it",
            help,
        )
        .code("T021")
    }
}

/// The failure for a name that others hold: who, since when, and what to do. `said` is the library's error, in
/// case nothing better is known.
pub(crate) fn busy(name: &str, wait: Wait, said: String, view: Option<&View>) -> Failure {
    let why = match wait {
        Wait::No => "you asked not to wait".to_owned(),
        Wait::Limit(limit) => format!("waited {}", precise(limit)),
        Wait::Unsaid | Wait::Forever => "the wait timed out".to_owned(),
    };
    let cron = match view.is_none_or(|view| view.name.space() == Space::Lock) {
        true => "; in cron, use `tenure run -n -E 0`",
        false => "",
    };
    let help = format!("see `tenure show {}`; wait longer with `--wait 5m`{cron}", typed(name));
    let held = view.and_then(facts::held_by).zip(view.and_then(facts::oldest));
    let (what, why) = match held {
        Some((held, holder)) => {
            let left = span(holder.remaining);
            (format!("busy: {} is {held}, {left} left unless renewed", quoted(name)), why)
        }
        // The holder has changed, or the engine does not answer: the library knows what it saw last.
        None => (format!("busy: {}", quoted(name)), said),
    };
    Failure::new(BUSY, what, why, help).code("T010")
}

/// The details that tenure adds to a claim: the host, and the process that it is for.
pub(crate) fn origin(pid: u32) -> Vec<(&'static str, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![("host", host), ("pid", pid.to_string())]
}

/// Makes text acceptable to the library: short enough, and without control characters.
fn fitted(text: &str) -> String {
    let mut text = clean(text);
    while text.len() > LONGEST_TEXT {
        text.pop();
    }
    text
}
