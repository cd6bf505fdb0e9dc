//! From a request for a hold to its answer: one attempt at each step, and the wait between them.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::StatusCode;
use serde_json::{Value, json};
use tenure::engine::{
    Claim, Engine, Error, ErrorKind, Grant, Holder, Leave, Left, Moment, Outcome, Place, Renewal,
    Renewed, Scope, SystemWorld, Turn, Verdict, World, check_claim,
};

use crate::app::{App, Asked, json};
use crate::problem::Problem;
use crate::waiting::Listener;
use crate::wire::{self, Acquire, Kind};

/// The shortest ttl over HTTP: there must be time for one missed renewal.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// The field of a hold's details that identifies the body that came with an `Idempotency-Key`.
const BODY: &str = "idempotency-body";

/// What became of a claim.
pub(crate) enum Outcomes {
    /// It holds; the flag says whether it was granted while it waited.
    Granted(Grant, bool),
    /// It waits, and this request has waited as long as it may.
    Waits(Place),
    /// Others hold it.
    Busy(Option<Holder>, Option<u32>),
    /// The once is done.
    Settled(Outcome),
    /// The once was begun and never settled.
    Unsettled,
    /// The claim has left.
    Left,
}

/// A claim to make, and how to make it.
pub(crate) struct Asking {
    pub(crate) claim: Claim,
    pub(crate) kind: Kind,
    pub(crate) arrival: Moment,
    /// When the client gives up.
    pub(crate) until: Moment,
    /// Whether the claim's id was derived from an `Idempotency-Key`.
    is_from_key: bool,
    confirms: bool,
}

impl Asking {
    /// Checks a request. `ttl` and `wait` are the defaults.
    pub(crate) fn new(
        app: &App,
        asked: &Asked,
        mut body: Acquire,
        ttl: Duration,
        wait: Option<Duration>,
        bytes: &[u8],
    ) -> Result<Asking, Problem> {
        asked.caller.may_lock(&body.name)?;
        if SystemWorld.now() < app.grants_from {
            let left = SystemWorld.now().until(app.grants_from).as_secs() + 1;
            return Err(Problem::unavailable(
                "this server has just started, and holds of an earlier run may still be in use",
                left,
            ));
        }
        let kind = body.kind;
        let name = tenure::engine::Name::new(kind.space(), &body.name)?;
        let (id, is_from_key) = match asked.claim(app, &name, body.claim)? {
            Some(found) => found,
            None => (SystemWorld.mint()?, false),
        };
        let ttl = body.ttl.map_or(ttl, |span| span.0);
        if ttl < SHORTEST_TTL {
            return Err(Problem::invalid("the ttl must be at least 1s"));
        }
        let wait = body.wait.map(|span| span.0).or(wait);
        let (ticket, confirms) = (body.ticket.take(), body.confirm.unwrap_or(true));
        let mut claim = body.claim(id, asked.owner(), ttl)?;
        if is_from_key {
            let fingerprint = app.key.fingerprint(&[b"body", &what_is_asked(bytes)]);
            Arc::make_mut(&mut claim.details).meta.push((BODY.to_owned(), fingerprint));
        }
        check_claim(&claim, &app.profile)?;
        claim.may_wait = wait.is_none_or(|wait| !wait.is_zero());
        if let Some(ticket) = ticket {
            let known = app.key.read_ticket(&claim.name, &claim.id, &ticket);
            claim.ticket =
                Some(known.ok_or_else(|| Problem::invalid("the ticket is not this claim's"))?);
        }
        let until = wait.map_or(Moment::FAR, |wait| asked.arrival + wait);
        Ok(Asking { claim, kind, arrival: asked.arrival, until, is_from_key, confirms })
    }

