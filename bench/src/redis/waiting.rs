//! W4 and W4b: the cost of many waiters.

use std::time::{Duration, Instant, SystemTime};

use redis::{Client, Connection};
use tenure::{Hold, Tenure};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::Bench;
use super::children::{Child, Given, Orders, say};
use super::failure::Failure;
use super::options::Flavour;
use super::server::Server;
use super::table::Goal;
use tenure_measure::figures::median;

/// How long W4 measures.
const WINDOW: Duration = Duration::from_secs(26);
/// How long many claims may take to join the line.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name that all of them claim.
const NAME: &str = "wallet";

/// W4: 200 waiters in one process on one held name.
pub(crate) fn w4(bench: &mut Bench<'_>) {
    for flavour in Flavour::ALL {
        let looked = bench.look_at_the_idle(flavour);
        bench.table.heading(&format!("W4 200 waiters in one process on one held name; {flavour}"));
        match looked {
            Ok((commands, connections)) => {
                let table = &mut bench.table;
                // The earlier measurements, 8.1 and 1, plus a tenth for noise.
                let goal = Some(Goal::AtMost(9.0));
                table.row("tenure", "commands/s, the holder's included", goal, &[commands]);
                let goal = Some(Goal::AtMost(1.0));
                table.row("tenure", "connections", goal, &[connections]);
            }
            Err(reason) => bench.table.failed("tenure", &reason),
        }
    }
}

/// W4b: the cost of a join, a quit and a hand-off for the server while 10 wait, and while 10,000 do.
pub(crate) fn w4b(bench: &mut Bench<'_>) {
    let mut rounds = Vec::new();
    let mut failed = None;
    for _ in 0..bench.options.rounds {
        let few = bench.costs_with(10);
        match few.and_then(|few| Ok((few, bench.costs_with(10_000)?))) {
            Ok(costs) => rounds.push(costs),
            Err(reason) => {
                failed = Some(reason);
                break;
            }
        }
    }
    let table = &mut bench.table;
    table.heading("W4b a step while 10 wait and while 10,000 do: server time; multi-thread");
    if let Some(reason) = failed {
        return table.failed("tenure", &reason);
    }
    // Each with the earlier measurement plus a tenth for noise.
    let steps = [("join", 1.65), ("quit", 1.65), ("hand-off", 1.32)];
    for (step, (label, before)) in steps.into_iter().enumerate() {
        let each = |pick: fn(&(Costs, Costs)) -> &Costs| -> Vec<f64> {
            rounds.iter().map(|round| pick(round)[step]).collect()
        };
        let (few, many) = (each(|round| &round.0), each(|round| &round.1));
        let ratios: Vec<f64> = many.iter().zip(&few).map(|(many, few)| many / few).collect();
        table.row(label, "us while 10 wait", None, &few);
        table.row(label, "us while 10,000 wait", None, &many);
        table.row(label, "10,000 to 10", Some(Goal::AtMost(before)), &ratios);
    }
}

/// Microseconds of server time per join, quit and hand-off.
type Costs = [f64; 3];

impl Bench<'_> {
    /// Commands per second, and connections.
    fn look_at_the_idle(&self, flavour: Flavour) -> Result<(f64, f64), Failure> {
        let mut server = Server::start(self.options.cpu)?;
        let before = server.figure("clients", "connected_clients")?;
        let mut arguments = self.arguments(&server.url(), flavour);
        arguments.push("waiters=200".to_owned());
        let mut child = Child::start("idle", &arguments)?;
        child.hear("ready")?;
        let connections = server.figure("clients", "connected_clients")? - before;
        let watch = server.watch()?;
        let from = SystemTime::now();
        std::thread::sleep(WINDOW);
        let sent = watch.count(from, from + WINDOW);
        Ok((sent as f64 / WINDOW.as_secs_f64(), connections))
    }

    fn costs_with(&self, waiters: usize) -> Result<Costs, Failure> {
        let server = Server::start(self.options.cpu)?;
        let mut arguments = self.arguments(&server.url(), Flavour::MultiThread);
        arguments.push(format!("waiters={waiters}"));
        let mut child = Child::start("crowd", &arguments)?;
        let said = child.hear("costs")?;
        let costs: Vec<f64> = said.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        Ok(costs.try_into().map_err(|_| said)?)
    }
}

/// The child of W4: holds the name, starts `waiters` claims for it, and does nothing more.
pub(crate) async fn idle(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let tenure = Tenure::connect(given.text("url")?).await?;
    let waiters: usize = given.number("waiters")?;
    let _hold = tenure.mutex(NAME).ttl(Duration::from_secs(30)).acquire().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        tasks.spawn(tenure.mutex(NAME).ttl(Duration::from_secs(30)).join());
    }
    in_line(&tenure, NAME, waiters).await?;
    // Joining the line is over before the measurement begins.
    tokio::time::sleep(Duration::from_secs(1)).await;
    say("ready")?;
    orders.next().await?;
    Ok(())
}

