//! What is pushed, as text: see `sql/line.sql`. Claims that go on are named by their ticket, because their id is a
//! secret and notifications are not.

use std::time::Duration;

use super::statements::letter;
use crate::model::claim::{ClaimId, Ended, Fence, Note, Outcome, Ticket};
use crate::model::name::{Name, Space};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Push {
    /// To the claim at this place.
    Place(Name, Ticket, Word),
    /// To a claim that has ended.
    Ended(Name, ClaimId, HowEnded),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    Granted { fence: Fence, life: Duration, first_life: bool },
    LookAfter(Duration),
    AskAgain,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HowEnded {
    Ended(Ended),
    Settled(Outcome),
}

pub(super) fn read_push(text: &str) -> Option<Push> {
    let mut rest = text;
    let mut word = || -> Option<&str> {
        let (word, after) = rest.split_once(' ')?;
        rest = after;
        Some(word)
    };
    let (kind, space) = (word()?, space(word()?)?);
    let subject = word()?;
    let place = || subject.parse().ok().map(Ticket::new);
    let pushed = match kind {
        "G" => {
            let fence = Fence::new(word()?.parse().ok()?);
            let (life, first_life) = (span(word()?)?, word()? == "1");
            let word = Word::Granted { fence, life, first_life };
            Push::Place(Name::new(space, rest).ok()?, place()?, word)
        }
        "L" => {
            let after = span(word()?)?;
            Push::Place(Name::new(space, rest).ok()?, place()?, Word::LookAfter(after))
        }
        "A" => Push::Place(Name::new(space, rest).ok()?, place()?, Word::AskAgain),
        "C" => {
            let capacity = word()?.parse().ok()?;
            let ended = HowEnded::Ended(Ended::Conflict { capacity });
            Push::Ended(Name::new(space, rest).ok()?, id(subject)?, ended)
        }
        "S" => {
            let outcome = bytes(word()?)?.into();
            Push::Ended(Name::new(space, rest).ok()?, id(subject)?, HowEnded::Settled(outcome))
        }
        "B" => {
            let (by, reason): (usize, usize) = (word()?.parse().ok()?, word()?.parse().ok()?);
            let note = Note {
                by: rest.get(..by)?.to_owned(),
                reason: rest.get(by..by.checked_add(reason)?)?.to_owned(),
            };
            let name = Name::new(space, rest.get(by + reason..)?).ok()?;
            Push::Ended(name, id(subject)?, HowEnded::Ended(Ended::Broken(note)))
        }
        _ => return None,
    };
    Some(pushed)
}

fn space(text: &str) -> Option<Space> {
    [Space::Lock, Space::Election, Space::Once].into_iter().find(|space| letter(*space) == text)
}

fn span(micros: &str) -> Option<Duration> {
    Some(Duration::from_micros(micros.parse().ok()?))
}

fn id(text: &str) -> Option<ClaimId> {
    let bytes = bytes(&text.replace('-', ""))?;
    Some(ClaimId::from_bytes(bytes.try_into().ok()?))
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_nothing_else() {
        let name = Name::new(Space::Lock, "a b 7").unwrap();
        let granted =
            Word::Granted { fence: Fence::new(9), life: Duration::from_secs(2), first_life: true };
        let id = ClaimId::from_bytes([0x1F; 16]);
        let uuid = "1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f";
        let note = Note { by: "mé".to_owned(), reason: "stuck now".to_owned() };
        for (text, push) in [
            ("G l 7 9 2000000 1 a b 7", Push::Place(name.clone(), Ticket::new(7), granted)),
            (
                "L l 7 1000 a b 7",
                Push::Place(
                    name.clone(),
                    Ticket::new(7),
                    Word::LookAfter(Duration::from_millis(1)),
                ),
            ),
            ("A l 7 a b 7", Push::Place(name.clone(), Ticket::new(7), Word::AskAgain)),
            (
                &format!("C l {uuid} 3 a b 7"),
                Push::Ended(name.clone(), id, HowEnded::Ended(Ended::Conflict { capacity: 3 })),
            ),
            (
                &format!("S l {uuid} 0aff a b 7"),
                Push::Ended(name.clone(), id, HowEnded::Settled(vec![10, 255].into())),
            ),
            (
                &format!("S l {uuid}  a b 7"),
                Push::Ended(name.clone(), id, HowEnded::Settled(Vec::new().into())),
            ),
            (
                &format!("B l {uuid} 3 9 méstuck nowa b 7"),
                Push::Ended(name.clone(), id, HowEnded::Ended(Ended::Broken(note))),
            ),
        ] {
            assert_eq!(read_push(text), Some(push), "{text}");
        }
        for text in
            ["", "G", "G l x 9 1 1 n", "Z l 7 n", "G z 7 9 1 1 n", "B l 1 99 99 n", "A l 7 "]
        {
            assert_eq!(read_push(text), None, "{text}");
        }
    }
}