    /// Asks, and waits until it is granted, until the client's patience ends, or until `poll_until`.
    pub(crate) async fn ask(
        &mut self,
        app: &Arc<App>,
        poll_until: Moment,
    ) -> Result<Outcomes, Problem> {
        if !self.claim.may_wait {
            return self.begin(app).await;
        }
        // Its turn may come at once, so listen before asking.
        let mut listener = app.waiting.listen(&self.claim.name, self.claim.id);
        let mut place = match self.begin(app).await {
            Ok(Outcomes::Waits(place)) => place,
            Ok(found) => return Ok(self.found(listener, found)),
            Err(problem) => {
                listener.over();
                return Err(problem);
            }
        };
        self.note_wait(app);
        let mut stopping = app.stopping.clone();
        loop {
            self.claim.ticket = Some(place.ticket);
            let wakes = place.look_again.min(poll_until).min(self.until);
            let turn = tokio::select! {
                biased;
                turn = listener.turn() => Some(turn),
                () = sleep_until(wakes) => None,
                // Its place is kept, and the client asks another server for it.
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(Outcomes::Waits(place)),
            };
            let now = SystemWorld.now();
            match turn {
                Some(Turn::Granted(grant)) if now < grant.good_until => {
                    listener.over();
                    return Ok(Outcomes::Granted(grant, true));
                }
                Some(Turn::Ended(ended)) => {
                    listener.over();
                    return Err(Problem::ended(ended));
                }
                Some(Turn::Settled(outcome)) => {
                    listener.over();
                    return Ok(Outcomes::Settled(outcome));
                }
                Some(Turn::LookAt(when)) => {
                    place.look_again = place.look_again.min(when);
                    continue;
                }
                None if now >= self.until => return self.give_up(app, listener, &place).await,
                None if now >= poll_until => return Ok(Outcomes::Waits(place)),
                _ => {}
            }
            match self.look(app).await? {
                Outcomes::Waits(found) => place = found,
                found => return Ok(self.found(listener, found)),
            }
        }
    }

    /// An answer has ended the wait. The push of a turn may still be on its way; if nobody listened for it, the turn
    /// would be given back. So the listener of a turn stays as long as that of an absent client.
    fn found(&self, listener: Listener, found: Outcomes) -> Outcomes {
        if !matches!(&found, Outcomes::Granted(grant, _) if grant.first_life) {
            listener.over();
        }
        found
    }

    /// Records that it waits, but not again with every poll.
    fn note_wait(&self, app: &App) {
        if self.claim.ticket.is_none() {
            app.events.add("waiting", &self.claim.name, &self.claim.details.owner, None, None);
        }
    }

    /// The first request for the claim, or the first at this server.
    async fn begin(&self, app: &App) -> Result<Outcomes, Problem> {
        Ok(match app.engine.claim(&self.claim).await? {
            Verdict::Granted(grant) => Outcomes::Granted(grant, false),
            Verdict::Waiting(place) => Outcomes::Waits(place),
            Verdict::Busy(holder) => Outcomes::Busy(holder, None),
            Verdict::Settled(outcome) => Outcomes::Settled(outcome),
            Verdict::Unsettled => Outcomes::Unsettled,
            Verdict::Left => Outcomes::Left,
        })
    }

    /// Asks where it stands. A grant that is found this way has a first life, because the client may be gone.
    async fn look(&self, app: &App) -> Result<Outcomes, Problem> {
        match renew(&*app.engine, Renewal::Place(self.claim.clone())).await? {
            Renewed::Held(grant) => Ok(Outcomes::Granted(grant, true)),
            Renewed::Waiting(place) => Ok(Outcomes::Waits(place)),
            // The claim itself must ask why: only it is told that a once is done.
            Renewed::Gone(_) => self.begin(app).await,
            Renewed::Unknown(error) => Err(error.into()),
        }
    }

    /// The client's patience is over: leaves the line, unless the turn came in the meantime.
    async fn give_up(
        &self,
        app: &App,
        mut listener: Listener,
        place: &Place,
    ) -> Result<Outcomes, Problem> {
        let name = self.claim.name.clone();
        let leave = Leave { only_waiting: true, ..Leave::new(name, self.claim.id) };
        let left = app.lifeline.leave(&leave).await?;
        let outcome = match (left, listener.said()) {
            (Left::Quit, _) => {
                app.events.add("quit", &self.claim.name, &self.claim.details.owner, None, None);
                Outcomes::Busy(place.holder.clone(), Some(place.ahead + 1))
            }
            (_, Some(Turn::Granted(grant))) => Outcomes::Granted(grant, true),
            (_, Some(Turn::Settled(outcome))) => Outcomes::Settled(outcome),
            _ => {
                let mut now_or_never = self.claim.clone();
                now_or_never.may_wait = false;
                match app.engine.claim(&now_or_never).await? {
                    Verdict::Granted(grant) => Outcomes::Granted(grant, true),
                    _ => Outcomes::Busy(place.holder.clone(), Some(place.ahead + 1)),
                }
            }
        };
        Ok(self.found(listener, outcome))
    }

