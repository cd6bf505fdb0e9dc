//! Whether the database is fit for locks.

use tokio_postgres::Row;

use super::config::Listen;
use super::link::{Session, query};
use super::setup::LAYOUT;
use super::shared::Shared;
use super::statements::Statement;
use crate::engine::Finding;
use crate::model::error::Result;

mod activity;

const SETTINGS: &str =
    "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    current_setting('server_encoding'), current_setting('default_transaction_isolation'),
    (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'),
    to_regclass('tenure.layout') IS NOT NULL, to_regproc('tenure_v1.claim') IS NOT NULL,
    pg_notification_queue_usage()::float8,
    (SELECT source FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'),
    -- Roles for which it is turned off, here or everywhere.
    (SELECT string_agg(coalesce(r.rolname, 'all'), ', ') FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole
      WHERE (s.setdatabase = 0 OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND s.setrole <> 0 AND 'idle_in_transaction_session_timeout=0' = ANY (s.setconfig)),
    current_setting('autovacuum'),
    -- Zero over a socket in the file system.
    (SELECT setting::int FROM pg_settings WHERE name = 'tcp_keepalives_idle')";
pub(super) async fn findings(shared: &Shared) -> Result<Vec<Finding>> {
    let session = Session::connect(&shared.config.server, &shared.tls, None).await?;
    let mut findings = Vec::new();
    match first(&session, SETTINGS).await {
        Some(row) => settings(&row, &mut findings),
        None => findings.push(Finding::warning("settings", "the settings cannot be read")),
    }
    if findings.iter().all(|finding| finding.check != "tables") {
        findings.push(tables(&session).await);
    }
    activity::findings(&session, &mut findings).await;
    findings.push(pooler(shared, &session).await?);
    Ok(findings)
}

async fn first(session: &Session, sql: &'static str) -> Option<Row> {
    query(&session.client, &Statement::plain(sql)).await.ok()?.into_iter().next()
}

fn settings(row: &Row, findings: &mut Vec<Finding>) {
    let text = |at: usize| row.try_get::<_, String>(at).unwrap_or_default();
    let flag = |at: usize| row.try_get::<_, bool>(at).unwrap_or_default();
    let number: i32 = row.try_get(0).unwrap_or_default();
    let version = format!("Postgres {}", text(1));
    findings.push(match number {
        140_000.. => Finding::good("version", version),
        _ => Finding::problem("version", version)
            .why("the functions of tenure need Postgres 14")
            .fix("upgrade the server"),
    });
    findings.push(match flag(2) {
        false => Finding::good("primary", "it accepts writes"),
        true => Finding::problem("primary", "it is a standby")
            .why("steps are writes")
            .fix("list all hosts in the URL, with target_session_attrs=read-write"),
    });
    findings.push(match (text(3).as_str(), text(4).as_str()) {
        ("on", "on") => Finding::good("durability", "what is committed survives a crash"),
        (fsync, pages) => {
            Finding::problem("durability", format!("fsync is {fsync}, full_page_writes is {pages}"))
                .why("after a crash of the machine, holds may be forgotten and granted again")
                .fix("ALTER SYSTEM SET fsync = on; ALTER SYSTEM SET full_page_writes = on")
        }
    });
    more_settings(row, findings);
}

fn more_settings(row: &Row, findings: &mut Vec<Finding>) {
    let text = |at: usize| row.try_get::<_, String>(at).unwrap_or_default();
    let flag = |at: usize| row.try_get::<_, bool>(at).unwrap_or_default();
    findings.push(match text(7).as_str() {
        "UTF8" => Finding::good("encoding", "UTF8"),
        other => Finding::problem("encoding", other.to_owned())
            .why("names are UTF-8, and some cannot be stored")
            .fix("use a database with the encoding UTF8"),
    });
    if text(8) != "read committed" {
        findings.push(
            Finding::warning("isolation", format!("transactions are {} by default", text(8)))
                .why("steps of one name that meet are undone and repeated")
                .fix("ALTER ROLE … SET default_transaction_isolation = 'read committed'"),
        );
    }
    findings.push(idle(row));
    if !flag(10) || !flag(11) {
        findings.push(
            Finding::problem("tables", "the tables or functions of tenure are missing")
                .why("nothing can be locked without them")
                .fix("tenure setup"),
        );
    }
    if text(15) != "on" {
        findings.push(
            Finding::problem("autovacuum", "autovacuum is off")
                .why("every step leaves a dead row, and nobody removes them")
                .fix("ALTER SYSTEM SET autovacuum = on"),
        );
    }
    findings.push(keepalives(row));
    let usage: f64 = row.try_get(12).unwrap_or_default();
    if usage > 0.25 {
        let full = format!("the queue of notifications is {:.0} % full", usage * 100.0);
        findings.push(Finding::warning("queue", full).why(
            "when it is full, hand-overs fail; a session that listens has an open transaction",
        ));
    }
}

/// How soon the server notices that the machine of a client has gone.
fn keepalives(row: &Row) -> Finding {
    let seconds: i32 = row.try_get(16).unwrap_or_default();
    match seconds {
        0 => Finding::good("keepalive", "this connection is within the machine"),
        1..=120 => {
            Finding::good("keepalive", format!("silent clients are probed after {seconds} s"))
        }
        _ if row.try_get::<_, i64>(9).unwrap_or_default() > 0 => {
            Finding::good("keepalive", "open transactions are bounded otherwise")
        }
        _ => Finding::warning("keepalive", format!("silent clients are probed after {seconds} s"))
            .why("a machine that vanishes leaves its sessions, and what their transactions guard, until then")
            .fix("ALTER SYSTEM SET tcp_keepalives_idle = 30; … tcp_keepalives_interval = 5; … tcp_keepalives_count = 3"),
    }
}

/// The limit for transactions that are left open: here, and for those who guard as other roles.
fn idle(row: &Row) -> Finding {
    let limit: i64 = row.try_get(9).unwrap_or_default();
    let source: String = row.try_get(13).unwrap_or_default();
    let without: Option<String> = row.try_get(14).unwrap_or_default();
    let why =
        "a transaction that guards a hold (tenure.guard) and is left open keeps its name taken";
    let fix = "ALTER DATABASE … SET idle_in_transaction_session_timeout = '30s'";
    if limit == 0 {
        let what = "idle_in_transaction_session_timeout is 0";
        return Finding::warning("idle", what).why(why).fix(fix);
    }
    let what = format!("open transactions end after {limit} ms of idling");
    if let Some(without) = without {
        let what = format!("{what}, but not those of {without}");
        let fix = "ALTER ROLE … RESET idle_in_transaction_session_timeout";
        return Finding::warning("idle", what).why(why).fix(fix);
    }
    match source.as_str() {
        "client" | "session" => {
            let what = format!("{what}, because this URL says so; others need not");
            Finding::warning("idle", what).why(why).fix(fix)
        }
        "user" | "database user" => Finding::good("idle", what)
            .why("this is set for this role alone; others may guard, too"),
        _ => Finding::good("idle", what),
    }
}

async fn tables(session: &Session) -> Finding {
    let version = match first(session, "SELECT version FROM tenure.layout").await {
        Some(row) => row.try_get::<_, i32>(0).ok(),
        None => {
            return Finding::problem("tables", "this role may not use the schema of tenure")
                .why("nothing can be locked without it")
                .fix("GRANT USAGE ON SCHEMA tenure, tenure_v1 TO …");
        }
    };
    match version {
        Some(LAYOUT) => Finding::good("tables", format!("version {LAYOUT}")),
        other => Finding::problem("tables", format!("version {}", other.unwrap_or_default()))
            .why(format!("this program knows version {LAYOUT}"))
            .fix("use the version of tenure that set them up, or a newer one"),
    }
}

/// Behind a pooler in transaction mode, two clients share a session: a setting of one is seen by the other.
async fn pooler(shared: &Shared, session: &Session) -> Result<Finding> {
    let mark = "SELECT set_config('tenure.examined', 'yes', false)";
    let seen = "SELECT coalesce(current_setting('tenure.examined', true), '')";
    let _ = first(session, mark).await;
    let other = Session::connect(&shared.config.server, &shared.tls, None).await?;
    let is_shared = first(&other, seen).await.is_some_and(|row| row.get::<_, String>(0) == "yes");
    let _ = first(session, "SELECT set_config('tenure.examined', '', false)").await;
    Ok(match (is_shared, shared.config.listen, &shared.config.listen_at) {
        (false, ..) => Finding::good("pooler", "sessions are its own"),
        (true, _, Some(_)) => Finding::good("pooler", "there is one; turns are heard past it"),
        (true, Listen::Never, _) => Finding::warning("pooler", "there is one, and nobody listens")
            .why("claims that wait find their turn by looking, seconds late"),
        (true, ..) => Finding::problem("pooler", "there is a pooler in transaction mode")
            .why("turns are not heard through it, and a process that ended looks alive")
            .fix("add listen=HOST:PORT of the server itself to the URL, or listen=never"),
    })
}
