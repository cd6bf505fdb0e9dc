//! The options of a lock: one plain struct, whose defaults can be set by the URL and the environment.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::Details;
use crate::model::error::{Error, Result};
use crate::model::profile::Profile;

/// How to acquire a lock. Every primitive has a setter for each field; [`Tenure::defaults`] returns the values
/// that the URL or the environment has set.
///
/// [`Tenure::defaults`]: crate::Tenure::defaults
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How long a hold lasts without renewal. Default: 30 s.
    pub ttl: Duration,
    /// How long to wait in line. `None` waits for ever, and is the default.
    pub wait: Option<Duration>,
    /// Whether the watchdog renews the hold. Default: yes.
    pub renew: bool,
    /// How often the watchdog renews the hold: at least this often, and at most half of the ttl apart. Renewals
    /// happen up to an eighth earlier, so that holds granted together are not renewed together. Default: a third
    /// of the ttl.
    pub renew_every: Option<Duration>,
    /// How long a hold is renewed, counted from its grant. Then it is lost, and the next in line gets it.
    /// Default: no limit.
    pub max_hold: Option<Duration>,
    /// How long the name stays taken at least, counted from the grant, even if it is released earlier. If the
    /// process ends before that, it stays taken for the rest of the ttl. Default: zero.
    pub hold_for: Duration,
    /// Join the line only if fewer than this many wait. Default: no limit.
    pub max_waiters: Option<u32>,
    /// What to do when the engine cannot be reached. Default: [`OnOutage::Closed`].
    pub on_outage: OnOutage,
    /// Shared with every claim that does not change them.
    pub(crate) details: Arc<Details>,
}

/// What to do when the engine cannot be reached; `docs/outage.md` helps to choose.
///
/// With `Local` and `Open` a claim gives up on an engine that has not answered for a second. From then on, until
/// the engine answers again, claims do not ask it. A hold that was not granted by the engine says so, by its
/// [`protection`](crate::Hold::protection) and in the log. Elections and onces are always `Closed`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum OnOutage {
    /// Fail with `Unavailable`.
    #[default]
    Closed,
    /// Use a line within this process, so that at least this process is in order. Every claim stands in that line
    /// before it asks the engine, outage or not, so neither the beginning of an outage nor its end lets two of
    /// this process in.
    Local,
    /// Continue without protection.
    Open,
}

/// What protects a hold, and who else may be inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Protection {
    /// The engine: nobody else is inside.
    Engine,
    /// The line of this process, because the engine cannot be reached: other processes may be inside.
    Local,
    /// Nothing, because the engine cannot be reached: anyone may be inside.
    None,
}

/// The options that apply after the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) renew: bool,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_for: Duration,
}

/// The shortest interval between renewals.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(10);

/// The longest owner and the longest reason, in bytes.
const LONGEST_TEXT: usize = 256;
/// The most pairs of meta, and the longest key and value in bytes.
pub(crate) const MOST_META: usize = 16;

/// The most units of a semaphore. A read-write lock has one more, so the two always conflict.
pub(crate) const MOST_UNITS: u32 = (1 << 20) - 1;

impl Options {
    pub(crate) fn new(owner: String) -> Options {
        Options {
            ttl: Duration::from_secs(30),
            wait: None,
            renew: true,
            renew_every: None,
            max_hold: None,
            hold_for: Duration::ZERO,
            max_waiters: None,
            on_outage: OnOutage::Closed,
            details: Arc::new(Details { owner, ..Details::default() }),
        }
    }

    /// What others may know: owner, reason, meta. Default: the owner is `host:pid`.
    pub fn details(&self) -> &Details {
        &self.details
    }

