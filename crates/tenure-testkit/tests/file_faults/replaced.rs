//! S109: the file, or one of those beside it, is deleted, renamed or replaced while it is in use. Nobody continues in
//! a file that others do not see, and nobody creates a new one while others still run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tenure::{Ended, ErrorKind, Released, Tenure};

use crate::file_site::*;

/// What someone does to a file that is in use.
type Deed = fn(&FileSite);

fn delete(site: &FileSite, suffix: &str) {
    fs::remove_file(site.beside(suffix)).unwrap();
}

fn replace_by_copy(site: &FileSite) {
    let copy = site.folder.path().join("copy.db");
    fs::copy(&site.path, &copy).unwrap();
    fs::rename(copy, &site.path).unwrap();
}

fn replace_by_new(site: &FileSite) {
    let other = FileSite::new();
    fs::write(&other.path, "").unwrap();
    fs::set_permissions(&other.path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&other.path, &site.path).unwrap();
}

fn rename(site: &FileSite) {
    fs::rename(&site.path, site.folder.path().join("old.db")).unwrap();
}

fn rename_with_all(site: &FileSite) {
    for suffix in ["", "-wal", "-shm"] {
        fs::rename(site.beside(suffix), beside(&site.folder.path().join("old.db"), suffix))
            .unwrap();
    }
}

fn delete_with_all(site: &FileSite) {
    for suffix in ["", "-wal", "-shm"] {
        delete(site, suffix);
    }
}

fn delete_everything(site: &FileSite) {
    delete_with_all(site);
    delete(site, "-gate");
    delete(site, "-ballast");
    fs::remove_dir_all(site.beside("-sockets")).unwrap();
}

/// All ways to take the file away from its users.
const DEEDS: [(&str, Deed); 10] = [
    ("deleted", |site| delete(site, "")),
    ("deleted with its journal", delete_with_all),
    ("renamed", rename),
    ("renamed with its journal", rename_with_all),
    ("replaced by its copy", replace_by_copy),
    ("replaced by a new one", replace_by_new),
    ("its journal deleted", |site| delete(site, "-wal")),
    ("the index of its journal deleted", |site| delete(site, "-shm")),
    ("its journal and the index deleted", |site| {
        delete(site, "-wal");
        delete(site, "-shm");
    }),
    ("its journal replaced", |site| {
        let journal = site.beside("-wal");
        let bytes = fs::read(&journal).unwrap();
        fs::remove_file(&journal).unwrap();
        fs::write(&journal, bytes).unwrap();
    }),
];

#[tokio::test(flavor = "multi_thread")]
async fn s109_holders_are_told_at_once_that_the_file_is_gone_and_nobody_begins_another() {
    for (what, deed) in DEEDS {
        let site = FileSite::new();
        let mut other = ChildProcess::on(&site).await;
        other.tell("claim a x 600000");
        other.hears("held a").await;
        let tenure = site.connect().await;
        let hold = tenure.mutex("y").ttl(secs(600)).acquire().await.unwrap();
        deed(&site);
        let ended = within(AT_ONCE, hold.lost()).await;
        assert_eq!(ended, Ended::Forgotten, "{what}: in this process");
        let ended = other.hears_within("ended a", AT_ONCE).await;
        assert_eq!(ended.word(3), "Forgotten", "{what}: in the other one");
        let error = tenure.mutex("z").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}");
        assert!(error.to_string().contains("deleted or replaced"), "{what}: {error}");
        let error = tenure.inspect("z").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}");
        assert_eq!(within(AT_ONCE, hold.release()).await.unwrap(), Released::Late, "{what}");
        refused_while_others_run(&site, what).await;
        drop(tenure);
        // In a stopped process, which cannot react.
        refused_while_others_run(&site, what).await;
        other.kill();
        other.reap();
        let tenure = connect_soon(&site, what).await;
        assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some(), "{what}");
        site.is_sound();
    }
}

