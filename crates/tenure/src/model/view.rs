//! Names as others may see them: who holds, who waits.

use super::claim::{Holder, OnceRecord, Waiter};
use super::name::{Name, Space};

/// What to inspect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One name.
    Name(Name),
    /// The used names of a space that begin with `prefix`, in order, after `after`.
    Prefix {
        /// The space.
        space: Space,
        /// What the names begin with.
        prefix: String,
        /// Only names after this one.
        after: Option<Name>,
        /// At most this many.
        limit: usize,
    },
}

/// Some names, and whether there are more.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The names, in order.
    pub views: Vec<View>,
    /// Whether names follow after the last one.
    pub more: bool,
}

/// One name as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The name.
    pub name: Name,
    /// Units there are.
    pub capacity: u32,
    /// Who holds, by fence.
    pub holders: Vec<Holder>,
    /// Who waits, in order.
    pub waiters: Vec<Waiter>,
    /// Of a once, what is remembered; absent from lists of names.
    pub record: Option<OnceRecord>,
}

impl View {
    /// Whether anyone holds it or waits for it.
    pub fn is_used(&self) -> bool {
        !self.holders.is_empty() || !self.waiters.is_empty()
    }
}