    /// The same, mutable.
    ///
    /// ```
    /// # async fn example() -> tenure::Result<()> {
    /// # let tenure = tenure::Tenure::connect("memory:").await?;
    /// let mut options = tenure.defaults();
    /// options.details_mut().owner = "web-3".into();
    /// let tenure = tenure.with_defaults(options)?;
    /// assert_eq!(tenure.defaults().details().owner, "web-3");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn details_mut(&mut self) -> &mut Details {
        Arc::make_mut(&mut self.details)
    }

    /// Sets a field from text, as the URL's query and the environment do.
    pub(crate) fn set(&mut self, field: &str, value: &str) -> Result<()> {
        match field {
            "ttl" => self.ttl = duration(field, value)?,
            "wait" if value == "forever" => self.wait = None,
            "wait" => self.wait = Some(duration(field, value)?),
            "renew" => self.renew = boolean(field, value)?,
            "renew_every" => self.renew_every = Some(duration(field, value)?),
            "max_hold" => self.max_hold = Some(duration(field, value)?),
            "hold_for" => self.hold_for = duration(field, value)?,
            "max_waiters" => self.max_waiters = Some(count(field, value)?),
            "on_outage" => self.on_outage = value.parse()?,
            "owner" => self.details_mut().owner = value.to_owned(),
            _ => {
                let reason = format!("there is no option {field:?}");
                return Err(Error::invalid(reason).next(
                    "known: ttl, wait, renew, renew_every, max_hold, hold_for, max_waiters, \
                     on_outage, owner",
                ));
            }
        }
        Ok(())
    }

    /// The fields that the URL and the environment can set.
    pub(crate) const FIELDS: [&str; 9] = [
        "ttl",
        "wait",
        "renew",
        "renew_every",
        "max_hold",
        "hold_for",
        "max_waiters",
        "on_outage",
        "owner",
    ];

    pub(crate) fn terms(&self) -> Terms {
        let Options { renew, renew_every, max_hold, hold_for, .. } = *self;
        Terms { renew, renew_every, max_hold, hold_for }
    }

    /// Refuses options that the engine does not support, before anything is sent.
    pub(crate) fn check(&self, profile: &Profile) -> Result<()> {
        check_times(self.ttl, &self.terms(), profile)?;
        check_details(&self.details)
    }
}

pub(crate) fn check_times(ttl: Duration, terms: &Terms, profile: &Profile) -> Result<()> {
    check_ttl(ttl, profile)?;
    if let Some(every) = terms.renew_every {
        let (shortest, longest) = (SHORTEST_RENEWAL, ttl / 2);
        if every < shortest || every > longest {
            let reason = format!(
                "renew_every {every:?} is out of range; {shortest:?} to {longest:?}, half of the ttl, is allowed"
            );
            return Err(Error::invalid(reason).next("lower renew_every, or raise the ttl"));
        }
    }
    if let Some(max_hold) = terms.max_hold
        && max_hold < ttl
    {
        let reason = format!("max_hold {max_hold:?} is below the ttl {ttl:?}");
        return Err(Error::invalid(reason).next("raise max_hold, or lower the ttl"));
    }
    let longest = terms.max_hold.unwrap_or(profile.longest_ttl);
    if terms.hold_for > longest {
        let reason = format!("hold_for {:?} is above the limit {longest:?}", terms.hold_for);
        return Err(Error::invalid(reason).next("lower hold_for, or raise max_hold"));
    }
    Ok(())
}

pub(crate) fn check_details(details: &Details) -> Result<()> {
    let Details { owner, reason, meta, value, trace } = details;
    check_text("the owner", owner)?;
    for (what, said) in [("the reason", reason), ("the value", value), ("the trace", trace)] {
        check_text(what, said.as_deref().unwrap_or_default())?;
    }
    if meta.len() > MOST_META {
        let reason = format!("meta has {} pairs; the limit is {MOST_META}", meta.len());
        return Err(Error::invalid(reason).next("keep what identifies the work"));
    }
    meta.iter().flat_map(|(key, value)| [key, value]).try_for_each(|t| check_text("meta", t))
}

pub(crate) fn check_ttl(ttl: Duration, profile: &Profile) -> Result<()> {
    let (shortest, longest) = (profile.shortest_ttl, profile.longest_ttl);
    if ttl < shortest || ttl > longest {
        let reason =
            format!("the ttl {ttl:?} is out of range; {shortest:?} to {longest:?} is allowed");
        return Err(Error::invalid(reason)
            .next("choose a few times the longest pause that the work may have"));
    }
    Ok(())
}

