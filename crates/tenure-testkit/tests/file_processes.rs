//! The file engine against the suite, from several processes at once.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::engines::file::File;
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers::Folder;

/// Set in a process that is one of several: the file, and the prefix of its names.
const FILE: &str = "TENURE_TEST_FILE";
const PREFIX: &str = "TENURE_TEST_PREFIX";
/// How long each of them may take. With four processes, it is about a minute.
const LONGEST: Duration = Duration::from_secs(180);

#[test]
fn a_file_conforms_for_several_processes_at_once() {
    let _alone = crate::ALONE.blocking_lock();
    let folder = Folder::new("file").unwrap();
    let path = folder.path().join("locks.db");
    let start = |number: usize| -> Child {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "file_processes::one_of_several", "--nocapture"])
            .env(FILE, &path)
            .env(PREFIX, format!("process{number}/"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    // Each of them plays all cases at once, in real time, which is more than a small machine can bear.
    let count = if std::env::var_os("TENURE_SLOW").is_some() { 4 } else { 2 };
    let mut all: Vec<_> = (0..count).map(start).collect();
    let began = Instant::now();
    while !all.is_empty() && began.elapsed() < LONGEST {
        all.retain_mut(|one| match one.try_wait().unwrap() {
            Some(ended) => {
                assert!(ended.success(), "see above");
                false
            }
            None => true,
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    for one in &mut all {
        let _ = one.kill();
    }
    assert!(all.is_empty(), "{} of them did not end within {LONGEST:?}", all.len());
    let db = rusqlite::Connection::open(&path).unwrap();
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    // Some cases leave claims to their ttl. A sweep of the file ends those of dead processes.
    db.execute("UPDATE meta SET swept = 0", []).unwrap();
    drop(File::open(&path).unwrap());
    for rows in ["process", "claim WHERE process <> 0"] {
        let count = format!("SELECT count(*) FROM {rows}");
        let left: i64 = db.query_row(&count, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "{rows}");
    }
}

/// Not a test: the process that the other test starts, which shares the file with others of its kind.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_several() {
    let (Some(path), Ok(prefix)) = (std::env::var_os(FILE), std::env::var(PREFIX)) else { return };
    conformance::check_as(&prefix, Arc::new(RealRuntime::here()), move || {
        Arc::new(File::open(&path).unwrap())
    })
    .await;
}