/// Waits until this many claims are in line.
pub(crate) async fn in_line(tenure: &Tenure, name: &str, waiters: usize) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let there = tenure.inspect(name).await?.map_or(0, |view| view.waiters.len());
        if there >= waiters {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("only {there} of {waiters} stand in line").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The number of steps per measurement, and the number of measurements.
const STEPS: usize = 8;
const LOOKS: usize = 25;
/// The time limit for a batch of steps.
const SETTLE: Duration = Duration::from_millis(30);

/// The child of W4b: prints `costs JOIN QUIT HAND-OFF`, in microseconds of server time.
pub(crate) async fn crowd(given: &Given, _orders: &mut Orders) -> Result<(), Failure> {
    let url = given.text("url")?;
    let waiters: usize = given.number("waiters")?;
    let holder = Tenure::connect(url).await?;
    let mut hold = holder.mutex(NAME).ttl(LONG).acquire().await?;
    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut crowd = Crowd { tenure: Tenure::connect(url).await?, tasks: Vec::new(), grants };
    crowd.join(waiters);
    in_line(&crowd.tenure, NAME, waiters).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut log = SlowLog::open(url)?;
    let mut costs: [Vec<f64>; 3] = Default::default();
    for look in 0..LOOKS {
        log.reset()?;
        crowd.join(STEPS);
        tokio::time::sleep(SETTLE).await;
        costs[0].push(log.sum()? / STEPS as f64);
        log.reset()?;
        crowd.quit(look);
        tokio::time::sleep(SETTLE).await;
        costs[1].push(log.sum()? / STEPS as f64);
        crowd.join(STEPS);
        tokio::time::sleep(SETTLE).await;
        log.reset()?;
        for _ in 0..STEPS {
            hold.release().await?;
            hold = granted.recv().await.ok_or("nobody waits")??;
        }
        tokio::time::sleep(SETTLE).await;
        costs[2].push(log.sum()? / STEPS as f64);
    }
    // The claims that joined for the hand-offs replaced those that were served: the line is as long as at the
    // start.
    let [join, quit, hand_off] = costs.map(median);
    say(format_args!("costs {join} {quit} {hand_off}"))
}

/// Long enough that no renewal falls into a measurement.
const LONG: Duration = Duration::from_secs(3600);

/// The waiters, oldest first.
struct Crowd {
    tenure: Tenure,
    tasks: Vec<AbortHandle>,
    grants: mpsc::UnboundedSender<tenure::Result<Hold>>,
}

impl Crowd {
    fn join(&mut self, count: usize) {
        for _ in 0..count {
            let turn = self.tenure.mutex(NAME).ttl(LONG).join();
            let grants = self.grants.clone();
            let task = tokio::spawn(async move {
                let _ = grants.send(turn.await);
            });
            self.tasks.push(task.abort_handle());
        }
    }

    /// As many waiters as a measurement needs quit, from places all over the line.
    fn quit(&mut self, look: usize) {
        self.tasks.retain(|task| !task.is_finished());
        let stride = self.tasks.len() / STEPS;
        for step in (0..STEPS).rev() {
            self.tasks.remove(step * stride + look % stride.max(1)).abort();
        }
    }
}

/// The server's own log of slow commands.
struct SlowLog(Connection);

/// Number, time, microseconds, arguments, client address, client name.
type Entry = (i64, i64, f64, Vec<Vec<u8>>, String, String);

impl SlowLog {
    fn open(url: &str) -> Result<SlowLog, Failure> {
        let mut connection = Client::open(url)?.get_connection()?;
        for (setting, value) in [("slowlog-log-slower-than", "0"), ("slowlog-max-len", "10000")] {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg(setting).arg(value).exec(&mut connection)?;
        }
        Ok(SlowLog(connection))
    }

    fn reset(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("SLOWLOG").arg("RESET").exec(&mut self.0)?)
    }

    /// Microseconds of all commands since the reset. Commands inside scripts are included in their script.
    fn sum(&mut self) -> Result<f64, Failure> {
        let entries: Vec<Entry> = redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut self.0)?;
        let ours = |entry: &&Entry| {
            let command = entry.3.first().map(Vec::as_slice).unwrap_or_default();
            entry.4 != "?:0" && !command.eq_ignore_ascii_case(b"slowlog")
        };
        Ok(entries.iter().filter(ours).map(|entry| entry.2).sum())
    }
}
