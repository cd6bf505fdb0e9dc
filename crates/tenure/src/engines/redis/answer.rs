//! What a script answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::refusal::Refusal;
use super::resp::Value;
use super::wire::decode_details;
use crate::engine::View;
use crate::model::claim::{
    Details, Ended, Fence, Holder, Left, Note, OnceRecord, Outcome, Ticket, Waiter,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

/// The answer of a step. Times are the server's, in what is left of them.
#[derive(Debug)]
pub(super) enum Answer {
    Granted {
        fence: Fence,
        remaining: Duration,
        first_life: bool,
    },
    Waiting(Standing),
    Busy(Option<Holder>),
    Full,
    Conflict {
        capacity: u32,
    },
    Settled(Outcome),
    Unsettled,
    OtherContent,
    /// This claim has left before.
    Left,
    Gone(Ended),
    Released,
    Quit,
    Done,
    MovedOn,
}

#[derive(Debug)]
pub(super) struct Standing {
    pub(super) ticket: Ticket,
    pub(super) ahead: u32,
    pub(super) floor: Fence,
    /// When the first hold ends.
    pub(super) next_end: Option<Duration>,
    pub(super) holder: Option<Holder>,
    /// Units enough for it are free, and one before it that needs more of them holds it up.
    pub(super) held_up: bool,
}

/// What an answer says besides.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Marks {
    /// The step stopped at its bound, and should go on.
    pub(super) more: bool,
    /// This user may not publish, so that somebody was not told of its turn.
    pub(super) mute: bool,
}

/// Reads an answer. `ttl` is what was asked for: a claim that is alone is answered with its fence and
/// nothing else. `None` if no script of ours gives such an answer.
pub(super) fn read(value: &Value, ttl: Duration) -> Option<(Answer, Marks)> {
    match value {
        // Only a release can be answered with a number as low as this.
        Value::Int(1) => Some((Answer::Released, Marks::default())),
        Value::Int(fence) => {
            let fence = Fence::new(*fence as u64);
            Some((Answer::Granted { fence, remaining: ttl, first_life: false }, Marks::default()))
        }
        Value::List(items) => read_list(items),
        _ => None,
    }
}

/// The server answered this step with what no script of ours gives.
pub(super) fn strange(step: &str, answer: &str) -> Error {
    let reason =
        format!("the server gave an answer that no script of ours gives: to a {step}, {answer}");
    Error::new(ErrorKind::Internal, reason)
}

/// What can be told of an answer: its shape, and the text that it begins with if that is too short for a
/// secret. The rest may be a claim id, or what a once left.
pub(super) fn shape(value: &Value) -> String {
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

/// A claim id has sixteen bytes.
const SHORTEST_SECRET: usize = 12;

/// What the answer to a claim means for its place.
pub(super) enum FirstLook {
    Waits(Ticket, Fence),
    /// It is over, and nobody will leave it.
    Refused,
    Other,
}

pub(super) fn first_look(value: &Value) -> FirstLook {
    if let Value::Error(text) = value {
        return match Refusal::read(text) {
            Refusal::Denied | Refusal::Foreign | Refusal::Exhausted => FirstLook::Refused,
            _ => FirstLook::Other,
        };
    }
    let code = || value.as_list()?.first()?.as_bytes()?.first();
    match code() {
        Some(b'W') => {
            let items = value.as_list().unwrap_or_default();
            match number(items, 1).zip(number(items, 3)) {
                Some((ticket, floor)) => FirstLook::Waits(Ticket::new(ticket), Fence::new(floor)),
                None => FirstLook::Other,
            }
        }
        Some(b'B' | b'F' | b'C' | b'S' | b'U' | b'O' | b'L' | b'X') => FirstLook::Refused,
        _ => FirstLook::Other,
    }
}

/// What became of a leave.
pub(super) fn left(answer: Answer) -> Result<Left> {
    match answer {
        Answer::Released => Ok(Left::Released),
        Answer::Quit => Ok(Left::Quit),
        Answer::Gone(ended) => Ok(Left::Gone(ended)),
        answer => Err(strange("leave", answer.kind())),
    }
}

impl Answer {
    /// Which one it is, without what it carries.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Answer::Granted { .. } => "granted",
            Answer::Waiting(_) => "waiting",
            Answer::Busy(_) => "busy",
            Answer::Full => "full",
            Answer::Conflict { .. } => "conflict",
            Answer::Settled(_) => "settled",
            Answer::Unsettled => "unsettled",
            Answer::OtherContent => "other content",
            Answer::Left => "left",
            Answer::Gone(_) => "gone",
            Answer::Released => "released",
            Answer::Quit => "quit",
            Answer::Done => "done",
            Answer::MovedOn => "moved on",
        }
    }
}

