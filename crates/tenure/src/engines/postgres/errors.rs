//! What the errors of Postgres mean.

use std::error::Error as _;

use tokio_postgres::error::{DbError, SqlState};

use crate::model::error::{Error, ErrorKind};

/// What is wrong, and what to do besides telling the caller.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: Error,
    pub(super) then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// Nothing was done, and the same step may be sent again.
    Repeat,
    /// The connection is still usable.
    Keep,
    /// The connection is broken, or leads to a server that cannot take steps.
    Reconnect,
}

const SETUP: &str = "run `tenure setup` as the owner of the database; --print shows the SQL";

/// What the failure of a step means. In autocommit, a step that the server refuses was rolled back.
pub(super) fn fault(error: &tokio_postgres::Error) -> Fault {
    match error.as_db_error() {
        Some(error) => refused(error),
        None => {
            let error = Error::new(
                ErrorKind::Unavailable,
                format!("the connection failed: {}", cause(error)),
            );
            let error = error.next("is the server up, and what does its log say?").in_doubt();
            Fault { error, then: Then::Reconnect }
        }
    }
}

/// What the failure to connect means.
pub(super) fn cannot_connect(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(error) => refused(error).error,
        None => Error::new(ErrorKind::Unavailable, format!("cannot connect: {}", cause(error)))
            .next("is the server up, and is the address right?"),
    }
}

fn refused(error: &DbError) -> Fault {
    let code = error.code();
    let wait = |reason, next| known(ErrorKind::Unavailable, code, reason, next).not_now();
    // The last three: `tenure setup` replaced the functions and their types while this step ran.
    let undone = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::INTERNAL_ERROR,
        SqlState::UNDEFINED_OBJECT,
        SqlState::DATATYPE_MISMATCH,
    ];
    let standby = [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE];
    let (error, then) = if undone.contains(code) {
        let next = "is default_transaction_isolation read committed? the server's log says more";
        (wait("the server undid the step", next), Then::Repeat)
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        (row_is_locked(), Then::Keep)
    } else if *code == SqlState::QUERY_CANCELED {
        let next = "is statement_timeout very short?";
        (wait("the server canceled the step", next), Then::Keep)
    } else if standby.contains(code) {
        let next = "list all hosts in the URL, with target_session_attrs=read-write";
        (wait("the server is a standby, or accepts no writes", next), Then::Reconnect)
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        let reason = "the server starts up, shuts down or recovers";
        (wait(reason, "it will be back"), Then::Reconnect)
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        let next = "raise max_connections, or use a pooler";
        (wait("the server has too many connections", next), Then::Reconnect)
    } else if code.code().starts_with("53") || code.code() == "54000" {
        let next = "check its disk and its memory";
        (wait("the server has run out of room", next), Then::Keep)
    } else if code.code().starts_with("08") || code.code().starts_with("57P") {
        let next = "was the server restarted?";
        (wait("the server ended the session", next).in_doubt(), Then::Reconnect)
    } else {
        return denied(code);
    };
    Fault { error, then }
}

/// Someone's transaction is open, or many steps of one name are under way.
pub(super) fn row_is_locked() -> Error {
    let reason = "another transaction has the row of this name locked";
    let next = "a session left a transaction open: see pg_stat_activity";
    known(ErrorKind::Unavailable, &SqlState::LOCK_NOT_AVAILABLE, reason, next).not_now()
}

/// Errors that waiting does not cure.
fn denied(code: &SqlState) -> Fault {
    let missing =
        [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];
    let (error, then) = if missing.contains(code) {
        let reason =
            "the tables or functions of tenure are missing here, or are of another version";
        // A step that `tenure setup` replaced the functions under fails like this, too, and works when it is repeated.
        (known(ErrorKind::Unsupported, code, reason, SETUP), Then::Repeat)
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        let next = "as the owner: GRANT USAGE ON SCHEMA tenure, tenure_v1 TO …";
        (known(ErrorKind::Denied, code, "this role may not use tenure's schema", next), Then::Keep)
    } else if code.code().starts_with("28") {
        let next =
            "check user, password and pg_hba.conf; a server that wants TLS needs sslmode=require";
        (known(ErrorKind::Denied, code, "the server refuses this user", next), Then::Reconnect)
    } else if *code == SqlState::UNDEFINED_DATABASE {
        let next = "create it, or name another";
        (known(ErrorKind::Denied, code, "there is no such database", next), Then::Reconnect)
    } else {
        // The server's text may quote what it was sent.
        let next = "its log says more; please report this";
        (
            known(ErrorKind::Internal, code, "the server returned an error", next).in_doubt(),
            Then::Keep,
        )
    };
    Fault { error, then }
}

fn known(kind: ErrorKind, code: &SqlState, reason: &str, next: &'static str) -> Error {
    Error::new(kind, format!("{reason} ({})", code.code())).next(next)
}

/// The tables are there, and not those of this program.
pub(super) fn other_version(found: Option<i32>) -> Error {
    let found = found.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let reason =
        format!("the tables of tenure are of version {found}, not {}", super::setup::LAYOUT);
    Error::new(ErrorKind::Unsupported, reason).next(SETUP)
}

/// The innermost error, which says most.
fn cause(error: &tokio_postgres::Error) -> String {
    let mut last = error.source();
    while let Some(inner) = last.and_then(|error| error.source()) {
        last = Some(inner);
    }
    last.map_or_else(|| error.to_string(), ToString::to_string)
}
