//! Renewals of many claims, some of which have a hold that is handed over.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::Handover;
use super::line::{Asked, Contact, Renews};
use crate::engine::Step;
use crate::model::claim::{ClaimId, Ended, Kept, Renewal, Renewed};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

/// Where the answer to one renewal comes from.
enum From {
    /// It is known.
    Here(Option<Renewed>),
    /// The next answer of the engine, and the place that it is about, if the machine must know.
    Engine(Option<(Name, ClaimId)>),
    Kept(Name, Box<Contact>, Step<Kept>),
}

impl Handover {
    pub(super) fn renew_all(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        let mut told = Vec::with_capacity(batch.len());
        let froms: Vec<From> = batch.iter().map(|one| self.renew_one(one, &mut told)).collect();
        let plain = froms.iter().all(|from| matches!(from, From::Engine(None)));
        let step = (!told.is_empty()).then(|| self.engine.renew(shard, &told));
        if plain && let Some(step) = step {
            return step;
        }
        let shared = self.shared.clone();
        let answers = move |engine: Option<Result<Vec<Renewed>>>, froms: Vec<Answered>| {
            let mut engine = engine.map(|answer| answer.map(Vec::into_iter));
            let answer = |from| match from {
                Answered::Here(answer) => answer,
                Answered::Kept(name, contact, answer) => shared.heard(&name, &contact, answer),
                Answered::Engine(place) => {
                    let answer = match &mut engine {
                        Some(Ok(answers)) => answers.next().unwrap_or_else(|| unknown(None)),
                        Some(Err(error)) => unknown(Some(error)),
                        None => unknown(None),
                    };
                    if let Some((name, id)) = place {
                        shared.place_renewed(&name, &id, &answer);
                    }
                    answer
                }
            };
            froms.into_iter().map(answer).collect::<Vec<Renewed>>()
        };
        join(step, froms, answers)
    }

    /// What becomes of one renewal. Those for the engine are collected.
    fn renew_one(&self, renewal: &Renewal, told: &mut Vec<Renewal>) -> From {
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                let now = self.shared.world.now();
                let renews = |line: &mut super::Line| line.renew(id, *fence, *ttl, now);
                match self.shared.tell(name, renews).unwrap_or(Renews::Unknown) {
                    Renews::Contact(contact) => {
                        let step = self.engine.keep(&contact.keep);
                        return From::Kept(name.clone(), Box::new(contact), step);
                    }
                    Renews::Gone => return From::Here(Some(Renewed::Gone(Ended::Expired))),
                    Renews::Unknown => told.push(renewal.clone()),
                }
                From::Engine(None)
            }
            Renewal::Place(claim) if claim.shared => match self.ask(claim) {
                Some(Asked::Here(place)) => From::Here(Some(Renewed::Waiting(place))),
                Some(Asked::Granted(grant)) => From::Here(Some(Renewed::Held(grant))),
                Some(Asked::Engine(ticket)) => {
                    let mut claim = claim.clone();
                    claim.ticket = ticket;
                    let place = Some((claim.name.clone(), claim.id));
                    told.push(Renewal::Place(claim));
                    From::Engine(place)
                }
                None => {
                    told.push(renewal.clone());
                    From::Engine(None)
                }
            },
            Renewal::Place(_) => {
                told.push(renewal.clone());
                From::Engine(None)
            }
        }
    }
}

enum Answered {
    Here(Renewed),
    Engine(Option<(Name, ClaimId)>),
    Kept(Name, Box<Contact>, Result<Kept>),
}

/// Waits for all answers at the same time.
fn join(
    step: Option<Step<Vec<Renewed>>>,
    froms: Vec<From>,
    finish: impl FnOnce(Option<Result<Vec<Renewed>>>, Vec<Answered>) -> Vec<Renewed> + Send + 'static,
) -> Step<Vec<Renewed>> {
    let mut step = step.map(Waits::new);
    let mut froms: Vec<(From, Option<Result<Kept>>)> =
        froms.into_iter().map(|from| (from, None)).collect();
    let mut finish = Some(finish);
    let mut poll = move |cx: &mut std::task::Context<'_>| {
        let mut all = step.as_mut().is_none_or(|step| step.poll(cx));
        for (from, answer) in &mut froms {
            if let From::Kept(_, _, step) = from
                && answer.is_none()
            {
                match Pin::new(step).poll(cx) {
                    Poll::Ready(heard) => *answer = Some(heard),
                    Poll::Pending => all = false,
                }
            }
        }
        if !all {
            return Poll::Pending;
        }
        let answered = std::mem::take(&mut froms).into_iter().map(|(from, answer)| match from {
            From::Here(answer) => Answered::Here(answer.unwrap_or_else(|| unknown(None))),
            From::Engine(place) => Answered::Engine(place),
            From::Kept(name, contact, _) => {
                Answered::Kept(name, contact, answer.unwrap_or_else(|| Err(none(None))))
            }
        });
        let answered = answered.collect();
        let engine = step.take().and_then(|step| step.answer);
        Poll::Ready(Ok(finish.take().map(|finish| finish(engine, answered)).unwrap_or_default()))
    };
    // Engines that answer at once are answered at once.
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match poll(&mut cx) {
        Poll::Ready(answer) => Step::ready(answer),
        Poll::Pending => Step::pending(poll_fn(poll)),
    }
}

struct Waits<T> {
    step: Step<T>,
    answer: Option<Result<T>>,
}

impl<T> Waits<T> {
    fn new(step: Step<T>) -> Waits<T> {
        Waits { step, answer: None }
    }

    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> bool {
        if self.answer.is_none()
            && let Poll::Ready(answer) = Pin::new(&mut self.step).poll(cx)
        {
            self.answer = Some(answer);
        }
        self.answer.is_some()
    }
}

/// Each claim needs its own error; the text is the engine's.
fn unknown(error: Option<&Error>) -> Renewed {
    Renewed::Unknown(none(error))
}

fn none(error: Option<&Error>) -> Error {
    match error {
        Some(error) => Error::new(error.kind(), error.to_string()).in_doubt(),
        None => Error::new(ErrorKind::Internal, "the engine gave too few answers").in_doubt(),
    }
}
