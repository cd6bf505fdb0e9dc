//! The allowed places, owners and types of the file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tenure::engines::file::File;
use tenure::{ErrorKind, Tenure};

use crate::file_site::*;

async fn refused(path: &Path, kind: ErrorKind, says: &str) {
    let error = Tenure::connect(&url(path)).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

/// Acquires and releases a name there, from two clients.
async fn works(path: &Path) {
    let engine = |path: &Path| std::sync::Arc::new(File::open(path).unwrap());
    let (ours, theirs) = (Tenure::with_engine(engine(path)), Tenure::with_engine(engine(path)));
    let hold = ours.mutex("x").acquire().await.unwrap();
    let waiter = wait_for(&theirs, "x", secs(600));
    until_waiting(&ours, "x", 1).await;
    hold.release().await.unwrap();
    let next = within(AT_ONCE, waiter).await.unwrap().unwrap();
    next.release().await.unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn any_path_will_do() {
    let site = FileSite::new();
    let folder = site.folder.path();
    let long = "l".repeat(200);
    let names: [&OsStr; 6] = [
        OsStr::new("with spaces & signs?#%.db"),
        OsStr::from_bytes(b"not \xFF utf-8 \xC3.db"),
        OsStr::new("grün/日本/x.db"),
        OsStr::new(&long),
        OsStr::new("a/b/c/../d/x.db"),
        OsStr::new("-"),
    ];
    for name in names {
        works(&folder.join(name)).await;
    }
    // Longer than the path of any socket may be.
    works(&folder.join(&long).with_extension("d").join("deeper").join(&long[..190])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relative_path_is_one_below_the_working_directory() {
    let site = FileSite::new();
    let here = std::env::current_dir().unwrap();
    // Up to the root and down again, because all tests share the working directory.
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(site.path.strip_prefix("/").unwrap());
    works(&relative).await;
    assert!(site.path.exists());
    let tenure = connect(&format!("file://{}", site.path.display())).await;
    assert_eq!(tenure.list("").await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_without_a_file_says_how_to_write_one() {
    for url in ["file:", "file:/", "file:?ttl=5s", "file:///"] {
        let error = Tenure::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        assert!(error.to_string().contains("file:./locks.db"), "{url}: {error}");
    }
    for url in ["file:~/x.db", "file:~", "file:~ada/x.db"] {
        let error = Tenure::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        assert!(error.to_string().contains("write the whole path"), "{url}: {error}");
    }
    assert!(!Path::new("~").exists());
    // A folder is not a file, and nothing is created beside it.
    let site = FileSite::new();
    let folder = site.folder.path().join("folder");
    fs::create_dir(&folder).unwrap();
    refused(&folder, ErrorKind::Denied, "not a plain file").await;
    assert_eq!(fs::read_dir(site.folder.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_behind_a_link_is_the_folder() {
    let site = FileSite::new();
    let (real, link) = (site.folder.path().join("real"), site.folder.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let (ours, theirs) =
        (connect(&url(&link.join("x.db"))).await, connect(&url(&real.join("x.db"))).await);
    let hold = ours.mutex("x").acquire().await.unwrap();
    assert!(theirs.mutex("x").try_acquire().await.unwrap().is_none());
    let waiter = wait_for(&theirs, "x", secs(600));
    until_waiting(&ours, "x", 1).await;
    hold.release().await.unwrap();
    drop(within(AT_ONCE, waiter).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_others_can_change_are_refused() {
    let site = FileSite::new();
    let folder = site.folder.path();
    let open = folder.join("open");
    fs::create_dir(&open).unwrap();
    mode(&open, 0o777);
    refused(&open.join("x.db"), ErrorKind::Denied, "everyone may write").await;
    mode(&open, 0o1777);
    refused(&open.join("x.db"), ErrorKind::Denied, "everyone may write").await;
    mode(&open, 0o770);
    refused(&open.join("x.db"), ErrorKind::Denied, "a group may write to").await;
    // A folder below one that everyone may write to can be replaced as a whole, unless the upper one has the sticky
    // bit.
    let below = open.join("mine");
    fs::create_dir(&below).unwrap();
    mode(&below, 0o700);
    mode(&open, 0o777);
    refused(&below.join("x.db"), ErrorKind::Denied, "everyone may write to").await;
    refused(&below.join("deeper/still/x.db"), ErrorKind::Denied, "everyone may write to").await;
    // Anyone who may write to the folder of a link can point it elsewhere.
    let own = folder.join("own");
    fs::create_dir(&own).unwrap();
    mode(&own, 0o700);
    symlink(&own, open.join("link")).unwrap();
    refused(&open.join("link/x.db"), ErrorKind::Denied, "everyone may write to").await;
    mode(&open, 0o1777);
    works(&open.join("link/x.db")).await;
    works(&below.join("x.db")).await;
    symlink("x.db", folder.join("link.db")).unwrap();
    refused(&folder.join("link.db"), ErrorKind::Denied, "not a plain file").await;
    fs::create_dir(folder.join("folder.db")).unwrap();
    refused(&folder.join("folder.db"), ErrorKind::Denied, "not a plain file").await;
    works(&folder.join("mine.db")).await;
    mode(&folder.join("mine.db"), 0o640);
    refused(&folder.join("mine.db"), ErrorKind::Denied, "chmod 600").await;
    // The files beside it can be a trap, too.
    symlink("/etc/passwd", folder.join("trap.db-gate")).unwrap();
    refused(&folder.join("trap.db"), ErrorKind::Denied, "trap.db-gate").await;
    symlink("/etc", folder.join("trap2.db-sockets")).unwrap();
    refused(&folder.join("trap2.db"), ErrorKind::Denied, "trap2.db-sockets").await;
    assert!(!folder.join("trap.db").exists() && !folder.join("trap2.db").exists());
}

/// A group that may write to an upper folder can rename the one below it and put another in its place: the next
/// process would find a file without holders.
#[tokio::test(flavor = "multi_thread")]
async fn folders_below_one_that_a_group_can_change_are_refused() {
    if !is_root("folders_below_one_that_a_group_can_change_are_refused") {
        return;
    }
    let site = FileSite::new();
    let (open, below) = (site.folder.path().join("open"), site.folder.path().join("open/mine"));
    fs::create_dir_all(&below).unwrap();
    mode(&below, 0o700);
    let file = below.join("x.db");
    works(&file).await;
    let tenure = connect(&url(&file)).await;
    std::os::unix::fs::chown(&open, None, Some(12345)).unwrap();
    for bits in [0o770, 0o2775] {
        mode(&open, bits);
        refused(&file, ErrorKind::Denied, "a group may write to").await;
        refused(&below.join("deeper/still/x.db"), ErrorKind::Denied, "a group may write to").await;
        let findings = tenure.examine().await.unwrap();
        let rights = findings.iter().find(|finding| finding.check == "rights").unwrap();
        assert!(rights.what.contains("a group may write to"), "{rights:?}");
    }
    for bits in [0o1770, 0o750] {
        mode(&open, bits);
        works(&file).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_programs_are_left_alone() {
    let site = FileSite::new();
    let path = |name: &str| site.folder.path().join(name);
    fs::write(path("text.db"), "just some notes, nothing to do with SQLite\n".repeat(100)).unwrap();
    let foreign = rusqlite::Connection::open(path("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    drop(foreign);
    let marked = rusqlite::Connection::open(path("marked.db")).unwrap();
    marked.execute_batch("PRAGMA application_id = 77; PRAGMA user_version = 3").unwrap();
    drop(marked);
    for name in ["text.db", "foreign.db", "marked.db"] {
        mode(&path(name), 0o600);
        let before = fs::read(path(name)).unwrap();
        refused(&path(name), ErrorKind::Conflict, "another program").await;
        assert_eq!(fs::read(path(name)).unwrap(), before, "{name} was changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s118_a_file_of_a_later_version_is_refused_politely() {
    let site = FileSite::new();
    works(&site.path).await;
    site.sql().execute_batch("PRAGMA user_version = 2").unwrap();
    refused(&site.path, ErrorKind::Unsupported, "format 2").await;
    refused(&site.path, ErrorKind::Unsupported, "use the later version").await;
    assert_eq!(site.number("PRAGMA user_version"), 2);
}

/// Killed between the two writes that create a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_creator_was_killed_is_completed_by_the_next_process() {
    for (number, half) in ["", "PRAGMA journal_mode = WAL"].iter().enumerate() {
        let site = FileSite::new();
        let db = rusqlite::Connection::open(&site.path).unwrap();
        db.execute_batch(half).unwrap();
        drop(db);
        if number == 0 {
            fs::write(&site.path, "").unwrap();
        }
        mode(&site.path, 0o600);
        works(&site.path).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_reported_and_nobody_holds() {
    let site = FileSite::new();
    {
        let tenure = site.connect().await;
        let asks: Vec<_> =
            (0..200).map(|n| wait_for(&tenure, &format!("x{n}"), secs(600))).collect();
        for ask in asks {
            std::mem::forget(served(ask).await);
        }
        tenure.close().await;
    }
    let db = site.sql();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = fs::read(&site.path).unwrap();
    for byte in bytes.iter_mut().skip(4096) {
        *byte = byte.wrapping_mul(31).wrapping_add(7);
    }
    fs::write(&site.path, bytes).unwrap();
    let opened = Tenure::connect(&site.url()).await;
    let error = match opened {
        Err(error) => error,
        Ok(tenure) => tenure.mutex("x1").try_acquire().await.unwrap_err(),
    };
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_refused_what_belongs_to_others() {
    if !is_root("a_user_is_refused_what_belongs_to_others") {
        return;
    }
    let site = FileSite::new();
    let folder = site.folder.path();
    mode(folder, 0o755);
    works(&folder.join("roots.db")).await;
    let mine = folder.join("mine");
    fs::create_dir(&mine).unwrap();
    std::os::unix::fs::chown(&mine, Some(12345), Some(12345)).unwrap();
    let mut other = as_user().await;
    other.tell(&format!("connect file:{}", folder.join("new.db").display()));
    assert_eq!(other.hears("refused").await.word(1), "Denied");
    let mut other = as_user().await;
    other.tell(&format!("connect file:{}", folder.join("roots.db").display()));
    assert_eq!(other.hears("refused").await.word(1), "Denied");
    // Not even root makes a file in the folder of someone who could replace it, or below it.
    let deeper = mine.join("deeper");
    fs::create_dir(&deeper).unwrap();
    for path in [mine.join("roots.db"), deeper.join("roots.db")] {
        refused(&path, ErrorKind::Denied, "belongs to another user").await;
    }
    // Its own folder is fine, and root can look into it, wait in it and be reached.
    let own = mine.join("x.db");
    let mut other = as_user().await;
    other.tell(&format!("connect file:{}", own.display()));
    other.hears("connected").await;
    other.tell("claim a x 600000");
    other.hears("held a").await;
    let root = connect(&url(&own)).await;
    let waiter = wait_for(&root, "x", secs(600));
    until_waiting(&root, "x", 1).await;
    other.tell("claim b x 600000");
    until_waiting(&root, "x", 2).await;
    other.tell("release a");
    let hold = within(AT_ONCE, waiter).await.unwrap().unwrap();
    hold.release().await.unwrap();
    other.hears_within("held b", AT_ONCE).await;
    // Nothing that root has created there keeps the owner out.
    let mut again = as_user().await;
    again.tell(&format!("connect file:{}", own.display()));
    again.hears("connected").await;
}

async fn as_user() -> ChildProcess {
    ChildProcess::start(&["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_to_says_so() {
    if !is_root("a_folder_that_cannot_be_written_to_says_so") {
        return;
    }
    let site = FileSite::new();
    works(&site.path).await;
    let folder = site.folder.path().display();
    let script = format!(
        r#"mount --bind '{folder}' '{folder}' && mount -o remount,bind,ro '{folder}' && exec "$0" "$@""#
    );
    for file in ["locks.db", "new.db"] {
        let mut other = ChildProcess::start(&["unshare", "--mount", "sh", "-c", &script]).await;
        other.tell(&format!("connect file:{folder}/{file}"));
        let refused = other.hears("refused").await;
        assert_eq!(refused.word(1), "Denied", "{refused:?}");
    }
}
