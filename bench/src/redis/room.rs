//! How much memory held names take, and whether they leave any behind.

use std::time::{Duration, Instant};

use tenure::{Hold, Tenure};
use tokio::task::JoinSet;

use super::Bench;
use super::children::{Child, Given, Orders, say};
use super::failure::Failure;
use super::options::Flavour;
use super::server::Server;
use super::table::Goal;

const NAMES: usize = 10_000;
/// How long idle names may stay in memory.
const PATIENCE: Duration = Duration::from_secs(120);

/// The figures of the first and the second time.
struct Seen {
    server_bytes: Vec<f64>,
    client_bytes: Vec<f64>,
    keys_before: f64,
    keys_held: Vec<f64>,
    keys_released: Vec<f64>,
    /// The time until nothing changed any more; the second time, until the number was down to that of the first
    /// time.
    keys_after: Vec<f64>,
    seconds: Vec<f64>,
}

/// Memory: 10,000 names held by one process and released, and then 10,000 others.
pub(crate) fn room(bench: &mut Bench<'_>) {
    let seen = bench.look_at_the_room();
    let table = &mut bench.table;
    table.heading("room: twice 10,000 names, held by one process and released; multi-thread");
    let seen = match seen {
        Ok(seen) => seen,
        Err(reason) => return table.failed("tenure", &reason),
    };
    // The earlier measurement, 224, plus a tenth for noise.
    let goal = Some(Goal::AtMost(247.0));
    table.row("tenure", "server, bytes a held name", goal, &seen.server_bytes[..1]);
    table.row("tenure", "the second time", None, &seen.server_bytes[1..]);
    table.row("tenure", "client, bytes a held name", None, &seen.client_bytes[..1]);
    table.row("tenure", "keys before the first claim", None, &[seen.keys_before]);
    for (time, label) in ["first", "second"].into_iter().enumerate() {
        let mut row = |figure: &str, values: &[f64]| {
            table.row("tenure", &format!("{label} time: {figure}"), None, &values[time..=time]);
        };
        row("keys while held", &seen.keys_held);
        row("keys right after", &seen.keys_released);
        row("keys in the end", &seen.keys_after);
        row("seconds until then", &seen.seconds);
    }
    // The rest is a fixed number of keys, however many names there were.
    let grown = seen.keys_after[1] - seen.keys_after[0];
    table.row("tenure", "keys more than the first time", Some(Goal::AtMost(0.0)), &[grown]);
}

impl Bench<'_> {
    fn look_at_the_room(&self) -> Result<Seen, Failure> {
        let mut server = Server::start(self.options.cpu)?;
        let mut child =
            Child::start("names", &self.arguments(&server.url(), Flavour::MultiThread))?;
        child.hear("ready")?;
        let mut seen = Seen {
            server_bytes: Vec::new(),
            client_bytes: Vec::new(),
            keys_before: server.keys()? as f64,
            keys_held: Vec::new(),
            keys_released: Vec::new(),
            keys_after: Vec::new(),
            seconds: Vec::new(),
        };
        for _ in 0..2 {
            let before = server.figure("memory", "used_memory")?;
            child.tell("hold")?;
            let grown: f64 = child.hear("held")?.parse()?;
            seen.client_bytes.push(grown / NAMES as f64);
            let held = server.figure("memory", "used_memory")?;
            seen.server_bytes.push((held - before) / NAMES as f64);
            seen.keys_held.push(server.keys()? as f64);
            child.tell("release")?;
            child.hear("released")?;
            seen.keys_released.push(server.keys()? as f64);
            let (keys, seconds) = settle(&mut server, seen.keys_after.first().copied())?;
            seen.keys_after.push(keys);
            seen.seconds.push(seconds);
        }
        Ok(seen)
    }
}

/// Waits until the number of keys is down to `goal` or, without a goal, for as long as idle names may stay.
/// Returns the number, and for how many seconds there were more.
fn settle(server: &mut Server, goal: Option<f64>) -> Result<(f64, f64), Failure> {
    let began = Instant::now();
    let (mut keys, mut since) = (server.keys()? as f64, 0.0);
    while began.elapsed() < PATIENCE && goal.is_none_or(|goal| keys > goal) {
        std::thread::sleep(Duration::from_secs(1));
        let there = server.keys()? as f64;
        if there != keys {
            (keys, since) = (there, began.elapsed().as_secs_f64());
        }
    }
    Ok((keys, since))
}

/// The child: prints `ready`; when told to, it holds names and prints by how many bytes it grew; when told to,
/// it releases them. Then it does the same with other names.
pub(crate) async fn names(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let tenure = Tenure::connect(given.text("url")?).await?;
    // The connection and the watchdog must exist before the memory is measured.
    tenure.mutex("warm").acquire().await?.release().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    say("ready")?;
    for time in 0..2 {
        orders.next().await?;
        let before = resident()?;
        let holds = hold_all(&tenure, time).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        say(format_args!("held {}", resident()? - before))?;
        orders.next().await?;
        for hold in holds {
            hold.release().await?;
        }
        say("released")?;
    }
    orders.next().await?;
    Ok(())
}

async fn hold_all(tenure: &Tenure, time: usize) -> Result<Vec<Hold>, Failure> {
    let mut holds = Vec::with_capacity(NAMES);
    // In batches: concurrent requests take memory for a moment that holds do not take.
    for first in (0..NAMES).step_by(50) {
        let mut asked = JoinSet::new();
        (first..first + 50).for_each(|name| {
            asked.spawn(tenure.mutex(format!("wallet:{time}:{name}")).join());
        });
        while let Some(hold) = asked.join_next().await {
            holds.push(hold??);
        }
    }
    Ok(holds)
}

/// The resident memory of this process, in bytes.
pub(super) fn resident() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0)
}
