//! What goes wrong, when, and for how long.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure::engine::Moment;
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::rng::Rng;

use crate::journal::now;
use crate::liveness::{CALM, FAULTS_BETWEEN, Span};
use crate::target::Target;
use crate::workers::{Busy, Workers};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A worker that holds is killed, and replaced.
    KillHolder,
    KillWaiter,
    /// A worker that holds is stopped, for less than its ttl or for more.
    PauseHolder,
    PauseWaiter,
    /// The server is killed and started again.
    RestartServer,
    /// The server is stopped for less than most ttls.
    PauseServer,
    /// The same for longer.
    PauseServerLong,
    /// Redis forgets its scripts; a transaction locks the row of a name in Postgres.
    Disturb,
    /// The server closes connections that only send requests.
    CutAskers,
    /// The server closes connections that receive turns.
    CutListeners,
    /// Connections through one proxy break.
    Reset,
    /// Some answers are lost, then the connections break.
    LoseReplies,
    /// Requests are lost, then the connections break.
    LoseRequests,
    /// Everything is delayed.
    Delay,
    /// Answers and pushes are held back.
    HoldReplies,
    /// New connections receive nothing.
    Mute,
}

/// Each kind once, and those that the rest depends on twice.
const DECK: [Fault; 20] = [
    Fault::KillHolder,
    Fault::KillHolder,
    Fault::KillWaiter,
    Fault::PauseHolder,
    Fault::PauseHolder,
    Fault::PauseWaiter,
    Fault::RestartServer,
    Fault::RestartServer,
    Fault::PauseServer,
    Fault::PauseServerLong,
    Fault::Disturb,
    Fault::Disturb,
    Fault::CutAskers,
    Fault::CutListeners,
    Fault::Reset,
    Fault::LoseReplies,
    Fault::LoseRequests,
    Fault::Delay,
    Fault::HoldReplies,
    Fault::Mute,
];

/// What ends a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    Worker(u32),
    Server,
    /// What was held back or delayed arrives, however late.
    Proxy(usize),
    /// Bytes are missing in the streams, so they cannot continue.
    BrokenProxy(usize),
}

/// Deals faults from a shuffled deck, so that each kind comes.
pub(crate) struct Nemesis<'a> {
    target: &'a dyn Target,
    proxies: &'a [Proxy],
    rng: Rng,
    deck: Vec<Fault>,
    cures: Vec<(Instant, Cure)>,
    next: Instant,
    struck: BTreeMap<Fault, u64>,
    /// When nothing went wrong.
    calms: Vec<Span>,
    /// What was done, one line each, by the clock of the journals.
    log: File,
}

