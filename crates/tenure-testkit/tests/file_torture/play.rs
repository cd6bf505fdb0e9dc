//! One run: a file, workers and faults, and the verdict on their journals.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tenure::engines::file::File;
use tenure_testkit::rng::Rng;

use crate::journal::now;
use crate::liveness::CALM;
use crate::nemesis::Nemesis;
use crate::verdict::{self, Order};
use crate::workers::Workers;

const WORKERS: usize = 6;
/// No ttl is longer.
const LONGEST_TTL: Duration = Duration::from_millis(2_500);
/// Within this time all waiting claims are served once nothing goes wrong any more: what a silent holder leaves
/// behind ends with its ttl.
const SERVED: Duration = Duration::from_secs(15);

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) acquisitions: u64,
    pub(crate) faults: u64,
    pub(crate) seed: u64,
    /// The run has failed if it has not reached its goals by then.
    pub(crate) bound: Duration,
}

/// Plays and judges; panics with the violations.
pub(crate) fn run(plan: Plan) {
    println!("TENURE_SEED={}", plan.seed);
    let began = Instant::now();
    let mut rng = Rng::new(plan.seed);
    let folder = Folder::new();
    let path = folder.path.join("locks.db");
    let url = format!("file:{}", path.display());
    let mut workers = Workers::new(&folder.path, vec![url], LONGEST_TTL);
    (0..WORKERS).for_each(|_| workers.start(&mut rng));
    let mut nemesis = Nemesis::new(&path, &folder.path, rng.fork());
    let mut longest_journal = 0;
    while workers.acquisitions() < plan.acquisitions || nemesis.count() < plan.faults {
        workers.read();
        nemesis.act(&mut workers);
        if began.elapsed() > plan.bound {
            too_slow(plan, workers, nemesis.count());
        }
        let journal = std::fs::metadata(folder.path.join("locks.db-wal"));
        longest_journal = longest_journal.max(journal.map_or(0, |about| about.len()));
        std::thread::sleep(Duration::from_millis(10));
    }
    let calm = nemesis.rest(&mut workers);
    std::thread::sleep(CALM);
    workers.read();
    let mut calms = nemesis.calms().to_vec();
    calms.push((calm, now()));
    let told = workers.finish(SERVED);
    let order = Order::Kept { unless: nemesis.unreached() };
    let report = verdict::judge_all(&told, calm, SERVED, &order, &calms);
    println!(
        "{report}; {} faults {:?}; a journal of {:.1} MB; {:.0} s",
        nemesis.count(),
        nemesis.struck(),
        longest_journal as f64 / f64::from(1 << 20),
        began.elapsed().as_secs_f64()
    );
    let wrong = report.wrong();
    assert!(wrong.is_empty(), "TENURE_SEED={}: {wrong:#?}", plan.seed);
    assert!(longest_journal < 64 << 20, "a journal of {longest_journal} bytes");
    nothing_is_left(&folder);
}

/// Fails with the progress so far, and with the violations until then.
fn too_slow(plan: Plan, workers: Workers, faults: u64) -> ! {
    let acquisitions = workers.acquisitions();
    let report = verdict::judge_all(&workers.stop(), now(), SERVED, &Order::Unknown, &[]);
    panic!(
        "TENURE_SEED={}: only {acquisitions} acquisitions and {faults} faults within {:?}; {report}; {:#?}",
        plan.seed,
        plan.bound,
        report.wrong(),
    );
}

/// The file is sound, and after a sweep nothing is left in it.
fn nothing_is_left(folder: &Folder) {
    let path = folder.path.join("locks.db");
    let db = || rusqlite::Connection::open(&path).expect("a database");
    let check: String =
        db().query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(check, "ok");
    db().execute_batch("UPDATE meta SET swept = 0").expect("a database");
    drop(File::open(&path).expect("a file"));
    for table in ["claim", "process"] {
        let count = format!("SELECT count(*) FROM {table}");
        let left: i64 = db().query_row(&count, [], |row| row.get(0)).expect("an answer");
        assert_eq!(left, 0, "rows of {table} are left");
    }
}

/// The folder of the file and the journals. It is removed after a run that succeeds, unless `TENURE_JOURNALS` names a
/// place for them.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn new() -> Folder {
        let kept = std::env::var_os("TENURE_JOURNALS");
        let keep = kept.is_some();
        let above = kept.map_or_else(std::env::temp_dir, PathBuf::from);
        let path = above.join(format!("tenure-torture-file-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for journals");
        Folder { path, keep }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the journals are in {}", self.path.display());
        } else if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
