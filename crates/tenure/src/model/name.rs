//! Names of locks.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use crate::model::error::{Error, Result};

/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 1024;

/// The name space that a name belongs to.
///
/// Mutexes, semaphores and read-write locks share one, so two of them with the same name contend. Elections and
/// onces have their own, so a mutex never keeps a leader out.
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

/// A valid name: 1 to [`LONGEST_NAME`] bytes of UTF-8 without control characters.
#[derive(Clone)]
pub struct Name {
    text: Text,
    // Both tables that a claim goes through look up the name, so it is hashed once, here.
    hash: u64,
    space: Space,
}

/// Every claim makes a name and clones it twice, so a short one needs no allocation and no reference count.
#[derive(Clone)]
enum Text {
    Short { len: u8, bytes: Words },
    Long(Arc<str>),
}

/// The longest text that is kept in place.
const SHORT: usize = 24;

/// Aligned, so that it is copied in whole words.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Words([u8; SHORT]);

impl Text {
    fn new(text: &str) -> Text {
        let mut bytes = Words([0; SHORT]);
        match bytes.0.get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text.as_bytes());
                Text::Short { len: text.len() as u8, bytes }
            }
            None => Text::Long(Arc::from(text)),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Short { len, bytes } => &bytes.0[..usize::from(*len)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Text::Short { .. } => str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }
}

impl Name {
    /// Checks `text` and makes it a name in `space`.
    pub fn new(space: Space, text: &str) -> Result<Name> {
        let name = Name::unchecked(space, text);
        name.check().map(|()| name)
    }

    /// A name that is checked when it is used, so that builders need not return an error.
    pub(crate) fn unchecked(space: Space, text: &str) -> Name {
        Name { text: Text::new(text), hash: hash(space, text), space }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let text = self.text.as_bytes();
        if text.is_empty() {
            return Err(Error::invalid("the name is empty").next("give it at least one character"));
        }
        if text.len() > LONGEST_NAME {
            let reason =
                format!("the name has {} bytes; the limit is {LONGEST_NAME} bytes", text.len());
            return Err(Error::invalid(reason).next("shorten it, or use a hash of it"));
        }
        // Nearly all names are plain ASCII, which is quick to check.
        let plain = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if !plain && let Some(bad) = self.as_str().chars().find(|c| c.is_control()) {
            let reason = format!("the name contains the control character {bad:?}");
            return Err(Error::invalid(reason).next("remove it; any other UTF-8 is allowed"));
        }
        Ok(())
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// The name space it lives in.
    pub fn space(&self) -> Space {
        self.space
    }

    /// A hash of the name. It is only valid within this process.
    pub fn local_hash(&self) -> u64 {
        self.hash
    }
}

fn hash(space: Space, text: &str) -> u64 {
    // Names may come from strangers. The seed is random for each process, so nobody can choose names that
    // collide.
    static SEED: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    SEED.hash_one((space, text))
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.hash == other.hash
            && self.space == other.space
            && self.text.as_bytes() == other.text.as_bytes()
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
        (self.text.as_bytes(), self.space).cmp(&(other.text.as_bytes(), other.space))
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
    fn a_name_is_what_was_given_however_long_it_is() {
        for text in ["ü".repeat(11), "ü".repeat(12), "x".repeat(25), "x".repeat(1024)] {
            let name = Name::new(Space::Lock, &text).unwrap();
            assert_eq!((name.as_str(), name.to_string()), (&*text, text.clone()));
            assert_eq!(name.clone(), name);
            let longer = Name::unchecked(Space::Lock, &format!("{text}x"));
            assert!(name < longer && name != longer);
        }
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
