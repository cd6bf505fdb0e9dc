//! A hundred racers in four processes for one once, and what happens when the first to run it is killed before or
//! after its effect.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure::{Done, Tenure};
use tenure_testkit::servers::{self, Folder};

const PROCESSES: usize = 4;
const RACERS: usize = 25;
/// Set in a process of racers: the engine, the folder that all share, and what to do there.
const URL: &str = "TENURE_TEST_URL";
const FOLDER: &str = "TENURE_TEST_FOLDER";
const DIES: &str = "TENURE_TEST_DIES";
const RERUN: &str = "TENURE_TEST_RERUN";

/// When the first one to run it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Never,
    BeforeItsEffect,
    AfterItsEffect,
}

#[test]
fn on_a_file_a_hundred_racers_do_it_once() {
    let folder = Folder::new("onces").unwrap();
    play_all(&format!("file:{}", folder.path().join("locks.db").display()));
}

#[test]
fn on_redis_a_hundred_racers_do_it_once() {
    let server = servers::Redis::build().start().unwrap();
    play_all(&server.url());
}

#[test]
fn on_postgres_a_hundred_racers_do_it_once() {
    let database = servers::PostgresDatabase::start().unwrap();
    play_all(&database.url());
}

fn play_all(url: &str) {
    let survivors = (PROCESSES - 1) * RACERS;
    for (dies, rerun, effects) in [
        (Dies::Never, false, 1),
        (Dies::Never, true, 1),
        (Dies::BeforeItsEffect, false, 0),
        (Dies::AfterItsEffect, false, 1),
        (Dies::BeforeItsEffect, true, 1),
        (Dies::AfterItsEffect, true, 2),
    ] {
        let (seen, said) = play(url, dies, rerun);
        let what = format!("{dies:?}, rerun {rerun}: {said:?}");
        assert_eq!(seen, effects, "{what}");
        let count = |word: &str| said.iter().filter(|line| *line == word).count();
        match (dies, rerun) {
            (Dies::Never, _) => {
                assert_eq!(
                    (count("ran"), count("replayed")),
                    (1, survivors + RACERS - 1),
                    "{what}"
                );
            }
            (_, false) => assert_eq!(count("unsettled"), survivors, "{what}"),
            (_, true) => {
                assert_eq!((count("ran"), count("replayed")), (1, survivors - 1), "{what}");
            }
        }
    }
}

/// How often the work was done, and the outcomes that the racers got.
fn play(url: &str, dies: Dies, rerun: bool) -> (usize, Vec<String>) {
    let folder = Folder::new("racers").unwrap();
    let start = |_| -> Child {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "onces::racers", "--nocapture"])
            .env(URL, url)
            .env(FOLDER, folder.path())
            .env(DIES, format!("{dies:?}"))
            .env(RERUN, rerun.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let all: Vec<_> = (0..PROCESSES).map(start).collect();
    let ended = all.into_iter().map(|mut one| one.wait().unwrap().success());
    let killed = ended.filter(|well| !well).count();
    assert_eq!(killed, usize::from(dies != Dies::Never), "{dies:?}");
    let lines = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    (lines("effects").len(), lines("said"))
}

/// Not a test: the processes that the other tests start.
#[tokio::test(flavor = "multi_thread")]
async fn racers() {
    let (Ok(url), Some(folder)) = (std::env::var(URL), std::env::var_os(FOLDER)) else { return };
    let (folder, rerun) = (PathBuf::from(folder), std::env::var(RERUN).unwrap() == "true");
    let tenure = Tenure::connect(&url).await.unwrap();
    // All of them, before anyone asks: when one dies, the others must still be there.
    write(&folder, "here", "here");
    while fs::read_to_string(folder.join("here")).unwrap().lines().count() < PROCESSES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let name = folder.display().to_string();
    let mut all = Vec::new();
    for _ in 0..RACERS {
        let once = tenure.once(&name).ttl(Duration::from_secs(1)).rerun(rerun);
        let folder = folder.clone();
        all.push(tokio::spawn(async move {
            let work = async |_: &tenure::Run| Ok::<_, Infallible>(work(&folder).await);
            let said = match once.run(work).await.unwrap().unwrap() {
                Done::Ran(_) => "ran",
                Done::Replayed(outcome) if *outcome == *b"done" => "replayed",
                Done::Unsettled => "unsettled",
                other => panic!("{other:?}"),
            };
            write(&folder, "said", said);
        }));
    }
    for one in all {
        one.await.unwrap();
    }
}

async fn work(folder: &Path) -> &'static str {
    let dies = std::env::var(DIES).unwrap();
    let is_first =
        OpenOptions::new().write(true).create_new(true).open(folder.join("first")).is_ok();
    if is_first {
        // Others come meanwhile, and wait.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if is_first && dies == format!("{:?}", Dies::BeforeItsEffect) {
        die();
    }
    write(folder, "effects", "done");
    if is_first && dies == format!("{:?}", Dies::AfterItsEffect) {
        die();
    }
    "done"
}

fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    unreachable!("it was killed")
}

fn write(folder: &Path, name: &str, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
