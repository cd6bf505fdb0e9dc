//! JSON-RPC requests: which are forwarded unchanged, which go through a lane, and which are refused.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tenure::Tenure;

use crate::access::Caller;
use crate::active::Active;
use crate::config::Config;
use crate::envelope::{self, Bad, Call, Incoming, Json, Reply, read_replies};
use crate::lane::{Lanes, Outcome};
use crate::meters;
use crate::processing::Processing;
use crate::queue::Queues;
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::{Asked, Signers, Turns};
use crate::submission::class_of;
use crate::transaction::{Decoded, decode};
use crate::upstream::Nodes;

const SEND: &str = "eth_sendRawTransaction";
/// The query parameter of clients that reserve nonces.
const RESERVES: &str = "nonces=reserve";

/// The headers that are forwarded to a node and back. The client's credentials are not for the node.
const PASSED: [HeaderName; 4] =
    [header::ACCEPT, header::ACCEPT_ENCODING, header::CONTENT_TYPE, header::USER_AGENT];
const PASSED_BACK: [HeaderName; 4] =
    [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::RETRY_AFTER, header::VARY];

/// The response header with the outcome of a transaction: accepted, repeated, rejected, collided, refused or
/// unknown.
const OUTCOME: HeaderName = HeaderName::from_static("tenure-outcome");

/// The body of an answer.
pub(crate) type Answer = Response<BoxBody<Bytes, String>>;

/// An Ethereum JSON-RPC relay. Clones are the same relay.
#[derive(Clone)]
pub struct Relay {
    pub(crate) lanes: Arc<Lanes>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}

/// The client and headers of a request.
#[derive(Clone, Copy)]
struct Origin<'a> {
    headers: &'a HeaderMap,
    caller: &'a Caller,
    /// Present if the client reserves nonces.
    turns: Option<&'a Turns>,
}

/// How one call is handled.
enum Part {
    /// A transaction that has taken its place in a lane.
    InLane(Processing, alloy_primitives::B256),
    /// A call about nonces, answered by the relay.
    Nonces(Pin<Box<dyn Future<Output = Result<Json, Refusal>> + Send>>),
    /// Forwarded to a node.
    Passed,
    Refused(Refusal),
    /// A transaction that was refused before it took a place.
    RefusedOnArrival(Refusal),
}

impl Relay {
    /// A relay in front of the nodes of `config`, whose lanes are kept by the engine of `tenure`.
    ///
    /// # Errors
    /// If this machine's certificates cannot be read.
    pub fn new(config: Config, tenure: &Tenure) -> Result<Relay, String> {
        let config = config.bounded();
        config.check()?;
        let nodes = Nodes::new(&config)?;
        meters::start(config.rules.chain_id, tenure, nodes.seen().map(|(host, _)| host));
        let (tenure, signers) = (tenure.clone(), Signers::default());
        let (queues, active) = (Queues::default(), Active::default());
        Ok(Relay { lanes: Arc::new(Lanes { config, tenure, nodes, queues, active, signers }) })
    }

