//! Parses what a script pushes to a process.

use std::sync::Arc;
use std::time::Duration;

use super::answer::read_note;
use super::layout::Layout;
use crate::model::claim::{ClaimId, Ended, Fence, Outcome, Ticket};
use crate::model::name::Name;

/// What a push says.
#[derive(Debug)]
pub(crate) enum Push {
    /// The waiting claim with this ticket now holds. The claim with the other ticket, if any, should look
    /// after the given time unless it has heard something.
    Granted {
        partition: u16,
        ticket: Ticket,
        fence: Fence,
        life: Duration,
        first_life: bool,
        following: Option<(Ticket, Duration)>,
    },
    /// Only checks whether the process can be reached.
    AreYouThere,
    AskAgain {
        partition: u16,
        ticket: Ticket,
    },
    LookAt {
        partition: u16,
        ticket: Ticket,
        after: Duration,
    },
    /// A claim has ended.
    Ended {
        name: Name,
        id: ClaimId,
        how: HowEnded,
    },
}

#[derive(Debug)]
pub(crate) enum HowEnded {
    Ended(Ended),
    Settled(Outcome),
}

pub(crate) fn read_push(layout: &Layout, text: &[u8]) -> Option<Push> {
    if let Some(rest) = text.strip_prefix(b"E ") {
        return read_end(layout, rest);
    }
    if text == b"P" {
        return Some(Push::AreYouThere);
    }
    let mut fields = std::str::from_utf8(text).ok()?.split(' ');
    let kind = fields.next()?;
    let mut field = || -> Option<u64> { fields.next()?.parse().ok() };
    let partition = field()? as u16;
    let ticket = Ticket::new(field()?);
    Some(match kind {
        "G" => Push::Granted {
            partition,
            ticket,
            fence: Fence::new(field()?),
            life: Duration::from_millis(field()?),
            first_life: field()? == 1,
            following: field()
                .zip(field())
                .map(|(ticket, after)| (Ticket::new(ticket), Duration::from_millis(after))),
        },
        "A" => Push::AskAgain { partition, ticket },
        "L" => Push::LookAt { partition, ticket, after: Duration::from_millis(field()?) },
        _ => return None,
    })
}

/// Parses kind, id, length of the key, the key and the text.
fn read_end(layout: &Layout, text: &[u8]) -> Option<Push> {
    let (kind, rest) = (text.get(..2)?, text.get(2..)?);
    let (id, rest) = (rest.get(..16)?, rest.get(16..)?);
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    let (key, said) = rest[space + 1..].split_at_checked(length)?;
    let how = match kind {
        b"S " => HowEnded::Settled(Arc::from(said)),
        b"C " => HowEnded::Ended(Ended::Conflict {
            capacity: std::str::from_utf8(said).ok()?.parse().ok()?,
        }),
        b"B " => HowEnded::Ended(Ended::Broken(read_note(said))),
        _ => return None,
    };
    let id = ClaimId::from_bytes(id.try_into().ok()?);
    Some(Push::Ended { name: layout.name_of(key)?, id, how })
}
