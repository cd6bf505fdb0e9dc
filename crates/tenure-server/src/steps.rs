//! The engine trait made remote: `POST /v1/steps`, `GET /v1/turns`, `GET /v1/profile`.
//!
//! Steps of a batch are begun in order, as the order of calls is part of the contract, and then awaited.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use tenure::engine::{
    Broken, Claim, ClaimId, Engine, Error, ErrorKind, Fence, Grant, Leave, Left, Name, PLACE_LIFE,
    Renewal, Renewed, Result as Answer, Step, SystemWorld, Verdict, World, check_claim,
};
use tenure::engines::http::protocol::{self, Event, StepAnswer, StepRequest};

use crate::access::{Caller, Role};
use crate::app::{App, Asked, Steps, text};
use crate::problem::Problem;
use crate::sessions::Session;
use crate::signing::from_hex;
use crate::sse::{self, PING_EVERY};
use crate::wire::Kind;
use crate::{force, meters};

type Answering = Pin<Box<dyn Future<Output = Answer<StepAnswer>> + Send>>;

/// The most steps in a batch.
const MOST_STEPS: usize = 1024;

/// The sender of a batch of steps, and what its steps need.
struct Sender {
    app: Arc<App>,
    session: Arc<Session>,
    engine: Arc<dyn Engine>,
    caller: Caller,
    /// The client, as events name it.
    client: String,
}

/// `POST /v1/steps`.
pub(crate) async fn steps(State(app): State<Arc<App>>, told: Steps) -> Result<Response, Problem> {
    let Steps { asked, bytes } = told;
    asked.caller.must(Role::Engine)?;
    let batch = protocol::decode_batch(&bytes)?;
    if batch.steps.len() > MOST_STEPS {
        return Err(Problem::invalid(format!("a batch has at most {MOST_STEPS} steps")));
    }
    let session = app.sessions.get(batch.session, asked.arrival);
    session.arrived(batch.number, asked.arrival);
    // On the lifeline, renewals and leaves use a connection of their own.
    let is_lifeline = asked.headers.contains_key("tenure-lifeline");
    let engine = if is_lifeline { app.lifeline.clone() } else { app.engine.clone() };
    let client = asked.owner();
    let sender = Arc::new(Sender { app, session, engine, caller: asked.caller, client });
    let answering: Vec<_> = batch.steps.into_iter().map(|step| begin(&sender, step)).collect();
    // Spawned, because a client that hangs up has still sent all of them.
    let answers = tokio::spawn(async move {
        let mut answers = Vec::with_capacity(answering.len());
        for answer in answering {
            answers.push(answer.await);
        }
        answers
    });
    let broken = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a step failed");
    let answers = answers.await.map_err(broken)?;
    Ok(text(StatusCode::OK, "application/json", protocol::encode_answers(asked.arrival, answers)))
}

/// Whether the token allows a step: what is only for admins or readers elsewhere is so here, too.
fn check_rights(caller: &Caller, step: &StepRequest) -> Result<(), Problem> {
    match step {
        StepRequest::Claim(claim) => caller.has_name(&claim.name),
        StepRequest::Renew(batch) => {
            batch.iter().try_for_each(|renewal| caller.has_name(name_of(renewal)))
        }
        StepRequest::Leave(leave) => caller.has_name(&leave.name),
        StepRequest::Detach(name, _) => caller.has_name(name),
        StepRequest::Resize(..) | StepRequest::Break(..) | StepRequest::Forget(..) => {
            caller.must(Role::Admin)
        }
        StepRequest::Inspect(_) | StepRequest::Examine => caller.must(Role::Read),
        StepRequest::Health => Ok(()),
    }
}

fn begin(sender: &Arc<Sender>, step: StepRequest) -> Answering {
    if let Err(problem) = check_rights(&sender.caller, &step) {
        let error = Error::new(ErrorKind::Denied, problem.detail());
        return Box::pin(async { Err(error) });
    }
    let engine = &sender.engine;
    match step {
        StepRequest::Claim(claim) => begin_claim(sender, &claim),
        StepRequest::Renew(batch) => begin_renewals(sender, batch),
        StepRequest::Leave(leave) => begin_leave(sender, leave),
        StepRequest::Detach(name, id) => {
            let step = engine.detach(&name, &id);
            let sender = sender.clone();
            Box::pin(async move {
                step.await?;
                // Another process continues the hold.
                sender.forget(&name, id);
                Ok(StepAnswer::Done)
            })
        }
        StepRequest::Resize(..) | StepRequest::Break(..) | StepRequest::Forget(..) => {
            begin_by_force(sender, step)
        }
        StepRequest::Inspect(scope) => {
            let step = engine.inspect(&scope);
            Box::pin(async move { step.await.map(StepAnswer::Page) })
        }
        StepRequest::Health => {
            let step = engine.health();
            Box::pin(async move { step.await.map(|()| StepAnswer::Done) })
        }
        StepRequest::Examine => {
            let step = engine.examine();
            Box::pin(async move { step.await.map(StepAnswer::Findings) })
        }
    }
}

