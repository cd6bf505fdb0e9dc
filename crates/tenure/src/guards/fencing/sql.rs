//! What both databases are asked: a table of names with the highest fence of each, and one statement
//! that raises it and says what it is now.
//!
//! The statement writes its row whether the fence rises or not: so the row is locked until the end of
//! the transaction, and what follows in it is ordered with all others that are guarded by the name.

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// Makes the table, if it is not there.
pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
/// Takes a name and a fence, and gives the highest fence of that name.
pub(super) const RAISE: &str = include_str!("sql/raise.sql");

/// The fence as a database counts.
pub(super) fn offered<E>(fence: Fence) -> Result<i64, GuardError<E>> {
    let number = is_fence(fence).then(|| i64::try_from(fence.get()).ok()).flatten();
    number.ok_or(GuardError::NoFence(fence))
}

/// Judges by what the statement gave.
pub(super) fn judge<E>(name: &str, fence: Fence, highest: i64) -> Result<(), GuardError<E>> {
    let seen = Fence::new(u64::try_from(highest).unwrap_or_default());
    check(name, fence, seen).map_err(GuardError::Stale)
}
