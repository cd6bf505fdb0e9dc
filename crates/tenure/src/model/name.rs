//! Names: what is contended.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::model::error::{Error, Result};

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 1024;

/// Which of the separate name spaces a name lives in.
///
/// Mutexes, semaphores and read-write locks share one, so that two of them with the same name meet;
/// elections and onces have their own, so that a mutex never keeps a leader out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Space {
    /// Mutexes, semaphores, read-write locks.
    Lock,
    /// Elections.
    Election,
    /// Work that is done once.
    Once,
}

/// A checked name: 1 to [`LONGEST_NAME`] bytes of UTF-8 without control characters.
#[derive(Clone)]
pub struct Name {
    text: Arc<str>,
    // Both tables that a claim passes through look the name up, so it is hashed once, here.
    hash: u64,
    space: Space,
}

impl Name {
    /// Checks `text` and makes it a name of `space`.
    pub fn new(space: Space, text: &str) -> Result<Name> {
        let name = Name::unchecked(space, text);
        name.check().map(|()| name)
    }

    /// A name that is checked when it is used, so that a call can be built up without an error.
    pub(crate) fn unchecked(space: Space, text: &str) -> Name {
        Name { text: Arc::from(text), hash: hash(space, text), space }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let text = self.as_str();
        if text.is_empty() {
            return Err(Error::invalid("the name is empty").next("give it at least one character"));
        }
        if text.len() > LONGEST_NAME {
            let reason =
                format!("the name has {} bytes; the limit is {LONGEST_NAME} bytes", text.len());
            return Err(Error::invalid(reason).next("shorten it, or use a hash of it"));
        }
        // Plain ASCII is nearly everything, and quickly seen.
        let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !plain && let Some(bad) = text.chars().find(|c| c.is_control()) {
            let reason = format!("the name contains the control character {bad:?}");
            return Err(Error::invalid(reason).next("remove it; any other UTF-8 is allowed"));
        }
        Ok(())
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name space it lives in.
    pub fn space(&self) -> Space {
        self.space
    }

    /// A hash of the name that stays the same for the life of this process, and no longer.
    pub fn local_hash(&self) -> u64 {
        self.hash
    }
}

fn hash(space: Space, text: &str) -> u64 {
    // Names come from users' users: the seed is this process's own, so that nobody outside can
    // choose names that collide.
    static SEED: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    SEED.hash_one((space, text))
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.hash == other.hash && self.space == other.space && self.text == other.text
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        (&self.text, self.space).cmp(&(&other.text, other.space))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;

    #[test]
    fn bad_names_are_refused_with_the_limit() {
        for (text, says) in [
            ("", "empty"),
            (&*"x".repeat(2048), "the limit is 1024 bytes"),
            ("a\0b", "control character '\\0'"),
            ("a\nb", "control character '\\n'"),
        ] {
            let error = Name::new(Space::Lock, text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!(Name::new(Space::Lock, &"x".repeat(1024)).is_ok());
        assert!(Name::new(Space::Lock, "wallet:0xab/ü {x}").is_ok());
    }

    #[test]
    fn spaces_keep_equal_texts_apart() {
        let lock = Name::new(Space::Lock, "cron").unwrap();
        let election = Name::new(Space::Election, "cron").unwrap();
        assert_ne!(lock, election);
        assert_ne!(lock.local_hash(), election.local_hash());
        assert_eq!(lock, Name::new(Space::Lock, "cron").unwrap());
    }
}
