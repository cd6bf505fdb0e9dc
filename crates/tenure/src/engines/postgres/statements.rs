//! What is sent: one call of a function for each step. The most frequent ones have one value, a row, and every step has one
//! answer: the server parses each call, and twenty values would take it as long as the step.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::time::Duration;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::row::RowText;
use crate::model::claim::{Claim, ClaimId, Details, Fence, Leave, Note, OnceRecord};
use crate::model::name::{Name, Space};
use crate::model::view::Scope;

pub(super) type Value = (Box<dyn ToSql + Sync + Send>, Type);

/// A hold, and the ttl that it is to last for.
pub(super) type HoldToRenew = (Name, ClaimId, Fence, Duration);

/// A statement with its values.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
}

const CLAIM: &str = "SELECT pg_catalog.record_send(tenure_v1.claim($1))";
const RENEW: &str = "SELECT pg_catalog.record_send(answer) FROM tenure_v1.renew($1, $2, $3, $4, $5, $6) ORDER BY at";
const LOOK: &str = "SELECT pg_catalog.record_send(answer) FROM tenure_v1.look($1, $2, $3, $4, $5, $6, $7) ORDER BY at";
const LEAVE: &str = "SELECT pg_catalog.record_send(tenure_v1.leave($1))";
const BREAK: &str = "SELECT pg_catalog.record_send(tenure_v1.break_hold($1, $2, $3, $4, $5))";
const RESIZE: &str = "SELECT pg_catalog.record_send(tenure_v1.resize($1, $2, $3))";
const FORGET: &str = "SELECT pg_catalog.record_send(tenure_v1.forget($1, $2, $3, $4))";
const TICK: &str = "SELECT pg_catalog.record_send(tenure_v1.tick($1, $2))";
const VIEW: &str =
    "SELECT * FROM tenure_v1.view($1, $2, $3, $4, $5, $6) ORDER BY name COLLATE \"C\"";
const SWEEP: &str = "SELECT deleted + ended, pages FROM tenure_v1.sweep($1, $2)";
const END_GUARDS: &str =
    "SELECT pg_terminate_backend(g.pid) FROM tenure_v1.guards($1, $2) g WHERE g.fence = $3";
/// Fails if the functions are missing, and if the server is a standby.
const READY: &str = "SELECT version, 'tenure_v1.claim'::regproc::text, pg_current_wal_lsn()::text FROM tenure.layout";

impl Statement {
    pub(super) fn claim(claim: &Claim, process: i64, listens: bool, in_hand: bool) -> Statement {
        let Details { owner, reason, meta, value, trace, .. } = &*claim.details;
        let once = claim.once.as_ref();
        let pairs = meta.iter().flat_map(|(key, value)| [clean(key), clean(value)]);
        let mut row = RowText::default();
        row.text(letter(claim.name.space()));
        row.text(claim.name.as_str());
        row.id(u128::from_be_bytes(claim.id.to_bytes()));
        row.number(claim.weight);
        row.number(claim.capacity);
        row.flag(claim.fixed);
        row.number(micros(claim.ttl));
        row.flag(claim.may_wait);
        row.number(claim.max_waiters);
        row.maybe(claim.ticket.map(|ticket| fit(ticket.get())));
        row.number(fit(claim.seen.get()));
        row.number(once.map_or(-1, |once| micros(once.keep)));
        row.flag(once.is_some_and(|once| once.rerun));
        row.id(once.map_or(0, |once| once.content));
        row.number(process);
        row.flag(listens);
        row.flag(in_hand);
        row.text(owner);
        row.maybe(reason.as_deref());
        row.list(pairs);
        row.maybe(value.as_deref());
        row.maybe(trace.as_deref());
        row.flag(claim.on_behalf);
        let values = vec![row.end()];
        Statement { sql: CLAIM.into(), values }
    }

    /// Renews these holds, in one transaction. If the row of a name is locked, it waits for it or leaves it out.
    pub(super) fn renew(holds: &[HoldToRenew], waits: bool) -> Statement {
        let spaces: Vec<_> = holds.iter().map(|hold| letter(hold.0.space())).collect();
        let names: Vec<_> = holds.iter().map(|hold| hold.0.as_str().to_owned()).collect();
        let ids: Vec<_> = holds.iter().map(|hold| Uuid(hold.1.to_bytes())).collect();
        let fences: Vec<_> = holds.iter().map(|hold| fit(hold.2.get())).collect();
        let ttls: Vec<_> = holds.iter().map(|hold| micros(hold.3)).collect();
        let values: Vec<Value> = vec![
            (Box::new(spaces), Type::TEXT_ARRAY),
            (Box::new(names), Type::TEXT_ARRAY),
            (Box::new(ids), Type::UUID_ARRAY),
            (Box::new(fences), Type::INT8_ARRAY),
            (Box::new(ttls), Type::INT8_ARRAY),
            flag(waits),
        ];
        Statement { sql: RENEW.into(), values }
    }