fn read_list(items: &[Value]) -> Option<(Answer, Marks)> {
    let (code, marks) = items.first()?.as_str()?.split_at_checked(1)?;
    let marks = Marks { more: marks.contains('+'), mute: marks.contains('!') };
    let rest = &items[1..];
    let answer = match code {
        "G" => Answer::Granted {
            fence: Fence::new(number(rest, 0)?),
            remaining: millis(rest, 1)?,
            first_life: number(rest, 2)? == 1,
        },
        "W" => Answer::Waiting(Standing {
            ticket: Ticket::new(number(rest, 0)?),
            ahead: number(rest, 1)? as u32,
            floor: Fence::new(number(rest, 2)?),
            next_end: millis(rest, 3),
            holder: holder(rest.get(4..)?),
            held_up: number(rest, 7) == Some(1),
        }),
        "B" => Answer::Busy(holder(rest)),
        "F" => Answer::Full,
        "C" => Answer::Conflict { capacity: number(rest, 0).unwrap_or_default() as u32 },
        "S" => Answer::Settled(Arc::from(rest.first()?.as_bytes()?)),
        "U" => Answer::Unsettled,
        "O" => Answer::OtherContent,
        "L" => Answer::Left,
        "X" => Answer::Gone(match rest.first().and_then(Value::as_bytes) {
            Some(note) => Ended::Broken(read_note(note)),
            None => Ended::Expired,
        }),
        "R" => Answer::Released,
        "Q" => Answer::Quit,
        "D" => Answer::Done,
        "M" => Answer::MovedOn,
        _ => return None,
    };
    Some((answer, marks))
}

pub(super) fn read_note(text: &[u8]) -> Note {
    let text = String::from_utf8_lossy(text);
    let (by, reason) = text.split_once('\n').unwrap_or(("", &text));
    Note { by: by.to_owned(), reason: reason.to_owned() }
}

fn number(items: &[Value], at: usize) -> Option<u64> {
    items.get(at)?.as_int()?.try_into().ok()
}

fn millis(items: &[Value], at: usize) -> Option<Duration> {
    number(items, at).map(Duration::from_millis)
}

/// A claim, its hold, and the server's time; empty if nobody holds.
fn holder(items: &[Value]) -> Option<Holder> {
    let now = number(items, 2)?;
    Some(read_entry(items.first()?.as_bytes()?, Some(items[1].as_bytes()?))?.holder(now))
}

/// A claim as the server keeps it.
struct Entry<'a> {
    ticket: u64,
    weight: u32,
    since: u64,
    until: u64,
    fence: u64,
    details: &'a [u8],
}

