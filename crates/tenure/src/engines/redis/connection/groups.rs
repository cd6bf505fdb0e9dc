//! Gathers steps that are ready at the same moment, sends them as one, and hands each its own answer.
//!
//! Nothing waits for a group: a step that finds the connection quiet is written at once, by itself. Steps that come
//! while a write or an answer is due would be written together anyway, so they become a group.

use std::sync::Arc;

use super::{Connection, Pending, ReplyTo, State};
use crate::engines::redis::connection::Outgoing;
use crate::engines::redis::protocol::answer::unexpected;
use crate::engines::redis::protocol::group::{self, InGroup, MOST_BYTES, MOST_STEPS};
use crate::engines::redis::protocol::refusal::Refusal;
use crate::engines::redis::protocol::request::Request;
use crate::engines::redis::protocol::resp::Value;
use crate::engines::redis::protocol::scripts::{Script, ScriptForm};
use crate::engines::redis::shared::Shared;
use crate::model::moment::Moment;

/// A step that may travel in a group, and where its own answer goes.
pub(crate) struct GroupedStep {
    pub(super) request: Arc<Request>,
    pub(super) reply: ReplyTo,
}

/// Steps that are to be sent together. They are not encoded yet.
#[derive(Default)]
pub(super) struct Gathered {
    steps: Vec<GroupedStep>,
    bytes: usize,
}

impl Gathered {
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn into_replies(self) -> impl Iterator<Item = ReplyTo> {
        self.steps.into_iter().map(|step| step.reply)
    }
}

impl State {
    /// Whether a group with a leave was sent and is not answered yet.
    fn awaits_grouped_leave(&self) -> bool {
        let is_leave = |step: &GroupedStep| group::place_of(&step.request) == 0;
        // Newest first: if there is one, it is among the latest.
        self.pending.iter().rev().take(256).any(|pending| match &pending.reply {
            ReplyTo::Group(steps) => steps.first().is_some_and(is_leave),
            _ => false,
        })
    }

    pub(super) fn gather(&mut self, shared: &Shared, request: Arc<Request>, reply: ReplyTo) {
        let bytes = request.bytes_in_group();
        if self.gathered.len() >= MOST_STEPS || self.gathered.bytes + bytes > MOST_BYTES {
            self.encode_gathered(shared);
        }
        self.gathered.bytes += bytes;
        self.gathered.steps.push(GroupedStep { request, reply });
    }

    /// Encodes what was gathered. From here on it counts as sent.
    pub(super) fn encode_gathered(&mut self, shared: &Shared) {
        let mut steps = std::mem::take(&mut self.gathered).steps;
        let sent = shared.setup.now();
        // A leave in a group under way may have to be sent again, and a claim that this thread made after it must
        // not arrive before it. So this claim travels as a group too: if the name is in use, it is sent again
        // behind that leave.
        let is_claim = steps.first().is_some_and(|step| group::place_of(&step.request) > 0);
        if steps.is_empty() || steps.len() == 1 && !(is_claim && self.awaits_grouped_leave()) {
            if let Some(GroupedStep { request, reply }) = steps.pop() {
                self.encode(shared, sent, &request, ScriptForm::Hash, reply);
            }
            return;
        }
        steps.sort_by_key(|step| group::place_of(&step.request));
        for GroupedStep { request, .. } in &steps {
            if group::place_of(request) > 0 {
                self.greet(shared, sent, request.partition());
            }
        }
        let form = self.form_of(Some(Script::Group), ScriptForm::Hash);
        group::encode(steps.iter().map(|step| &*step.request), form, &mut self.out);
        self.expect(sent, ReplyTo::Group(steps));
    }
}

impl Connection {
    /// Handles the answer to a group: each step has its own, or is sent again by itself.
    pub(super) fn heard_group(
        self: &Arc<Connection>,
        sent: Moment,
        steps: Vec<GroupedStep>,
        value: Value,
    ) {
        match value {
            Value::List(answers) if answers.len() == steps.len() => {
                for (GroupedStep { request, reply }, answer) in steps.into_iter().zip(answers) {
                    match request.in_group(&answer) {
                        InGroup::Answered => self.answered(Pending { sent, reply }, answer),
                        InGroup::Again => self.send_alone(request, None, reply),
                        InGroup::AgainAt(ticket) => self.send_alone(request, Some(ticket), reply),
                    }
                }
            }
            // The script catches the errors of its commands, so the server refused the call before it ran. The reason may
            // be a single step, such as a key that this user may not use, and must not fail the others.
            Value::Error(text) => {
                if Refusal::read(&text) == Refusal::NoScript {
                    self.state().forget_script(Script::Group);
                }
                for GroupedStep { request, reply } in steps {
                    self.send_alone(request, None, reply);
                }
            }
            value => {
                let error = unexpected(Script::Group.name(), &value);
                for GroupedStep { reply, .. } in steps {
                    reply.fail(&self.shared, &error, true);
                }
            }
        }
    }

