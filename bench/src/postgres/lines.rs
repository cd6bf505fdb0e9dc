//! Long lines: the cost of one more waiter, and of waiting.

use std::time::{Duration, Instant};

use super::{Bench, Pace, ratios};
use crate::redis::Goal;

/// A claim that may wait, in the form that the engine sends.
const JOIN: &str = "SELECT (tenure_v1.claim(ROW ('l', $1, $2, 1, 1, false, 30000000, true, 1000000, NULL, 0, -1, false,
    '00000000-0000-0000-0000-000000000000', 7, false, false, 'bench', NULL, '{}', NULL, NULL, false)::tenure_v1.asking)).code";
const QUIT: &str =
    "SELECT (tenure_v1.leave(ROW ('l', $1, $2, false, NULL, false, NULL, NULL, false,
    7)::tenure_v1.leaving)).code";
/// One holder, and this many waiters.
const FILL: &str = "SELECT count((tenure_v1.claim(ROW ('l', $1, gen_random_uuid(), 1, 1, false, 600000000, true, 1000000, NULL,
    0, -1, false, '00000000-0000-0000-0000-000000000000', x + 8, false, true, 'bench', NULL, '{}', NULL, NULL,
    false)::tenure_v1.asking)).code) FROM generate_series(0, $2) x";

pub(super) async fn run(bench: &mut Bench) {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds {
        few.push(joins(bench, round, 10).await);
        many.push(joins(bench, round, 1000).await);
    }
    let table = &mut bench.table;
    table.heading("join and quit, behind others that wait");
    table.row("tenure", "a second, behind 10", None, &few);
    table.row("tenure", "a second, behind 1,000", None, &many);
    table.row("tenure", "10 to 1,000", Some(Goal::AtMost(4.0)), &ratios(&few, &many));
    let silent = waiting(bench).await;
    bench.table.heading("200 claims wait on one name for 10 s");
    bench.table.row("tenure", "transactions a second", Some(Goal::AtMost(0.5)), &[silent]);
}

async fn joins(bench: &Bench, round: usize, waiters: i32) -> f64 {
    let client = bench.client().await;
    let name = format!("line{round}of{waiters}");
    client.query(FILL, &[&name, &waiters]).await.expect("a line");
    let mut number = 0_u128;
    let (join, quit) = (prepared(&client, JOIN).await, prepared(&client, QUIT).await);
    let mut pace = Pace::new();
    while pace.goes_on() {
        number += 1;
        let id = Id(number.to_be_bytes());
        let row = client.query_one(&join, &[&name, &id]).await.expect("a place");
        assert_eq!(row.get::<_, &str>(0), "W");
        client.query_one(&quit, &[&name, &id]).await.expect("it is left");
    }
    let rate = pace.rate();
    for table in ["claim", "hold", "name"] {
        client.batch_execute(&format!("DELETE FROM tenure.{table}")).await.expect("it is free");
    }
    rate
}

async fn prepared(client: &tokio_postgres::Client, sql: &str) -> tokio_postgres::Statement {
    client.prepare(sql).await.expect("a statement")
}

/// The number of transactions that the server commits in a second while all clients wait.
async fn waiting(bench: &Bench) -> f64 {
    let holder = bench.tenure().await;
    let hold = holder.mutex("held").ttl(Duration::from_secs(600)).acquire().await.expect("a hold");
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(bench.tenure().await);
    }
    let tasks: Vec<_> =
        (0..200).map(|at: usize| tokio::spawn(clients[at % 4].mutex("held").join())).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let client = bench.client().await;
    let committed = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let commits = async || client.query_one(committed, &[]).await.expect("a row").get::<_, i64>(0);
    // Sessions report their statistics with a delay of up to ten seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (before, began) = (commits().await, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let during = commits().await - before;
    let seconds = began.elapsed().as_secs_f64();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    hold.release().await.expect("a release");
    for tenure in clients.into_iter().chain([holder]) {
        tenure.close().await;
    }
    during as f64 / seconds
}

/// A claim's id.
#[derive(Debug)]
struct Id([u8; 16]);

impl tokio_postgres::types::ToSql for Id {
    fn to_sql(
        &self,
        _: &tokio_postgres::types::Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(ty: &tokio_postgres::types::Type) -> bool {
        *ty == tokio_postgres::types::Type::UUID
    }

    tokio_postgres::types::to_sql_checked!();
}