/// What an admin does. It is recorded.
fn begin_by_force(sender: &Arc<Sender>, step: StepRequest) -> Answering {
    let (engine, sender) = (&sender.engine, sender.clone());
    match step {
        StepRequest::Resize(name, capacity) => {
            let step = engine.resize(&name, capacity);
            Box::pin(async move {
                step.await?;
                force::note_resize(&name, capacity, &sender.client);
                Ok(StepAnswer::Done)
            })
        }
        StepRequest::Break(name, fence, note) => {
            let step = engine.break_hold(&name, fence, &note);
            Box::pin(async move {
                let broken = step.await?;
                if broken == Broken::Done {
                    force::note_break(&sender.app, &name, fence, &note, &sender.client);
                }
                Ok(StepAnswer::Broken(broken))
            })
        }
        StepRequest::Forget(name, seen) => {
            let step = engine.forget(&name, &seen);
            Box::pin(async move {
                let forgotten = step.await?;
                let (name, client) = (name.as_str(), &sender.client);
                tracing::warn!(event = "server.forget", name, ?forgotten, from = client);
                Ok(StepAnswer::Forgotten(forgotten))
            })
        }
        _ => Box::pin(async { Err(Error::new(ErrorKind::Internal, "another step")) }),
    }
}

fn begin_claim(sender: &Arc<Sender>, claim: &Claim) -> Answering {
    let app = &sender.app;
    if let Err(error) = check_claim(claim, &app.profile) {
        return Box::pin(async { Err(error) });
    }
    if SystemWorld.now() < app.grants_from {
        return Box::pin(async { Err(just_started_error()) });
    }
    let (name, id) = (claim.name.clone(), claim.id);
    let is_new = sender.listen(&name, id, claim.ttl, &claim.details.owner);
    let step = sender.engine.claim(claim);
    let sender = sender.clone();
    Box::pin(async move {
        let verdict = step.await;
        match &verdict {
            Ok(Verdict::Granted(grant)) => sender.granted(&name, id, grant),
            Ok(Verdict::Waiting(_)) if is_new => sender.note("waiting", &name, id, None),
            Ok(Verdict::Waiting(_)) => {}
            Err(error) if error.may_have_happened() => {}
            other => {
                if matches!(other, Ok(Verdict::Busy(_))) {
                    meters::acquired(Kind::of(&name), "busy");
                }
                sender.forget(&name, id);
            }
        }
        verdict.map(StepAnswer::Verdict)
    })
}

/// The answer to everything that could grant while holds from before the server's start may last.
fn just_started_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the server has just started")
}

fn name_of(renewal: &Renewal) -> &Name {
    match renewal {
        Renewal::Hold { name, .. } => name,
        Renewal::Place(claim) => &claim.name,
    }
}

fn check_renewal(app: &App, renewal: &Renewal) -> Answer<()> {
    let longest = app.profile.longest_ttl;
    match renewal {
        // Renewing a place can grant, too.
        Renewal::Place(_) if SystemWorld.now() < app.grants_from => Err(just_started_error()),
        Renewal::Place(claim) => check_claim(claim, &app.profile),
        Renewal::Hold { ttl, .. } if *ttl > longest => {
            Err(Error::new(ErrorKind::Invalid, format!("the ttl is at most {longest:?}")))
        }
        Renewal::Hold { .. } => Ok(()),
    }
}

/// One step for each renewal: they may belong to several shards.
fn begin_renewals(sender: &Arc<Sender>, batch: Vec<Renewal>) -> Answering {
    let begin = |renewal: Renewal| {
        let (name, id, ttl, is_hold) = match &renewal {
            Renewal::Hold { name, id, ttl, .. } => (name.clone(), *id, *ttl, !ttl.is_zero()),
            Renewal::Place(claim) => (claim.name.clone(), claim.id, claim.ttl, false),
        };
        // Any server may receive a renewal; the last one to do so reports the end of the hold.
        sender.listen(&name, id, ttl, &sender.client);
        let engine = &sender.engine;
        let step = match check_renewal(&sender.app, &renewal) {
            Err(error) => Step::ready(Err(error)),
            Ok(()) => engine.renew(engine.shard(&name), &[renewal]),
        };
        (name, id, is_hold, step)
    };
    let steps: Vec<_> = batch.into_iter().map(begin).collect();
    let sender = sender.clone();
    Box::pin(async move {
        let mut all = Vec::with_capacity(steps.len());
        for (name, id, is_hold, step) in steps {
            let missing =
                || Renewed::Unknown(Error::new(ErrorKind::Internal, "a renewal was not answered"));
            let renewed = match step.await {
                Ok(mut renewed) => renewed.pop().unwrap_or_else(missing),
                Err(error) => Renewed::Unknown(error),
            };
            match &renewed {
                Renewed::Held(grant) if !is_hold => sender.granted(&name, id, grant),
                Renewed::Gone(_) => sender.forget(&name, id),
                _ => {}
            }
            if is_hold {
                meters::renewed(matches!(renewed, Renewed::Held(_)));
            }
            all.push(renewed);
        }
        Ok(StepAnswer::Renewed(all))
    })
}

