//! Helpers for the tests of the file engine: a folder for a file.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use tenure::engine::Engine;
use tenure::engines::file::File;
use tenure_testkit::servers::Folder;

pub(crate) use crate::fixtures::*;

/// A folder of its own, with the file that the test is about.
pub(crate) struct FileSite {
    pub(crate) folder: Folder,
    pub(crate) path: PathBuf,
}

impl FileSite {
    /// One of the files beside it, such as `-wal`.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    /// The database itself, past the engine.
    pub(crate) fn sql(&self) -> Connection {
        let db = Connection::open(&self.path).expect("a database");
        db.busy_timeout(secs(10)).expect("a database");
        db
    }

    /// One number out of the database.
    pub(crate) fn number(&self, select: &str) -> i64 {
        self.sql().query_row(select, [], |row| row.get(0)).expect(select)
    }

    /// Takes the writer lock, as a process that is stopped while it has it does.
    pub(crate) fn lock_writers(&self) -> std::fs::File {
        let lock = std::fs::File::options().read(true).write(true).open(self.beside("-gate"));
        let lock = lock.expect("a lock file");
        flock(&lock, FlockOperation::LockExclusive).expect("a lock");
        lock
    }
}

impl Site for FileSite {
    fn new() -> FileSite {
        let folder = Folder::new("ff").expect("a folder");
        let path = folder.path().join("locks.db");
        FileSite { folder, path }
    }

    fn url(&self) -> String {
        url(&self.path)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(File::open(&self.path).expect("a file that can be opened"))
    }

    fn is_sound(&self) {
        let check: String =
            self.sql().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(check, "ok");
        let counts = "SELECT count(*) FROM name WHERE
            held <> (SELECT coalesce(sum(weight), 0) FROM claim WHERE name = name.id AND state = 2)
            OR waiting <> (SELECT count(*) FROM claim WHERE name = name.id AND state < 2)";
        assert_eq!(self.number(counts), 0, "names whose totals are wrong");
        let lost = "SELECT count(*) FROM claim WHERE name NOT IN (SELECT id FROM name)";
        assert_eq!(self.number(lost), 0, "claims without a name");
    }
}

pub(crate) fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether the user may mount and change users; otherwise prints what is left out.
pub(crate) fn is_root(test: &str) -> bool {
    let try_it =
        || std::process::Command::new("unshare").args(["--mount", "--pid", "true"]).status();
    let root = rustix::process::geteuid().is_root() && try_it().is_ok_and(|done| done.success());
    if !root {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "{test}: left out, it needs root and namespaces");
    }
    root
}
