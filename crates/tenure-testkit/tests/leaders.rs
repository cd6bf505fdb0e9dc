//! Leaders of many elections in several processes, killed again and again, and their terms checked: at most one leads
//! at a time, terms rise, and nobody waits for the next leader for longer than ttl + 1 s.
//!
//! `TENURE_KILLS` says how many leaders die; killing a process kills all leaders in it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::{Moment, SystemWorld, World};
use tenure::{Tenure, Term};
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{self, Folder};

const ELECTIONS: usize = 50;
const PROCESSES: usize = 5;
const TTL: Duration = Duration::from_secs(1);
/// The goal of a run without the variable; there is one for each engine.
const KILLS: usize = 100;
/// Set in a process of candidates: the engine, and where to write what it sees.
const URL: &str = "TENURE_TEST_URL";
const JOURNAL: &str = "TENURE_TEST_JOURNAL";

fn now() -> Moment {
    SystemWorld.now()
}

fn name(election: usize) -> String {
    format!("election:{election}")
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_on_a_file_follow_each_other() {
    let folder = Folder::new("leaders").unwrap();
    let url = format!("file:{}", folder.path().join("locks.db").display());
    play(&url, folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_on_redis_follow_each_other() {
    let server = servers::Redis::build().start().unwrap();
    let folder = Folder::new("leaders").unwrap();
    play(&server.url(), folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_on_postgres_follow_each_other() {
    let database = servers::PostgresDatabase::start().unwrap();
    let folder = Folder::new("leaders").unwrap();
    play(&database.url(), folder.path()).await;
}

/// Not a test: the processes that the other tests start.
#[tokio::test(flavor = "multi_thread")]
async fn candidates() {
    let (Ok(url), Some(journal)) = (std::env::var(URL), std::env::var_os(JOURNAL)) else { return };
    let journal = OpenOptions::new().create(true).append(true).open(journal).unwrap();
    let journal = Arc::new(Mutex::new(journal));
    let tenure = Tenure::connect(&url).await.unwrap();
    let own = std::process::id().to_string();
    let (mut all, mut rng) = (Vec::new(), Rng::new(now().as_nanos()));
    for number in 0..ELECTIONS {
        let election = tenure.election(name(number)).ttl(TTL).value(own.clone());
        let journal = journal.clone();
        // One by one, so that the lines differ and each process leads in some of them.
        let late = rng.micros(0, 300_000);
        all.push(tokio::spawn(async move {
            tokio::time::sleep(late).await;
            election.run(move |term| lead(number, term, journal.clone())).await.unwrap();
        }));
    }
    for one in all {
        one.await.unwrap();
    }
}

/// Leads until it is killed or stopped, and records at which moments it certainly did.
async fn lead(election: usize, term: Arc<Term>, journal: Arc<Mutex<File>>) {
    loop {
        let at = now();
        // Checked after the clock was read, so it led at that moment.
        if term.is_live() {
            let line = format!("{election} {} {}\n", term.number(), at.as_nanos());
            journal.lock().unwrap().write_all(line.as_bytes()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Candidates {
    child: Child,
    journal: PathBuf,
}

impl Candidates {
    fn start(url: &str, journal: PathBuf) -> Candidates {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "leaders::candidates", "--nocapture"])
            .env(URL, url)
            .env(JOURNAL, &journal)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Candidates { child, journal }
    }

    /// By SIGKILL. Returns when.
    fn kill(mut self) -> Moment {
        let at = now();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        at
    }
}

async fn play(url: &str, folder: &Path) {
    let kills = std::env::var("TENURE_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let strict = std::env::var_os("TENURE_KILLS").is_some();
    let tenure = Tenure::connect(url).await.unwrap();
    let mut rng = Rng::new(now().as_nanos());
    let mut journals = 0;
    let mut start = || {
        journals += 1;
        Candidates::start(url, folder.join(format!("journal-{journals}")))
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed: Vec<(PathBuf, Moment)> = Vec::new();
    let mut count = 0;
    while count < kills {
        // The last leader that was killed has a successor, whose work has begun.
        let leaders = all_leaders(&tenure).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let victim = rng.between(0, PROCESSES as u64 - 1) as usize;
        let process = std::mem::replace(&mut processes[victim], start());
        let own = process.child.id().to_string();
        count += leaders.iter().filter(|leader| **leader == own).count();
        killed.push((process.journal.clone(), process.kill()));
    }
    all_leaders(&tenure).await;
    let journals = processes.iter().map(|process| process.journal.clone());
    let journals: Vec<_> =
        killed.iter().map(|(journal, _)| journal.clone()).chain(journals).collect();
    for process in processes {
        process.kill();
    }
    judge(&journals, &killed, strict);
}

/// The value of every election's leader, once all of them have one.
async fn all_leaders(tenure: &Tenure) -> Vec<String> {
    let mut leaders = Vec::new();
    let led = async {
        for number in 0..ELECTIONS {
            let mut changes = tenure.election(name(number)).observe();
            leaders.push(loop {
                if let Some(leader) = changes.next().await.unwrap() {
                    break leader.value.unwrap();
                }
            });
        }
    };
    tokio::time::timeout(Duration::from_secs(60), led).await.expect("all are led");
    leaders
}

/// When a term was certainly led.
struct Led {
    term: u64,
    first: u64,
    last: u64,
    journal: usize,
}

fn judge(journals: &[PathBuf], killed: &[(PathBuf, Moment)], strict: bool) {
    let (mut died, mut longest, mut terms) = (0, Duration::ZERO, 0);
    let all = read(journals);
    assert_eq!(all.len(), ELECTIONS, "some were never led");
    for (election, led) in all {
        terms += led.len();
        for pair in led.windows(2) {
            let [one, next] = pair else { unreachable!("pairs") };
            assert!(one.term < next.term, "election {election}: a term had two leaders");
            assert!(
                one.last < next.first,
                "election {election}: term {} was led at {} and term {} at {}",
                one.term,
                one.last,
                next.term,
                next.first
            );
            let end = killed.iter().find(|(journal, _)| *journal == journals[one.journal]);
            let Some((_, end)) = end else { continue };
            // It led until it was killed, not only some time before.
            if Duration::from_nanos(end.as_nanos() - one.last) < Duration::from_millis(300) {
                died += 1;
                longest =
                    longest.max(Duration::from_nanos(next.first.saturating_sub(end.as_nanos())));
            }
        }
    }
    println!("{died} leaders were killed, {terms} terms, the longest gap {longest:?}");
    assert!(died > 0, "nobody was killed while leading");
    // A machine that builds something else meanwhile is no fault of the leaders.
    let spare = Duration::from_secs(if strict { 1 } else { 10 });
    assert!(longest <= TTL + spare, "nobody led for {longest:?}");
}

/// Each election's terms in order.
fn read(journals: &[PathBuf]) -> BTreeMap<usize, Vec<Led>> {
    let mut all: BTreeMap<usize, Vec<Led>> = BTreeMap::new();
    for (journal, path) in journals.iter().enumerate() {
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last line may have been cut by the kill.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let numbers: Vec<u64> =
                line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let [election, term, at] = numbers[..] else { panic!("{line}") };
            let led = all.entry(election as usize).or_default();
            match led.iter_mut().find(|led| led.term == term && led.journal == journal) {
                Some(led) => led.last = led.last.max(at),
                None => led.push(Led { term, first: at, last: at, journal }),
            }
        }
    }
    all.values_mut().for_each(|led| led.sort_by_key(|led| (led.term, led.first)));
    all
}
