//! Names, their holders and their waiters, as others may see them.

use super::claim::{Holder, OnceRecord, Waiter};
use super::name::{Name, Space};

/// What to inspect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One name.
    Name(Name),
    /// The names of a space that are used and begin with `prefix`, in order, after `after`.
    Prefix {
        /// The space.
        space: Space,
        /// The beginning of the names.
        prefix: String,
        /// Only names after this one.
        after: Option<Name>,
        /// The largest number of names to return.
        limit: usize,
    },
}

/// Some names, and whether there are more.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The names, in order.
    pub views: Vec<View>,
    /// Whether there are more names after the last one.
    pub more: bool,
}

/// A name, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The name.
    pub name: Name,
    /// Units that the name has.
    pub capacity: u32,
    /// The holders, by fence.
    pub holders: Vec<Holder>,
    /// The waiters, in order.
    pub waiters: Vec<Waiter>,
    /// The record of a once. Not filled in lists of names.
    pub record: Option<OnceRecord>,
}

impl View {
    /// Whether anyone holds it or waits for it.
    pub fn is_used(&self) -> bool {
        !self.holders.is_empty() || !self.waiters.is_empty()
    }
}