    /// Lets these claims, which wait, ask again, in one transaction.
    pub(super) fn look(claims: &[Claim], process: i64, listens: bool) -> Statement {
        let spaces: Vec<_> = claims.iter().map(|claim| letter(claim.name.space())).collect();
        let names: Vec<_> = claims.iter().map(|claim| claim.name.as_str().to_owned()).collect();
        let ids: Vec<_> = claims.iter().map(|claim| Uuid(claim.id.to_bytes())).collect();
        let ticket = |claim: &Claim| claim.ticket.map(|ticket| fit(ticket.get()));
        let tickets: Vec<_> = claims.iter().map(ticket).collect();
        let seen: Vec<_> = claims.iter().map(|claim| fit(claim.seen.get())).collect();
        let values: Vec<Value> = vec![
            (Box::new(spaces), Type::TEXT_ARRAY),
            (Box::new(names), Type::TEXT_ARRAY),
            (Box::new(ids), Type::UUID_ARRAY),
            (Box::new(tickets), Type::INT8_ARRAY),
            (Box::new(seen), Type::INT8_ARRAY),
            long(process),
            flag(listens),
        ];
        Statement { sql: LOOK.into(), values }
    }

    pub(super) fn leave(leave: &Leave, process: i64) -> Statement {
        let settle = leave.settle.as_ref();
        let fence = |fence: Option<Fence>| fence.map(|fence| fit(fence.get()));
        let outcome = settle.and_then(|settle| settle.outcome.as_ref());
        let mut row = RowText::default();
        row.text(letter(leave.name.space()));
        row.text(leave.name.as_str());
        row.id(u128::from_be_bytes(leave.id.to_bytes()));
        row.flag(leave.in_doubt);
        row.maybe(fence(leave.only));
        row.flag(leave.unbegun);
        row.maybe(fence(settle.map(|settle| settle.fence)));
        row.maybe(outcome.map(|outcome| hex(outcome)));
        row.flag(leave.only_waiting);
        row.number(process);
        let values = vec![row.end()];
        Statement { sql: LEAVE.into(), values }
    }

    pub(super) fn break_hold(name: &Name, fence: Fence, note: &Note) -> Statement {
        let rest = vec![number(fence), text(&note.by), text(&note.reason)];
        Statement::on(name, BREAK, rest)
    }

    pub(super) fn resize(name: &Name, capacity: u32) -> Statement {
        Statement::on(name, RESIZE, vec![long(capacity.into())])
    }

    pub(super) fn forget(name: &Name, seen: &OnceRecord) -> Statement {
        Statement::on(name, FORGET, vec![number(seen.fence), flag(seen.outcome.is_some())])
    }

    pub(super) fn end_guards(name: &Name, fence: Fence) -> Statement {
        Statement::on(name, END_GUARDS, vec![number(fence)])
    }

    pub(super) fn tick(name: &Name) -> Statement {
        Statement::on(name, TICK, Vec::new())
    }

    pub(super) fn view(scope: &Scope) -> Statement {
        let values = match scope {
            Scope::Name(name) => vec![
                space(name.space()),
                text(name.as_str()),
                text(name.as_str()),
                maybe(None),
                long(1),
                flag(true),
            ],
            Scope::Prefix { space: of, prefix, after, limit } => vec![
                space(*of),
                text(prefix),
                // Nothing that begins with it comes after this.
                text(&format!("{prefix}{}", char::MAX)),
                maybe(after.as_ref().map(Name::as_str)),
                // One more says that there are more.
                long(i64::try_from(*limit).unwrap_or(i64::MAX - 1) + 1),
                flag(false),
            ],
        };
        Statement { sql: VIEW.into(), values }
    }

    pub(super) fn sweep(from: i64, pages: i64) -> Statement {
        Statement { sql: SWEEP.into(), values: vec![long(from), long(pages)] }
    }

    pub(super) fn ready() -> Statement {
        Statement { sql: READY.into(), values: Vec::new() }
    }

    pub(super) fn plain(sql: &'static str) -> Statement {
        Statement { sql: sql.into(), values: Vec::new() }
    }

    pub(super) fn owned(sql: String) -> Statement {
        Statement { sql: sql.into(), values: Vec::new() }
    }

    fn on(name: &Name, sql: &'static str, rest: Vec<Value>) -> Statement {
        let mut values = vec![space(name.space()), text(name.as_str())];
        values.extend(rest);
        Statement { sql: sql.into(), values }
    }
}

/// How a name space is written in the tables and in pushes.
pub(super) fn letter(space: Space) -> &'static str {
    match space {
        Space::Lock => "l",
        Space::Election => "e",
        Space::Once => "o",
    }
}

fn space(space: Space) -> Value {
    (Box::new(letter(space)), Type::TEXT)
}

fn text(text: &str) -> Value {
    (Box::new(clean(text)), Type::TEXT)
}

fn maybe(text: Option<&str>) -> Value {
    (Box::new(text.map(clean)), Type::TEXT)
}

/// Postgres has no character 0.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

fn flag(flag: bool) -> Value {
    (Box::new(flag), Type::BOOL)
}

fn long(number: i64) -> Value {
    (Box::new(number), Type::INT8)
}

fn number(fence: Fence) -> Value {
    long(fit(fence.get()))
}

fn fit(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = "\\x".to_owned();
    for byte in bytes {
        let digits = [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
        text.extend(digits.into_iter().flatten());
    }
    text
}

/// A century at most, so that nothing overflows when the server adds it to its clock.
fn micros(span: Duration) -> i64 {
    let century = Duration::from_secs(100 * 366 * 24 * 60 * 60);
    i64::try_from(span.min(century).as_micros()).unwrap_or(i64::MAX)
}

/// 128 bits, as Postgres stores them. Its `Debug` output does not contain them.
#[derive(Clone, Copy)]
pub(super) struct Uuid(pub(super) [u8; 16]);

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Uuid(…)")
    }
}

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}
