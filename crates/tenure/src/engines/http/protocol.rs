//! What goes over the wire between the `http://` engine and a server: the steps of the engine trait, in order.
//!
//! Moments never travel: a server says how much time is left from the arrival of the batch that it answers, and the
//! client counts from when it sent that batch, which was earlier. An answer that this version does not know is an error,
//! never a yes.

mod answers;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Finding, Order, Page, Profile};
use crate::model::claim::{
    Broken, Claim, ClaimId, Details, Ended, Fence, Forgotten, Grant, Leave, Left, Note, OnceRecord,
    Outcome, Renewal, Renewed, Turn, Verdict,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};
use crate::model::view::Scope;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// Steps of one process, to be taken in this order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The process.
    pub session: u128,
    /// Rises with every batch of the session.
    pub number: u64,
    /// The steps.
    pub steps: Vec<StepRequest>,
}

/// One step of the engine trait.
#[derive(Clone, Debug)]
pub enum StepRequest {
    /// [`Engine::claim`](crate::engine::Engine::claim).
    Claim(Claim),
    /// [`Engine::renew`](crate::engine::Engine::renew).
    Renew(Vec<Renewal>),
    /// [`Engine::leave`](crate::engine::Engine::leave).
    Leave(Leave),
    /// [`Engine::detach`](crate::engine::Engine::detach).
    Detach(Name, ClaimId),
    /// [`Engine::resize`](crate::engine::Engine::resize).
    Resize(Name, u32),
    /// [`Engine::break_hold`](crate::engine::Engine::break_hold).
    Break(Name, Fence, Note),
    /// [`Engine::forget`](crate::engine::Engine::forget).
    Forget(Name, OnceRecord),
    /// [`Engine::inspect`](crate::engine::Engine::inspect).
    Inspect(Scope),
    /// [`Engine::health`](crate::engine::Engine::health).
    Health,
    /// [`Engine::examine`](crate::engine::Engine::examine).
    Examine,
}

/// The answer to a step.
#[derive(Debug)]
pub enum StepAnswer {
    /// To a claim.
    Verdict(Verdict),
    /// To a renewal.
    Renewed(Vec<Renewed>),
    /// To a leave.
    Left(Left),
    /// To a break.
    Broken(Broken),
    /// To forgetting a once.
    Forgotten(Forgotten),
    /// To an inspection.
    Page(Page),
    /// To an examination.
    Findings(Vec<Finding>),
    /// To everything else.
    Done,
}

/// What a stream of a session brings.
#[derive(Debug)]
pub enum Event {
    /// A turn; what is left of it counts from the arrival of this batch.
    Turn {
        /// The batch that had arrived last.
        batch: u64,
        /// The name.
        name: Name,
        /// The claim.
        id: ClaimId,
        /// The turn, in a form that [`TurnEvent::at`] converts to moments.
        turn: TurnEvent,
    },
    /// Turns may have been lost: every claim that waits asks again.
    LookAgain,
    /// Another engine has taken over: every hold is renewed.
    CheckHolds,
    /// The server shuts down.
    Moving,
}

/// A turn as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEvent {
    /// A grant.
    Granted(GrantMessage),
    /// The claim ended.
    Ended(EndedMessage),
    /// The once is done.
    Settled(Bytes),
    /// Ask again.
    LookAgain,
    /// Ask again after this many microseconds.
    LookAt(u64),
}

/// A grant as it travels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct GrantMessage {
    fence: u64,
    /// Microseconds from the arrival of the batch.
    left: u64,
    first_life: bool,
    /// Whether work may start without another renewal, for as long as a grant of this length allows.
    may_start: bool,
}

impl GrantMessage {
    fn new(grant: &Grant, arrival: Moment) -> GrantMessage {
        // A third of the time that remained at the send is over when the renewal is due.
        let end = grant.sent + grant.sent.until(grant.renew_by) * 3;
        GrantMessage {
            fence: grant.fence.get(),
            left: micros(arrival.until(end)),
            first_life: grant.first_life,
            may_start: grant.start_by > grant.sent,
        }
    }

    fn grant(self, sent: Moment) -> Grant {
        let left = Duration::from_micros(self.left);
        let mut grant = Grant::new(Fence::new(self.fence), sent, left, self.first_life);
        if !self.may_start {
            grant.start_by = Moment::ORIGIN;
        }
        grant
    }
}

/// The end of a claim as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedMessage {
    /// By its ttl.
    Expired,
    /// By force.
    Broken {
        /// By whom.
        by: String,
        /// Why.
        reason: String,
    },
    /// The capacity was changed.
    Conflict {
        /// To this.
        capacity: u32,
    },
    /// The engine lost its memory.
    Forgotten,
    /// Its clock was set, by this many microseconds.
    ClockStep(u64),
    /// Elsewhere.
    Elsewhere,
}

