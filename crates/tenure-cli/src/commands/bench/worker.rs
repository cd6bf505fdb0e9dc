//! A process of a run, from its own point of view. [`processes`](super::processes) has the orders and answers.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tenure_measure::{clock, process};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::lock::{Held, Lock};
use super::processes::{Role, Task, failed_line};
use crate::failure::{Exit, Failure, INTERNAL, OK, Stop};
use crate::settings::Settings;
use crate::signals;

/// No worker lives longer than this.
const LIFE: Duration = Duration::from_secs(180);
/// The largest number of acquisitions of one contender.
pub(super) const MOST: usize = 250_000;

/// Waiters and holders, with the time of their grant.
type Waiters = JoinSet<Result<(u64, Held), Failure>>;

/// Follows the orders on standard input, until that closes or this process is asked to end.
pub(super) async fn run(settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    let (close, closed) = oneshot::channel();
    let mut orders = process::orders(move || {
        // Nobody listens any more when this process is about to exit.
        let _ = close.send(());
    });
    let settings = Arc::new(settings.clone());
    let interrupted = signals::interrupted()?;
    let mut waiters = Waiters::new();
    let mut lock = None;
    let ended = tokio::select! {
        biased;
        _ = interrupted => Ok(()),
        _ = closed => Ok(()),
        done = timeout(LIFE, perform(&mut orders, &settings, &mut lock, &mut waiters, out)) => {
            done.unwrap_or(Ok(()))
        }
    };
    // In this order: what is dropped leaves, and closing waits until the engine knows.
    waiters.shutdown().await;
    if let Some(lock) = lock {
        lock.close().await;
    }
    match ended {
        Err(Stop::Failed(failure)) => {
            writeln!(out, "{}", failed_line(&failure))?;
            Ok(Exit(failure.exit))
        }
        Err(reader_left) => Err(reader_left),
        Ok(()) => Ok(OK),
    }
}

async fn perform(
    orders: &mut mpsc::UnboundedReceiver<String>,
    settings: &Arc<Settings>,
    lock: &mut Option<Lock>,
    waiters: &mut Waiters,
    out: &mut dyn Write,
) -> Result<(), Stop> {
    let task = next(orders).await.as_deref().and_then(Task::read).ok_or_else(misunderstood)?;
    let connected = Lock::connect(task.lock, settings, task.ttl).await?;
    let lock = &*lock.insert(connected);
    match task.role {
        Role::Contend => {
            say(out, "ready")?;
            contend(&task, lock, orders, out).await?;
        }
        Role::Wait => wait(&task, lock, waiters, orders, out).await?,
        Role::Hold => {
            waiters.spawn(claim(lock.clone(), task.name));
            let (_, _held) = joined(waiters).await?;
            say(out, "held")?;
            // It holds until this process is ended.
            std::future::pending::<()>().await;
        }
    }
    // Until there are no more orders.
    while next(orders).await.is_some() {}
    std::future::pending().await
}

async fn contend(
    task: &Task,
    lock: &Lock,
    orders: &mut mpsc::UnboundedReceiver<String>,
    out: &mut dyn Write,
) -> Result<(), Stop> {
    let order = next(orders).await.unwrap_or_default();
    let end = order.strip_prefix("go\t").and_then(|end| end.parse().ok());
    let stamps = lock.go_round(&task.name, end.ok_or_else(misunderstood)?, MOST).await?;
    writeln!(out, "stamps\t{}", stamps.len())?;
    for stamps in stamps {
        out.write_all(&stamps.to_bytes())?;
    }
    Ok(out.flush()?)
}

async fn wait(
    task: &Task,
    lock: &Lock,
    waiters: &mut Waiters,
    orders: &mut mpsc::UnboundedReceiver<String>,
    out: &mut dyn Write,
) -> Result<(), Stop> {
    for _ in 0..task.many {
        waiters.spawn(claim(lock.clone(), task.name.clone()));
    }
    say(out, "joined")?;
    loop {
        tokio::select! {
            order = next(orders) => match order.as_deref() {
                Some("cpu") => say(out, &format!("cpu\t{}", clock::cpu()))?,
                Some(_) => return Err(misunderstood().into()),
                None => return Ok(()),
            },
            served = joined(waiters) => {
                let (granted, held) = served?;
                say(out, &format!("granted\t{granted}"))?;
                return Ok(lock.release(&task.name, held).await?);
            }
        }
    }
}

async fn claim(lock: Lock, name: String) -> Result<(u64, Held), Failure> {
    let held = lock.acquire(&name).await?;
    Ok((clock::now(), held))
}

async fn joined(waiters: &mut Waiters) -> Result<(u64, Held), Failure> {
    match waiters.join_next().await {
        Some(Ok(served)) => served,
        _ => Err(misunderstood()),
    }
}

async fn next(orders: &mut mpsc::UnboundedReceiver<String>) -> Option<String> {
    orders.recv().await
}

fn say(out: &mut dyn Write, line: &str) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}

fn misunderstood() -> Failure {
    let help = "it is started by `tenure bench`, not by hand";
    Failure::new(
        INTERNAL,
        "a process of a benchmark without a task",
        "standard input is no order",
        help,
    )
}