fn read_entry<'a>(claim: &'a [u8], hold: Option<&[u8]>) -> Option<Entry<'a>> {
    let claim: Vec<_> = claim.splitn(10, |byte| *byte == b' ').collect();
    let hold: Vec<_> = hold.unwrap_or_default().split(|byte| *byte == b' ').collect();
    let field = |of: &[&[u8]], at: usize| -> Option<u64> {
        std::str::from_utf8(of.get(at)?).ok()?.parse().ok()
    };
    let holds = hold.len() == 4;
    let entry = Entry {
        ticket: field(&claim, 1)?,
        weight: field(&claim, 2)? as u32,
        since: if holds { field(&hold, 3)? } else { field(&claim, 7)? },
        until: if holds { field(&hold, 0)? } else { field(&claim, 8)? },
        fence: if holds { field(&hold, 1)? } else { 0 },
        details: claim.get(9)?,
    };
    Some(entry)
}

impl Entry<'_> {
    fn holder(&self, now: u64) -> Holder {
        Holder {
            fence: Fence::new(self.fence),
            weight: self.weight,
            held_for: Duration::from_millis(now.saturating_sub(self.since)),
            remaining: Duration::from_millis(self.until.saturating_sub(now)),
            details: self.details(),
        }
    }

    fn details(&self) -> Arc<Details> {
        Arc::new(decode_details(self.details).unwrap_or_default())
    }
}

/// One name as the view script shows it; `None` if nobody uses it.
pub(super) fn read_view(name: Name, value: Value) -> Result<Option<View>> {
    let items = match value {
        Value::List(items) => items,
        value => return Err(strange("view", &shape(&value))),
    };
    let view = match items.as_slice() {
        [] => return Ok(None),
        [now, fields, heard] if fields.as_list().is_some() => now
            .as_int()
            .zip(fields.as_list())
            .and_then(|(now, all)| crowd(name, now as u64, all, &silent(heard))),
        items @ [_, _, _] => alone(name, items),
        _ => None,
    };
    let view = view.ok_or_else(|| {
        let reason = "a key under the namespace is not tenure's";
        Error::new(ErrorKind::Conflict, reason).next("give tenure a namespace of its own")
    })?;
    Ok(Some(view).filter(|view| view.is_used() || view.record.is_some()))
}

/// The plain form: one holder.
fn alone(name: Name, items: &[Value]) -> Option<View> {
    let (now, left) = (number(items, 0)?, number(items, 1)?);
    let text = items[2].as_bytes()?.get(16..)?;
    let mut fields = text.splitn(8, |byte| *byte == b' ');
    let mut field = || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
    let capacity = field()?;
    fields.next()?;
    let mut field = || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
    let (weight, _fixed, ttl, since, fence) = (field()?, field()?, field()?, field()?, field()?);
    let since = if since > 0 { since } else { (now + left).saturating_sub(ttl) };
    let holder = Holder {
        fence: Fence::new(fence),
        weight: weight as u32,
        held_for: Duration::from_millis(now.saturating_sub(since)),
        remaining: Duration::from_millis(left),
        details: Arc::new(decode_details(fields.next()?)?),
    };
    let (capacity, holders, waiters) = (capacity as u32, vec![holder], Vec::new());
    Some(View { name, capacity, holders, waiters, record: None })
}

/// The record of a once: fence, keep, end, whether it is settled with the fingerprint, and the outcome.
fn read_record(text: &[u8], now: u64) -> Option<OnceRecord> {
    let mut fields = text.splitn(5, |byte| *byte == b' ');
    let mut field = || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
    let (fence, keep, until) = (Fence::new(field()?), field()?, field()?);
    let settled = fields.next()?.starts_with(b"1");
    let outcome = fields.next().filter(|_| settled).map(Outcome::from);
    let remaining = Duration::from_millis(until.saturating_sub(now));
    Some(OnceRecord::new(fence, outcome, Duration::from_millis(keep), remaining))
}

/// The processes that nobody hears, by the channels that were asked for: they are gone, or on their way
/// back to their places.
fn silent(heard: &Value) -> HashSet<&[u8]> {
    let pairs = heard.as_list().unwrap_or_default().chunks_exact(2);
    let silent = pairs.filter(|pair| pair[1].as_int() == Some(0));
    silent
        .filter_map(|pair| pair[0].as_bytes()?.last_chunk::<16>().map(<[u8; 16]>::as_slice))
        .collect()
}

