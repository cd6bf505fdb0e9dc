//! Who holds and who waits, parsed from what the view script returns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::answer::{number, unexpected};
use super::layout::decode_details;
use super::resp::Value;
use crate::engine::View;
use crate::model::claim::{Details, Fence, Holder, OnceRecord, Outcome, Ticket, Waiter};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

/// A claim, as it is stored on the server.
pub(super) struct Entry<'a> {
    ticket: u64,
    weight: u32,
    since: u64,
    until: u64,
    fence: u64,
    details: &'a [u8],
}

pub(super) fn read_entry<'a>(claim: &'a [u8], hold: Option<&[u8]>) -> Option<Entry<'a>> {
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
    pub(super) fn holder(&self, now: u64) -> Holder {
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

/// Parses a name as the view script returns it; `None` if nobody uses it.
pub(crate) fn read_view(name: Name, value: Value) -> Result<Option<View>> {
    let items = match value {
        Value::List(items) => items,
        value => return Err(unexpected("view", &value)),
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

/// Parses the plain form: one holder.
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

/// Parses the record of a once: fence, keep, end, whether it is settled and the fingerprint, and the outcome.
fn read_record(text: &[u8], now: u64) -> Option<OnceRecord> {
    let mut fields = text.splitn(5, |byte| *byte == b' ');
    let mut field = || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
    let (fence, keep, until) = (Fence::new(field()?), field()?, field()?);
    let settled = fields.next()?.starts_with(b"1");
    let outcome = fields.next().filter(|_| settled).map(Outcome::from);
    let remaining = Duration::from_millis(until.saturating_sub(now));
    Some(OnceRecord::new(fence, outcome, Duration::from_millis(keep), remaining))
}

/// The processes whose channel has no subscriber: they are gone, or about to reconnect.
fn silent(heard: &Value) -> HashSet<&[u8]> {
    let pairs = heard.as_list().unwrap_or_default().chunks_exact(2);
    let silent = pairs.filter(|pair| pair[1].as_int() == Some(0));
    silent
        .filter_map(|pair| pair[0].as_bytes()?.last_chunk::<16>().map(<[u8; 16]>::as_slice))
        .collect()
}

/// Parses the full form, a hash: everyone except waiting claims that cannot be reached.
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
    // The hold that takes the whole capacity, if there is one, and its claim.
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
