//! Sends a step, follows the servers' redirections, and waits for the answer.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::connection::{Connection, Outgoing, Reply, ReplyTo, Target};
use super::protocol::answer::{Marks, unexpected};
use super::protocol::refusal::Refusal;
use super::protocol::request::Request;
use super::protocol::resp::Value;
use super::protocol::scripts::ScriptForm;
use super::router::{Router, beside};
use super::shared::Shared;
use crate::model::claim::ClaimId;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// How often a step follows the server's redirections before it gives up for now.
const MOST_DIRECTIONS: u32 = 6;

/// The steps that callers send, or those that the watchdog sends.
pub(super) struct Steps {
    pub(super) shared: Arc<Shared>,
    pub(super) router: Router,
}

/// A step that was sent.
pub(super) struct PendingStep {
    request: Arc<Request>,
    /// The claim that may get a place in the line by this step.
    place: Option<(Name, ClaimId)>,
    /// A grant counts only once enough replicas have it.
    counted: bool,
    pub(super) connection: Arc<Connection>,
    reply: oneshot::Receiver<Result<Reply>>,
    replicas: Option<oneshot::Receiver<Result<Reply>>>,
}

impl PendingStep {
    pub(super) fn partition(&self) -> u16 {
        self.request.partition()
    }
}

/// How a step is sent.
#[derive(Default)]
pub(super) struct SendOptions {
    pub(super) place: Option<(Name, ClaimId)>,
    pub(super) counted: bool,
    pub(super) with_text: bool,
    pub(super) asking: bool,
}

/// An answer, when its request was sent, and how many replicas have the result.
pub(super) struct StepReply<T> {
    pub(super) answer: T,
    pub(super) sent: Moment,
    pub(super) replicas: i64,
    pub(super) enough: bool,
}

impl Steps {
    /// Sends a step now, in the order of the calls.
    pub(super) fn send(
        &self,
        request: impl Into<Arc<Request>>,
        options: SendOptions,
    ) -> Result<PendingStep> {
        let request = request.into();
        let connection = self.router.to(request.partition())?;
        Ok(self.send_on(connection, request, options))
    }

    pub(super) fn send_on(
        &self,
        connection: Arc<Connection>,
        request: impl Into<Arc<Request>>,
        options: SendOptions,
    ) -> PendingStep {
        let request = request.into();
        let SendOptions { place, counted, with_text, asking } = options;
        let (sender, reply) = oneshot::channel();
        let to = match place.clone() {
            Some((name, id)) => ReplyTo::Claim(sender, name, id),
            None => ReplyTo::One(sender),
        };
        let config = &self.shared.setup.config;
        let (wait, replicas) = match counted && config.wait_replicas > 0 {
            true => {
                let (sender, replicas) = oneshot::channel();
                let millis = config.wait_timeout.as_millis() as u64;
                (Some((config.wait_replicas, millis, sender)), Some(replicas))
            }
            false => (None, None),
        };
        let form = if with_text { ScriptForm::Text } else { ScriptForm::Hash };
        let may_wait = place.is_some();
        let outgoing = Outgoing { form, may_wait, asking, wait, ..Outgoing::new(to) };
        connection.send(request.clone(), outgoing);
        PendingStep { request, place, counted, connection, reply, replicas }
    }

    /// Waits for the answer and follows redirections until there is one. `read` parses it and is given the
    /// time at which the step was sent; it returns `None` for an answer that no script gives.
    pub(super) async fn receive<T>(
        &self,
        mut pending: PendingStep,
        name: &Name,
        read: impl Fn(&Value, Moment) -> Option<(T, Marks)>,
    ) -> Result<StepReply<T>> {
        let mut directions = 0;
        loop {
            let lost =
                || Error::new(ErrorKind::Unavailable, "the connection was closed").in_doubt();
            let Reply { value, sent } = (&mut pending.reply).await.map_err(|_| lost())??;
            let Value::Error(text) = value else {
                let (answer, marks) =
                    read(&value, sent).ok_or_else(|| unexpected(pending.request.step(), &value))?;
                pending.connection.go_on(name.clone(), marks);
                let replicas = match pending.replicas.take() {
                    Some(replicas) => {
                        let counted = replicas.await.map_err(|_| lost())??;
                        counted.value.as_int().unwrap_or_default()
                    }
                    None => 0,
                };
                let wanted = self.shared.setup.config.wait_replicas.into();
                let enough = !pending.counted || replicas >= wanted;
                return Ok(StepReply { answer, sent, replicas, enough });
            };
            let refusal = Refusal::read(&text);
            directions += 1;
            if directions > MOST_DIRECTIONS {
                return Err(refusal.into_error(&text));
            }
            pending = self.follow(pending, refusal, &text)?;
        }
    }

    /// Waits for the answer to a plain command, or to a script that only reads.
    pub(super) async fn receive_value(&self, mut pending: PendingStep) -> Result<Value> {
        for _ in 0..MOST_DIRECTIONS {
            let lost = |_| Error::new(ErrorKind::Unavailable, "the connection was closed");
            match (&mut pending.reply).await.map_err(lost)??.value {
                Value::Error(text) => {
                    pending = self.follow(pending, Refusal::read(&text), &text)?;
                }
                value => return Ok(value),
            }
        }
        let reason = "the servers redirect the request in a circle";
        Err(Error::new(ErrorKind::Unavailable, reason).not_now())
    }

    /// Sends the step again as the server says, or gives up.
    fn follow(&self, pending: PendingStep, refusal: Refusal, text: &str) -> Result<PendingStep> {
        let PendingStep { request, place, counted, connection, .. } = pending;
        let options = SendOptions { place, counted, ..SendOptions::default() };
        let near = |address| match &connection.target {
            Target::Fixed(asked) => beside(asked, address),
            Target::Sentinels => address,
        };
        let shared = &self.shared;
        match refusal {
            Refusal::NoScript => {
                Ok(self.send_on(connection, request, SendOptions { with_text: true, ..options }))
            }
            Refusal::Moved(address) if shared.setup.is_cluster => {
                shared.moved(request.partition(), near(address));
                self.send(request, options)
            }
            Refusal::Ask(address) if shared.setup.is_cluster => {
                let there = self.router.at(&near(address));
                let options = SendOptions { asking: true, with_text: true, ..options };
                Ok(self.send_on(there, request, options))
            }
            Refusal::NotPrimary | Refusal::Lonely => {
                shared.primary_changed(&connection, &refusal);
                Err(refusal.into_error(text))
            }
            _ => Err(refusal.into_error(text)),
        }
    }
}