/// The hash: everyone, but those who wait and cannot be reached.
fn crowd(name: Name, now: u64, all: &[Value], silent: &HashSet<&[u8]>) -> Option<View> {
    let (holders, waiters) = (Vec::new(), Vec::new());
    let mut view = View { name, capacity: 0, holders, waiters, record: None };
    let pairs =
        || all.chunks_exact(2).filter_map(|pair| Some((pair[0].as_bytes()?, pair[1].as_bytes()?)));
    let mut holds: HashMap<&[u8], &[u8]> = pairs()
        .filter(|(field, _)| field.len() == 17)
        .filter_map(|(field, text)| Some((field.strip_prefix(b"f")?, text)))
        .collect();
    let totals =
        pairs().find(|(field, _)| *field == b"#").map(|(_, text)| text).unwrap_or_default();
    let mut parts = totals.splitn(7, |byte| *byte == b' ');
    view.capacity = std::str::from_utf8(parts.next()?).ok()?.parse().unwrap_or_default();
    // The hold of the whole capacity, if there is one, and whose it is.
    let whole = parts.nth(5).and_then(|whole| whole.split_last_chunk::<16>());
    if let Some((hold, id)) = whole.filter(|(hold, _)| !hold.is_empty()) {
        holds.insert(id, hold.strip_suffix(b" ")?);
    }
    for (field, text) in pairs() {
        if field.len() != 16 {
            continue;
        }
        let entry = read_entry(text, holds.get(field).copied())?;
        if entry.until <= now {
            continue;
        }
        if entry.fence > 0 {
            view.holders.push(entry.holder(now));
            continue;
        }
        if text.get(..16).is_some_and(|process| silent.contains(process)) {
            continue;
        }
        view.waiters.push(Waiter {
            ticket: Ticket::new(entry.ticket),
            weight: entry.weight,
            waited: Duration::from_millis(now.saturating_sub(entry.since)),
            details: entry.details(),
        });
    }
    let held = !view.holders.is_empty();
    let record = pairs().find(|(field, _)| *field == b"#r").map(|(_, text)| read_record(text, now));
    view.record = record.flatten().filter(|record| held || !record.remaining.is_zero());
    view.holders.sort_by_key(|holder| holder.fence);
    view.waiters.sort_by_key(|waiter| waiter.ticket);
    Some(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Bytes(text.as_bytes().into())
    }

    #[test]
    fn an_answer_that_no_script_gives_is_described_without_what_may_be_secret() {
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
            assert!(read(&value, Duration::ZERO).is_none(), "{value:?}");
            let error = strange("renewal", &shape(&value)).to_string();
            assert!(error.contains(&format!("to a renewal, {shown}")), "{error}");
            assert!(!error.contains(id) && !error.contains("paid"), "{error}");
        }
        let long = shape(&Value::List(vec![Value::Nil; 100]));
        assert_eq!(long.matches("Nil").count(), 8, "{long}");
    }

    #[test]
    fn an_answer_to_another_step_is_named_without_what_it_carries() {
        let settled = Answer::Settled(Arc::from(b"paid".as_slice()));
        let error = left(settled).unwrap_err().to_string();
        assert!(error.contains("to a leave, settled"), "{error}");
    }

    #[test]
    fn a_claim_that_was_refused_is_forgotten_whatever_the_reason() {
        for code in ["B", "F", "C", "S", "U", "O", "L", "X", "O+", "B!"] {
            let answer = Value::List(vec![Value::Bytes(code.as_bytes().into())]);
            assert!(matches!(first_look(&answer), FirstLook::Refused), "{code}");
        }
        for text in ["NUMBERS there are no numbers left", "NOPERM this user may not"] {
            let answer = Value::Error(text.into());
            assert!(matches!(first_look(&answer), FirstLook::Refused), "{text}");
        }
    }
}