fn begin_leave(sender: &Arc<Sender>, leave: Leave) -> Answering {
    let step = sender.engine.leave(&leave);
    let sender = sender.clone();
    Box::pin(async move {
        let left = step.await;
        // A conditional leave may have left it as it is.
        let stays = leave.only.is_some() || leave.only_waiting;
        let what = match &left {
            Ok(Left::Released) if leave.settle.is_some() => Some("settled"),
            Ok(Left::Released) => Some("released"),
            Ok(Left::Quit) => Some("quit"),
            Ok(Left::Gone(_)) if !stays => Some("gone"),
            _ => None,
        };
        if let Some(what) = what {
            sender.note(what, &leave.name, leave.id, leave.only);
        }
        if what.is_some() || !stays {
            sender.forget(&leave.name, leave.id);
        }
        left.map(StepAnswer::Left)
    })
}

impl Sender {
    /// From now on the process hears of the claim, unless it stops asking in time. Returns whether that is new.
    fn listen(&self, name: &Name, id: ClaimId, ttl: Duration, owner: &str) -> bool {
        let until = SystemWorld.now() + ttl.max(PLACE_LIFE) + PLACE_LIFE;
        let is_new = self.session.expects(name, id, until, owner);
        if is_new {
            self.app.waiting.listen_for(name, id, &self.session);
        }
        is_new
    }

    fn forget(&self, name: &Name, id: ClaimId) {
        if self.session.forgets(name, id).is_some() {
            self.app.waiting.forget(name, id, &self.session);
        }
    }

    fn granted(&self, name: &Name, id: ClaimId, grant: &Grant) {
        if self.session.granted(name, id, grant.fence) {
            meters::acquired(Kind::of(name), "granted");
        }
    }

    /// Records what happened to a claim.
    fn note(&self, what: &'static str, name: &Name, id: ClaimId, fence: Option<Fence>) {
        let owner = self.session.owner(name, id).unwrap_or_else(|| self.client.clone());
        self.app.events.add(what, name, &owner, fence, None);
    }
}

/// `GET /v1/turns`.
pub(crate) async fn turns(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Engine)?;
    // In a header, because proxies log the query, and whoever knows the number could take the turns.
    let number = asked.headers.get("tenure-session").and_then(|number| number.to_str().ok());
    let number = number.and_then(from_hex::<16>).map(u128::from_be_bytes);
    let number =
        number.ok_or_else(|| Problem::invalid("the header Tenure-Session has 32 hex digits"))?;
    let in_use = app.clients.enter(&asked.caller.name, app.config.max_waiting)?;
    let session = app.sessions.get(number, asked.arrival);
    let (sender, response) = sse::stream(sse::MOST_UNREAD);
    sender.send("hello", None, "{}");
    let stream = session.connect(sender.clone());
    tokio::spawn(async move {
        let _in_use = in_use;
        let mut stopping = app.stopping.clone();
        loop {
            tokio::select! {
                // A stream that was replaced, or whose reader fell behind, gets no more turns: it must end.
                () = tokio::time::sleep(PING_EVERY) => {
                    if !session.is_current(stream) || !sender.ping() {
                        break;
                    }
                }
                () = sender.closed() => break,
                _ = stopping.wait_for(|stopping| *stopping) => {
                    sender.send("turn", None, &protocol::encode_event(&Event::Moving));
                    break;
                }
            }
        }
        drop(sender);
        session.disconnect(stream, SystemWorld.now());
    });
    Ok(response)
}

/// `GET /v1/profile`.
pub(crate) async fn profile(
    State(app): State<Arc<App>>,
    asked: Asked,
) -> Result<Response, Problem> {
    asked.caller.must(Role::Engine)?;
    let body = protocol::encode_profile(&app.profile, &app.engine_id);
    Ok(text(StatusCode::OK, "application/json", body))
}
