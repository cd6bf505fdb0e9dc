//! What the tests of the file engine look with: a place for a file.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use tenure::engine::Engine;
use tenure::engines::file::File;
use tenure_testkit::servers::Folder;

pub(crate) use crate::probe::*;

/// A folder of its own, with the file that the test is about.
pub(crate) struct Ground {
    pub(crate) folder: Folder,
    pub(crate) path: PathBuf,
}

impl Ground {
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

    /// Closes the gate, as one who stands still behind it does.
    pub(crate) fn close_gate(&self) -> std::fs::File {
        let gate = std::fs::File::options().read(true).write(true).open(self.beside("-gate"));
        let gate = gate.expect("a gate");
        flock(&gate, FlockOperation::LockExclusive).expect("a lock");
        gate
    }
}

impl Site for Ground {
    fn new() -> Ground {
        let folder = Folder::new("ff").expect("a folder");
        let path = folder.path().join("locks.db");
        Ground { folder, path }
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

/// Whether this is run by someone who may mount and change users; else says what is left out.
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
