//! The Postgres engine compared with hand-written locks, in one run, on a server that keeps what it commits.
//!
//! Clients are as separate as processes: each has its own connections and its own thread, and they share
//! nothing. Every kind runs once per round; ratios are computed within a round.

mod baselines;
mod life;
mod lines;
mod turns;

use std::future::Future;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure_testkit::servers::{Postgres, PostgresDatabase, PostgresVersion};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::redis::{Goal, Table};
use baselines::{ByHand, Kind};

/// The length of a trial.
const TRIAL: Duration = Duration::from_secs(1);
/// The number of pairs of each client before a trial: a session plans the first five executions of a statement anew.
const WARM: usize = 10;
/// The number of clients in the trials with many clients.
const CROWD: usize = 64;

/// One run.
struct Bench {
    database: PostgresDatabase,
    table: Table,
    rounds: usize,
    /// Whether only tenure is measured, for a profile.
    alone: bool,
}

/// The parts of a run.
const PARTS: [&str; 5] = ["pairs", "idle", "turns", "lines", "life"];

/// Prints the figures of Postgres 15, or of 18 on request; of all parts, or of the given ones. `pairs alone` measures
/// nothing but tenure, and a number is how many rounds there are.
pub(crate) fn run(given: &[String]) {
    let is_given = |word: &str| given.iter().any(|given| given == word);
    let version = match is_given("18") {
        true => PostgresVersion::Postgres18,
        false => PostgresVersion::Debian,
    };
    let rounds = given.iter().find_map(|word| word.parse().ok().filter(|rounds| *rounds != 18));
    let rounds = rounds.unwrap_or(5);
    let asks_for = |part: &str| is_given(part) || !PARTS.into_iter().any(is_given);
    let mut server = Postgres::build().version(version);
    for setting in
        ["fsync=on", "full_page_writes=on", "synchronous_commit=on", "shared_buffers=128MB"]
    {
        server = server.setting(setting);
    }
    let database = PostgresDatabase::alone(server).expect("a server");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let version = database.sql("SHOW server_version").expect("a version");
    println!("Postgres {version} with fsync, {rounds} rounds of {TRIAL:?}");
    database.sql(baselines::TABLES).expect("tables");
    let mut bench = Bench { database, table: Table::default(), rounds, alone: is_given("alone") };
    runtime.block_on(async {
        for part in PARTS.into_iter().filter(|part| asks_for(part)) {
            match part {
                "pairs" => bench.pairs().await,
                "idle" => bench.idle().await,
                "turns" => turns::run(&mut bench).await,
                "lines" => lines::run(&mut bench).await,
                _ => life::run(&mut bench).await,
            }
        }
    });
    bench.table.end();
}

impl Bench {
    async fn tenure(&self) -> Tenure {
        Tenure::connect(&self.database.url()).await.expect("an engine")
    }

    async fn client(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.database.url(), NoTls).await.expect("a server");
        tokio::spawn(connection);
        client
    }

    /// Acquire and release, by one client and by many, each on its own name.
    async fn pairs(&mut self) {
        for (clients, goal) in [(1, Goal::AtLeast(1.0)), (CROWD, Goal::AtLeast(4.0))] {
            let mut rates = vec![Vec::new(); Kind::ALL.len() + 1];
            for _ in 0..self.rounds {
                let by_hand = if self.alone { &[][..] } else { &Kind::ALL };
                for (&kind, rates) in by_hand.iter().zip(&mut rates) {
                    rates.push(self.by_hand(kind, clients).await);
                }
                let rate = self.with_tenure(clients).await;
                rates[Kind::ALL.len()].push(rate);
            }
            self.table.heading(&format!("acquire + release, {clients} at a time, pairs a second"));
            let base = rates[0].clone();
            let own = &rates[Kind::ALL.len()];
            self.table.row("tenure", "pairs/s", None, own);
            if self.alone {
                continue;
            }
            for (kind, rates) in Kind::ALL.iter().zip(&rates) {
                self.table.row(kind.name(), "pairs/s", None, rates);
            }
            self.table.row("tenure", "to two statements", Some(goal), &ratios(own, &base));
        }
    }

    async fn by_hand(&self, kind: Kind, clients: usize) -> f64 {
        let mut hands = Vec::new();
        for at in 0..clients {
            let mut hand = ByHand::new(self.client().await, kind).await;
            for _ in 0..WARM {
                hand.pair(&format!("n{at}")).await;
            }
            hands.push(hand);
        }
        let works = hands.into_iter().enumerate().map(|(at, mut hand)| async move {
            let name = format!("n{at}");
            let mut pace = Pace::new();
            while pace.goes_on() {
                hand.pair(&name).await;
            }
            pace.rate()
        });
        together(works).await
    }

    async fn with_tenure(&self, clients: usize) -> f64 {
        let mut all = Vec::new();
        for at in 0..clients {
            let tenure = self.tenure().await;
            for _ in 0..WARM {
                pair(&tenure, &format!("n{at}")).await;
            }
            all.push(tenure);
        }
        let works = all.into_iter().enumerate().map(|(at, tenure)| async move {
            let name = format!("n{at}");
            let mut pace = Pace::new();
            while pace.goes_on() {
                pair(&tenure, &name).await;
            }
            let rate = pace.rate();
            tenure.close().await;
            rate
        });
        together(works).await
    }

    /// Whether idle connections of other clients cost anything.
    async fn idle(&mut self) {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            without.push(self.with_tenure(1).await);
            let mut idle = Vec::new();
            for _ in 0..100 {
                idle.push(self.tenure().await);
            }
            with.push(self.with_tenure(1).await);
            for tenure in idle {
                tenure.close().await;
            }
        }
        self.table.heading("one client, beside 100 clients that are connected and idle");
        self.table.row("tenure", "pairs/s, alone", None, &without);
        self.table.row("tenure", "pairs/s, beside 100", None, &with);
        let goal = Some(Goal::AtLeast(0.9));
        self.table.row("tenure", "beside 100 to alone", goal, &ratios(&with, &without));
    }
}

async fn pair(tenure: &Tenure, name: &str) {
    let hold = tenure.mutex(name).acquire().await.expect("a hold");
    hold.release().await.expect("a release");
}

/// Counts the sequential calls within a trial; the first call does not count.
struct Pace {
    began: Instant,
    done: Option<u32>,
}

impl Pace {
    fn new() -> Pace {
        Pace { began: Instant::now(), done: None }
    }

    /// Called before each call.
    fn goes_on(&mut self) -> bool {
        match &mut self.done {
            Some(done) => *done += 1,
            None => {
                // The first call connects, and creates rows.
                self.done = Some(0);
                return true;
            }
        }
        if self.done == Some(1) {
            self.began = Instant::now();
        }
        self.began.elapsed() < TRIAL
    }

    /// The number per second.
    fn rate(&self) -> f64 {
        f64::from(self.done.unwrap_or(1) - 1) / self.began.elapsed().as_secs_f64()
    }
}

/// The sum of what the concurrent clients reach.
async fn together<W: Future<Output = f64> + Send + 'static>(works: impl Iterator<Item = W>) -> f64 {
    let mut all = JoinSet::new();
    for work in works {
        all.spawn(work);
    }
    all.join_all().await.into_iter().sum()
}

/// The figures of each round.
fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}
