//! Several processes read, add one and write, each under a lock that it may have lost: they are stopped at random
//! statements and by SIGSTOP. There are four forms: without a fence, with a fence that is compared when writing, with
//! a fence that is raised first, and with the exact guard. An update is lost if it was committed and is missing in
//! the end.
//!
//! `TENURE_TRANSACTIONS` is how many transactions the exact form begins, and a twentieth of that each of the others, but
//! never fewer than without the variable: `TENURE_TRANSACTIONS=100000 cargo test --release -p tenure-testkit --test engines
//! fences::stopping -- --nocapture`.

use std::str::FromStr;

use tenure::{Hold, Tenure, fencing};
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::Postgres;
use tokio_postgres::{Client, Error, NoTls};

use crate::fixtures::*;
use crate::postgres_site::PostgresSite;

/// Set in the other processes; its value is their task.
pub(crate) const SIGN: &str = "TENURE_TEST_STOPPING";
/// The number of transactions of each kind in a run without the variable.
const FEW: u64 = 400;
const PROCESSES: u64 = 8;
/// The rows that they write to, each under its own lock.
const ACCOUNTS: u64 = 4;
const TTL: std::time::Duration = ms(50);

/// Grants as the database sees them, beside the transactions that were guarded when they committed.
const TABLES: &str = "
    CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL);
    INSERT INTO account SELECT id, 0, 0 FROM generate_series(0, 3) id;
    CREATE TABLE checked (account bigint, fence bigint, tx xid);
    CREATE TABLE granted (name bigint, fence bigint, tx xid, PRIMARY KEY (name, fence));
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO public.granted VALUES (NEW.name, NEW.fence, pg_current_xact_id()::xid); RETURN NULL; END $$;
    CREATE TRIGGER note AFTER INSERT ON tenure.hold FOR EACH ROW EXECUTE FUNCTION note()";
/// Transactions during which the name was granted to the next: that grant was committed before they were.
const PASSED_ON: &str = "SELECT count(*) FROM checked c JOIN tenure.name n ON n.name = 'account:' || c.account
    JOIN LATERAL (SELECT g.tx FROM granted g WHERE g.name = n.key AND g.fence > c.fence ORDER BY g.fence LIMIT 1) next
      ON true
    WHERE pg_xact_commit_timestamp(next.tx) < pg_xact_commit_timestamp(c.tx)";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    None,
    Compared,
    Raised,
    Exact,
}

impl FromStr for Form {
    type Err = ();

    fn from_str(text: &str) -> Result<Form, ()> {
        let all = [Form::None, Form::Compared, Form::Raised, Form::Exact];
        all.into_iter().find(|form| format!("{form:?}") == text).ok_or(())
    }
}

#[derive(Debug, Default)]
struct Tally {
    committed: i64,
    refused: u64,
    lost: i64,
    passed_on: i64,
}

