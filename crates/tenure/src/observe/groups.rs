//! How names are grouped where their number must stay small: in metrics, in logs, in advice about the ttl.
//!
//! There is no limit to the number of names (wallets, tables), so they are counted by group: the part of the name
//! before the first `:`, without a namespace such as `prod/`. The number of groups is limited; in a program whose
//! names have no such part most end up in [`OTHER`], and memory stays bounded.

use std::collections::HashSet;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::model::claim::Claim;
use crate::model::name::{Name, Space};
use crate::model::options::MOST_UNITS;

/// The largest number of groups in a process.
pub(super) const MOST_GROUPS: usize = 200;

/// The group of all names for which there is no group left.
pub(super) const OTHER: &str = "_other";

/// The group of a name: the part before its first `:`, or all of it, without a prefix that ends in `/`.
pub(super) fn group(name: &Name) -> &'static str {
    group_of(name.as_str())
}

/// The group of a name that has not been checked.
pub(super) fn group_of(name: &str) -> &'static str {
    static GROUPS: LazyLock<Bounded> = LazyLock::new(Bounded::default);
    let group = name.split_once(':').map_or(name, |(group, _)| group);
    GROUPS.known(group.rsplit_once('/').map_or(group, |(_, group)| group))
}

/// The kind of a claim, in a word.
pub(super) fn kind(claim: &Claim) -> &'static str {
    match claim.name.space() {
        Space::Election => "leader",
        Space::Once => "once",
        Space::Lock if !claim.fixed => "sem",
        Space::Lock if claim.capacity > MOST_UNITS => "rwlock",
        Space::Lock => "lock",
    }
}

/// Texts that are kept for the life of the process, so there must not be many.
#[derive(Default)]
pub(super) struct Bounded(RwLock<HashSet<&'static str, foldhash::fast::RandomState>>);

impl Bounded {
    /// The text as it is kept, or [`OTHER`] if there is no room.
    pub(super) fn known(&self, text: &str) -> &'static str {
        let texts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.get(text) {
            return known;
        }
        let full = texts.len() >= MOST_GROUPS;
        drop(texts);
        if full {
            return OTHER;
        }
        let mut texts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match texts.get(text) {
            Some(known) => known,
            None if texts.len() >= MOST_GROUPS => OTHER,
            None => {
                let kept: &'static str = Box::leak(Box::from(text));
                texts.insert(kept);
                kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::claim::ClaimId;

    fn claim(space: Space, capacity: u32, fixed: bool) -> Claim {
        let name = Name::new(space, "x").unwrap();
        Claim { capacity, fixed, ..Claim::new(name, ClaimId::NONE) }
    }

    #[test]
    fn a_group_is_what_stands_before_the_first_colon() {
        for (name, says) in [
            ("wallet:0xab", "wallet"),
            ("wallet:0xab:eth", "wallet"),
            ("backup", "backup"),
            ("prod/wallet:0xab", "wallet"),
            ("prod/eu/backup", "backup"),
            ("wallet:0xab/cd", "wallet"),
            (":x", ""),
        ] {
            assert_eq!(group(&Name::new(Space::Lock, name).unwrap()), says);
        }
    }

    #[test]
    fn after_two_hundred_groups_the_rest_is_other() {
        let groups = Bounded::default();
        for number in 0..MOST_GROUPS {
            assert_eq!(groups.known(&format!("group-{number}")), format!("group-{number}"));
        }
        assert_eq!(groups.known("one more"), OTHER);
        assert_eq!(groups.known("group-7"), "group-7");
        assert_eq!(groups.0.read().unwrap().len(), MOST_GROUPS);
    }

    #[test]
    fn a_kind_follows_from_space_and_capacity() {
        for (space, capacity, fixed, says) in [
            (Space::Lock, 1, true, "lock"),
            (Space::Lock, 1, false, "sem"),
            (Space::Lock, MOST_UNITS, false, "sem"),
            (Space::Lock, MOST_UNITS + 1, true, "rwlock"),
            (Space::Election, 1, true, "leader"),
            (Space::Once, 1, true, "once"),
        ] {
            assert_eq!(kind(&claim(space, capacity, fixed)), says);
        }
    }
}