pub(crate) fn check_text(what: &str, text: &str) -> Result<()> {
    if text.len() > LONGEST_TEXT {
        let reason = format!("{what} has {} bytes; the limit is {LONGEST_TEXT} bytes", text.len());
        return Err(Error::invalid(reason).next("shorten it"));
    }
    if let Some(bad) = text.chars().find(|c| c.is_control()) {
        let reason = format!("{what} contains the control character {bad:?}");
        return Err(Error::invalid(reason).next("remove it; any other UTF-8 is allowed"));
    }
    Ok(())
}

pub(crate) fn check_units(weight: u32, capacity: u32) -> Result<()> {
    if capacity == 0 || capacity > MOST_UNITS {
        let reason =
            format!("the capacity {capacity} is out of range; 1 to {MOST_UNITS} is allowed");
        return Err(Error::invalid(reason).next("a semaphore needs at least one unit"));
    }
    if weight == 0 || weight > capacity {
        let reason = format!("the weight {weight} is out of range; 1 to {capacity} (the capacity)");
        return Err(Error::invalid(reason).next("ask for fewer units, or raise the capacity"));
    }
    Ok(())
}

fn duration(field: &str, value: &str) -> Result<Duration> {
    humantime::parse_duration(value).map_err(|error| {
        let reason = format!("cannot read {field}={value:?} as a duration: {error}");
        Error::invalid(reason).next("write a number with its unit, such as 30s, 500ms or 2h")
    })
}

fn boolean(field: &str, value: &str) -> Result<bool> {
    match value {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => {
            let reason = format!("cannot read {field}={value:?} as yes or no");
            Err(Error::invalid(reason).next("write true or false"))
        }
    }
}

fn count(field: &str, value: &str) -> Result<u32> {
    // `parse` would also accept a leading plus.
    match value.parse() {
        Ok(count) if !value.starts_with('+') => Ok(count),
        _ => {
            let reason = format!("cannot read {field}={value:?} as a count");
            Err(Error::invalid(reason).next("write a whole number, such as 100"))
        }
    }
}

/// The word used in URLs and in the environment.
impl fmt::Display for OnOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OnOutage::Closed => "closed",
            OnOutage::Local => "local",
            OnOutage::Open => "open",
        })
    }
}

/// Parses the format of `Display`.
impl FromStr for OnOutage {
    type Err = Error;

    fn from_str(value: &str) -> Result<OnOutage> {
        let all = [OnOutage::Closed, OnOutage::Local, OnOutage::Open];
        all.into_iter().find(|one| one.to_string() == value).ok_or_else(|| {
            let reason = format!("cannot read on_outage={value:?}");
            Error::invalid(reason).next("write closed, local or open")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_text_and_bad_values_name_the_fix() {
        let mut options = Options::new("me".into());
        for (field, value) in [
            ("ttl", "5s"),
            ("wait", "250ms"),
            ("renew", "off"),
            ("renew_every", "2s"),
            ("max_hold", "1h"),
            ("hold_for", "40s"),
            ("max_waiters", "100"),
            ("on_outage", "local"),
            ("owner", "web-3"),
        ] {
            assert!(Options::FIELDS.contains(&field));
            options.set(field, value).unwrap();
        }
        assert_eq!(options.ttl, Duration::from_secs(5));
        assert_eq!(options.wait, Some(Duration::from_millis(250)));
        assert_eq!(options.max_waiters, Some(100));
        assert_eq!(options.on_outage, OnOutage::Local);
        assert_eq!(options.on_outage.to_string(), "local");
        options.set("wait", "forever").unwrap();
        assert_eq!(options.wait, None);

        for (field, value, says) in [
            ("ttl", "30", "write a number with its unit"),
            ("ttl", "-1s", "cannot read ttl"),
            ("ttl", "nan", "cannot read ttl"),
            ("ttl", "0x10", "cannot read ttl"),
            ("ttl", "99999999999999999999s", "cannot read ttl"),
            ("max_waiters", "1e3", "cannot read max_waiters"),
            ("max_waiters", "+1", "cannot read max_waiters"),
            ("max_waiters", " 12 ", "cannot read max_waiters"),
            ("renew", "maybe", "write true or false"),
            ("on_outage", "Local", "write closed, local or open"),
            ("tll", "5s", "known: ttl, wait"),
        ] {
            let error = options.set(field, value).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