impl EndedMessage {
    fn new(ended: &Ended) -> EndedMessage {
        match ended {
            Ended::Broken(Note { by, reason }) => {
                EndedMessage::Broken { by: by.clone(), reason: reason.clone() }
            }
            Ended::Conflict { capacity } => EndedMessage::Conflict { capacity: *capacity },
            Ended::Forgotten => EndedMessage::Forgotten,
            Ended::ClockStep { by } => EndedMessage::ClockStep(micros(*by)),
            Ended::Elsewhere => EndedMessage::Elsewhere,
            Ended::Expired | Ended::MaxHold | Ended::Closed => EndedMessage::Expired,
        }
    }

    fn ended(self) -> Ended {
        match self {
            EndedMessage::Expired => Ended::Expired,
            EndedMessage::Broken { by, reason } => Ended::Broken(Note { by, reason }),
            EndedMessage::Conflict { capacity } => Ended::Conflict { capacity },
            EndedMessage::Forgotten => Ended::Forgotten,
            EndedMessage::ClockStep(by) => Ended::ClockStep { by: Duration::from_micros(by) },
            EndedMessage::Elsewhere => Ended::Elsewhere,
        }
    }
}

/// Bytes, in hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(Vec<u8>);

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
        bytes.0.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
    }
}

impl TryFrom<String> for Bytes {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Bytes, &'static str> {
        const WRONG: &str = "bytes are pairs of hex digits";
        if !text.len().is_multiple_of(2) {
            return Err(WRONG);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
        let pairs = text.as_bytes().chunks_exact(2);
        let bytes = pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
        bytes.collect::<Option<Vec<u8>>>().map(Bytes).ok_or(WRONG)
    }
}

impl Bytes {
    fn outcome(self) -> Outcome {
        Outcome::from(self.0)
    }

