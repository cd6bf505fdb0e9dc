//! What the tests of the file engine look with: a place for a file, and other processes.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

mod fuse;
pub(crate) mod other;
pub(crate) mod puppet;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use tenure::engine::{Moment, SystemWorld, World};
use tenure::{Hold, Result, Tenure, View};
use tenure_testkit::servers::Folder;
use tokio::task::JoinHandle;

pub(crate) use other::Other;

/// Longer than anything takes that works at all, on a machine that has other things to do.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// What happens at once happens within this, on such a machine; far below any ttl that is used with it.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(3);

/// Whoever comes to a line looks again before this has passed, and then every twenty seconds.
pub(crate) const LOOKED: Duration = Duration::from_secs(3);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A folder of its own, with the file that the test is about.
pub(crate) struct Ground {
    pub(crate) folder: Folder,
    pub(crate) path: PathBuf,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        let folder = Folder::new("ff").expect("a folder");
        let path = folder.path().join("locks.db");
        Ground { folder, path }
    }

    pub(crate) fn url(&self) -> String {
        url(&self.path)
    }

    /// One of the files beside it, such as `-wal`.
    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    pub(crate) async fn connect(&self) -> Tenure {
        connect(&self.url()).await
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

    /// Nothing is wrong inside of the file.
    pub(crate) fn is_sound(&self) {
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

    /// Closes the gate, as one who stands still behind it does.
    pub(crate) fn close_gate(&self) -> std::fs::File {
        let gate = std::fs::File::options().read(true).write(true).open(self.beside("-gate"));
        let gate = gate.expect("a gate");
        flock(&gate, FlockOperation::LockExclusive).expect("a lock");
        gate
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

pub(crate) async fn connect(url: &str) -> Tenure {
    soon(Tenure::connect(url)).await.expect("a file that can be opened")
}

/// The clock that goes on in sleep, the same for all processes of the machine.
pub(crate) fn now() -> Moment {
    SystemWorld.now()
}

pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The answer, which must come at all: what is lost fails the test and does not hang it.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    within(BOUND, future).await
}

pub(crate) async fn within<T>(bound: Duration, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(bound, future).await;
    answer.unwrap_or_else(|_| panic!("no answer within {bound:?}"))
}

/// Waits until `fact` holds, and looks often.
pub(crate) async fn until(what: &str, mut fact: impl AsyncFnMut() -> bool) {
    let began = now();
    while !fact().await {
        assert!(now().since(began) < BOUND, "not within {BOUND:?}: {what}");
        pause(ms(5)).await;
    }
}

/// Who holds and who waits; nobody, if the name is not in use.
pub(crate) async fn view(tenure: &Tenure, name: &str) -> Option<View> {
    soon(tenure.inspect(name)).await.expect("an answer")
}

/// The fences of those who hold.
pub(crate) async fn holders(tenure: &Tenure, name: &str) -> Vec<u64> {
    let view = view(tenure, name).await;
    view.map_or_else(Vec::new, |view| view.holders.iter().map(|it| it.fence.get()).collect())
}

pub(crate) async fn until_waiting(tenure: &Tenure, name: &str, count: usize) {
    until(&format!("{count} stand in line for {name}"), async || {
        view(tenure, name).await.map_or(0, |view| view.waiters.len()) == count
    })
    .await;
}

pub(crate) async fn until_free(tenure: &Tenure, name: &str) {
    until("nobody holds it", async || holders(tenure, name).await.is_empty()).await;
}

/// Stands in line in the background. The place is taken when this is called.
pub(crate) fn wait_for(tenure: &Tenure, name: &str, ttl: Duration) -> JoinHandle<Result<Hold>> {
    tokio::spawn(tenure.mutex(name).ttl(ttl).join())
}

/// The hold that a waiter has come to.
pub(crate) async fn served(waiter: JoinHandle<Result<Hold>>) -> Hold {
    soon(waiter).await.expect("no panic").expect("a hold")
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
