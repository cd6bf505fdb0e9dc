//! A guard inside a transaction, beside other transactions that are guarded by the same name.

use tenure::Fence;
use tenure::fencing::GuardError;
use tenure::fencing::postgres::{SCHEMA, guard};
use tenure_testkit::servers::Postgres;
use tokio_postgres::{Client, IsolationLevel};

use crate::fences::place::connect;
use crate::file_site::{soon, until};

fn fence(number: u64) -> Fence {
    Fence::new(number)
}

async fn open(server: &Postgres) -> Client {
    connect(&server.config()).await
}

/// Waits until this many wait for the lock of a row.
async fn until_waiting(client: &Client, count: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    until("they wait for a row", async || {
        client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_one_name_are_ordered_by_the_row() {
    let server = Postgres::start().unwrap();
    let mut one = open(&server).await;
    let eye = open(&server).await;
    one.batch_execute(SCHEMA).await.unwrap();
    one.batch_execute(SCHEMA).await.unwrap();

    // Even for a name that nobody has seen.
    let first = one.transaction().await.unwrap();
    guard(&first, "x", fence(7)).await.unwrap();
    let mut two = open(&server).await;
    let late = tokio::spawn(async move {
        let late = two.transaction().await.unwrap();
        guard(&late, "x", fence(5)).await.unwrap_err()
    });
    let mut three = open(&server).await;
    let next = tokio::spawn(async move {
        let next = three.transaction().await.unwrap();
        guard(&next, "x", fence(8)).await.unwrap();
        next.commit().await.unwrap();
    });
    until_waiting(&eye, 2).await;
    assert!(!late.is_finished() && !next.is_finished());
    first.commit().await.unwrap();
    let late = soon(late).await.unwrap();
    assert!(matches!(late, GuardError::Stale(stale) if stale.seen >= Some(fence(7))));
    soon(next).await.unwrap();
    assert_eq!(
        eye.query_one("SELECT fence FROM tenure_fences", &[]).await.unwrap().get::<_, i64>(0),
        8
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rolled_back_was_not_seen_and_other_names_do_not_wait() {
    let server = Postgres::start().unwrap();
    let (mut one, mut two) = (open(&server).await, open(&server).await);
    one.batch_execute(SCHEMA).await.unwrap();
    let first = one.transaction().await.unwrap();
    guard(&first, "x", fence(7)).await.unwrap();
    let other = two.transaction().await.unwrap();
    soon(guard(&other, "y", fence(3))).await.unwrap();
    other.commit().await.unwrap();
    first.rollback().await.unwrap();
    let second = two.transaction().await.unwrap();
    guard(&second, "x", fence(5)).await.unwrap();
    for number in [0, 1 << 53] {
        let error = guard(&second, "x", fence(number)).await.unwrap_err();
        assert!(matches!(error, GuardError::NoFence(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn above_read_committed_a_transaction_that_waited_fails_and_is_not_let_through() {
    let server = Postgres::start().unwrap();
    let (mut one, mut two) = (open(&server).await, open(&server).await);
    let eye = open(&server).await;
    one.batch_execute(SCHEMA).await.unwrap();
    for (isolation, number) in
        [(IsolationLevel::RepeatableRead, 7), (IsolationLevel::Serializable, 17)]
    {
        // Before the row exists, and after.
        for number in [number, number + 2] {
            let first = one.build_transaction().isolation_level(isolation).start().await.unwrap();
            guard(&first, "x", fence(number)).await.unwrap();
            let second = two.build_transaction().isolation_level(isolation).start().await.unwrap();
            let waits = guard(&second, "x", fence(number - 1));
            let commits = async {
                until_waiting(&eye, 1).await;
                first.commit().await.unwrap();
            };
            let (waited, ()) = soon(async { tokio::join!(waits, commits) }).await;
            let GuardError::Failed(error) = waited.unwrap_err() else { panic!("not its own") };
            let code = error.code().unwrap().code();
            assert_eq!(code, "40001", "{error:?}");
        }
    }
}