async fn refused_while_others_run(site: &FileSite, what: &str) {
    let error = Tenure::connect(&site.url()).await.err();
    let error = error.unwrap_or_else(|| panic!("{what}: two worlds"));
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
    assert!(error.to_string().contains("still run"), "{what}: {error}");
    assert!(error.is_retryable());
}

/// The sockets of ended processes may still be closing.
async fn connect_soon(site: &FileSite, what: &str) -> Tenure {
    let mut connected = None;
    until(what, async || {
        connected = Tenure::connect(&site.url()).await.ok();
        connected.is_some()
    })
    .await;
    connected.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn s109_waiters_of_a_file_that_is_gone_hear_of_it() {
    let site = FileSite::new();
    let (ours, mut other) = (site.connect().await, ChildProcess::on(&site).await);
    let hold = ours.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    other.tell("claim a x 600000");
    until_waiting(&ours, "x", 1).await;
    let waiter = wait_for(&ours, "x", secs(600));
    until_waiting(&ours, "x", 2).await;
    delete_with_all(&site);
    assert_eq!(within(AT_ONCE, hold.lost()).await, Ended::Forgotten);
    let error = soon(waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(other.hears("failed a").await.word(2), "Closed");
}

/// Before everything is deleted, its users have to be ended. If they are not, they are told, and that is all that can
/// be done.
#[tokio::test(flavor = "multi_thread")]
async fn s109_holders_are_told_even_when_everything_is_deleted() {
    let site = FileSite::new();
    let mut other = ChildProcess::on(&site).await;
    other.tell("claim a x 600000");
    other.hears("held a").await;
    delete_everything(&site);
    other.hears_within("ended a", AT_ONCE).await;
    let tenure = site.connect().await;
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn s109_a_lock_file_that_was_deleted_is_made_again_and_all_lock_the_same_one() {
    let site = FileSite::new();
    let (ours, mut other) = (site.connect().await, ChildProcess::on(&site).await);
    other.tell("claim a x 600000");
    other.hears("held a").await;
    delete(&site, "-gate");
    drop(ours.mutex("y").acquire().await.unwrap());
    assert!(site.beside("-gate").exists());
    // A process that locks the new file blocks everyone.
    let closed = site.lock_writers();
    other.tell("claim b z 600000");
    pause(ms(300)).await;
    assert!(other.all("held b").is_empty(), "it has a lock file of its own");
    drop(closed);
    other.hears("held b").await;
    other.tell("release a");
    other.hears("released a").await;
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn s109_waiters_are_reached_even_when_the_sockets_were_deleted() {
    let site = FileSite::new();
    let ours = site.connect().await;
    let mut line = Vec::new();
    let hold = ours.mutex("x").ttl(secs(600)).acquire().await.unwrap();
    for place in 0..3 {
        let mut other = ChildProcess::on(&site).await;
        other.tell("claim a x 600000");
        until_waiting(&ours, "x", place + 1).await;
        line.push(other);
    }
    let sockets = || fs::read_dir(site.beside("-sockets")).map_or(0, Iterator::count);
    let before = sockets();
    // They may be back before the folder itself is deleted.
    let _ = fs::remove_dir_all(site.beside("-sockets"));
    let are_back = async {
        while sockets() < before {
            pause(ms(10)).await;
        }
    };
    within(AT_ONCE, are_back).await;
    let mut last = ChildProcess::on(&site).await;
    last.tell("claim a x 600000");
    until_waiting(&ours, "x", 4).await;
    line.push(last);
    hold.release().await.unwrap();
    let mut before = 0;
    for other in &mut line {
        let held = other.hears_within("held a", AT_ONCE).await;
        assert!(held.fence() > before, "they are served in their order");
        before = held.fence();
        other.tell("release a");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s109_a_file_with_two_names_is_refused() {
    let site = FileSite::new();
    drop(site.connect().await);
    let second = site.folder.path().join("second.db");
    fs::hard_link(&site.path, &second).unwrap();
    for path in [&site.path, &second] {
        let error = Tenure::connect(&url(path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("several names"), "{error}");
    }
}
