//! The ways in which a node treats a request.

use std::time::Duration;

use serde_json::Value;

/// The treatment of one request. "Executes" means: the chain accepts or refuses the transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Conduct {
    /// Executes it and answers.
    #[default]
    Answer,
    /// Executes it, answers, and closes the connection as announced.
    AnswerAndClose,
    /// Waits a random time up to this, then executes it and answers.
    Late(Duration),
    /// Executes it, and answers after this time.
    AnswerLate(Duration),
    /// Executes it and never answers.
    DoThenHang,
    /// Neither executes it nor answers.
    Hang,
    /// Executes it and closes the connection.
    DoThenClose,
    /// Closes the connection without executing it.
    Close,
    /// Does not execute it, and answers with this status and a page of HTML.
    Html(u16),
    /// Does not execute it, and answers 429 with `retry-after` in seconds.
    TooMany(u64),
    /// Does not execute it, and answers with this JSON-RPC error.
    Refuse(i64, String),
    /// Executes it, but answers with this JSON-RPC error.
    DoThenRefuse(i64, String),
    /// Does not execute it, and answers with this result.
    Say(Value),
    /// Does not execute it, and answers with this status and a JSON-RPC error.
    Trouble(u16),
    /// Executes it, but answers with this status and a JSON-RPC error.
    DoThenTrouble(u16),
    /// Executes it, and answers with the id of another request.
    WrongId,
    /// Executes it, and sends a compressed answer that nobody asked for.
    Gzip,
    /// Does not execute it, and answers with a few kilobytes that decompress to this size.
    GzipBomb(usize),
    /// Executes it, and answers one byte at a time, with this pause in between.
    Drip(Duration),
    /// Does not execute it, and answers with a result of this many bytes.
    Enormous(usize),
    /// Executes it, and sends the first half of the answer.
    Truncated,
    /// Executes it, and closes the connection before the announced length of the body.
    Short,
    /// Does not execute it, and redirects the client with 302.
    Redirect(String),
}

impl Conduct {
    /// Whether the request reaches the chain.
    pub(super) fn does_it(&self) -> bool {
        match self {
            Conduct::Answer
            | Conduct::AnswerAndClose
            | Conduct::Late(_)
            | Conduct::AnswerLate(_)
            | Conduct::DoThenHang
            | Conduct::DoThenClose
            | Conduct::DoThenRefuse(..)
            | Conduct::DoThenTrouble(_)
            | Conduct::WrongId
            | Conduct::Gzip
            | Conduct::Drip(_)
            | Conduct::Truncated
            | Conduct::Short => true,
            Conduct::Hang
            | Conduct::Close
            | Conduct::Html(_)
            | Conduct::TooMany(_)
            | Conduct::Refuse(..)
            | Conduct::Say(_)
            | Conduct::Trouble(_)
            | Conduct::GzipBomb(_)
            | Conduct::Enormous(_)
            | Conduct::Redirect(_) => false,
        }
    }
}
