//! How long it takes to pass a turn from one client to the next.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::{Bench, TRIAL, ratios, together};
use crate::redis::{Goal, median};

/// The number of pairs of clients in the trials with many clients.
const PAIRS: usize = 32;
/// The number of hand-overs for a median.
const TURNS: usize = 300;

/// How a hand-written step notifies, in addition to its write.
#[derive(Clone, Copy)]
enum Tell {
    /// In the same transaction.
    Within,
    /// In a separate transaction, after it.
    After,
}

pub(super) async fn run(bench: &mut Bench) {
    let (mut notify, mut written, mut turn) = (Vec::new(), Vec::new(), Vec::new());
    let (mut within, mut after, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        notify.push(heard(bench, "NOTIFY told").await);
        written.push(heard(bench, "SELECT step_and_notify(0, 'told')").await);
        turn.push(hand_over(bench).await);
        within.push(by_hand(bench, Tell::Within).await);
        after.push(by_hand(bench, Tell::After).await);
        turns.push(hand_overs(bench).await);
    }
    let table = &mut bench.table;
    table.heading("hand-over between two clients, milliseconds, median");
    table.row("NOTIFY", "sent to heard, ms", None, &notify);
    table.row("by hand", "a row written and NOTIFY, ms", None, &written);
    table.row("tenure", "release to grant, ms", None, &turn);
    table.row("tenure", "to NOTIFY", Some(Goal::AtMost(3.0)), &ratios(&turn, &notify));
    table.row("tenure", "to written and NOTIFY", None, &ratios(&turn, &written));
    table.heading(&format!("{PAIRS} pairs of clients, hand-overs a second"));
    table.row("by hand", "NOTIFY in the step", None, &within);
    table.row("by hand", "NOTIFY after the step", None, &after);
    table.row("by hand", "after to within", None, &ratios(&after, &within));
    table.row("tenure", "hand-overs/s", None, &turns);
    table.row("tenure", "to within", Some(Goal::AtLeast(1.8)), &ratios(&turns, &within));
}

/// A client that reports each notification that it receives.
async fn hearing(bench: &Bench, channel: &str) -> (Client, mpsc::UnboundedReceiver<Instant>) {
    let (client, mut connection) =
        tokio_postgres::connect(&bench.database.url(), NoTls).await.expect("a server");
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                let _ = tell.send(Instant::now());
            }
        }
    });
    client.batch_execute(&format!("LISTEN {channel}")).await.expect("it listens");
    (client, told)
}

/// From sending a statement that notifies to receiving the notification in another session.
async fn heard(bench: &Bench, statement: &str) -> f64 {
    let (_hears, mut told) = hearing(bench, "told").await;
    let sends = bench.client().await;
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let began = Instant::now();
        sends.batch_execute(statement).await.expect("it is sent");
        let heard = told.recv().await.expect("it is heard");
        times.push((heard - began).as_secs_f64() * 1e3);
    }
    median(times)
}

/// From the call of release to the grant, by two clients in turn.
async fn hand_over(bench: &Bench) -> f64 {
    let clients = [bench.tenure().await, bench.tenure().await];
    let mut times = Vec::new();
    let mut hold = clients[0].mutex("turn").acquire().await.expect("a hold");
    for turn in 1..TURNS {
        let next = clients[turn % 2].clone();
        let waits = tokio::spawn(async move {
            let hold = next.mutex("turn").acquire().await.expect("a hold");
            (hold, Instant::now())
        });
        // By then the client is in line, and its process listens.
        tokio::time::sleep(Duration::from_millis(8)).await;
        let began = Instant::now();
        hold.release().await.expect("a release");
        let (next, granted) = waits.await.expect("a turn");
        times.push((granted - began).as_secs_f64() * 1e3);
        hold = next;
    }
    hold.release().await.expect("a release");
    for client in clients {
        client.close().await;
    }
    median(times)
}

/// Pairs of sessions that write and notify each other in turn.
async fn by_hand(bench: &Bench, tell: Tell) -> f64 {
    let mut sides = Vec::new();
    for pair in 0..PAIRS {
        let one = hearing(bench, &format!("p{pair}a")).await;
        let two = hearing(bench, &format!("p{pair}b")).await;
        sides.push((pair as i32, one, two));
    }
    let works = sides.into_iter().map(|(id, one, two)| async move {
        let (mut now, mut then) = ((one, format!("p{id}b")), (two, format!("p{id}a")));
        let began = Instant::now();
        let mut done = 0;
        while began.elapsed() < TRIAL {
            let ((client, _), channel) = &now;
            match tell {
                Tell::Within => {
                    let step = "SELECT step_and_notify($1, $2)";
                    client.query(step, &[&id, channel]).await.expect("a step");
                }
                Tell::After => {
                    client.query("SELECT step_alone($1)", &[&id]).await.expect("a step");
                    client.query("SELECT notify_alone($1)", &[channel]).await.expect("it is sent");
                }
            }
            then.0.1.recv().await.expect("it is heard");
            std::mem::swap(&mut now, &mut then);
            done += 1;
        }
        f64::from(done) / began.elapsed().as_secs_f64()
    });
    together(works).await
}

/// Pairs of clients that hand a name to each other; each acquires again as soon as it has released.
async fn hand_overs(bench: &Bench) -> f64 {
    let mut all = Vec::new();
    for _ in 0..PAIRS * 2 {
        all.push(bench.tenure().await);
    }
    let works = all.into_iter().enumerate().map(|(at, tenure)| async move {
        let name = format!("pair{}", at / 2);
        // Before counting starts, all clients are in line, and every process listens.
        takes(&tenure, &name, Duration::from_millis(500)).await;
        let rate = takes(&tenure, &name, TRIAL).await;
        tenure.close().await;
        rate
    });
    together(works).await
}

async fn takes(tenure: &Tenure, name: &str, length: Duration) -> f64 {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < length {
        super::pair(tenure, name).await;
        done += 1;
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}