    /// Waits until no transaction is being processed.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn finished(&self) {
        self.lanes.active.none_left().await;
    }

    /// Answers one request body. `query` is the query string of its URL.
    pub(crate) async fn answer(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
        caller: &Caller,
        body: Bytes,
    ) -> Answer {
        let incoming = match envelope::read(&body, &self.lanes.config.limits) {
            Ok(incoming) => incoming,
            Err(refusal) => return json(envelope::refuse(&Json::null(), &refusal)),
        };
        let calls = match &incoming {
            Incoming::One(_) => 1,
            Incoming::Batch(calls) => calls.len(),
        };
        if let Err(refusal) = caller.may_call(calls) {
            return too_fast(&incoming, &refusal);
        }
        let reserves = query.is_some_and(|query| query.split('&').any(|part| part == RESERVES));
        let turns = reserves.then(Turns::default);
        let request = Origin { headers, caller, turns: turns.as_ref() };
        match incoming {
            Incoming::One(call) => self.one(request, body, call).await,
            Incoming::Batch(calls) => self.batch(request, body, calls).await,
        }
    }

    async fn one(&self, from: Origin<'_>, body: Bytes, call: Result<Call, Bad>) -> Answer {
        let call = match call {
            Ok(call) => call,
            Err(Bad { id, refusal }) => return json(envelope::refuse(&id, &refusal)),
        };
        match self.begin(from, &call) {
            Part::Passed => {
                self.pass(from.headers, body, &call.id.unwrap_or_else(Json::null)).await
            }
            part => {
                let (answer, outcome) = finish(part, call.id).await;
                let mut answer = json(answer.unwrap_or_default());
                if let Some(outcome) = outcome {
                    answer.headers_mut().insert(OUTCOME, HeaderValue::from_static(outcome));
                }
                answer
            }
        }
    }

    /// Takes all places in lanes first, in the order of the array, before anything is awaited.
    async fn batch(&self, from: Origin<'_>, body: Bytes, calls: Vec<Result<Call, Bad>>) -> Answer {
        let mut parts: Vec<Part> = calls
            .iter()
            .map(|call| match call {
                Ok(call) => self.begin(from, call),
                Err(bad) => Part::Refused(bad.refusal.clone()),
            })
            .collect();
        // Run them concurrently.
        for part in &mut parts {
            if let Part::InLane(processing, _) = part {
                processing.detach();
            }
        }
        if parts.iter().all(|part| matches!(part, Part::Passed)) {
            return self.pass(from.headers, body, &Json::null()).await;
        }
        let is_passed = |part: &Part| matches!(part, Part::Passed);
        let passed: Vec<&Call> = calls
            .iter()
            .zip(&parts)
            .filter(|(_, part)| is_passed(part))
            .filter_map(|(call, _)| call.as_ref().ok())
            .collect();
        let mut replies = self.pass_some(&passed).await.into_iter();
        let mut answers = Vec::new();
        for (call, part) in calls.into_iter().zip(parts) {
            let id = match call {
                Ok(call) => call.id,
                Err(bad) => Some(bad.id),
            };
            answers.extend(match (part, id) {
                (Part::Passed, None) => None,
                (Part::Passed, Some(id)) => replies.next().map(|reply| written(&id, reply)),
                (part, id) => finish(part, id).await.0,
            });
        }
        json(envelope::batch(answers))
    }

    /// Decides how a call is handled. A transaction has its place in the lane when this returns.
    fn begin(&self, from: Origin<'_>, call: &Call) -> Part {
        let chain_id = self.lanes.config.rules.chain_id;
        meters::called(chain_id, &call.method);
        if self.lanes.config.denies(&call.method) {
            return Part::Refused(Refusal::MethodDenied(call.method.clone()));
        }
        match Asked::read(call, from.turns.is_some(), &self.lanes) {
            Some(Ok(asked)) => {
                let turns = from.turns.cloned().unwrap_or_default();
                return Part::Nonces(Box::pin(asked.answer(self.lanes.clone(), turns)));
            }
            Some(Err(refusal)) => return Part::Refused(refusal),
            None => {}
        }
        if !call.method.eq_ignore_ascii_case(SEND) {
            return Part::Passed;
        }
        match self.take(from, call) {
            Ok(part) => part,
            Err(refusal) => {
                // Transactions with a place are counted and logged when they end.
                let (client, reason) = (&*from.caller.name, refusal.name());
                meters::ended(chain_id, "refused", Duration::ZERO);
                tracing::info!(event = "relay.transaction", outcome = "refused", reason, client);
                Part::RefusedOnArrival(refusal)
            }
        }
    }

    /// Takes the place of a transaction in its lane.
    fn take(&self, from: Origin<'_>, call: &Call) -> Result<Part, Refusal> {
        if from.turns.is_some() && !self.lanes.config.nonces {
            return Err(Refusal::NoncesOff);
        }
        if self.lanes.active.count() >= self.lanes.config.max_in_flight {
            return Err(Refusal::Busy("this relay is processing as many transactions as it may"));
        }
        from.caller.may_send()?;
        match decode(call.params.as_ref(), &self.lanes.config.rules)? {
            Decoded::Ordered(transaction) => {
                let (hash, client) = (transaction.hash, Client::of(from.headers));
                let reserves = from.turns.is_some();
                let answer = self.lanes.enter(transaction, client, from.caller, reserves);
                Ok(Part::InLane(answer, hash))
            }
            Decoded::Passed => Ok(Part::Passed),
        }
    }

    /// Forwards the request unchanged, and streams the answer.
    async fn pass(&self, headers: &HeaderMap, body: Bytes, id: &Json) -> Answer {
        match self.lanes.nodes.pass(&only(headers, &PASSED), body).await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let mut answer = Response::new(body.boxed());
                *answer.status_mut() = parts.status;
                *answer.headers_mut() = only(&parts.headers, &PASSED_BACK);
                answer
            }
            Err(refusal) => json(envelope::refuse(id, &refusal)),
        }
    }

    /// Forwards the rest of a batch. Returns an answer for each call that has an id.
    async fn pass_some(&self, calls: &[&Call]) -> Vec<Result<Reply, Refusal>> {
        let ids: Vec<Json> = calls.iter().filter_map(|call| call.id.clone()).collect();
        if calls.is_empty() {
            return Vec::new();
        }
        let body = envelope::batch(calls.iter().map(|call| call.raw.as_bytes()));
        let replies = match self.lanes.nodes.ask_for(body).await {
            // Notifications have no answer.
            _ if ids.is_empty() => return Vec::new(),
            Ok(answer) => read_replies(&answer, &ids),
            Err(refusal) => Err(refusal),
        };
        replies.unwrap_or_else(|refusal| vec![Err(refusal); ids.len()])
    }
}

