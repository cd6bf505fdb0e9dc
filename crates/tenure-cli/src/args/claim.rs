//! The arguments of a claim, which `run`, `elect`, `once` and `acquire` share.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{Arg, ArgAction};

use super::define::{flag, option, word};
use super::given::{Found, Given, Source};
use crate::failure::{Failure, USAGE};
use crate::output::quoted;

/// The most units of a semaphore.
const MOST_SLOTS: u64 = (1 << 20) - 1;

/// The arguments of a claim. What is not given is left to the URL and to the library.
#[derive(Clone, Debug)]
pub(crate) struct ClaimArgs {
    /// The name as the user typed it, without the namespace.
    pub(crate) name: String,
    /// The kind of the name.
    pub(crate) kind: Kind,
    /// How long to wait in line.
    pub(crate) wait: Wait,
    /// Join the line only if fewer than this many wait.
    pub(crate) max_waiters: Option<u32>,
    /// How long the hold lasts without renewal.
    pub(crate) ttl: Option<Duration>,
    /// How often it is renewed.
    pub(crate) renew_every: Option<Duration>,
    /// How long it is renewed.
    pub(crate) max_hold: Option<Duration>,
    /// How long the name stays taken at least.
    pub(crate) hold_for: Option<Duration>,
    /// Who makes the claim, shown to others.
    pub(crate) owner: Option<String>,
    /// The reason, shown to others.
    pub(crate) reason: Option<String>,
    /// Pairs, shown to others.
    pub(crate) meta: Vec<(String, String)>,
    /// What a leader publishes.
    pub(crate) value: Option<String>,
}

/// The kind of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One holder at a time.
    Lock,
    /// One of many readers.
    Shared,
    /// The one writer.
    Exclusive,
    /// One of this many slots.
    Slots(u32),
}

/// How long to wait in line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// As set by the URL, otherwise for ever.
    Unsaid,
    /// Not at all.
    No,
    /// For this long.
    Limit(Duration),
    /// For ever.
    Forever,
}

/// The arguments of a claim.
pub(super) fn define() -> Vec<Arg> {
    let mut all = vec![word("name", "NAME", "Name of the lock").required(true)];
    all.extend(define_wait());
    let full = "Do not join a line of N waiters: exit at once with code 75";
    all.push(option("max-waiters", None, "N", full));
    all.extend(define_kind());
    all.extend(define_about());
    all
}

/// How long to wait.
pub(super) fn define_wait() -> [Arg; 2] {
    [
        flag("no-wait", Some('n'), "Do not wait: if it is held, exit at once with code 75")
            .conflicts_with("wait"),
        option(
            "wait",
            Some('w'),
            "D",
            "Wait at most this long, then exit with code 75 [default: forever]",
        ),
    ]
}

/// The kind of the name.
fn define_kind() -> [Arg; 3] {
    [
        flag("shared", Some('s'), "Take a shared (read) lock")
            .conflicts_with_all(["exclusive", "slots"]),
        flag("exclusive", Some('x'), "Take an exclusive (write) lock where others use --shared")
            .conflicts_with("slots"),
        option(
            "slots",
            Some('j'),
            "N",
            "Take one of N slots; all users of the name must use the same N",
        ),
    ]
}

/// How long it lasts, and its details.
pub(super) fn define_about() -> [Arg; 4] {
    [
        option("ttl", Some('t'), "D", "How long it stays held without renewal [default: 30s]"),
        option("owner", None, "TEXT", "Owner, as shown to others [default: host:pid]"),
        option("reason", None, "TEXT", "Reason, as shown to others"),
        option(
            "meta",
            None,
            "K=V",
            "Key-value pair to show to others; may be repeated, or comma-separated in the variable",
        )
        .action(ArgAction::Append),
    ]
}

impl ClaimArgs {
    pub(super) fn read(given: &Given<'_>) -> Result<ClaimArgs, Failure> {
        let (kind, wait) = (Kind::read(given)?, Wait::read(given)?);
        let max_waiters = given.number("max-waiters", 0..=u32::MAX.into())?;
        let max_waiters = max_waiters.and_then(|most| u32::try_from(most).ok());
        Ok(ClaimArgs { kind, wait, max_waiters, ..ClaimArgs::read_about(given)? })
    }

