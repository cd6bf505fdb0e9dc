//! The workers, from the point of view of the process that started them.
#![allow(dead_code, reason = "each run uses a part of it")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure::engine::Moment;
use tenure_testkit::rng::Rng;

use crate::journal::{Entry, Event, Journal, Reading, now};
use crate::worker::Orders;

/// How long a stopped worker takes to catch up.
const COMES_TO: Duration = Duration::from_secs(1);

/// The current activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    Waiting,
    Holding,
}

/// Everything that a worker has written, and how it ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) worker: u32,
    pub(crate) entries: Vec<Entry>,
    /// The last moment before it was killed, if it was.
    pub(crate) killed: Option<Moment>,
    /// When it was stopped.
    pub(crate) paused: Vec<(Moment, Moment)>,
}

/// The workers. Those that are killed are replaced.
#[derive(Debug)]
pub(crate) struct Workers {
    folder: PathBuf,
    /// The ways to the engine: of a server directly, and through each proxy.
    urls: Vec<String>,
    longest_ttl: Duration,
    present: Vec<Worker>,
    past: Vec<Told>,
    acquisitions: u64,
}

#[derive(Debug)]
struct Worker {
    number: u32,
    child: Child,
    paused: bool,
    pauses: Vec<(Moment, Moment)>,
    reading: Reading,
    open: HashMap<u64, Busy>,
    told: Vec<Entry>,
}

impl Workers {
    pub(crate) fn new(folder: &Path, urls: Vec<String>, longest_ttl: Duration) -> Workers {
        let folder = folder.to_owned();
        Workers {
            folder,
            urls,
            longest_ttl,
            present: Vec::new(),
            past: Vec::new(),
            acquisitions: 0,
        }
    }

    /// Starts a worker. Its number decides how it reaches the server.
    pub(crate) fn start(&mut self, rng: &mut Rng) {
        let number = (self.present.len() + self.past.len()) as u32;
        let url = self.urls[number as usize % self.urls.len()].clone();
        // Some notice soon that nobody answers, some late. None is faster than a disk that others use too.
        let and = if url.contains('?') { '&' } else { '?' };
        let hasty = match url.split_once(':') {
            Some(("redis", _)) => Some("command_timeout=1s&connect_timeout=1s"),
            Some(("postgres", _)) => Some("command_timeout=1s"),
            _ => None,
        };
        let url = match hasty {
            Some(hasty) if rng.chance(500) => format!("{url}{and}{hasty}"),
            _ => url,
        };
        let journal = self.folder.join(format!("worker-{number}.journal"));
        // Created here, so that it can be read even if the worker did not get that far.
        drop(Journal::create(&journal).expect("a journal"));
        let reading = Reading::open(&journal).expect("a journal");
        let longest_ttl = self.longest_ttl;
        let orders = Orders { url, journal, seed: rng.bits(), longest_ttl };
        let child = spawn(&orders, &errors(&self.folder, number));
        let (paused, pauses, open, told) = (false, Vec::new(), HashMap::new(), Vec::new());
        self.present.push(Worker { number, child, paused, pauses, reading, open, told });
    }

    /// Reads the journals. A worker that ended by itself is a failure.
    pub(crate) fn read(&mut self) {
        for worker in &mut self.present {
            self.acquisitions += worker.read();
            let ended = worker.child.try_wait().expect("the state of a worker");
            let is_done = worker.told.last().is_some_and(|last| last.event == Event::Done);
            if let Some(status) = ended.filter(|_| !is_done) {
                let number = worker.number;
                let errors = fs::read_to_string(errors(&self.folder, number)).unwrap_or_default();
                panic!("worker {number} ended by itself, {status}: {errors}");
            }
        }
    }

    pub(crate) fn acquisitions(&self) -> u64 {
        self.acquisitions
    }

    /// A running worker, preferably one with this activity.
    pub(crate) fn victim(&mut self, rng: &mut Rng, busy: Busy) -> Option<u32> {
        self.read();
        let running: Vec<_> = self.present.iter().filter(|worker| !worker.paused).collect();
        let so: Vec<_> = running.iter().filter(|worker| worker.is(busy)).collect();
        let pick = |count: usize, rng: &mut Rng| rng.between(0, count as u64 - 1) as usize;
        match (so.len(), running.len()) {
            (0, 0) => None,
            (0, count) => Some(running[pick(count, rng)].number),
            (count, _) => Some(so[pick(count, rng)].number),
        }
    }