/// A client over its rate limit gets HTTP 429, on which libraries retry later.
fn too_fast(incoming: &Incoming, refusal: &Refusal) -> Answer {
    let id = match incoming {
        Incoming::One(Ok(call)) => call.id.clone(),
        _ => None,
    };
    let mut answer = json(envelope::refuse(&id.unwrap_or_else(Json::null), refusal));
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if let Refusal::RateLimited { wait } = refusal {
        let seconds = HeaderValue::from(wait.as_secs() + 1);
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    answer
}

/// Waits for a call. Returns the answer, and the outcome of a transaction. A notification is carried out without an
/// answer.
async fn finish(part: Part, id: Option<Json>) -> (Option<Bytes>, Option<&'static str>) {
    match part {
        Part::InLane(outcome, hash) => {
            let why = || "internal error: the work was not finished".to_owned();
            let lost = || Outcome::Refused(Refusal::OutcomeUnknown { hash, why: why() });
            let outcome = outcome.await.unwrap_or_else(lost);
            let class = class_of(&outcome);
            let answer = id.map(|id| match outcome {
                Outcome::Accepted(hash) | Outcome::Repeated(hash) => {
                    envelope::answer(&id, &Json::of(&format!("{hash:#x}")))
                }
                Outcome::Rejected(error) | Outcome::Collided(error) => envelope::fail(&id, &error),
                Outcome::Refused(refusal) => envelope::refuse_transaction(&id, &refusal, &hash),
            });
            (answer, Some(class))
        }
        Part::Nonces(answer) => {
            let answer = answer.await;
            let written = |id| match answer {
                Ok(result) => envelope::answer(&id, &result),
                Err(refusal) => envelope::refuse(&id, &refusal),
            };
            (id.map(written), None)
        }
        Part::Refused(refusal) => (id.map(|id| envelope::refuse(&id, &refusal)), None),
        Part::RefusedOnArrival(refusal) => {
            (id.map(|id| envelope::refuse(&id, &refusal)), Some("refused"))
        }
        Part::Passed => (None, None),
    }
}

fn written(id: &Json, reply: Result<Reply, Refusal>) -> Bytes {
    match reply {
        Ok(Reply::Result(result)) => envelope::answer(id, &result),
        Ok(Reply::Error { raw, .. }) => envelope::fail(id, &raw),
        Err(refusal) => envelope::refuse(id, &refusal),
    }
}

fn only(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let known = |name: &HeaderName| headers.get(name).map(|value| (name.clone(), value.clone()));
    names.iter().filter_map(known).collect()
}

pub(crate) fn json(body: Bytes) -> Answer {
    with_status(StatusCode::OK, "application/json", body)
}

pub(crate) fn with_status(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
