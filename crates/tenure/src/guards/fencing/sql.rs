//! The SQL for both databases: a table of names with the highest fence of each, and one statement that raises it
//! and returns the result.
//!
//! The statement writes its row even if the fence does not rise: this locks the row until the end of the
//! transaction, so everything else in it is ordered with all other transactions that the name guards.

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// Creates the table if it does not exist.
pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
/// Takes a name and a fence, and returns the highest fence of that name.
pub(super) const RAISE: &str = include_str!("sql/raise.sql");

/// The fence as an integer of the database.
pub(super) fn offered<E>(fence: Fence) -> Result<i64, GuardError<E>> {
    let number = is_fence(fence).then(|| i64::try_from(fence.get()).ok()).flatten();
    number.ok_or(GuardError::NoFence(fence))
}

/// Compares the fence with the result of the statement.
pub(super) fn judge<E>(name: &str, fence: Fence, highest: i64) -> Result<(), GuardError<E>> {
    let seen = Fence::new(u64::try_from(highest).unwrap_or_default());
    check(name, fence, seen).map_err(GuardError::Stale)
}
