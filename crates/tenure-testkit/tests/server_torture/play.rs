//! One run: a server, workers and faults, and the verdict on their journals.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tenure_testkit::proxy::Proxy;
use tenure_testkit::rng::Rng;

use crate::journal::now;
use crate::liveness::CALM;
use crate::nemesis::Nemesis;
use crate::target::Target;
use crate::verdict::{self, Order};
use crate::workers::Workers;

const WORKERS: usize = 6;
const PROXIES: usize = 2;
/// Within this time all waiting claims are served once nothing goes wrong any more: what a killed or silent holder
/// leaves behind ends with its ttl, and connections are remade.
const SERVED: Duration = Duration::from_secs(15);
/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) acquisitions: u64,
    /// Without any, the order is judged, too.
    pub(crate) faults: u64,
    pub(crate) seed: u64,
    /// The run has failed if it has not reached its goals by then.
    pub(crate) bound: Duration,
}

/// Plays and checks; panics with the violations.
pub(crate) fn run(target: &dyn Target, plan: Plan) {
    println!("{}: TENURE_SEED={}", target.name(), plan.seed);
    let began = Instant::now();
    let mut rng = Rng::new(plan.seed);
    // Several runs may use servers of one kind at a time.
    let folder = Folder::new(&format!("{}-{}", target.name(), target.port()));
    let proxies: Vec<_> =
        (0..PROXIES).map(|_| Proxy::start(target.port()).expect("a proxy")).collect();
    let ports = std::iter::once(target.port()).chain(proxies.iter().map(Proxy::port));
    let urls = ports.map(|port| target.url(port)).collect();
    let mut workers = Workers::new(&folder.path, urls, target.longest_ttl());
    (0..WORKERS).for_each(|_| workers.start(&mut rng));
    let mut nemesis = Nemesis::new(target, &proxies, &folder.path, rng.fork());
    while workers.acquisitions() < plan.acquisitions || nemesis.count() < plan.faults {
        workers.read();
        if plan.faults > 0 {
            nemesis.act(&mut workers);
        }
        if began.elapsed() > plan.bound {
            too_slow(plan, target, workers, nemesis.count());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let calm = nemesis.rest(&mut workers);
    std::thread::sleep(CALM);
    workers.read();
    let mut calms = nemesis.calms().to_vec();
    calms.push((calm, now()));
    let told = workers.finish(SERVED);
    // Only workers know when they stood in line, and over a bad network they hear of it late.
    let order = match plan.faults {
        0 => Order::Kept { unless: Vec::new() },
        _ => Order::Unknown,
    };
    let report = verdict::judge_all(&told, calm, SERVED, &order, &calms);
    println!(
        "{}: {report}; {} faults {:?}; {:.0} s",
        target.name(),
        nemesis.count(),
        nemesis.struck(),
        began.elapsed().as_secs_f64()
    );
    let wrong = report.wrong();
    assert!(wrong.is_empty(), "TENURE_SEED={}: {wrong:#?}", plan.seed);
    target.nothing_is_left();
}

/// Fails with the progress so far, and with the violations until then.
fn too_slow(plan: Plan, target: &dyn Target, workers: Workers, faults: u64) -> ! {
    let acquisitions = workers.acquisitions();
    let report = verdict::judge_all(&workers.stop(), now(), SERVED, &Order::Unknown, &[]);
    panic!(
        "TENURE_SEED={}: only {acquisitions} acquisitions and {faults} faults within {:?}; {report}; \
         {:#?}; the server: {}",
        plan.seed,
        plan.bound,
        report.wrong(),
        target.log()
    );
}

/// The folder of the journals. It is removed after a run that succeeds, unless `TENURE_JOURNALS` names a place for
/// them.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn new(run: &str) -> Folder {
        let kept = std::env::var_os("TENURE_JOURNALS");
        let keep = kept.is_some();
        let above = kept.map_or_else(std::env::temp_dir, PathBuf::from);
        let path = above.join(format!("tenure-torture-{run}-{}", std::process::id()));
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
