//! Answers to steps, as they travel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Bytes, DetailsMessage, EndedMessage, GrantMessage, NameMessage, StepAnswer, VERSION, micros,
    strange,
};
use crate::engine::{Finding, Mark, Page, View};
use crate::model::claim::{
    Broken, Fence, Forgotten, Holder, Left, OnceRecord, Place, Renewed, Ticket, Verdict, Waiter,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;

#[derive(Serialize, Deserialize)]
struct AnswersMessage {
    v: u32,
    answers: Vec<AnswerMessage>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerMessage {
    Verdict(VerdictMessage),
    Renewed(Vec<RenewedMessage>),
    Left(LeftMessage),
    Broken(bool),
    Forgotten(bool),
    Page { views: Vec<ViewMessage>, more: bool },
    Findings(Vec<FindingMessage>),
    Done,
    Error(ErrorMessage),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerdictMessage {
    Granted(GrantMessage),
    Waiting(Box<PlaceMessage>),
    Busy(Option<HolderMessage>),
    Settled(Bytes),
    Unsettled,
    Left,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RenewedMessage {
    Held(GrantMessage),
    Waiting(Box<PlaceMessage>),
    Gone(EndedMessage),
    Unknown(ErrorMessage),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LeftMessage {
    Released,
    Quit,
    Gone(EndedMessage),
}

#[derive(Serialize, Deserialize)]
struct PlaceMessage {
    ticket: u64,
    ahead: u32,
    floor: u64,
    /// Microseconds from the arrival of the batch; none if there is nothing to look for.
    look: Option<u64>,
    holder: Option<HolderMessage>,
}

#[derive(Serialize, Deserialize)]
struct HolderMessage {
    fence: u64,
    weight: u32,
    held_for: u64,
    remaining: u64,
    details: DetailsMessage,
}

#[derive(Serialize, Deserialize)]
struct WaiterMessage {
    ticket: u64,
    weight: u32,
    waited: u64,
    details: DetailsMessage,
}

#[derive(Serialize, Deserialize)]
struct ViewMessage {
    name: NameMessage,
    capacity: u32,
    holders: Vec<HolderMessage>,
    waiters: Vec<WaiterMessage>,
    record: Option<RecordMessage>,
}

#[derive(Serialize, Deserialize)]
struct RecordMessage {
    fence: u64,
    outcome: Option<Bytes>,
    age: u64,
    remaining: u64,
}

#[derive(Serialize, Deserialize)]
struct FindingMessage {
    check: String,
    mark: u8,
    what: String,
    why: Option<String>,
    fix: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ErrorMessage {
    kind: String,
    reason: String,
    in_doubt: bool,
    not_now: bool,
}

const KINDS: [(&str, ErrorKind); 10] = [
    ("invalid", ErrorKind::Invalid),
    ("conflict", ErrorKind::Conflict),
    ("wait_over", ErrorKind::WaitOver),
    ("lost", ErrorKind::Lost),
    ("unavailable", ErrorKind::Unavailable),
    ("denied", ErrorKind::Denied),
    ("unsupported", ErrorKind::Unsupported),
    ("full", ErrorKind::Full),
    ("closed", ErrorKind::Closed),
    ("internal", ErrorKind::Internal),
];

impl ErrorMessage {
    fn new(error: &Error) -> ErrorMessage {
        let kind = KINDS.iter().find(|(_, kind)| *kind == error.kind());
        ErrorMessage {
            kind: kind.map_or("internal", |(name, _)| name).to_owned(),
            reason: error.reason().to_owned(),
            in_doubt: error.may_have_happened(),
            not_now: error.asks_for_time(),
        }
    }

    fn error(self) -> Error {
        let kind = KINDS.iter().find(|(name, _)| *name == self.kind);
        // To its clients, a server that was closed is one that cannot be reached.
        let kind = match kind.map(|(_, kind)| *kind) {
            Some(ErrorKind::Closed) => ErrorKind::Unavailable,
            kind => kind.unwrap_or(ErrorKind::Internal),
        };
        let mut error = Error::new(kind, self.reason);
        if self.in_doubt {
            error = error.in_doubt();
        }
        if self.not_now {
            error = error.not_now();
        }
        error
    }
}

impl PlaceMessage {
    fn new(place: &Place, arrival: Moment) -> PlaceMessage {
        let look = place.look_again;
        PlaceMessage {
            ticket: place.ticket.get(),
            ahead: place.ahead,
            floor: place.floor.get(),
            look: (look < Moment::FAR).then(|| micros(arrival.until(look))),
            holder: place.holder.as_ref().map(HolderMessage::new),
        }
    }

    fn place(self, sent: Moment) -> Place {
        let look = self.look.map(|look| sent + Duration::from_micros(look));
        Place {
            ticket: Ticket::new(self.ticket),
            ahead: self.ahead,
            floor: Fence::new(self.floor),
            asked_at: sent,
            look_again: look.unwrap_or(Moment::FAR),
            holder: self.holder.map(HolderMessage::holder),
        }
    }
}

impl HolderMessage {
    fn new(holder: &Holder) -> HolderMessage {
        HolderMessage {
            fence: holder.fence.get(),
            weight: holder.weight,
            held_for: micros(holder.held_for),
            remaining: micros(holder.remaining),
            details: DetailsMessage::new(&holder.details),
        }
    }

    fn holder(self) -> Holder {
        Holder {
            fence: Fence::new(self.fence),
            weight: self.weight,
            held_for: Duration::from_micros(self.held_for),
            remaining: Duration::from_micros(self.remaining),
            details: self.details.details(),
        }
    }
}

impl ViewMessage {
    fn new(view: &View) -> ViewMessage {
        let waiter = |waiter: &Waiter| WaiterMessage {
            ticket: waiter.ticket.get(),
            weight: waiter.weight,
            waited: micros(waiter.waited),
            details: DetailsMessage::new(&waiter.details),
        };
        let record = |record: &OnceRecord| RecordMessage {
            fence: record.fence.get(),
            outcome: record.outcome.as_ref().map(|bytes| Bytes(bytes.to_vec())),
            age: micros(record.age),
            remaining: micros(record.remaining),
        };
        ViewMessage {
            name: NameMessage::new(&view.name),
            capacity: view.capacity,
            holders: view.holders.iter().map(HolderMessage::new).collect(),
            waiters: view.waiters.iter().map(waiter).collect(),
            record: view.record.as_ref().map(record),
        }
    }

    fn view(self) -> Result<View> {
        let waiter = |waiter: WaiterMessage| Waiter {
            ticket: Ticket::new(waiter.ticket),
            weight: waiter.weight,
            waited: Duration::from_micros(waiter.waited),
            details: waiter.details.details(),
        };
        let record = |record: RecordMessage| {
            let remaining = Duration::from_micros(record.remaining);
            let keep = Duration::from_micros(record.age) + remaining;
            let outcome = record.outcome.map(Bytes::outcome);
            OnceRecord::new(Fence::new(record.fence), outcome, keep, remaining)
        };
        Ok(View {
            name: self.name.name()?,
            capacity: self.capacity,
            holders: self.holders.into_iter().map(HolderMessage::holder).collect(),
            waiters: self.waiters.into_iter().map(waiter).collect(),
            record: self.record.map(record),
        })
    }
}

impl VerdictMessage {
    fn new(verdict: &Verdict, arrival: Moment) -> VerdictMessage {
        match verdict {
            Verdict::Granted(grant) => VerdictMessage::Granted(GrantMessage::new(grant, arrival)),
            Verdict::Waiting(place) => {
                VerdictMessage::Waiting(Box::new(PlaceMessage::new(place, arrival)))
            }
            Verdict::Busy(holder) => VerdictMessage::Busy(holder.as_ref().map(HolderMessage::new)),
            Verdict::Settled(outcome) => VerdictMessage::Settled(Bytes(outcome.to_vec())),
            Verdict::Unsettled => VerdictMessage::Unsettled,
            Verdict::Left => VerdictMessage::Left,
        }
    }

    fn verdict(self, sent: Moment) -> Verdict {
        match self {
            VerdictMessage::Granted(grant) => Verdict::Granted(grant.grant(sent)),
            VerdictMessage::Waiting(place) => Verdict::Waiting(place.place(sent)),
            VerdictMessage::Busy(holder) => Verdict::Busy(holder.map(HolderMessage::holder)),
            VerdictMessage::Settled(bytes) => Verdict::Settled(bytes.outcome()),
            VerdictMessage::Unsettled => Verdict::Unsettled,
            VerdictMessage::Left => Verdict::Left,
        }
    }
}

impl RenewedMessage {
    fn new(renewed: &Renewed, arrival: Moment) -> RenewedMessage {
        match renewed {
            Renewed::Held(grant) => RenewedMessage::Held(GrantMessage::new(grant, arrival)),
            Renewed::Waiting(place) => {
                RenewedMessage::Waiting(Box::new(PlaceMessage::new(place, arrival)))
            }
            Renewed::Gone(ended) => RenewedMessage::Gone(EndedMessage::new(ended)),
            Renewed::Unknown(error) => RenewedMessage::Unknown(ErrorMessage::new(error)),
        }
    }

    fn renewed(self, sent: Moment) -> Renewed {
        match self {
            RenewedMessage::Held(grant) => Renewed::Held(grant.grant(sent)),
            RenewedMessage::Waiting(place) => Renewed::Waiting(place.place(sent)),
            RenewedMessage::Gone(ended) => Renewed::Gone(ended.ended()),
            RenewedMessage::Unknown(error) => Renewed::Unknown(error.error()),
        }
    }
}

impl AnswerMessage {
    fn new(answer: Result<StepAnswer>, arrival: Moment) -> AnswerMessage {
        match answer {
            Ok(StepAnswer::Verdict(verdict)) => {
                AnswerMessage::Verdict(VerdictMessage::new(&verdict, arrival))
            }
            Ok(StepAnswer::Renewed(all)) => {
                let all = all.iter().map(|renewed| RenewedMessage::new(renewed, arrival));
                AnswerMessage::Renewed(all.collect())
            }
            Ok(StepAnswer::Left(left)) => AnswerMessage::Left(match left {
                Left::Released => LeftMessage::Released,
                Left::Quit => LeftMessage::Quit,
                Left::Gone(ended) => LeftMessage::Gone(EndedMessage::new(&ended)),
            }),
            Ok(StepAnswer::Broken(broken)) => AnswerMessage::Broken(broken == Broken::Done),
            Ok(StepAnswer::Forgotten(done)) => AnswerMessage::Forgotten(done == Forgotten::Done),
            Ok(StepAnswer::Page(Page { views, more })) => {
                AnswerMessage::Page { views: views.iter().map(ViewMessage::new).collect(), more }
            }
            Ok(StepAnswer::Findings(findings)) => {
                AnswerMessage::Findings(findings.into_iter().map(FindingMessage::new).collect())
            }
            Ok(StepAnswer::Done) => AnswerMessage::Done,
            Err(error) => AnswerMessage::Error(ErrorMessage::new(&error)),
        }
    }

    fn answer(self, sent: Moment) -> Result<StepAnswer> {
        Ok(match self {
            AnswerMessage::Verdict(verdict) => StepAnswer::Verdict(verdict.verdict(sent)),
            AnswerMessage::Renewed(all) => {
                StepAnswer::Renewed(all.into_iter().map(|renewed| renewed.renewed(sent)).collect())
            }
            AnswerMessage::Left(LeftMessage::Released) => StepAnswer::Left(Left::Released),
            AnswerMessage::Left(LeftMessage::Quit) => StepAnswer::Left(Left::Quit),
            AnswerMessage::Left(LeftMessage::Gone(ended)) => {
                StepAnswer::Left(Left::Gone(ended.ended()))
            }
            AnswerMessage::Broken(true) => StepAnswer::Broken(Broken::Done),
            AnswerMessage::Broken(false) => StepAnswer::Broken(Broken::MovedOn),
            AnswerMessage::Forgotten(true) => StepAnswer::Forgotten(Forgotten::Done),
            AnswerMessage::Forgotten(false) => StepAnswer::Forgotten(Forgotten::MovedOn),
            AnswerMessage::Page { views, more } => {
                let views = views.into_iter().map(ViewMessage::view).collect::<Result<_>>()?;
                StepAnswer::Page(Page { views, more })
            }
            AnswerMessage::Findings(all) => {
                StepAnswer::Findings(all.into_iter().map(FindingMessage::finding).collect())
            }
            AnswerMessage::Done => StepAnswer::Done,
            AnswerMessage::Error(error) => return Err(error.error()),
        })
    }
}

impl FindingMessage {
    fn new(finding: Finding) -> FindingMessage {
        let Finding { check, mark, what, why, fix, .. } = finding;
        let mark = match mark {
            Mark::Good => 0,
            Mark::Warning => 1,
            Mark::Problem => 2,
        };
        FindingMessage { check: check.to_owned(), mark, what, why, fix }
    }

    /// Check names are constants of this program, so a name from the server becomes part of the text of the
    /// finding.
    fn finding(self) -> Finding {
        let mark = match self.mark {
            0 => Mark::Good,
            1 => Mark::Warning,
            _ => Mark::Problem,
        };
        let what = format!("{}: {}", self.check, self.what);
        let mut finding = Finding::new("behind the server", mark, what);
        (finding.why, finding.fix) = (self.why, self.fix);
        finding
    }
}

pub(super) fn encode(arrival: Moment, answers: Vec<Result<StepAnswer>>) -> Vec<u8> {
    let answers = answers.into_iter().map(|answer| AnswerMessage::new(answer, arrival));
    let message = AnswersMessage { v: VERSION, answers: answers.collect() };
    serde_json::to_vec(&message).unwrap_or_default()
}

pub(super) fn decode(sent: Moment, data: &[u8]) -> Result<Vec<Result<StepAnswer>>> {
    let message: AnswersMessage =
        serde_json::from_slice(data).map_err(|_| strange("an answer of the server"))?;
    if message.v != VERSION {
        return Err(strange("an answer of the server"));
    }
    Ok(message.answers.into_iter().map(|answer| answer.answer(sent)).collect())
}