/// The other process.
pub(crate) fn play() {
    let orders = std::env::var(SIGN).unwrap();
    let [form, url, count, seed] = orders.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let (form, count) = (form.parse().unwrap(), count.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (committed, refused) = runtime.block_on(work(form, url, count, seed.parse().unwrap()));
    println!("\nfinished {committed} {refused}");
    std::process::exit(0);
}

async fn work(form: Form, url: &str, count: u64, seed: u64) -> (u64, u64) {
    let tenure = Tenure::connect(url).await.unwrap();
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    println!("\nready");
    let mut rng = Rng::new(seed);
    let (mut begun, mut committed, mut refused) = (0, 0, 0);
    while begun < count {
        let account = rng.between(0, ACCOUNTS - 1);
        let lock = tenure.mutex(format!("account:{account}")).ttl(TTL).renew(false);
        let Ok(hold) = lock.wait(secs(60)).acquire().await else { continue };
        begun += 1;
        match transaction(form, &mut client, &hold, account, &mut rng).await {
            Ok(true) => committed += 1,
            Ok(false) => refused += 1,
            // Above READ COMMITTED, the database refuses as well.
            Err(error) if error.code().is_some_and(|code| code.code() == "40001") => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        let _ = hold.release().await;
    }
    (committed, refused)
}

/// One in twelve is stopped somewhere for longer than its hold lasts.
async fn perhaps_stop(rng: &mut Rng) {
    if rng.chance(20) {
        pause(rng.micros(30_000, 110_000)).await;
    }
}

/// Adds one. Returns false if a fence was in the way.
async fn transaction(
    form: Form,
    client: &mut Client,
    hold: &Hold,
    account: u64,
    rng: &mut Rng,
) -> Result<bool, Error> {
    let (id, fence) = (account as i64, hold.fence().get() as i64);
    perhaps_stop(rng).await;
    let transaction = client.transaction().await?;
    let guarded = match form {
        Form::None | Form::Compared => Ok(()),
        Form::Raised => fencing::postgres::guard(&transaction, hold.name(), hold.fence()).await,
        Form::Exact => fencing::postgres::hold(&transaction, hold).await,
    };
    match guarded {
        Ok(()) => {}
        Err(fencing::GuardError::Failed(error)) => return Err(error),
        Err(_) => return Ok(false),
    }
    let note = "INSERT INTO checked VALUES ($1, $2, pg_current_xact_id()::xid)";
    transaction.execute(note, &[&id, &fence]).await?;
    perhaps_stop(rng).await;
    // Not FOR UPDATE: only the lock and its fence keep others away.
    let read = "SELECT balance FROM account WHERE id = $1";
    let balance: i64 = transaction.query_one(read, &[&id]).await?.get(0);
    perhaps_stop(rng).await;
    let more = balance + 1;
    let changed = match form {
        Form::Compared => {
            let write = "UPDATE account SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3";
            transaction.execute(write, &[&id, &more, &fence]).await?
        }
        _ => {
            let write = "UPDATE account SET balance = $2 WHERE id = $1";
            transaction.execute(write, &[&id, &more]).await?
        }
    };
    if changed == 0 {
        return Ok(false);
    }
    perhaps_stop(rng).await;
    transaction.commit().await?;
    Ok(true)
}

async fn run(form: Form, level: &str, count: u64) -> Tally {
    let settings = Postgres::build().setting("track_commit_timestamp=on");
    let site = PostgresSite::alone(settings);
    site.sql(TABLES);
    site.sql(fencing::postgres::SCHEMA);
    site.sql(&format!("ALTER DATABASE postgres SET default_transaction_isolation = '{level}'"));
    let url = site.url();
    let mut children = Vec::new();
    for seed in 0..PROCESSES {
        let orders = format!("{form:?} {url} {} {seed}", count.div_ceil(PROCESSES));
        children.push(ChildProcess::start_with(&[], &[(SIGN, orders.into())]).await);
    }
    let began = now();
    let mut rng = Rng::new(count);
    while let Some(at) = {
        let works = |at: &usize| children[*at].all("finished").is_empty();
        let still: Vec<_> = (0..children.len()).filter(works).collect();
        (!still.is_empty()).then(|| still[rng.between(0, still.len() as u64 - 1) as usize])
    } {
        assert!(now().since(began) < secs(60) + ms(60) * count as u32, "they stand still");
        if children[at].state() == 'Z' {
            pause(ms(5)).await;
            assert!(!children[at].all("finished").is_empty(), "{:?}", children[at].said());
            continue;
        }
        children[at].stop();
        pause(rng.micros(5_000, 110_000)).await;
        children[at].go_on();
        pause(rng.micros(1_000, 20_000)).await;
    }
    let mut tally = Tally { passed_on: site.number(PASSED_ON), ..Tally::default() };
    for child in &children {
        let said = child.hears("finished").await;
        tally.committed += said.number(1) as i64;
        tally.refused += said.number(2);
    }
    tally.lost = tally.committed - site.number("SELECT sum(balance) FROM account");
    let took = now().since(began);
    println!("{form:?}, {level}: {tally:?}, {count} transactions in {took:.0?}");
    site.is_sound();
    tally
}

fn transactions(of: Form) -> u64 {
    let asked = std::env::var("TENURE_TRANSACTIONS").ok();
    let asked = asked.map_or(FEW, |text| text.parse().expect("a number"));
    if of == Form::Exact { asked } else { (asked / 20).max(FEW) }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_and_no_name_passed_on_under_the_exact_guard() {
    let count = transactions(Form::Exact);
    for (level, part) in [("read committed", 2), ("repeatable read", 4), ("serializable", 4)] {
        let tally = run(Form::Exact, level, count / part).await;
        assert_eq!((tally.lost, tally.passed_on), (0, 0), "{tally:?}");
        assert!(tally.committed > 0, "{tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_under_a_fence_that_is_raised_first() {
    let tally = run(Form::Raised, "read committed", transactions(Form::Raised)).await;
    assert_eq!(tally.lost, 0, "{tally:?}");
    assert!(tally.committed > 0, "{tally:?}");
}

/// Otherwise the others prove nothing.
#[tokio::test(flavor = "multi_thread")]
async fn updates_are_lost_without_a_fence_and_names_passed_on_under_one_that_is_compared() {
    let none = run(Form::None, "read committed", transactions(Form::None)).await;
    assert!(none.lost > 0 && none.passed_on > 0, "{none:?}");
    let compared = run(Form::Compared, "read committed", transactions(Form::Compared)).await;
    assert!(compared.passed_on > 0, "{compared:?}");
}
