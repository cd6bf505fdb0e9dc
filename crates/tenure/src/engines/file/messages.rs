//! Messages between clients, in bytes.
//!
//! All clients share a clock, so a grant says when it was made and how long it lasts, and a client that receives
//! it late can tell.

use std::sync::Arc;
use std::time::Duration;

use super::rows::{space_number, space_of};
use crate::ledger::{Process, Word};
use crate::model::claim::{ClaimId, Ended, Fence, Note};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// A message to a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) name: Name,
    pub(super) id: ClaimId,
    pub(super) word: Word,
    /// The one client that holds now, if it was given its turn in the same step; otherwise 0.
    pub(super) holder: Process,
}

/// The version of the format. Messages of another version are ignored, and their waiters look anyway.
const VERSION: u8 = 1;
/// What fits into a datagram on any Linux. A larger outcome has to be asked for.
pub(super) const LONGEST: usize = 60_000;

/// Writes as few datagrams as possible: a socket that nobody reads holds only ten.
pub(super) fn write(at: Moment, all: &[Message]) -> Vec<Vec<u8>> {
    let start = || {
        let mut out = vec![VERSION];
        out.extend(at.as_nanos().to_le_bytes());
        out
    };
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    for said in all {
        let mut bytes = Vec::new();
        write_one(said, &mut bytes);
        if bytes.len() > LONGEST {
            bytes.clear();
            write_one(&Message { word: Word::LookAgain, ..said.clone() }, &mut bytes);
        }
        match datagrams.last_mut() {
            Some(last) if last.len() + bytes.len() <= LONGEST => last.extend(bytes),
            _ => datagrams.push(start().into_iter().chain(bytes).collect()),
        }
    }
    datagrams
}

fn write_one(said: &Message, out: &mut Vec<u8>) {
    out.push(space_number(said.name.space()) as u8);
    write_bytes(said.name.as_str().as_bytes(), out);
    out.extend(said.id.to_bytes());
    match &said.word {
        Word::Granted { fence, life, first_life } => {
            out.push(0);
            out.extend(fence.get().to_le_bytes());
            out.extend((life.as_nanos() as u64).to_le_bytes());
            out.push(u8::from(*first_life));
        }
        Word::LookAgain | Word::AreYouThere => out.push(1),
        Word::LookAt(at) => {
            out.push(2);
            out.extend(at.as_nanos().to_le_bytes());
            out.extend(said.holder.to_le_bytes());
        }
        Word::Settled(outcome) => {
            out.push(3);
            write_bytes(outcome, out);
        }
        Word::Ended(Ended::Broken(note)) => {
            out.push(4);
            write_bytes(note.by.as_bytes(), out);
            write_bytes(note.reason.as_bytes(), out);
        }
        Word::Ended(Ended::Conflict { capacity }) => {
            out.push(5);
            out.extend(capacity.to_le_bytes());
        }
        Word::Ended(_) => out.push(6),
    }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Reads when a datagram was sent, and its messages. Unreadable ones are ignored: their waiters look again.
pub(super) fn read(datagram: &[u8]) -> Option<(Moment, Vec<Message>)> {
    let mut rest = Rest(datagram);
    if rest.byte()? != VERSION {
        return None;
    }
    let at = Moment::from_nanos(rest.number()?);
    let mut all = Vec::new();
    while !rest.0.is_empty() {
        all.push(read_one(&mut rest)?);
    }
    Some((at, all))
}

fn read_one(rest: &mut Rest<'_>) -> Option<Message> {
    let space = space_of(rest.byte()?.into());
    let name = Name::new(space, rest.text()?).ok()?;
    let id = ClaimId::from_bytes(rest.take(16)?.try_into().ok()?);
    let mut holder = 0;
    let word = match rest.byte()? {
        0 => Word::Granted {
            fence: Fence::new(rest.number()?),
            life: Duration::from_nanos(rest.number()?),
            first_life: rest.byte()? == 1,
        },
        1 => Word::LookAgain,
        2 => {
            let at = Moment::from_nanos(rest.number()?);
            holder = rest.number()?;
            Word::LookAt(at)
        }
        3 => Word::Settled(Arc::from(rest.bytes()?)),
        4 => {
            let (by, reason) = (rest.text()?.to_owned(), rest.text()?.to_owned());
            Word::Ended(Ended::Broken(Note { by, reason }))
        }
        5 => {
            let capacity = u32::from_le_bytes(rest.take(4)?.try_into().ok()?);
            Word::Ended(Ended::Conflict { capacity })
        }
        6 => Word::Ended(Ended::Expired),
        _ => return None,
    };
    Some(Message { name, id, word, holder })
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::Space;

    fn said(word: Word) -> Message {
        let name = Name::new(Space::Election, "wallet:ü").unwrap();
        let holder = if matches!(word, Word::LookAt(_)) { 1 << 50 } else { 0 };
        Message { name, id: ClaimId::from_bytes([7; 16]), word, holder }
    }

    #[test]
    fn every_message_is_read_as_it_was_written_and_half_of_one_is_ignored() {
        let note = Note { by: "ops".into(), reason: "stuck".into() };
        let all = [
            Word::Granted {
                fence: Fence::new(1 << 52),
                life: Duration::from_millis(1999),
                first_life: true,
            },
            Word::LookAgain,
            Word::LookAt(Moment::from_nanos(77)),
            Word::Settled(Arc::from(&b"done"[..])),
            Word::Ended(Ended::Broken(note)),
            Word::Ended(Ended::Conflict { capacity: 3 }),
            Word::Ended(Ended::Expired),
        ]
        .map(said);
        let at = Moment::from_nanos(42);
        let datagrams = write(at, &all);
        assert_eq!(datagrams.len(), 1);
        assert_eq!(read(&datagrams[0]), Some((at, all.to_vec())));
        for end in 10..datagrams[0].len() {
            if let Some((_, read)) = read(&datagrams[0][..end]) {
                assert_eq!(read, all[..read.len()], "cut at {end}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_asked_for_and_many_messages_take_several_datagrams() {
        let big = said(Word::Settled(Arc::from(vec![0; 100_000])));
        let datagrams = write(Moment::ORIGIN, std::slice::from_ref(&big));
        let (_, read_back) = read(&datagrams[0]).unwrap();
        assert_eq!(read_back, [Message { word: Word::LookAgain, ..big }]);
        let many = vec![said(Word::LookAgain); 5000];
        let datagrams = write(Moment::ORIGIN, &many);
        assert!(datagrams.len() > 1 && datagrams.iter().all(|one| one.len() <= LONGEST));
        let back: Vec<_> = datagrams.iter().flat_map(|one| read(one).unwrap().1).collect();
        assert_eq!(back, many);
    }
}
