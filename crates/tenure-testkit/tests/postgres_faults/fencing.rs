//! Exact fencing: while a guarded transaction is open, nobody else is granted the name.

use tenure::engine::{Name, Space};
use tenure::engines::postgres::{Postgres, PostgresConfig};
use tenure::fencing::GuardError;
use tenure::fencing::postgres::hold as guard;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use crate::postgres_site::*;

async fn client(site: &PostgresSite) -> Client {
    let (client, connection) = tokio_postgres::connect(&site.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_not_granted_while_a_guarded_transaction_is_open() {
    let site = PostgresSite::new();
    for level in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        let (one, two) = (site.connect().await, site.connect().await);
        let mut client = client(&site).await;
        // As by a holder that was stopped: it is no longer renewed.
        let hold = one.mutex("x").ttl(ms(400)).renew(false).acquire().await.unwrap();
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        guard(&transaction, &hold).await.unwrap();
        let next = wait_for(&two, "x", secs(30));
        pause(ms(1500)).await;
        assert!(!next.is_finished(), "{level:?}: granted while a guarded transaction is open");
        // It holds up nobody else, on this name or another.
        let began = now();
        assert!(two.mutex("x").try_acquire().await.unwrap().is_none());
        two.mutex("y").acquire().await.unwrap().release().await.unwrap();
        assert!(now().since(began) < ms(1500), "{:?}", now().since(began));
        transaction.commit().await.unwrap();
        let next = within(AT_ONCE, next).await.unwrap().unwrap();
        assert!(next.fence() > hold.fence());
        // The late one is refused.
        let late = client.transaction().await.unwrap();
        assert!(matches!(guard(&late, &hold).await, Err(GuardError::Stale(_))));
        drop(late);
        next.release().await.unwrap();
    }
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_hold_is_renewed_and_its_release_waits_for_the_transaction() {
    let site = PostgresSite::new();
    let (one, two) = (site.connect().await, site.connect().await);
    let mut client = client(&site).await;
    let hold = one.mutex("x").ttl(ms(900)).acquire().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    guard(&transaction, &hold).await.unwrap();
    pause(ms(2000)).await;
    assert!(hold.is_live(), "renewals are not in the way of a guard");
    let next = wait_for(&two, "x", secs(30));
    until_waiting(&two, "x", 1).await;
    hold.release().await.unwrap();
    pause(ms(700)).await;
    assert!(!next.is_finished());
    transaction.commit().await.unwrap();
    within(AT_ONCE, next).await.unwrap().unwrap().release().await.unwrap();
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_part_of_its_transaction() {
    let site = PostgresSite::new();
    let one = site.connect().await;
    let mut client = client(&site).await;
    let hold = one.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let read_only = client.build_transaction().read_only(true).start().await.unwrap();
    let Err(GuardError::Failed(error)) = guard(&read_only, &hold).await else { panic!("refused") };
    assert_eq!(error.code().unwrap().code(), "25006");
    drop(read_only);
    // Rolling back to a savepoint undoes it.
    let mut transaction = client.transaction().await.unwrap();
    let savepoint = transaction.savepoint("s").await.unwrap();
    guard(&savepoint, &hold).await.unwrap();
    savepoint.rollback().await.unwrap();
    let broken = one.break_hold("x", hold.fence(), "a drill").await.unwrap();
    assert_eq!(broken, tenure::Broken::Done);
    until_free(&one, "x").await;
    transaction.commit().await.unwrap();
}

/// Several names are guarded as one, and terms and runs by their kind.
#[tokio::test(flavor = "multi_thread")]
async fn all_names_of_a_hold_are_guarded_and_terms_and_runs_too() {
    let site = PostgresSite::new();
    let (one, two) = (site.connect().await, site.connect().await);
    let mut client = client(&site).await;
    let hold = one.all(["a", "b", "c"]).ttl(ms(300)).renew(false).acquire().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    guard(&transaction, &hold).await.unwrap();
    pause(ms(500)).await;
    for name in ["a", "b", "c"] {
        assert!(two.mutex(name).try_acquire().await.unwrap().is_none(), "{name} was granted");
    }
    transaction.commit().await.unwrap();
    drop(hold);
    // If one of several has ended, that is enough, and it is named.
    let hold = one.all(["a", "b", "c"]).ttl(secs(60)).acquire().await.unwrap();
    let fence = hold.fences().find(|(name, _)| *name == "b").unwrap().1;
    two.break_hold("b", fence, "a drill").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let Err(GuardError::Stale(stale)) = guard(&transaction, &hold).await else { panic!("stale") };
    assert_eq!((&*stale.name, stale.offered), ("b", fence));
    drop(transaction);

    let term = one.election("leader").campaign().await.unwrap();
    let run = match one.once("job").begin().await.unwrap() {
        tenure::Begun::Mine(run) => run,
        other => panic!("{other:?}"),
    };
    let transaction = client.transaction().await.unwrap();
    guard(&transaction, term.hold()).await.unwrap();
    guard(&transaction, run.hold()).await.unwrap();
    term.resign().await.unwrap();
    pause(ms(300)).await;
    assert!(
        two.election("leader").leader().await.unwrap().is_some(),
        "it goes on until the commit"
    );
    transaction.commit().await.unwrap();
    site.is_sound();
}

/// A series of transactions must not keep a hold that has run out, was left or broken.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_is_due_to_end_is_not_guarded_again() {
    let site = PostgresSite::new();
    for level in [
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        for end in ["overdue", "left", "broken"] {
            let (one, two) = (site.connect().await, site.connect().await);
            let ttl = if end == "overdue" { ms(300) } else { secs(60) };
            let hold = one.mutex("x").ttl(ttl).renew(false).acquire().await.unwrap();
            let fence = i64::try_from(hold.fence().get()).unwrap();
            let (mut first, mut early, mut late) =
                (client(&site).await, client(&site).await, client(&site).await);
            let begin = async |client: &mut Client| {
                let begin = format!("BEGIN ISOLATION LEVEL {}", spelled(level));
                client.batch_execute(&begin).await.unwrap();
                // From here on it sees its snapshot.
                client.query("SELECT FROM tenure.layout", &[]).await.unwrap();
            };
            begin(&mut first).await;
            begin(&mut early).await;
            call(&first, "x", fence).await.unwrap();
            match end {
                "overdue" => {
                    pause(ms(400)).await;
                    // Another claim asks for it.
                    assert!(two.mutex("x").try_acquire().await.unwrap().is_none());
                }
                "left" => drop(hold.release().await.unwrap()),
                _ => drop(two.break_hold("x", hold.fence(), "a drill").await.unwrap()),
            }
            begin(&mut late).await;
            let stale = call(&late, "x", fence).await.unwrap_err();
            assert_eq!(stale.code().unwrap().code(), "TE001", "{level:?} {end}");
            // The snapshot of this one is older than the end. A retry gets TE001.
            let conflict = call(&early, "x", fence).await.unwrap_err();
            let reads_anew = matches!(level, IsolationLevel::ReadCommitted);
            let expected = if reads_anew { "TE001" } else { "40001" };
            assert_eq!(conflict.code().unwrap().code(), expected, "{level:?} {end}");
            first.batch_execute("COMMIT").await.unwrap();
            two.mutex("x").wait(BOUND).acquire().await.unwrap().release().await.unwrap();
        }
    }
    site.is_sound();
}

/// It cannot know whether the hold is good, and the error says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_older_than_the_grant_is_told_so() {
    let site = PostgresSite::new();
    let one = site.connect().await;
    let client = client(&site).await;
    for name in ["new", "known"] {
        if name == "known" {
            one.mutex(name).acquire().await.unwrap().release().await.unwrap();
        }
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        client.query("SELECT FROM tenure.layout", &[]).await.unwrap();
        let hold = one.mutex(name).ttl(secs(60)).acquire().await.unwrap();
        let fence = i64::try_from(hold.fence().get()).unwrap();
        let early = call(&client, name, fence).await.unwrap_err();
        assert_eq!(early.code().unwrap().code(), "TE002", "{early:?}");
        assert!(early.to_string().contains("db error"), "{early}");
        client.batch_execute("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        call(&client, name, fence).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        hold.release().await.unwrap();
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        let ended = call(&client, name, fence).await.unwrap_err();
        assert_eq!(ended.code().unwrap().code(), "TE001", "{ended:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// Inspecting shows the hold, and an operator finds and ends the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_a_transaction_keeps_is_seen_and_its_session_can_be_ended() {
    let site = PostgresSite::new();
    let (one, two) = (site.connect().await, site.connect().await);
    let mut client = client(&site).await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    for semaphore in [false, true] {
        let lock = if semaphore { one.semaphore("x", 3) } else { one.semaphore("x", 1) };
        let hold = lock.ttl(ms(300)).renew(false).acquire().await.unwrap();
        let (fence, number) = (hold.fence(), hold.fence().get());
        let transaction = client.transaction().await.unwrap();
        guard(&transaction, &hold).await.unwrap();
        std::mem::forget(hold);
        pause(ms(400)).await;
        let seen = view(&two, "x").await.expect("it is held");
        assert_eq!((seen.holders.len(), seen.holders[0].fence), (1, fence));
        assert_eq!(seen.holders[0].remaining, ms(0));
        let listed = two.list("").await.unwrap();
        assert!(listed.iter().any(|view| view.name.as_str() == "x"), "{listed:?}");
        let guards = "SELECT string_agg(g.space || g.name || g.fence || ' ' || g.pid, ',') \
            FROM tenure_v1.guards(NULL, NULL) g WHERE g.overdue > 0";
        assert_eq!(site.sql(guards), format!("lx{number} {pid}"));
        if semaphore {
            let (config, _) = PostgresConfig::from_url(&site.url()).unwrap();
            let name = Name::new(Space::Lock, "x").unwrap();
            assert_eq!(soon(Postgres::end_guards(config, &name, fence)).await.unwrap(), 1);
            assert!(transaction.commit().await.is_err(), "its session has ended");
        } else {
            transaction.commit().await.unwrap();
        }
        until_free(&two, "x").await;
    }
    // An overdue hold that nobody guards is as good as free.
    hold_like_the_dead(&one, "x", ms(200)).await;
    pause(ms(300)).await;
    assert_eq!(view(&two, "x").await, None);
}

fn spelled(level: IsolationLevel) -> &'static str {
    match level {
        IsolationLevel::RepeatableRead => "REPEATABLE READ",
        IsolationLevel::Serializable => "SERIALIZABLE",
        _ => "READ COMMITTED",
    }
}

/// Calls the function as clients in other languages do.
async fn call(client: &Client, name: &str, fence: i64) -> Result<(), tokio_postgres::Error> {
    client.query("SELECT tenure.guard($1, $2)", &[&name, &fence]).await.map(drop)
}

/// Reads and writes by holders that stop at random moments: nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_by_holders_that_stop() {
    let site = PostgresSite::new();
    site.sql("CREATE TABLE account (balance bigint); INSERT INTO account VALUES (0)");
    let mut tasks = Vec::new();
    for worker in 0..4_u64 {
        let (tenure, mut client) = (site.connect().await, client(&site).await);
        tasks.push(tokio::spawn(async move {
            let (mut done, mut rng) = (0_i64, tenure_testkit::rng::Rng::new(worker));
            for _ in 0..40 {
                let lock = tenure.mutex("account").ttl(ms(60)).renew(false).wait(secs(20));
                let Ok(hold) = lock.acquire().await else { continue };
                let stop =
                    |rng: &mut tenure_testkit::rng::Rng| ms(if rng.chance(250) { 90 } else { 0 });
                pause(stop(&mut rng)).await;
                let transaction = client.transaction().await.unwrap();
                if guard(&transaction, &hold).await.is_err() {
                    continue;
                }
                // Not FOR UPDATE: the guard alone keeps others away.
                let row = transaction.query_one("SELECT balance FROM account", &[]).await.unwrap();
                let balance: i64 = row.get(0);
                pause(stop(&mut rng)).await;
                transaction
                    .execute("UPDATE account SET balance = $1", &[&(balance + 1)])
                    .await
                    .unwrap();
                pause(stop(&mut rng)).await;
                transaction.commit().await.unwrap();
                done += 1;
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += soon(task).await.unwrap();
    }
    assert_eq!(site.number("SELECT balance FROM account"), done);
    assert!(done > 40, "{done}");
    site.is_sound();
}
