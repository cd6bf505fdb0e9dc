//! Workers in processes of their own, told to stop or killed in the middle of their work.
//!
//! The work records at which moments it runs, on a clock that all processes share. No two may have run at the same
//! time.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure::engine::{Moment, SystemWorld, World};
use tenure::{Tenure, Term, Work};
use tenure_testkit::servers::{self, Folder};
use tokio::task::JoinHandle;

use super::ms;

/// Set in a process that works: the engine, the ttl, and where to write when it works.
const URL: &str = "TENURE_TEST_URL";
const TTL: &str = "TENURE_TEST_TTL";
const JOURNAL: &str = "TENURE_TEST_JOURNAL";

const PROCESSES: usize = 3;
const ROUNDS: usize = 8;

fn now() -> Moment {
    SystemWorld.now()
}

#[test]
fn on_a_file_the_next_works_at_once_whether_one_stops_or_is_killed() {
    let folder = Folder::new("worker").unwrap();
    let url = format!("file:{}", folder.path().join("locks.db").display());
    let gaps = play(&url, ms(30_000), folder.path(), |round| round % 2 == 0);
    println!("on a file: stopped {:?}, killed {:?}", gaps.stopped, gaps.killed);
    // Not because of its ttl: half a minute is longer than the machine can be busy with something else.
    assert!(gaps.longest() < ms(15_000), "{gaps:?}");
}

#[test]
fn on_redis_the_next_works_at_once_when_one_stops() {
    let server = servers::Redis::build().start().unwrap();
    let folder = Folder::new("worker").unwrap();
    let gaps = play(&server.url(), ms(30_000), folder.path(), |_| false);
    println!("on redis: stopped {:?}", gaps.stopped);
    assert!(gaps.longest() < ms(15_000), "{gaps:?}");
}

#[test]
fn on_redis_the_next_works_within_the_ttl_when_one_is_killed() {
    let server = servers::Redis::build().start().unwrap();
    let folder = Folder::new("worker").unwrap();
    let gaps = play(&server.url(), ms(2000), folder.path(), |round| round % 2 == 0);
    println!("on redis: stopped {:?}, killed {:?}", gaps.stopped, gaps.killed);
    // A machine that builds something else meanwhile is not the workers' fault.
    let spare = if std::env::var_os("TENURE_STRICT").is_some() { ms(1000) } else { ms(10_000) };
    assert!(gaps.longest() < ms(2000) + spare, "{gaps:?}");
}

/// Not a test: the processes that the other tests start. One stops when its input ends.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_works() {
    let (Ok(url), Ok(ttl)) = (std::env::var(URL), std::env::var(TTL)) else { return };
    let tenure = Tenure::connect(&url).await.unwrap();
    let worker = tenure.worker("reports").ttl(ms(ttl.parse().unwrap()));
    let stopper = worker.stopper();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopper.stop();
    });
    let journal = std::env::var_os(JOURNAL).unwrap().into();
    worker.run(Writer { journal, task: None }).await.unwrap();
    tenure.close().await;
}

/// Work that records when it runs.
struct Writer {
    journal: PathBuf,
    task: Option<JoinHandle<()>>,
}

impl Work for Writer {
    type Error = std::io::Error;

    async fn start(&mut self, term: &Term) -> Result<(), std::io::Error> {
        let (term, mut journal) =
            (term.number(), OpenOptions::new().create(true).append(true).open(&self.journal)?);
        self.task = Some(tokio::spawn(async move {
            loop {
                let line = format!("{term} {}\n", now().as_nanos());
                journal.write_all(line.as_bytes()).unwrap();
                tokio::time::sleep(ms(5)).await;
            }
        }));
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), std::io::Error> {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        Ok(())
    }
}

struct Process {
    child: Child,
    journal: PathBuf,
}

impl Process {
    fn start(url: &str, ttl: Duration, journal: PathBuf) -> Process {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "worker::processes::one_that_works", "--nocapture"])
            .env(URL, url)
            .env(TTL, ttl.as_millis().to_string())
            .env(JOURNAL, &journal)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process { child, journal }
    }

    fn end(mut self, kill: bool) {
        if kill {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        } else {
            drop(self.child.stdin.take());
            assert!(self.child.wait().unwrap().success());
        }
    }
}

/// How long nobody worked after each end.
#[derive(Debug, Default)]
struct Gaps {
    stopped: Vec<Duration>,
    killed: Vec<Duration>,
}

impl Gaps {
    fn longest(&self) -> Duration {
        self.stopped.iter().chain(&self.killed).max().copied().unwrap_or_default()
    }
}

/// Ends the working process again and again; `kills` decides how.
fn play(url: &str, ttl: Duration, folder: &Path, kills: fn(usize) -> bool) -> Gaps {
    let mut gaps = Gaps::default();
    let mut journals = Vec::new();
    let start = |journals: &mut Vec<PathBuf>| {
        let journal = folder.join(format!("journal-{}", journals.len()));
        journals.push(journal.clone());
        Process::start(url, ttl, journal)
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start(&mut journals)).collect();
    let mut last = (0, now());
    for round in 0..ROUNDS {
        let (term, at, journal) = works_after(last.0, &journals);
        if round > 0 {
            let gap = at.since(last.1);
            if kills(round - 1) { gaps.killed.push(gap) } else { gaps.stopped.push(gap) }
        }
        let who = processes.iter().position(|process| process.journal == journal).unwrap();
        processes[who].end_and_replace(kills(round), start(&mut journals));
        last = (term, last_moment(&journal));
    }
    works_after(last.0, &journals);
    processes.into_iter().for_each(|process| process.end(false));
    judge(&journals);
    gaps
}

impl Process {
    fn end_and_replace(&mut self, kill: bool, with: Process) {
        std::mem::replace(self, with).end(kill);
    }
}

/// Waits for a later term than that one. Returns the term, when its work began, and where that is recorded.
fn works_after(term: u64, journals: &[PathBuf]) -> (u64, Moment, PathBuf) {
    let mut found = None;
    servers::eventually("someone works", ms(60_000), || {
        let all = journals.iter().flat_map(|path| read(path).into_iter().map(move |it| (path, it)));
        let next = all.filter(|(_, (at, _))| *at > term).min_by_key(|(_, (_, at))| *at);
        found = next.map(|(path, (term, at))| (term, at, path.clone()));
        found.is_some()
    })
    .unwrap();
    found.unwrap()
}

fn last_moment(journal: &Path) -> Moment {
    read(journal).last().unwrap().1
}

/// Terms, each with a moment at which its work ran.
fn read(journal: &Path) -> Vec<(u64, Moment)> {
    let text = fs::read_to_string(journal).unwrap_or_default();
    // The last line may be incomplete.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let pair = |line: &str| {
        let (term, at) = line.trim().split_once(' ').unwrap();
        (term.parse().unwrap(), Moment::from_nanos(at.parse().unwrap()))
    };
    whole.map(pair).collect()
}

/// Terms come one after another by their times: none begins before the last has ended.
fn judge(journals: &[PathBuf]) {
    let mut all: Vec<(Moment, u64)> = journals
        .iter()
        .flat_map(|path| read(path).into_iter().map(|(term, at)| (at, term)))
        .collect();
    all.sort();
    let terms: Vec<u64> = all.iter().map(|(_, term)| *term).collect();
    assert!(terms.is_sorted(), "two worked at the same time: {all:?}");
    let count = terms.chunk_by(|a, b| a == b).count();
    assert!(count > ROUNDS, "{count} terms");
}
