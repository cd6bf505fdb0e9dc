//! Parses the answers of scripts.
//!
//! Claims and renewals are answered in the ledger's own terms, because the script is the ledger's rule. Times
//! arrive as durations left on the server's clock, and are counted from the moment the request was sent.

use std::sync::Arc;
use std::time::Duration;

use super::refusal::Refusal;
use super::resp::Value;
use super::view::read_entry;
use crate::ledger::{Answer, KeepAnswer};
use crate::model::claim::{Ended, Fence, Fences, Holder, Left, Note, Ticket};
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;

/// What an answer says in addition to its code.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Marks {
    /// The step stopped at its limit and should be continued.
    pub(crate) more: bool,
    /// This user may not publish, so someone was not told about its turn.
    pub(crate) mute: bool,
}

/// The answer to a claim or a renewal, and the hold that ends first where that matters.
#[derive(Debug)]
pub(crate) struct ClaimAnswer {
    pub(crate) answer: Answer,
    pub(crate) holder: Option<Holder>,
}

/// The answer to an operator's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Done,
    /// The hold or the record that it was meant for no longer exists.
    MovedOn,
    /// The capacity is fixed.
    Conflict,
}

/// Parses the answer to a claim or a renewal that was sent at `sent`. `ttl` is the requested one: a claim
/// that is alone is answered with its fence and nothing else. `None` if no script of ours answers like this.
pub(crate) fn read_claim(
    value: &Value,
    ttl: Duration,
    sent: Moment,
) -> Option<(ClaimAnswer, Marks)> {
    // A number as low as 1 is the answer to a release, not a fence.
    if let Value::Int(fence @ 2..) = value {
        let fence = Fence::new(*fence as u64);
        let answer = Answer::Granted { fence, remaining: ttl, first_life: false };
        return Some((ClaimAnswer { answer, holder: None }, Marks::default()));
    }
    let (code, marks, rest) = parts(value)?;
    let mut holder = None;
    let answer = match code {
        "G" => Answer::Granted {
            fence: Fence::new(number(rest, 0)?),
            remaining: millis(rest, 1)?,
            first_life: number(rest, 2)? == 1,
        },
        "W" => {
            holder = read_holder(rest.get(4..)?);
            Answer::Waiting {
                ticket: Ticket::new(number(rest, 0)?),
                ahead: number(rest, 1)? as u32,
                floor: Fence::new(number(rest, 2)?),
                next_end: millis(rest, 3).map_or(Moment::FAR, |left| sent + left),
                held_up: number(rest, 7) == Some(1),
            }
        }
        "B" => {
            holder = read_holder(rest);
            Answer::Busy
        }
        "F" => Answer::Full,
        "C" => Answer::Conflict { capacity: number(rest, 0).unwrap_or_default() as u32 },
        "S" => Answer::Settled(Arc::from(rest.first()?.as_bytes()?)),
        "U" => Answer::Unsettled,
        "O" => Answer::OtherContent,
        "L" => Answer::Left,
        "X" => Answer::Gone(read_ended(rest)),
        _ => return None,
    };
    Some((ClaimAnswer { answer, holder }, marks))
}

/// Parses the answer to a renewal that hands over.
pub(crate) fn read_keep(value: &Value) -> Option<(KeepAnswer, Marks)> {
    let (code, marks, rest) = parts(value)?;
    let answer = match code {
        "K" => KeepAnswer::Held {
            remaining: millis(rest, 0)?,
            first_life: number(rest, 1)? == 1,
            waiting: number(rest, 2)?.try_into().ok()?,
            fences: Fences { next: number(rest, 3)?, last: number(rest, 4)? },
        },
        "X" => KeepAnswer::Gone(read_ended(rest)),
        _ => return None,
    };
    Some((answer, marks))
}

/// Parses the answer to a leave.
pub(crate) fn read_leave(value: &Value) -> Option<(Left, Marks)> {
    if let Value::Int(1) = value {
        return Some((Left::Released, Marks::default()));
    }
    let (code, marks, rest) = parts(value)?;
    let left = match code {
        "R" => Left::Released,
        "Q" => Left::Quit,
        "X" => Left::Gone(read_ended(rest)),
        _ => return None,
    };
    Some((left, marks))
}

/// Parses the answer to a break, a resize or a forget.
pub(crate) fn read_change(value: &Value) -> Option<(Change, Marks)> {
    let (code, marks, _) = parts(value)?;
    let change = match code {
        "D" => Change::Done,
        "M" => Change::MovedOn,
        "C" => Change::Conflict,
        _ => return None,
    };
    Some((change, marks))
}

/// Parses the marks in the answer to any step.
pub(crate) fn read_marks(value: &Value) -> Option<Marks> {
    parts(value).map(|(_, marks, _)| marks)
}

/// Splits an answer into its code, its marks and the rest.
fn parts(value: &Value) -> Option<(&str, Marks, &[Value])> {
    let items = value.as_list()?;
    let text = items.first()?.as_str()?;
    let (code, marks) = text.split_at_checked(1)?;
    let marks = Marks { more: marks.contains('+'), mute: marks.contains('!') };
    Some((code, marks, &items[1..]))
}

/// What the answer to a claim means for its place.
pub(crate) enum PlaceAfter {
    Waits(Ticket, Fence),
    /// The claim is over, and nobody will leave it.
    Refused,
    Other,
}

