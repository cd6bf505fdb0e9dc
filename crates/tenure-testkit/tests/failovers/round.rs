//! One failover after another, while names are held, waited for and handed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tenure::Tenure;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, block_in_place};

use crate::failovers::group::{Group, How, Mode};
use crate::failovers::history::History;
use crate::redis_site::*;

const TTL: Duration = Duration::from_secs(2);
/// Names that change hands all the time.
const FRESH: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) query: &'static str,
    pub(crate) replicas: usize,
}

/// What one failover did.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How long the name that is held throughout had two holders.
    pub(crate) held: Duration,
    /// The same for names that change hands.
    pub(crate) fresh: Duration,
    /// The hold outlived the failover.
    pub(crate) kept: bool,
    /// The longest time in which nobody was granted anything.
    pub(crate) gap: Duration,
}

/// Plays some failovers on servers of their own.
pub(crate) async fn play(mode: Mode, how: How, setting: Setting, rounds: usize) -> Vec<Outcome> {
    let group = block_in_place(|| Group::start(mode, setting.replicas));
    let url = format!("{}{}", group.url(), setting.query);
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&url).await);
    }
    let names = names_of(&url, rounds + FRESH).await;
    let (fresh, held) = names.split_at(FRESH);
    let mut outcomes = Vec::new();
    for name in held {
        outcomes.push(round(&group, how, &clients, name, fresh).await);
    }
    outcomes
}

/// Names that share a partition, so that all of them are affected.
async fn names_of(url: &str, count: usize) -> Vec<String> {
    let engine = engine(url).await;
    // The servers of a cluster are replaced one at a time; elsewhere there is only one partition.
    let wanted = if url.starts_with("redis-cluster") { 7 } else { 0 };
    let is_there = |name: &String| {
        let name = tenure::engine::Name::new(tenure::engine::Space::Lock, name).unwrap();
        engine.shard(&name) == wanted
    };
    (0..).map(|number| format!("n{number}")).filter(is_there).take(count).collect()
}

async fn round(
    group: &Group,
    how: How,
    clients: &[Tenure],
    name: &str,
    fresh: &[String],
) -> Outcome {
    let history = History::default();
    let over = Arc::new(AtomicBool::new(false));
    let hold = soon(clients[0].mutex(name).ttl(TTL).wait(BOUND).acquire()).await.unwrap();
    let (let_go, leave) = oneshot::channel::<()>();
    let holder = {
        let history = history.clone();
        tokio::spawn(async move { history.keep(hold, async { drop(leave.await) }).await })
    };
    let waiter = follow(&clients[1], name, &history);
    until("it stands in line", async || {
        let view = soon(clients[1].inspect(name)).await;
        view.is_ok_and(|view| view.is_some_and(|view| view.waiters.len() == 1))
    })
    .await;
    let hands: Vec<_> = (0..FRESH * 2)
        .map(|hand| {
            let client = clients[2 + hand % 2].clone();
            pass_on(client, fresh.to_vec(), hand, history.clone(), over.clone())
        })
        .collect();
    // Grants are under way when it begins.
    pause(ms(700)).await;
    let began = now();
    let former = block_in_place(|| group.fail_over(how)).unwrap();
    // A grant that comes too early comes within a ttl; a holder that renews in the wrong place does so for three.
    pause(TTL + ms(1500)).await;
    over.store(true, Relaxed);
    for hand in hands {
        soon(hand).await.unwrap();
    }
    block_in_place(|| group.mend(former)).unwrap();
    let _ = let_go.send(());
    let kept = soon(holder).await.unwrap();
    soon(waiter).await.unwrap();
    Outcome {
        held: history.overlap(|of| of == name),
        fresh: history.overlap(|of| of != name),
        kept,
        gap: history.longest_gap(began),
    }
}

/// Waits for the name until it is granted, however often that fails.
fn follow(client: &Tenure, name: &str, history: &History) -> JoinHandle<()> {
    let (client, name, history) = (client.clone(), name.to_owned(), history.clone());
    tokio::spawn(async move {
        loop {
            if let Ok(hold) = client.mutex(&name).ttl(TTL).wait(BOUND).acquire().await {
                history.keep(hold, pause(TTL * 2)).await;
                return;
            }
            pause(ms(50)).await;
        }
    })
}

/// Takes one name after the other, some for a moment and some for longer than a failover takes to be
/// noticed.
fn pass_on(
    client: Tenure,
    names: Vec<String>,
    hand: usize,
    history: History,
    over: Arc<AtomicBool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        for turn in hand.. {
            if over.load(Relaxed) {
                return;
            }
            let name = &names[turn % names.len()];
            match client.mutex(name).ttl(TTL).wait(secs(1)).acquire().await {
                Ok(hold) => {
                    let time = if turn % 3 == 0 { ms(700) } else { ms(20) };
                    history.keep(hold, pause(time)).await;
                }
                Err(_) => pause(ms(20)).await,
            }
        }
    })
}