    /// Reads what [`define_about`] defines. The claim waits for ever.
    pub(super) fn read_about(given: &Given<'_>) -> Result<ClaimArgs, Failure> {
        Ok(ClaimArgs {
            name: given.name()?,
            kind: Kind::Lock,
            wait: Wait::Forever,
            max_waiters: None,
            ttl: given.some_time("ttl")?,
            renew_every: None,
            max_hold: None,
            hold_for: None,
            owner: said(given, "owner")?,
            reason: said(given, "reason")?,
            meta: read_meta(given)?,
            value: None,
        })
    }
}

impl Kind {
    /// The command line wins over all variables.
    fn read(given: &Given<'_>) -> Result<Kind, Failure> {
        let (shared, exclusive) = (given.flag("shared")?, given.flag("exclusive")?);
        let on_line = |name| given.is_on_command_line(name);
        if on_line("shared") || (shared.value && !on_line("exclusive") && !on_line("slots")) {
            return Ok(Kind::Shared);
        }
        if on_line("exclusive") || (exclusive.value && !on_line("slots")) {
            return Ok(Kind::Exclusive);
        }
        let slots = given.number("slots", 1..=MOST_SLOTS)?;
        Ok(slots.and_then(|slots| u32::try_from(slots).ok()).map_or(Kind::Lock, Kind::Slots))
    }
}

impl Wait {
    pub(super) fn read(given: &Given<'_>) -> Result<Wait, Failure> {
        if given.is_on_command_line("no-wait") {
            return Ok(Wait::No);
        }
        let wait = Wait::read_limit(given)?;
        if given.is_on_command_line("wait") {
            return Ok(wait);
        }
        Ok(if given.flag("no-wait")?.value { Wait::No } else { wait })
    }

    pub(super) fn read_limit(given: &Given<'_>) -> Result<Wait, Failure> {
        match given.text("wait")? {
            Some(Found { value, .. }) if value == "forever" => Ok(Wait::Forever),
            _ => Ok(match given.duration("wait")? {
                Some(Duration::ZERO) => Wait::No,
                Some(limit) => Wait::Limit(limit),
                None => Wait::Unsaid,
            }),
        }
    }
}

/// Text that others will see. Empty text counts as none.
pub(super) fn said(given: &Given<'_>, name: &'static str) -> Result<Option<String>, Failure> {
    Ok(given.text(name)?.map(|found| found.value).filter(|text| !text.is_empty()))
}

fn read_meta(given: &Given<'_>) -> Result<Vec<(String, String)>, Failure> {
    let Some(found) = given.text("meta")? else { return Ok(Vec::new()) };
    let pairs: Vec<String> = match found.source {
        Source::Flag => {
            let all = given.all("meta").into_iter();
            all.map(|pair| pair.into_string().map_err(|pair| not_a_pair(given, &pair)))
                .collect::<Result<_, _>>()?
        }
        _ => found.value.split(',').map(str::to_owned).collect(),
    };
    pairs.iter().filter(|pair| !pair.is_empty()).map(|pair| read_pair(given, pair)).collect()
}

fn read_pair(given: &Given<'_>, pair: &str) -> Result<(String, String), Failure> {
    let read = pair.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = read.ok_or_else(|| not_a_pair(given, OsStr::new(pair)))?;
    if RESERVED.contains(&key) {
        return Err(Failure::new(
            USAGE,
            format!("the --meta key {} is reserved", quoted(key)),
            format!("tenure sets these keys itself: {}", RESERVED.join(", ")),
            format!("use another key, such as `--meta my-{key}={value}`"),
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// The keys that tenure itself sets, and reads to describe holders.
pub(crate) const RESERVED: [&str; 4] = ["cmd", "host", "pid", "ttl"];

fn not_a_pair(given: &Given<'_>, pair: &OsStr) -> Failure {
    given.unreadable("meta", pair, "expected KEY=VALUE", "ticket=4711")
}