pub(crate) fn place_after(value: &Value) -> PlaceAfter {
    if let Value::Error(text) = value {
        return match Refusal::read(text) {
            Refusal::Denied | Refusal::Foreign | Refusal::Exhausted => PlaceAfter::Refused,
            _ => PlaceAfter::Other,
        };
    }
    let code = || value.as_list()?.first()?.as_bytes()?.first();
    match code() {
        Some(b'W') => {
            let items = value.as_list().unwrap_or_default();
            match number(items, 1).zip(number(items, 3)) {
                Some((ticket, floor)) => PlaceAfter::Waits(Ticket::new(ticket), Fence::new(floor)),
                None => PlaceAfter::Other,
            }
        }
        Some(b'B' | b'F' | b'C' | b'S' | b'U' | b'O' | b'L' | b'X') => PlaceAfter::Refused,
        _ => PlaceAfter::Other,
    }
}

/// An error for an answer to `step` that no script of ours gives.
pub(crate) fn unexpected(step: &str, value: &Value) -> Error {
    let shape = shape(value);
    Error::new(ErrorKind::Internal, format!("unexpected answer to a {step}: {shape}"))
        .next("is another program writing under tenure's namespace?")
}

/// What may be printed of an answer: its shape, and the text at its start if that is too short for a
/// secret. The rest may be a claim id or the outcome of a once.
fn shape(value: &Value) -> String {
    const MOST: usize = 8;
    let Value::List(items) = value else { return opening(value) };
    let rest = items.iter().skip(1).take(MOST - 1).map(|item| match item {
        Value::List(items) => format!("a list of {}", items.len()),
        item => format!("{item:?}"),
    });
    let shown: Vec<_> = items.first().map(opening).into_iter().chain(rest).collect();
    format!("a list of {}: {}", items.len(), shown.join(", "))
}

fn opening(value: &Value) -> String {
    match value {
        Value::Bytes(text) if text.len() < SHORTEST_SECRET => {
            format!("{:?}", text.escape_ascii().to_string())
        }
        Value::List(items) => format!("a list of {}", items.len()),
        value => format!("{value:?}"),
    }
}

/// Shorter texts are printed: a claim id has sixteen bytes.
const SHORTEST_SECRET: usize = 12;

fn read_ended(rest: &[Value]) -> Ended {
    match rest.first().and_then(Value::as_bytes) {
        Some(note) => Ended::Broken(read_note(note)),
        None => Ended::Expired,
    }
}

pub(super) fn read_note(text: &[u8]) -> Note {
    let text = String::from_utf8_lossy(text);
    let (by, reason) = text.split_once('\n').unwrap_or(("", &text));
    Note { by: by.to_owned(), reason: reason.to_owned() }
}

pub(super) fn number(items: &[Value], at: usize) -> Option<u64> {
    items.get(at)?.as_int()?.try_into().ok()
}

fn millis(items: &[Value], at: usize) -> Option<Duration> {
    number(items, at).map(Duration::from_millis)
}

/// Parses a claim, its hold and the server's time. They are empty if nobody holds.
fn read_holder(items: &[Value]) -> Option<Holder> {
    let now = number(items, 2)?;
    Some(read_entry(items.first()?.as_bytes()?, Some(items[1].as_bytes()?))?.holder(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.as_bytes().into())
    }

    #[test]
    fn an_unexpected_answer_is_described_without_what_may_be_secret() {
        let id = "sixteen-bytes-id";
        let table = [
            (Value::Nil, "Nil"),
            (text("PONG\r"), r#""PONG\\r""#),
            (text(id), "Bytes(16 bytes)"),
            (Value::List(Vec::new()), "a list of 0: "),
            (
                Value::List(vec![text("Z"), Value::Int(7), text("paid"), Value::List(vec![])]),
                r#"a list of 4: "Z", Int(7), Bytes(4 bytes), a list of 0"#,
            ),
            (Value::List(vec![Value::List(vec![text(id)])]), "a list of 1: a list of 1"),
        ];
        for (value, shown) in table {
            assert!(read_claim(&value, Duration::ZERO, Moment::ORIGIN).is_none(), "{value:?}");
            assert!(read_leave(&value).is_none() && read_change(&value).is_none(), "{value:?}");
            let error = unexpected("renewal", &value).to_string();
            assert!(error.contains(&format!("to a renewal: {shown}")), "{error}");
            assert!(!error.contains(id) && !error.contains("paid"), "{error}");
        }
        let long = shape(&Value::List(vec![Value::Nil; 100]));
        assert_eq!(long.matches("Nil").count(), 8, "{long}");
    }

    #[test]
    fn the_answer_to_another_step_is_not_believed() {
        let settled = Value::List(vec![text("S"), text("paid")]);
        assert!(read_leave(&settled).is_none() && read_change(&settled).is_none());
        let error = unexpected("leave", &settled).to_string();
        assert!(error.contains("to a leave") && !error.contains("paid"), "{error}");
        let released = Value::List(vec![text("R")]);
        assert!(read_claim(&released, Duration::ZERO, Moment::ORIGIN).is_none());
    }

    #[test]
    fn a_claim_that_was_refused_is_forgotten_whatever_the_reason() {
        for code in ["B", "F", "C", "S", "U", "O", "L", "X", "O+", "B!"] {
            let answer = Value::List(vec![Value::Bytes(code.as_bytes().into())]);
            assert!(matches!(place_after(&answer), PlaceAfter::Refused), "{code}");
        }
        for text in ["NUMBERS there are no numbers left", "NOPERM this user may not"] {
            let answer = Value::Error(text.into());
            assert!(matches!(place_after(&answer), PlaceAfter::Refused), "{text}");
        }
    }
}