    /// The answer to a request that is not a stream.
    pub(crate) async fn answer(&self, app: &App, outcome: Outcomes) -> Result<Response, Problem> {
        let (name, owner) = (&self.claim.name, &self.claim.details.owner);
        match outcome {
            Outcomes::Granted(grant, waited) => {
                if self.is_from_key {
                    self.check_body(app, &grant).await?;
                }
                let must_confirm = waited || grant.first_life;
                let (grant, must_confirm) = match must_confirm && !self.confirms {
                    true => (self.confirm(app, &grant).await?, false),
                    false => (grant, must_confirm),
                };
                app.events.add("granted", name, owner, Some(grant.fence), None);
                crate::meters::acquired(self.kind, "granted");
                let mut body =
                    wire::granted(&self.claim, self.kind, &grant, self.arrival, SystemWorld.now());
                body.insert("confirm".to_owned(), json!(must_confirm));
                Ok(json(StatusCode::CREATED, &Value::Object(body)))
            }
            Outcomes::Waits(place) => {
                let waited = self.arrival.until(SystemWorld.now());
                Ok(json(
                    StatusCode::ACCEPTED,
                    &wire::place(&self.claim, self.kind, &place, &app.key, waited),
                ))
            }
            Outcomes::Settled(outcome) => {
                let mut body = serde_json::Map::new();
                body.insert("name".to_owned(), json!(name.as_str()));
                body.insert("settled".to_owned(), json!(true));
                wire::outcome(&outcome, &mut body);
                Ok(json(StatusCode::OK, &Value::Object(body)))
            }
            no => Err(self.refusal(no)),
        }
    }

    /// The problem for an outcome that is a refusal.
    pub(crate) fn refusal(&self, outcome: Outcomes) -> Problem {
        let name = self.claim.name.as_str();
        match outcome {
            Outcomes::Busy(holder, position) => {
                crate::meters::acquired(self.kind, "busy");
                let who = holder.as_ref().map_or("someone", |holder| &holder.details.owner);
                let detail = format!("{name:?} is held by {who}");
                let mut problem =
                    Problem::new(StatusCode::CONFLICT, "busy", detail).with("name", name);
                if let Some(holder) = &holder {
                    problem = problem.with("holder", wire::holder(holder));
                }
                if let Some(position) = position {
                    problem = problem.with("position", position);
                }
                problem
            }
            Outcomes::Unsettled => {
                let detail = "an earlier run never said how it ended; rerun runs it again";
                Problem::new(StatusCode::CONFLICT, "unsettled", detail).with("name", name)
            }
            _ => Problem::left().with("name", name),
        }
    }

    /// Renews a hold that may have been granted while nobody listened, so that it lasts its full ttl.
    async fn confirm(&self, app: &App, grant: &Grant) -> Result<Grant, Problem> {
        let Claim { name, id, ttl, .. } = &self.claim;
        let renewal = Renewal::Hold { name: name.clone(), id: *id, fence: grant.fence, ttl: *ttl };
        match renew(&*app.lifeline, renewal).await? {
            Renewed::Held(grant) => Ok(grant),
            Renewed::Gone(ended) => Err(Problem::gone(&ended)),
            Renewed::Unknown(error) => Err(error.into()),
            Renewed::Waiting(_) => Err(Error::new(ErrorKind::Internal, "a hold waits").into()),
        }
    }

    /// Whether the hold was made with the same body as this request.
    async fn check_body(&self, app: &App, grant: &Grant) -> Result<(), Problem> {
        let page = app.engine.inspect(&Scope::Name(self.claim.name.clone())).await?;
        let holders = page.views.iter().flat_map(|view| &view.holders);
        let own = holders.into_iter().find(|holder| holder.fence == grant.fence);
        let said =
            |holder: &Holder| holder.details.meta.iter().find(|(key, _)| key == BODY).cloned();
        let expected = self.claim.details.meta.iter().find(|(key, _)| key == BODY);
        match own.map(said) {
            Some(found) if found.as_ref() != expected => {
                let detail = "this Idempotency-Key was used with another body";
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "other_body", detail))
            }
            _ => Ok(()),
        }
    }
}

/// A body without the fields that change from poll to poll: the ticket, and what is left of the wait.
fn what_is_asked(body: &[u8]) -> Vec<u8> {
    // It was parsed before, so it is an object.
    let mut fields: serde_json::Map<String, Value> =
        serde_json::from_slice(body).unwrap_or_default();
    fields.retain(|field, _| !["ticket", "wait"].contains(&field.as_str()));
    Value::Object(fields).to_string().into_bytes()
}

/// One renewal.
pub(crate) async fn renew(engine: &dyn Engine, renewal: Renewal) -> Result<Renewed, Problem> {
    let shard = match &renewal {
        Renewal::Hold { name, .. } => engine.shard(name),
        Renewal::Place(claim) => engine.shard(&claim.name),
    };
    let mut all = engine.renew(shard, &[renewal]).await?;
    all.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a renewal was not answered").into())
}

/// Waits for a moment, on a clock that continues while the machine sleeps.
pub(crate) async fn sleep_until(moment: Moment) {
    if moment == Moment::FAR {
        return std::future::pending().await;
    }
    loop {
        let left = SystemWorld.now().until(moment);
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
