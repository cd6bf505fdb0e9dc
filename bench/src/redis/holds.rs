//! Very many names held by one process: what renewing them costs, and whether any is lost.

use std::time::{Duration, Instant};

use tenure::{Hold, Tenure};
use tokio::task::JoinSet;

use super::children::{Child, Given, Orders, say};
use super::clock;
use super::failure::Failure;
use super::options::Flavour;
use super::room::resident;
use super::server::Server;
use super::table::Goal;
use super::{Bench, Engine, median};
use crate::folder::Folder;

/// How long they are held after the last was acquired: twice the default ttl.
const HELD: Duration = Duration::from_secs(60);
/// The number of names that are checked repeatedly.
const SAMPLED: usize = 2_000;
/// The number of concurrent claims.
const AT_ONCE: usize = 512;
/// The default.
const TTL: Duration = Duration::from_secs(30);

/// Holds this many names at the default ttl, for a minute. Server and client run where the scheduler puts them.
pub(crate) fn holds(bench: &mut Bench<'_>) {
    hold_on(bench, Engine::Redis, &[200_000, 400_000, 1_000_000]);
}

/// The same on a file.
pub(crate) fn holds_on_file(bench: &mut Bench<'_>) {
    hold_on(bench, Engine::File, &[10_000, 100_000]);
}

fn hold_on(bench: &mut Bench<'_>, engine: Engine, usual: &[usize]) {
    let counts = bench.options.holds.clone();
    for count in counts.unwrap_or_else(|| usual.to_vec()) {
        let measured = match engine {
            Engine::Redis => measure_on_redis(count),
            Engine::File => measure_on_file(count),
        };
        let table = &mut bench.table;
        table.heading(&format!(
            "holds: {count} names held by one process for {HELD:?}, ttl {TTL:?}"
        ));
        let measured = match measured {
            Ok(measured) => measured,
            Err(reason) => return table.failed("tenure", &reason),
        };
        let ChildReport { lost, client, delay, client_bytes } = measured.child;
        let mut row = |figure: &str, goal, value| table.row("tenure", figure, goal, &[value]);
        row("names lost", Some(Goal::AtMost(0.0)), lost);
        row("seconds until all were held", None, measured.seconds);
        row("client, % of a core", None, client);
        if let Some(server) = measured.server {
            row("server, % of a core", None, server);
        }
        row("longest delay of a renewal, ms", None, delay);
        row("client, bytes a name", None, client_bytes);
        row("server or file, bytes a name", None, measured.bytes / count as f64);
        row("pair of another process, ms, median", None, measured.other.median);
        row("pair of another process, ms, longest", None, measured.other.longest);
    }
}

struct Measured {
    /// The time until all names were held.
    seconds: f64,
    child: ChildReport,
    /// The share of a core that the server used, in percent.
    server: Option<f64>,
    /// The size of all names where they are stored.
    bytes: f64,
    other: OtherProcess,
}

/// How long another process took meanwhile to acquire and release a free name, in milliseconds.
struct OtherProcess {
    median: f64,
    longest: f64,
}

/// The child's report at the end.
struct ChildReport {
    lost: f64,
    client: f64,
    delay: f64,
    client_bytes: f64,
}

fn measure_on_redis(count: usize) -> Result<Measured, Failure> {
    let mut server = Server::start(None)?;
    let before = server.figure("memory", "used_memory")?;
    let url = server.url();
    let (mut child, seconds) = start_child(&url, count)?;
    let bytes = server.figure("memory", "used_memory")? - before;
    let before = server.cpu()?;
    let (child, other) = watch(&mut child, url)?;
    let spent = (server.cpu()? - before) / HELD.as_micros() as f64 * 100.0;
    Ok(Measured { seconds, child, server: Some(spent), bytes, other })
}