    fn send_alone(
        self: &Arc<Connection>,
        request: Arc<Request>,
        ticket: Option<u64>,
        reply: ReplyTo,
    ) {
        // If the caller has given up, its leave was sent before this, and a claim after it would stay in line.
        let is_claim = group::place_of(&request) > 0;
        if !(is_claim && reply.is_abandoned()) {
            let request = Arc::unwrap_or_clone(request).alone(ticket);
            self.send(request, Outgoing::new(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::engines::redis::Redis;
    use crate::engines::redis::config::{Address, RedisConfig, Topology};
    use crate::engines::redis::connection::{Phase, Purpose, Reply, Target};
    use crate::model::claim::{Claim, ClaimId, Fence};
    use crate::model::error::{Error, ErrorKind, Result};
    use crate::model::name::{Name, Space};

    type Answers = Vec<oneshot::Receiver<Result<Reply>>>;

    /// A connection with nobody at the other end, over which three claims are to be sent.
    fn with_three_claims() -> (Redis, Arc<Connection>, Answers) {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
        let redis =
            Redis::unconnected(RedisConfig::new(Topology::Single(address.clone()))).unwrap();
        let shared = redis.steps.shared.clone();
        let connection = Connection::new(shared.clone(), Target::Fixed(address), Purpose::Commands);
        connection.state().phase = Phase::Up;
        let mut answers = Vec::new();
        for name in ["a", "b", "c"] {
            let name = Name::new(Space::Lock, name).unwrap();
            let claim = Claim::new(name, ClaimId::from_bytes([7; 16]));
            let request = shared.setup.layout.claim(&claim, true, false, Fence::default()).unwrap();
            let (sender, answer) = oneshot::channel();
            let outgoing = Outgoing::new(ReplyTo::One(sender));
            connection.send(request, Outgoing { lazy: true, ..outgoing });
            answers.push(answer);
        }
        (redis, connection, answers)
    }

    fn group_of(connection: &Arc<Connection>) -> Pending {
        let mut state = connection.state();
        state.encode_gathered(&connection.shared);
        state.pending.pop_back().unwrap()
    }

    fn heard(answers: Answers) -> Vec<Option<Result<i64>>> {
        let int = |reply: Reply| reply.value.as_int().unwrap();
        answers.into_iter().map(|mut it| it.try_recv().ok().map(|it| it.map(int))).collect()
    }

    #[test]
    fn what_was_gathered_and_never_written_fails_without_doubt() {
        let (_redis, connection, answers) = with_three_claims();
        let driver = connection.driver.next(&connection.state());
        let error = Error::new(ErrorKind::Unavailable, "the connection broke");
        connection.is_down(driver, &error, Phase::Connecting);
        for answer in heard(answers) {
            let error = answer.expect("an answer").unwrap_err();
            assert!(!error.may_have_happened(), "{error}");
        }
    }

    #[test]
    fn what_was_encoded_as_a_group_and_written_is_in_doubt_when_the_connection_breaks() {
        let (_redis, connection, answers) = with_three_claims();
        let driver = connection.driver.next(&connection.state());
        let written = {
            let mut state = connection.state();
            state.encode_gathered(&connection.shared);
            state.out.len()
        };
        connection.state().written(written);
        let error = Error::new(ErrorKind::Unavailable, "the connection broke");
        connection.is_down(driver, &error, Phase::Connecting);
        for answer in heard(answers) {
            let error = answer.expect("an answer").unwrap_err();
            assert!(error.may_have_happened(), "{error}");
        }
    }

    /// Every step gets an answer, or none does: nobody can know which one is missing.
    #[test]
    fn a_reply_of_another_length_leaves_every_step_in_doubt() {
        let odd = [
            Value::List(vec![Value::Int(7_000); 2]),
            Value::List(vec![Value::Int(7_000); 4]),
            Value::Int(7_000),
            Value::Nil,
        ];
        for value in odd {
            let (_redis, connection, answers) = with_three_claims();
            connection.answered(group_of(&connection), value);
            for answer in heard(answers) {
                let error = answer.expect("an answer").unwrap_err();
                assert!(error.may_have_happened(), "{error}");
            }
        }
    }

    #[test]
    fn only_a_fence_is_an_answer_and_everything_else_is_sent_again_alone() {
        for odd in [0, 1, -1, -1_000_000_000_000_001] {
            let (_redis, connection, answers) = with_three_claims();
            let group = group_of(&connection);
            connection.state().out.clear();
            let value = [Value::Int(7_000), Value::Int(odd), Value::Int(7_002)];
            connection.answered(group, Value::List(value.into()));
            let heard = heard(answers);
            assert!(matches!(heard[..], [Some(Ok(7_000)), None, Some(Ok(7_002))]), "{odd}");
            let state = connection.state();
            let sent = String::from_utf8_lossy(&state.out).into_owned();
            assert_eq!(state.gathered.len(), 0, "{odd}: by itself");
            assert_eq!(sent.contains(" 1000000000000001 -1 0"), odd < -1, "with its ticket: {odd}");
        }
    }
}
