//! What goes on at the server: other transactions, standbys, sessions that listen, dead rows, the clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;

use super::super::link::{Session, query};
use super::super::statements::Statement;
use super::first;
use crate::engine::Finding;

/// Whatever keeps dead rows from being removed, in any database of the server. The start of a transaction is hidden from
/// roles without `pg_read_all_stats`; how many transactions have begun since is not.
const OLDEST: &str = "WITH open AS (
    SELECT xact_start, backend_xid, backend_xmin FROM pg_stat_activity
    WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND pid <> pg_backend_pid())
  SELECT
    (SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::bigint FROM open),
    (SELECT count(*) FROM open WHERE xact_start IS NULL),
    (SELECT max(greatest(age(backend_xmin), age(backend_xid)))::bigint FROM open WHERE xact_start IS NULL),
    (SELECT max(extract(epoch FROM clock_timestamp() - prepared))::bigint FROM pg_prepared_xacts),
    (SELECT count(*) FROM pg_replication_slots WHERE NOT active),
    (SELECT max(age(xmin))::bigint FROM pg_replication_slots WHERE active)";
const STANDBYS: &str =
    "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL)";
/// The sessions that listen for processes have an exclusive lock with their number.
const LISTENERS: &str = "SELECT count(*), current_setting('server_version_num')::int FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const ROWS: &str =
    "SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint,
    coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint
    FROM pg_stat_all_tables WHERE schemaname = 'tenure'";
const GUARDS: &str = "SELECT name, fence, overdue / 1000000, pid, open_for / 1000000
    FROM tenure_v1.guards(NULL, NULL) WHERE overdue > 0 ORDER BY overdue DESC LIMIT 5";
const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// How old a transaction may be, in seconds and in transactions that have begun since.
const OLD: i64 = 300;
const OLD_IN_TRANSACTIONS: i64 = 100_000;
/// How many sessions may listen before it is felt: in trials, 50 of them halved the rate of hand-overs.
const LISTENING: i64 = 50;
/// The first version that wakes only the sessions that a notification is for.
const WAKES_FEW: i32 = 190_000;
/// How many dead rows there may be, and how many times the live ones, before it is felt.
const DEAD: (i64, i64) = (20_000, 5);
/// How far the server's clock may be from ours before it is reported, in microseconds.
const FROM_OURS: u64 = 500_000;
/// How often the clock is read; the quickest answer counts.
const TRIES: usize = 5;

pub(super) async fn findings(session: &Session, findings: &mut Vec<Finding>) {
    if let Some(row) = first(session, STANDBYS).await {
        findings.push(standbys(&row));
    }
    if let Some(row) = first(session, OLDEST).await {
        findings.push(oldest(&row));
    }
    if let Some(row) = first(session, ROWS).await {
        findings.push(rows(&row));
    }
    if let Some(row) = first(session, LISTENERS).await {
        findings.push(listeners(&row));
    }
    if let Ok(found) = query(&session.client, &Statement::plain(GUARDS)).await {
        guards(&found, findings);
    }
    findings.extend(clock(session).await);
}

fn number(row: &Row, at: usize) -> i64 {
    row.try_get::<_, Option<i64>>(at).ok().flatten().unwrap_or_default()
}

/// What a failover can cost.
fn standbys(row: &Row) -> Finding {
    let text = |at: usize| row.try_get::<_, String>(at).unwrap_or_default();
    let (level, names) = (text(0), text(1));
    let (all, synchronous, hidden) = (number(row, 2), number(row, 3), number(row, 4));
    let many = if all == 1 { "1 standby".to_owned() } else { format!("{all} standbys") };
    if names.is_empty() && all > 0 {
        return Finding::warning("commit", format!("{many}, which may lag behind"))
            .why("a failover can forget the last grants, and their names are granted again")
            .fix("set synchronous_standby_names if a failover must forget nothing");
    }
    if !names.is_empty() && synchronous == 0 && hidden == 0 {
        return Finding::problem("commit", "no synchronous standby is connected")
            .why("every step waits for one")
            .fix("start it, or change synchronous_standby_names");
    }
    if matches!(level.as_str(), "off" | "local") {
        return Finding::warning("commit", format!("synchronous_commit is {level}")).why(
            "steps turn it on for themselves, so that they are slower than other transactions here",
        );
    }
    if !names.is_empty() && level == "remote_write" {
        return Finding::warning("commit", format!("remote_write, {many}"))
            .why("a standby whose machine loses power can forget what it confirmed")
            .fix("set synchronous_commit = on");
    }
    match names.is_empty() {
        true => Finding::good("commit", "one server: what it commits is on its disk"),
        false => Finding::good("commit", format!("{level}, {many}, {synchronous} synchronous")),
    }
}