fn measure_on_file(count: usize) -> Result<Measured, Failure> {
    let folder = Folder::new()?;
    let url = format!("file:{}", folder.path().join("locks").display());
    let (mut child, seconds) = start_child(&url, count)?;
    let (child, other) = watch(&mut child, url)?;
    // Includes what was written and is not merged into the file yet.
    let mut bytes = 0;
    for file in std::fs::read_dir(folder.path())? {
        let file = file?;
        let is_part = file.file_name().to_string_lossy().starts_with("locks");
        bytes += if is_part { file.metadata()?.len() } else { 0 };
    }
    Ok(Measured { seconds, child, server: None, bytes: bytes as f64, other })
}

/// Starts the child, and returns the number of seconds until it held all names.
fn start_child(url: &str, count: usize) -> Result<(Child, f64), Failure> {
    let arguments = [
        format!("url={url}"),
        format!("runtime={}", Flavour::MultiThread),
        format!("count={count}"),
    ];
    let mut child = Child::start("holds", &arguments)?;
    let seconds = child.hear("held")?.parse()?;
    Ok((child, seconds))
}

/// Waits for the child's report, and meanwhile uses the same engine as another process.
fn watch(child: &mut Child, url: String) -> Result<(ChildReport, OtherProcess), Failure> {
    child.tell("go")?;
    let other = std::thread::spawn(move || take_pairs(&url).map_err(|error| error.to_string()));
    let said = child.hear("kept")?;
    let other = other.join().map_err(|_| "the other process panicked")??;
    let figures: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [lost, client, delay, client_bytes] = figures[..] else {
        return Err("four figures".into());
    };
    Ok((ChildReport { lost, client, delay, client_bytes }, other))
}

fn take_pairs(url: &str) -> Result<OtherProcess, Failure> {
    Flavour::build(Flavour::CurrentThread.label())?.block_on(async {
        let tenure = Tenure::connect(url).await?;
        let (began, mut pairs) = (Instant::now(), Vec::new());
        while began.elapsed() < HELD {
            let before = Instant::now();
            tenure.mutex("other").acquire().await?.release().await?;
            pairs.push(before.elapsed().as_secs_f64() * 1000.0);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let longest = pairs.iter().copied().fold(0.0, f64::max);
        Ok(OtherProcess { median: median(pairs), longest })
    })
}

/// The child: acquires the names and prints `held`; when told to, it checks them for a while and reports.
pub(crate) async fn child(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let count = given.number("count")?;
    let tenure = Tenure::connect(given.text("url")?).await?;
    tenure.mutex("warm").acquire().await?.release().await?;
    let (began, before) = (Instant::now(), resident()?);
    let holds = hold_all(&tenure, count).await?;
    say(format_args!("held {}", began.elapsed().as_secs_f64()))?;
    orders.next().await?;
    let (began, cpu) = (Instant::now(), clock::cpu());
    let sampled: Vec<_> = holds.iter().step_by((count / SAMPLED).max(1)).collect();
    let mut least = TTL;
    while began.elapsed() < HELD {
        let remaining = sampled.iter().map(|hold| hold.remaining()).min();
        least = least.min(remaining.unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let client = (clock::cpu() - cpu) as f64 / began.elapsed().as_nanos() as f64 * 100.0;
    let lost = holds.iter().filter(|hold| !hold.is_live()).count();
    // When a renewal is due, a third of the ttl has passed; a margin of 1 % and 25 ms is subtracted.
    let due = TTL.mul_f64(0.99 - 1.0 / 3.0) - Duration::from_millis(25);
    let delay = due.saturating_sub(least).as_secs_f64() * 1000.0;
    let bytes = (resident()? - before) / count as f64;
    say(format_args!("kept {lost} {client} {delay} {bytes}"))?;
    // Releasing all of them is not measured.
    std::process::exit(0);
}

async fn hold_all(tenure: &Tenure, count: usize) -> Result<Vec<Hold>, Failure> {
    let mut holds = Vec::with_capacity(count);
    let mut asked = JoinSet::new();
    for name in 0..count {
        if asked.len() >= AT_ONCE
            && let Some(hold) = asked.join_next().await
        {
            holds.push(hold??);
        }
        asked.spawn(tenure.mutex(format!("wallet:{name}")).join());
    }
    while let Some(hold) = asked.join_next().await {
        holds.push(hold??);
    }
    Ok(holds)
}
