//! Very many names held by one process: what it costs to keep them, and whether any is lost.

use std::time::{Duration, Instant};

use tenure::{Hold, Tenure};
use tokio::task::JoinSet;

use super::Bench;
use super::children::{Child, Given, Orders, say};
use super::clock;
use super::failure::Failure;
use super::options::Flavour;
use super::server::Server;
use super::table::Goal;

/// How long they are held after the last was taken: two whole lives at the default ttl.
const HELD: Duration = Duration::from_secs(60);
/// How many are looked at again and again.
const SAMPLED: usize = 2_000;
/// So many claims are under way at a time.
const AT_ONCE: usize = 512;
/// The default.
const TTL: Duration = Duration::from_secs(30);

/// Holds: so many names at the default ttl, for a minute. Server and client are where the scheduler puts them.
pub(crate) fn holds(bench: &mut Bench<'_>) {
    for count in bench.options.holds.clone() {
        let kept = keep(count);
        let table = &mut bench.table;
        table.heading(&format!(
            "holds: {count} names held by one process for {HELD:?}, ttl {TTL:?}"
        ));
        let kept = match kept {
            Ok(kept) => kept,
            Err(reason) => return table.failed("tenure", &reason),
        };
        let mut row = |figure: &str, goal, value| table.row("tenure", figure, goal, &[value]);
        row("names lost", Some(Goal::AtMost(0.0)), kept.lost);
        row("seconds until all were held", None, kept.seconds);
        row("client, % of a core", None, kept.client);
        row("server, % of a core", None, kept.server);
        row("longest delay of a renewal, ms", None, kept.delay);
    }
}

struct Kept {
    lost: f64,
    seconds: f64,
    client: f64,
    server: f64,
    delay: f64,
}

fn keep(count: usize) -> Result<Kept, Failure> {
    let mut server = Server::start(None)?;
    let arguments = [
        format!("address={}", server.address()),
        format!("runtime={}", Flavour::MultiThread),
        format!("count={count}"),
    ];
    let mut child = Child::start("holds", &arguments)?;
    let seconds: f64 = child.hear("held")?.parse()?;
    let before = server.cpu()?;
    child.tell("go")?;
    let said = child.hear("kept")?;
    let spent = server.cpu()? - before;
    let figures: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [lost, client, delay] = figures[..] else { return Err("three figures".into()) };
    Ok(Kept { lost, seconds, client, server: spent / HELD.as_micros() as f64 * 100.0, delay })
}

/// The child: takes the names and says `held`; told to, it looks at them for a while and says what it saw.
pub(crate) async fn child(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let count = given.number("count")?;
    let tenure = Tenure::connect(&format!("redis://{}", given.text("address")?)).await?;
    let began = Instant::now();
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
    // A third of the ttl has gone when a renewal is due, and 1 % and 25 ms of it are not believed.
    let due = TTL.mul_f64(0.99 - 1.0 / 3.0) - Duration::from_millis(25);
    let delay = due.saturating_sub(least).as_secs_f64() * 1000.0;
    say(format_args!("kept {lost} {client} {delay}"))?;
    // Releasing them all is not what is measured.
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