    /// Kills a worker and starts another.
    pub(crate) fn kill(&mut self, number: u32, rng: &mut Rng) {
        self.end(number);
        self.start(rng);
    }

    /// Kills all workers, and returns all journals.
    pub(crate) fn stop(mut self) -> Vec<Told> {
        while let Some(worker) = self.present.first() {
            self.end(worker.number);
        }
        self.past
    }

    fn end(&mut self, number: u32) {
        let at = self.position(number).expect("a worker that is present");
        let mut worker = self.present.remove(at);
        let killed = now();
        worker.child.kill().expect("a worker can be killed");
        worker.child.wait().expect("a killed worker ends");
        self.acquisitions += worker.read();
        self.past.push(worker.all_told(Some(killed)));
    }

    /// Sends a worker a stop signal, and returns its process id.
    pub(crate) fn pause(&mut self, number: u32) -> Pid {
        self.signal(number, Signal::STOP, true)
    }

    pub(crate) fn resume(&mut self, number: u32) {
        self.signal(number, Signal::CONT, false);
    }

    fn signal(&mut self, number: u32, signal: Signal, paused: bool) -> Pid {
        let at = self.position(number).expect("a worker that is present");
        let worker = &mut self.present[at];
        let before = now();
        // Not waited for yet, so that the id is still its own.
        let pid = Pid::from_child(&worker.child);
        kill_process(pid, signal).expect("a worker hears signals");
        worker.paused = paused;
        match worker.pauses.last_mut() {
            Some((_, until)) if !paused => *until = now() + COMES_TO,
            _ => worker.pauses.push((before, Moment::FAR)),
        }
        pid
    }

    /// A worker that is stopped.
    pub(crate) fn paused(&self) -> Option<u32> {
        self.present.iter().find(|worker| worker.paused).map(|worker| worker.number)
    }

    /// Any worker.
    pub(crate) fn any(&self, rng: &mut Rng) -> u32 {
        self.present[rng.between(0, self.present.len() as u64 - 1) as usize].number
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.present.iter().position(|worker| worker.number == number)
    }

    /// Lets all workers finish and returns all journals. A worker that does not finish was not served.
    pub(crate) fn finish(mut self, bound: Duration) -> Vec<Told> {
        for worker in &mut self.present {
            drop(worker.child.stdin.take());
        }
        let began = Instant::now();
        loop {
            self.read();
            let late: Vec<_> = self.present.iter_mut().filter_map(Worker::unfinished).collect();
            if late.is_empty() {
                break;
            }
            assert!(began.elapsed() < bound, "not served within {bound:?}: {late:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut told = std::mem::take(&mut self.past);
        for mut worker in std::mem::take(&mut self.present) {
            let status = worker.child.wait().expect("a worker ends");
            assert!(status.success(), "worker {}: {status}", worker.number);
            told.push(worker.all_told(None));
        }
        told
    }
}

impl Worker {
    /// Reads the new lines, and returns the number of acquisitions in them.
    fn read(&mut self) -> u64 {
        let mut acquisitions = 0;
        for entry in self.reading.next() {
            match &entry.event {
                Event::Asked { .. } => drop(self.open.insert(entry.serial, Busy::Waiting)),
                Event::Acquired { .. } => {
                    acquisitions += 1;
                    self.open.insert(entry.serial, Busy::Holding);
                }
                Event::Left { .. } | Event::GaveUp { .. } => drop(self.open.remove(&entry.serial)),
                Event::Stood { .. } | Event::Extended { .. } | Event::Wrote { .. } => {}
                Event::Done => {}
                Event::Failed { what } => panic!("worker {}: {what}", self.number),
            }
            self.told.push(entry);
        }
        acquisitions
    }

    fn all_told(&mut self, killed: Option<Moment>) -> Told {
        let (entries, paused) = (std::mem::take(&mut self.told), std::mem::take(&mut self.pauses));
        Told { worker: self.number, entries, killed, paused }
    }

    fn is(&self, busy: Busy) -> bool {
        self.open.values().any(|open| *open == busy)
    }

    fn unfinished(&mut self) -> Option<String> {
        if self.child.try_wait().expect("the state of a worker").is_some() {
            return None;
        }
        Some(format!("worker {}: {:?}", self.number, self.open))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn errors(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("worker-{number}.errors"))
}

/// Starts this program again as a worker. If this process is killed, the kernel kills it, too.
fn spawn(orders: &Orders, errors: &Path) -> Child {
    let errors = File::create(errors).expect("a file for errors");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]).envs(orders.to_env());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors);
    command.spawn().expect("a worker starts")
}