fn oldest(row: &Row) -> Finding {
    let (age, hidden, hidden_age) = (number(row, 0), number(row, 1), number(row, 2));
    let (prepared, idle_slots, slot_age) = (number(row, 3), number(row, 4), number(row, 5));
    let why = "dead rows stay while it is there, and steps become slower";
    let found = |what: String, fix: &str| Finding::warning("old", what).why(why).fix(fix);
    if age > OLD {
        let fix = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5";
        return found(format!("a transaction has been open for {age} s"), fix);
    }
    if prepared > OLD {
        let fix = "SELECT * FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED";
        return found(format!("a transaction was prepared {prepared} s ago"), fix);
    }
    if hidden_age > OLD_IN_TRANSACTIONS {
        let what =
            format!("{hidden_age} transactions have begun since a transaction of another role");
        let fix = "SELECT pid, usename FROM pg_stat_activity ORDER BY greatest(age(backend_xmin), age(backend_xid)) DESC";
        return found(what, fix);
    }
    if slot_age > OLD_IN_TRANSACTIONS {
        let what =
            format!("a replication slot in use keeps rows of the last {slot_age} transactions");
        return found(what, "see its standby: hot_standby_feedback, and long queries there");
    }
    if idle_slots > 0 {
        let many = if idle_slots == 1 { "slot is" } else { "slots are" };
        return found(
            format!("{idle_slots} replication {many} not used"),
            "SELECT * FROM pg_replication_slots WHERE NOT active",
        );
    }
    if hidden > 0 {
        let many = if hidden == 1 { "transaction" } else { "transactions" };
        return Finding::good(
            "old",
            format!("{hidden} {many} of other roles, not old as far as can be seen"),
        )
        .why("without pg_read_all_stats this role does not see when they began");
    }
    Finding::good("old", "no old transaction keeps dead rows")
}

fn rows(row: &Row) -> Finding {
    let (live, dead) = (number(row, 0), number(row, 1));
    let (updates, hot) = (number(row, 2), number(row, 3));
    let mut what = format!("{live} live and {dead} dead");
    if updates > 0 {
        let share = hot as f64 / updates as f64 * 100.0;
        what = format!("{what}; {share:.0} % of the updates in place");
    }
    match dead > DEAD.0 && dead > live * DEAD.1 {
        false => Finding::good("rows", what),
        true => Finding::warning("rows", what)
            .why("steps read past dead rows; something keeps them, or autovacuum does not come")
            .fix("see \"old\" above; VACUUM the tables of the schema tenure"),
    }
}

fn listeners(row: &Row) -> Finding {
    let count = number(row, 0);
    let version: i32 = row.try_get(1).unwrap_or_default();
    let what = match count {
        1 => "1 process listens for its turns".to_owned(),
        many => format!("{many} processes listen for their turns"),
    };
    if count < LISTENING || version >= WAKES_FEW {
        return Finding::good("listeners", what);
    }
    Finding::warning("listeners", what)
        .why("up to Postgres 18, every hand-over wakes all of them, and is slower")
        .fix("fewer processes that wait at the same time, databases of their own, or listen=never where nobody minds")
}

/// Holds that are overdue and kept by a transaction.
fn guards(rows: &[Row], findings: &mut Vec<Finding>) {
    for row in rows {
        let name: String = row.try_get(0).unwrap_or_default();
        let (fence, overdue) = (number(row, 1), number(row, 2));
        let pid: Option<i32> = row.try_get(3).ok().flatten();
        let who = match pid {
            Some(pid) => format!("the transaction of session {pid}"),
            None => "a prepared transaction".to_owned(),
        };
        let what = format!("{name:?} (fence {fence}) is {overdue} s overdue, and kept by {who}");
        let fix = match pid {
            Some(pid) => {
                format!("tenure break … --end-sessions, or SELECT pg_terminate_backend({pid})")
            }
            None => "SELECT * FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED"
                .to_owned(),
        };
        let finding =
            Finding::warning("guards", what).why("nobody else is granted it before that ends");
        findings.push(finding.fix(fix));
    }
    if rows.is_empty() {
        findings.push(Finding::good("guards", "no transaction keeps a hold that is overdue"));
    }
}

/// Compares the server's clock with ours.
async fn clock(session: &Session) -> Option<Finding> {
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..TRIES {
        let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Instant::now();
        let theirs = number(&first(session, CLOCK).await?, 0);
        let took = began.elapsed();
        let ahead = theirs - (asked + took / 2).as_micros() as i64;
        if best.is_none_or(|(least, _)| (took.as_micros() as u64) < least) {
            best = Some((took.as_micros() as u64, ahead));
        }
    }
    let (_, ahead) = best?;
    let sign = if ahead < 0 { '-' } else { '+' };
    let what = match ahead.unsigned_abs() / 1000 {
        0 => "as this machine's".to_owned(),
        millis @ 1..10_000 => format!("{sign}{millis} ms from this machine's"),
        millis => format!("{sign}{} s from this machine's", millis / 1000),
    };
    Some(match ahead.unsigned_abs() <= FROM_OURS {
        true => Finding::good("clock", what),
        false => Finding::warning("clock", what)
            .why("holds end by the server's clock: if it is corrected in one step, they end early or late")
            .fix("synchronise both clocks, by slewing"),
    })
}
