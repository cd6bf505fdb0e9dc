//! Makes what is written to refuse old fences, so that the number is used and not only printed.
//!
//! A lock cannot stop a holder that was paused for longer than its ttl and goes on as if nothing had
//! happened; what it writes to can. Something guarded has a name and remembers the highest fence it
//! has seen: a write with a lower one is refused as [`Stale`], one with the same or a higher passes.
//! [`check`] is that rule; around it there is, each behind a feature of this crate:
//!
//! | module | feature | what it guards |
//! |---|---|---|
//! | [`sqlite`] | `fence-sqlite` | a transaction of `rusqlite` |
//! | [`postgres`] | `fence-postgres` | a transaction of `tokio-postgres` |
//! | [`redis`] | `fence-redis` | a command on a key |
//! | [`http`] | `fence-http` | requests, as a `tower` layer |
//! | [`mod@file`] | `fence-file` | the contents of a file |
//!
//! Fences of one name are compared with each other and with no others: guard a thing by the name of
//! the one lock that protects it. Whoever may write may also offer a fence that is far too high, and
//! nobody else can write from then on: a fence protects from the late, not from the malicious.

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

/// Fences end here: every number below is exact in JSON, in Lua and in a `BIGINT`.
const END: u64 = 1 << 53;

/// Compares the fence that a write comes with to the highest one that was seen before.
///
/// For whatever has no module here. What was read and what is written must be one step: read it under
/// the lock of a row or a file that the write happens under too.
///
/// # Errors
/// [`Stale`] if `offered` is lower than `seen`; it is also logged.
pub fn check(name: &str, offered: Fence, seen: Fence) -> Result<(), Stale> {
    if offered >= seen {
        return Ok(());
    }
    Err(Stale::refuse(name, offered, Some(seen)))
}

/// Turns the number of rows that an `UPDATE … WHERE … AND fence <= $1` has changed into an answer.
///
/// For a fence in a column of your own table:
///
/// ```sql
/// UPDATE account SET balance = $3, fence = $1 WHERE id = $2 AND fence <= $1
/// ```
///
/// # Errors
/// [`Stale`] if there were none; it is also logged. The row was there, was it? That a row is missing
/// looks the same.
pub fn changed(rows: u64, name: &str, offered: Fence) -> Result<(), Stale> {
    if rows > 0 {
        return Ok(());
    }
    Err(Stale::refuse(name, offered, None))
}

/// A write was refused, because a higher fence than its own has been seen.
///
/// Whoever offered it has lost the hold: stop, and acquire again before the next write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// What is guarded.
    pub name: String,
    /// The fence that the write came with.
    pub offered: Fence,
    /// The highest that was seen before; nothing if all that is known is that it was higher.
    pub seen: Option<Fence>,
}

impl Stale {
    /// The only way to make one, so that none is kept quiet.
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
    /// No grant has such a number, 0 or 2^53 and above. Nothing was written.
    NoFence(Fence),
    /// Whatever was to check and write it has failed, for a reason of its own.
    Failed(E),
}

impl<E> GuardError<E> {
    /// The same with another reason for a failure.
    pub fn map_failed<F>(self, change: impl FnOnce(E) -> F) -> GuardError<F> {
        match self {
            GuardError::Stale(stale) => GuardError::Stale(stale),
            GuardError::NoFence(fence) => GuardError::NoFence(fence),
            GuardError::Failed(reason) => GuardError::Failed(change(reason)),
        }
    }
}

/// Lets `?` pass on the errors of the writes that stand beside a guard.
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
            // Its text is this error's own, so the next in the chain is what is behind it.
            GuardError::Failed(reason) => reason.source(),
        }
    }
}

/// Whether a grant can have this number. A fence that is too high would be remembered for ever.
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
