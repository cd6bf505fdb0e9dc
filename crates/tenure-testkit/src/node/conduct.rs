//! What a node does with a request.

use std::time::Duration;

use serde_json::Value;

/// What happens to one request. "Does it" means: a transaction is taken, or refused by the chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Conduct {
    /// Does it and answers.
    #[default]
    Answer,
    /// Does it, answers, and closes the connection as it said it would.
    AnswerAndClose,
    /// Waits a random time up to this, then does it and answers.
    Late(Duration),
    /// Does it, and answers so much later.
    AnswerLate(Duration),
    /// Does it and never answers.
    DoThenHang,
    /// Neither does it nor answers.
    Hang,
    /// Does it and closes the connection.
    DoThenClose,
    /// Closes the connection.
    Close,
    /// Does not do it, and answers with this status and a page of HTML.
    Html(u16),
    /// Does not do it, and answers 429 with `retry-after` in seconds.
    TooMany(u64),
    /// Does not do it, and answers with this error of JSON-RPC.
    Refuse(i64, String),
    /// Does it, and answers with this error of JSON-RPC all the same.
    DoThenRefuse(i64, String),
    /// Does not do it, and answers with this result.
    Say(Value),
    /// Does not do it, and answers with this status and an error of JSON-RPC.
    Trouble(u16),
    /// Does it, and answers with this status and an error of JSON-RPC.
    DoThenTrouble(u16),
    /// Does it, and answers with the id of another.
    WrongId,
    /// Does it, and answers compressed, though nobody asked for that.
    Gzip,
    /// Does not do it, and answers with a few kilobytes that unpack to so many.
    GzipBomb(usize),
    /// Does it, and answers a byte at a time, with this much time between two.
    Drip(Duration),
    /// Does not do it, and answers with a result of so many bytes.
    Enormous(usize),
    /// Does it, and answers with the first half of the answer.
    Truncated,
    /// Does it, and answers with a body that ends early: the connection is closed before its length.
    Short,
    /// Does not do it, and sends the client elsewhere with 302.
    Redirect(String),
}

impl Conduct {
    /// Whether the chain gets to see the request.
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
