//! A lock as it is often written: a file that exists or not, with the time at which it expires.
//!
//! It has the flaws that such locks have, and the proofs show their consequences.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Trouble;

/// A file used as a lock.
pub(super) struct Naive {
    path: PathBuf,
}

impl Naive {
    pub(super) fn new(path: PathBuf) -> Naive {
        Naive { path }
    }

    /// Takes it if it is free or expired. Without a ttl it never expires.
    pub(super) fn take(&self, ttl: Option<Duration>) -> Result<bool, Trouble> {
        if self.is_void() {
            // Another process that checked at the same moment does the same, and may remove the file that we
            // create next.
            let _ = fs::remove_file(&self.path);
        }
        match OpenOptions::new().write(true).create_new(true).open(&self.path) {
            Ok(mut file) => {
                file.write_all(until(ttl).as_bytes())?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Extends it, no matter who has it.
    pub(super) fn renew(&self, ttl: Duration) -> Result<(), Trouble> {
        Ok(fs::write(&self.path, until(Some(ttl)))?)
    }

    /// Frees it, no matter who has it.
    pub(super) fn release(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn is_void(&self) -> bool {
        let until = fs::read_to_string(&self.path).ok().and_then(|text| text.parse::<u128>().ok());
        until.is_some_and(|until| until <= now())
    }
}

fn until(ttl: Option<Duration>) -> String {
    ttl.map(|ttl| (now() + ttl.as_millis()).to_string()).unwrap_or_default()
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}