impl<'a> Nemesis<'a> {
    /// Faults against these. What was done is written to the folder of the journals.
    pub(crate) fn new(
        target: &'a dyn Target,
        proxies: &'a [Proxy],
        folder: &Path,
        rng: Rng,
    ) -> Nemesis<'a> {
        // Not before the workers have started.
        let next = Instant::now() + Duration::from_millis(700);
        let (deck, cures, struck, calms) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
        let log = File::create(folder.join("faults")).expect("a log of the faults");
        Nemesis { target, proxies, rng, deck, cures, next, struck, calms, log }
    }

    /// How many of each kind there were.
    pub(crate) fn struck(&self) -> &BTreeMap<Fault, u64> {
        &self.struck
    }

    /// When nothing went wrong.
    pub(crate) fn calms(&self) -> &[Span] {
        &self.calms
    }

    pub(crate) fn count(&self) -> u64 {
        self.struck.values().sum()
    }

    /// Ends faults that are due to end, and starts one when it is time.
    pub(crate) fn act(&mut self, workers: &mut Workers) {
        let due = Instant::now();
        let (ended, lasting) = self.cures.drain(..).partition(|(at, _)| *at <= due);
        self.cures = lasting;
        self.cure(ended, workers);
        if due >= self.next && self.count() / FAULTS_BETWEEN > self.calms.len() as u64 {
            let from = self.rest(workers);
            self.calms.push((from, from + CALM));
            self.next = Instant::now() + CALM;
        } else if due >= self.next {
            if self.deck.is_empty() {
                self.deck = shuffled(&mut self.rng);
            }
            let fault = self.deck.pop().expect("a deck with cards");
            if self.strike(fault, workers) {
                *self.struck.entry(fault).or_default() += 1;
            } else {
                // Not now: it comes last.
                self.deck.insert(0, fault);
            }
            self.next = Instant::now() + self.rng.micros(150_000, 850_000);
        }
    }

    /// Ends all faults; from this moment on nothing goes wrong any more.
    pub(crate) fn rest(&mut self, workers: &mut Workers) -> Moment {
        let all = self.cures.drain(..).collect();
        self.cure(all, workers);
        now()
    }

    fn cure(&mut self, ended: Vec<(Instant, Cure)>, workers: &mut Workers) {
        for (_, cure) in ended {
            match cure {
                Cure::Worker(number) => workers.resume(number),
                Cure::Server => self.target.resume().expect("a paused server goes on"),
                Cure::Proxy(at) => self.proxies[at].pass().expect("a proxy passes"),
                Cure::BrokenProxy(at) => {
                    self.proxies[at].reset();
                    self.proxies[at].pass().expect("a proxy passes");
                }
            }
            self.note(format_args!("end of {cure:?}"));
        }
    }

    fn strike(&mut self, fault: Fault, workers: &mut Workers) -> bool {
        use Fault::*;
        let server_stands = self.cures.iter().any(|(_, cure)| *cure == Cure::Server);
        self.note(format_args!("{fault:?}"));
        match fault {
            KillHolder => self.kill(Busy::Holding, workers),
            KillWaiter => self.kill(Busy::Waiting, workers),
            PauseHolder => self.pause(Busy::Holding, workers),
            PauseWaiter => self.pause(Busy::Waiting, workers),
            _ if server_stands => false,
            RestartServer => self.restart(),
            PauseServer => self.pause_server(50_000, 700_000),
            PauseServerLong => self.pause_server(1_100_000, 2_200_000),
            Disturb => self.target.disturb(self.rng.bits()),
            CutAskers => self.target.cut_askers(),
            CutListeners => self.target.cut_listeners(),
            Reset | LoseReplies | LoseRequests | Delay | HoldReplies | Mute => self.network(fault),
        }
    }

    fn kill(&mut self, busy: Busy, workers: &mut Workers) -> bool {
        let Some(victim) = workers.victim(&mut self.rng, busy) else { return false };
        workers.kill(victim, &mut self.rng);
        self.note(format_args!("killed worker {victim}"));
        true
    }

    fn pause(&mut self, busy: Busy, workers: &mut Workers) -> bool {
        let Some(victim) = workers.victim(&mut self.rng, busy) else { return false };
        workers.pause(victim);
        self.note(format_args!("paused worker {victim}"));
        self.until(Cure::Worker(victim), 200_000, 2_500_000)
    }

    fn restart(&mut self) -> bool {
        let pause = self.rng.micros(0, 400_000);
        self.target.restart(pause).expect("a killed server starts again");
        self.note(format_args!("the server is up again"));
        true
    }

    fn pause_server(&mut self, low: u64, high: u64) -> bool {
        self.target.pause().expect("a server can be paused");
        self.until(Cure::Server, low, high)
    }

    fn network(&mut self, fault: Fault) -> bool {
        let at = self.rng.between(0, self.proxies.len() as u64 - 1) as usize;
        let busy = [Cure::Proxy(at), Cure::BrokenProxy(at)];
        if self.cures.iter().any(|(_, cure)| busy.contains(cure)) {
            return false;
        }
        let proxy = &self.proxies[at];
        match fault {
            Fault::LoseReplies => proxy.drop_replies(self.rng.between(1, 20)),
            Fault::LoseRequests => proxy.swallow(Direction::Upstream),
            Fault::Delay => {
                let by = self.rng.micros(20_000, 500_000);
                proxy.delay(Direction::Upstream, by / 2);
                proxy.delay(Direction::Downstream, by);
            }
            Fault::HoldReplies => proxy.hold(Direction::Downstream),
            Fault::Mute => {
                proxy.mute().expect("a proxy can be mute");
                proxy.reset();
            }
            _ => proxy.reset(),
        }
        self.note(format_args!("proxy {at}"));
        match fault {
            Fault::Reset => true,
            Fault::Delay | Fault::HoldReplies => self.until(Cure::Proxy(at), 200_000, 1_800_000),
            _ => self.until(Cure::BrokenProxy(at), 200_000, 1_800_000),
        }
    }

    fn until(&mut self, cure: Cure, low: u64, high: u64) -> bool {
        let lasts = self.rng.micros(low, high);
        self.cures.push((Instant::now() + lasts, cure));
        true
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.log, "{} {what}", now().as_nanos()).expect("room for a log");
    }
}

fn shuffled(rng: &mut Rng) -> Vec<Fault> {
    let mut deck = DECK.to_vec();
    for last in (1..deck.len()).rev() {
        deck.swap(last, rng.between(0, last as u64) as usize);
    }
    deck
}
