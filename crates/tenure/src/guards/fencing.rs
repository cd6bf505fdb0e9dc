//! Makes databases, files and HTTP servers refuse writes with an old fence.
//!
//! A lock cannot stop a holder that was paused for longer than its ttl and continues as if nothing had
//! happened. The resource that it writes to can. A guarded resource has a name and remembers the highest fence
//! that it has seen: a write with a lower one is refused as [`Stale`], one with the same or a higher one passes.
//! [`check`] is that rule. These modules apply it, each behind a feature of this crate:
//!
//! | module | feature | what it guards |
//! |---|---|---|
//! | [`sqlite`] | `fence-sqlite` | a transaction of `rusqlite` |
//! | [`postgres`] | `fence-postgres` | a transaction of `tokio-postgres` |
//! | [`redis`] | `fence-redis` | a command on a key |
//! | [`http`] | `fence-http` | requests, as a `tower` layer |
//! | [`mod@file`] | `fence-file` | the contents of a file |
//!
//! Only fences of the same name can be compared: guard a resource by the name of the one lock that protects it.
//! Anyone who may write can also offer a fence that is far too high, after which nobody else can write: fences
//! protect against late holders, not against malicious ones.

#[cfg(feature = "fence-file")]
pub mod file;
#[cfg(feature = "fence-http")]
pub mod http;
#[cfg(feature = "fence-postgres")]
pub mod postgres;
#[cfg(feature = "fence-redis")]
pub mod redis;
#[cfg(any(feature = "fence-postgres", feature = "fence-sqlite"))]
mod sql;
#[cfg(feature = "fence-sqlite")]
pub mod sqlite;

use std::error::Error as StdError;
use std::fmt;

use crate::model::claim::Fence;
use crate::model::error::shorten;
use crate::observe;

/// All fences are below this number: they are exact in JSON, in Lua and in a `BIGINT`.
const END: u64 = 1 << 53;

/// Compares the fence of a write with the highest one seen so far.
///
/// For resources that have no module here. Reading the highest fence and writing must be one step: read it under
/// a lock, such as that of a row or a file, that the write happens under, too.
///
/// # Errors
/// [`Stale`] if `offered` is lower than `seen`; it is also logged.
pub fn check(name: &str, offered: Fence, seen: Fence) -> Result<(), Stale> {
    if offered >= seen {
        return Ok(());
    }
    Err(Stale::refuse(name, offered, Some(seen)))
}

/// Interprets the number of rows that an `UPDATE … WHERE … AND fence <= $1` has changed.
///
/// For a fence in a column of your own table:
///
/// ```sql
/// UPDATE account SET balance = $3, fence = $1 WHERE id = $2 AND fence <= $1
/// ```
///
/// # Errors
/// [`Stale`] if there were none; it is also logged. A missing row looks the same as a stale fence.
pub fn changed(rows: u64, name: &str, offered: Fence) -> Result<(), Stale> {
    if rows > 0 {
        return Ok(());
    }
    Err(Stale::refuse(name, offered, None))
}

/// A write was refused because a higher fence has been seen.
///
/// The writer has lost its hold: stop, and acquire again before the next write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The name of the guarded resource.
    pub name: String,
    /// The fence of the write.
    pub offered: Fence,
    /// The highest one seen so far; `None` if it is only known to be higher.
    pub seen: Option<Fence>,
}

impl Stale {
    /// The only constructor, so that every refusal is logged.
    fn refuse(name: &str, offered: Fence, seen: Option<Fence>) -> Stale {
        observe::stale_write(name, offered, seen);
        Stale { name: name.to_owned(), offered, seen }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} refuses fence {}: it has seen ", shorten(&self.name), self.offered)?;
        match self.seen {
            Some(seen) => write!(f, "{seen}")?,
            None => f.write_str("a higher one")?,
        }
        f.write_str(", so the hold had ended before this write; acquire again")
    }
}

impl StdError for Stale {}

/// Why a guarded write did not happen, or may not have.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuardError<E> {
    /// It came too late. Nothing was written.
    Stale(Stale),
    /// No grant has this number: 0, or 2^53 and above. Nothing was written.
    NoFence(Fence),
    /// Checking or writing has failed for another reason.
    Failed(E),
}

impl<E> GuardError<E> {
    /// Converts the reason of a failure.
    pub fn map_failed<F>(self, change: impl FnOnce(E) -> F) -> GuardError<F> {
        match self {
            GuardError::Stale(stale) => GuardError::Stale(stale),
            GuardError::NoFence(fence) => GuardError::NoFence(fence),
            GuardError::Failed(reason) => GuardError::Failed(change(reason)),
        }
    }
}

/// Lets `?` convert the errors of writes beside a guard.
impl<E> From<E> for GuardError<E> {
    fn from(reason: E) -> GuardError<E> {
        GuardError::Failed(reason)
    }
}

impl<E: fmt::Display> fmt::Display for GuardError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardError::Stale(stale) => stale.fmt(f),
            GuardError::NoFence(fence) => {
                write!(f, "no grant has the fence {fence}; pass on that of the hold")
            }
            GuardError::Failed(reason) => reason.fmt(f),
        }
    }
}

impl<E: StdError + 'static> StdError for GuardError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            GuardError::Stale(_) | GuardError::NoFence(_) => None,
            // This error shows the text of `reason` itself, so its source is the next in the chain.
            GuardError::Failed(reason) => reason.source(),
        }
    }
}

/// Whether a grant can have this number. A fence that is too high would block the resource for ever.
#[allow(dead_code, reason = "without a feature nobody asks")]
fn is_fence(fence: Fence) -> bool {
    (1..END).contains(&fence.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(number: u64) -> Fence {
        Fence::new(number)
    }

    #[test]
    fn lower_is_refused_and_equal_or_higher_passes() {
        let stale = check("x", fence(4), fence(7)).unwrap_err();
        assert_eq!((stale.offered, stale.seen), (fence(4), Some(fence(7))));
        assert_eq!(check("x", fence(7), fence(7)), Ok(()));
        assert_eq!(check("x", fence(8), fence(7)), Ok(()));
    }

    #[test]
    fn no_row_is_too_late() {
        assert_eq!(changed(1, "x", fence(4)), Ok(()));
        assert_eq!(changed(0, "x", fence(4)).unwrap_err().seen, None);
    }

    #[test]
    fn the_text_says_what_why_and_what_next() {
        let text = check("wallet:1", fence(4), fence(7)).unwrap_err().to_string();
        assert_eq!(
            text,
            "\"wallet:1\" refuses fence 4: it has seen 7, so the hold had ended before this \
             write; acquire again"
        );
        let text = GuardError::<std::io::Error>::NoFence(fence(0)).to_string();
        assert_eq!(text, "no grant has the fence 0; pass on that of the hold");
    }

    #[test]
    fn fences_are_exact_everywhere() {
        assert!(is_fence(fence(1)) && is_fence(fence(END - 1)));
        assert!(!is_fence(fence(0)) && !is_fence(fence(END)) && !is_fence(fence(u64::MAX)));
    }
}
