//! One run: servers, workers and faults, and the judgement over what they left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tenure_testkit::proxy::Proxy;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Clock, Fsync, Redis};

use crate::journal::now;
use crate::liveness::CALM;
use crate::nemesis::Nemesis;
use crate::verdict::{self, Order};
use crate::workers::Workers;

const WORKERS: usize = 6;
const PROXIES: usize = 2;
/// Within this everybody who waits is served once nothing goes wrong any more: what a killed or silent
/// holder leaves ends with its ttl, and connections are made anew.
const SERVED: Duration = Duration::from_secs(15);
/// The longest that anything about a name is remembered, and more.
const FORGOTTEN: Duration = Duration::from_secs(180);

/// What the server knows when it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// All that it has acknowledged.
    Kept,
    /// Nothing; so that nothing is granted until all that was may have ended.
    Lost,
}

/// How much, and of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) memory: Memory,
    pub(crate) acquisitions: u64,
    pub(crate) faults: u64,
    pub(crate) seed: u64,
    /// When the run has failed if it has not reached that.
    pub(crate) bound: Duration,
}

impl Memory {
    fn longest_ttl(self) -> Duration {
        match self {
            Memory::Kept => Duration::from_secs(60),
            Memory::Lost => Duration::from_millis(1_200),
        }
    }

    fn start(self, clock: &Clock) -> Redis {
        let build = Redis::build().clock(clock);
        let build = match self {
            Memory::Kept => build.aof(Fsync::Always),
            Memory::Lost => build,
        };
        build.start().expect("a server")
    }

    fn url(self, port: u16) -> String {
        match self {
            Memory::Kept => format!("redis://127.0.0.1:{port}"),
            Memory::Lost => {
                let longest = self.longest_ttl().as_millis();
                format!("redis://127.0.0.1:{port}?after_restart=wait&max_ttl={longest}ms&ttl=1s")
            }
        }
    }
}

/// Plays and judges; panics with what was wrong.
pub(crate) fn run(plan: Plan) {
    println!("{:?}: TENURE_SEED={}", plan.memory, plan.seed);
    let began = Instant::now();
    let mut rng = Rng::new(plan.seed);
    let folder = Folder::new(plan.memory);
    let clock = Clock::new().expect("a clock");
    let server = plan.memory.start(&clock);
    let proxies: Vec<_> =
        (0..PROXIES).map(|_| Proxy::start(server.port()).expect("a proxy")).collect();
    let ports = std::iter::once(server.port()).chain(proxies.iter().map(Proxy::port));
    let urls = ports.map(|port| plan.memory.url(port)).collect();
    let mut workers = Workers::new(&folder.path, urls, plan.memory.longest_ttl());
    (0..WORKERS).for_each(|_| workers.start(&mut rng));
    let mut nemesis = Nemesis::new(&server, &proxies, &folder.path, rng.fork());
    while workers.acquisitions() < plan.acquisitions || nemesis.count() < plan.faults {
        workers.read();
        nemesis.act(&mut workers);
        if began.elapsed() > plan.bound {
            too_slow(plan, &server, workers, nemesis.count());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let calm = nemesis.rest(&mut workers);
    std::thread::sleep(CALM);
    workers.read();
    let mut calms = nemesis.calms().to_vec();
    calms.push((calm, now()));
    let told = workers.finish(SERVED);
    let report = verdict::judge_all(&told, calm, SERVED, &Order::Unknown, &calms);
    println!(
        "{:?}: {report}; {} faults {:?}; {:.0} s",
        plan.memory,
        nemesis.count(),
        nemesis.struck(),
        began.elapsed().as_secs_f64()
    );
    let wrong = report.wrong();
    assert!(wrong.is_empty(), "TENURE_SEED={}: {wrong:#?}", plan.seed);
    nothing_is_left(&server, &clock);
}

/// Fails with what was reached, and with what was wrong until then.
fn too_slow(plan: Plan, server: &Redis, workers: Workers, faults: u64) -> ! {
    let acquisitions = workers.acquisitions();
    let report = verdict::judge_all(&workers.stop(), now(), SERVED, &Order::Unknown, &[]);
    panic!(
        "TENURE_SEED={}: only {acquisitions} acquisitions and {faults} faults within {:?}; {report}; \
         {:#?}; the server: {}",
        plan.seed,
        plan.bound,
        report.wrong(),
        server.log()
    );
}

/// Once all is forgotten, only what is kept of a partition is there.
fn nothing_is_left(server: &Redis, clock: &Clock) {
    clock.offset(FORGOTTEN.as_millis() as i64).expect("a clock can be set");
    let keys = server.command(&["KEYS", "*"]).expect("a server that answers");
    let keys = keys.list().iter().filter_map(|key| key.text());
    let (fixed, left): (Vec<_>, Vec<_>) = keys.partition(|key| is_partition(key));
    assert_eq!(left, Vec::<&str>::new(), "left on the server");
    assert!(!fixed.is_empty(), "the run was on another server");
}

fn is_partition(key: &str) -> bool {
    let number = key.strip_prefix("tenure:{").and_then(|rest| rest.strip_suffix("}:p"));
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Where the journals are; gone with a run that went well, unless `TENURE_JOURNALS` names a place for
/// them.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn new(memory: Memory) -> Folder {
        let kept = std::env::var_os("TENURE_JOURNALS");
        let keep = kept.is_some();
        let above = kept.map_or_else(std::env::temp_dir, PathBuf::from);
        let path = above.join(format!("tenure-torture-{memory:?}-{}", std::process::id()));
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