    fn id(&self) -> Option<ClaimId> {
        <[u8; 16]>::try_from(self.0.as_slice()).ok().map(ClaimId::from_bytes)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct NameMessage {
    space: SpaceMessage,
    name: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SpaceMessage {
    Lock,
    Election,
    Once,
}

impl SpaceMessage {
    fn new(space: Space) -> SpaceMessage {
        match space {
            Space::Lock => SpaceMessage::Lock,
            Space::Election => SpaceMessage::Election,
            Space::Once => SpaceMessage::Once,
        }
    }

    fn space(self) -> Space {
        match self {
            SpaceMessage::Lock => Space::Lock,
            SpaceMessage::Election => Space::Election,
            SpaceMessage::Once => Space::Once,
        }
    }
}

impl NameMessage {
    fn new(name: &Name) -> NameMessage {
        NameMessage { space: SpaceMessage::new(name.space()), name: name.as_str().to_owned() }
    }

    fn name(&self) -> Result<Name> {
        Name::new(self.space.space(), &self.name)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct DetailsMessage {
    owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    meta: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

impl DetailsMessage {
    fn new(details: &Details) -> DetailsMessage {
        let Details { owner, reason, meta, value, trace } = details.clone();
        DetailsMessage { owner, reason, meta, value, trace }
    }

    fn details(self) -> Arc<Details> {
        let DetailsMessage { owner, reason, meta, value, trace } = self;
        Arc::new(Details { owner, reason, meta, value, trace })
    }
}

fn id_bytes(id: &ClaimId) -> Bytes {
    Bytes(id.to_bytes().to_vec())
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn strange(what: &str) -> Error {
    let reason = format!("{what} cannot be read: is it another version of tenure?");
    Error::new(ErrorKind::Unsupported, reason)
}

impl Event {
    /// A turn to push while `batch`, which arrived at `arrival`, is the last that has arrived.
    #[must_use]
    pub fn turn(batch: u64, arrival: Moment, name: &Name, id: &ClaimId, turn: &Turn) -> Event {
        let turn = match turn {
            Turn::Granted(grant) => TurnEvent::Granted(GrantMessage::new(grant, arrival)),
            Turn::Ended(ended) => TurnEvent::Ended(EndedMessage::new(ended)),
            Turn::Settled(outcome) => TurnEvent::Settled(Bytes(outcome.to_vec())),
            Turn::LookAgain => TurnEvent::LookAgain,
            Turn::LookAt(when) => TurnEvent::LookAt(micros(arrival.until(*when))),
        };
        Event::Turn { batch, name: name.clone(), id: *id, turn }
    }
}

impl TurnEvent {
    /// The turn for a client that sent the batch at `sent`, with the fence of a grant.
    #[must_use]
    pub fn at(self, sent: Moment) -> (Turn, Option<Fence>) {
        match self {
            TurnEvent::Granted(grant) => {
                let grant = grant.grant(sent);
                (Turn::Granted(grant), Some(grant.fence))
            }
            TurnEvent::Ended(ended) => (Turn::Ended(ended.ended()), None),
            TurnEvent::Settled(bytes) => (Turn::Settled(bytes.outcome()), None),
            TurnEvent::LookAgain => (Turn::LookAgain, None),
            TurnEvent::LookAt(after) => (Turn::LookAt(sent + Duration::from_micros(after)), None),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EventMessage {
    Turn { batch: u64, name: NameMessage, id: Bytes, turn: TurnEvent },
    LookAgain,
    CheckHolds,
    Moving,
}

/// The data of an event, on one line.
#[must_use]
pub fn encode_event(event: &Event) -> String {
    let message = match event {
        Event::Turn { batch, name, id, turn } => EventMessage::Turn {
            batch: *batch,
            name: NameMessage::new(name),
            id: id_bytes(id),
            turn: turn.clone(),
        },
        Event::LookAgain => EventMessage::LookAgain,
        Event::CheckHolds => EventMessage::CheckHolds,
        Event::Moving => EventMessage::Moving,
    };
    serde_json::to_string(&message).unwrap_or_default()
}

/// Reads the data of an event.
///
/// # Errors
/// If it is not one.
pub fn decode_event(data: &[u8]) -> Result<Event> {
    let message = serde_json::from_slice(data).map_err(|_| strange("an event"))?;
    Ok(match message {
        EventMessage::Turn { batch, name, id, turn } => {
            let id = id.id().ok_or_else(|| strange("an event"))?;
            Event::Turn { batch, name: name.name()?, id, turn }
        }
        EventMessage::LookAgain => Event::LookAgain,
        EventMessage::CheckHolds => Event::CheckHolds,
        EventMessage::Moving => Event::Moving,
    })
}

#[derive(Serialize, Deserialize)]
struct ProfileMessage {
    v: u32,
    engine: String,
    label: String,
    order: u8,
    push: bool,
    sharing: bool,
    shortest_ttl: u64,
    longest_ttl: u64,
}

/// The promises of the engine that a server serves, and the id of that engine.
#[must_use]
pub fn encode_profile(profile: &Profile, engine: &str) -> String {
    let order = match profile.order {
        Order::Arrival => 0,
        Order::PerProcess => 1,
        Order::None => 2,
    };
    let message = ProfileMessage {
        v: VERSION,
        engine: engine.to_owned(),
        label: profile.label.clone(),
        order,
        push: profile.push,
        sharing: profile.sharing,
        shortest_ttl: micros(profile.shortest_ttl),
        longest_ttl: micros(profile.longest_ttl),
    };
    serde_json::to_string(&message).unwrap_or_default()
}

/// Reads what [`encode_profile`] wrote.
///
/// # Errors
/// If it is of another version.
pub fn decode_profile(data: &[u8]) -> Result<(Profile, String)> {
    let message: ProfileMessage =
        serde_json::from_slice(data).map_err(|_| strange("the server's profile"))?;
    if message.v != VERSION {
        return Err(strange("the server's profile"));
    }
    let mut profile = Profile::new(message.label);
    profile.order = match message.order {
        0 => Order::Arrival,
        1 => Order::PerProcess,
        _ => Order::None,
    };
    (profile.push, profile.sharing) = (message.push, message.sharing);
    profile.shortest_ttl = Duration::from_micros(message.shortest_ttl);
    profile.longest_ttl = Duration::from_micros(message.longest_ttl);
    Ok((profile, message.engine))
}

/// The text of a batch.
#[must_use]
pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    requests::encode(batch)
}

/// Reads a batch.
///
/// # Errors
/// `Unsupported` if it is of another version, `Invalid` for a name that is not one.
pub fn decode_batch(data: &[u8]) -> Result<Batch> {
    requests::decode(data)
}

/// The answers to a batch that arrived at `arrival`.
#[must_use]
pub fn encode_answers(arrival: Moment, answers: Vec<Result<StepAnswer>>) -> Vec<u8> {
    answers::encode(arrival, answers)
}

/// Reads the answers to a batch that was sent at `sent`.
///
/// # Errors
/// If they are of another version.
pub fn decode_answers(sent: Moment, data: &[u8]) -> Result<Vec<Result<StepAnswer>>> {
    answers::decode(sent, data)
}
