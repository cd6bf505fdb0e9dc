//! The engine's methods: each sends a step and makes of its answer what the core understands.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Shared;
use super::answer::{self, Answer, Standing};
use super::config::Topology;
use super::link::{Heard, Link, Parcel, Reply, Target};
use super::refusal::Refusal;
use super::resp::Value;
use super::roads::{Roads, beside};
use super::wire::{By, Request};
use crate::engine::Step;
use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, Fence, Forgotten, Grant, Leave, Left, Note, OnceRecord, Place,
    Renewal, Renewed, Verdict, look_again,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// How often a step follows the server's directions before it gives up for now.
pub(super) const MOST_TURNS: u32 = 6;

pub(super) struct Steps {
    pub(super) shared: Arc<Shared>,
    pub(super) roads: Roads,
}

/// A step that was sent.
pub(super) struct Flight {
    request: Request,
    /// The claim that it is about, if it may put it in line.
    place: Option<(Name, ClaimId)>,
    /// It is no yes until so many replicas have it.
    counted: bool,
    link: Arc<Link>,
    pub(super) heard: oneshot::Receiver<Result<Heard>>,
    replicas: Option<oneshot::Receiver<Result<Heard>>>,
}

/// What is said of a step on its way to the server.
#[derive(Default)]
pub(super) struct Manner {
    place: Option<(Name, ClaimId)>,
    counted: bool,
    with_text: bool,
    asking: bool,
}

impl Steps {
    /// Sends a step now, in the order of calls.
    fn launch(&self, request: Request, manner: Manner) -> Result<Flight> {
        let link = self.roads.to(request.partition())?;
        Ok(self.launch_on(link, request, manner))
    }

    pub(super) fn launch_on(&self, link: Arc<Link>, request: Request, manner: Manner) -> Flight {
        let Manner { place, counted, with_text, asking } = manner;
        let (reply, heard) = oneshot::channel();
        let reply = match place.clone() {
            Some((name, id)) => Reply::Claim(reply, name, id),
            None => Reply::One(reply),
        };
        let config = &self.shared.config;
        let (wait, replicas) = match counted && config.wait_replicas > 0 {
            true => {
                let (reply, replicas) = oneshot::channel();
                let millis = config.wait_timeout.as_millis() as u64;
                (Some((config.wait_replicas, millis, reply)), Some(replicas))
            }
            false => (None, None),
        };
        let by = if with_text { By::Text } else { By::Hash };
        let parcel = Parcel::new(reply);
        link.send(&request, Parcel { by, may_wait: place.is_some(), asking, wait, ..parcel });
        Flight { request, place, counted, link, heard, replicas }
    }

    /// Waits for the answer, and follows the server's directions until there is one.
    async fn land(&self, mut flight: Flight, name: &Name, ttl: Duration) -> Result<Landed> {
        let mut turns = 0;
        loop {
            let lost =
                || Error::new(ErrorKind::Unavailable, "the connection was closed").in_doubt();
            let Heard { value, sent } = (&mut flight.heard).await.map_err(|_| lost())??;
            let Value::Error(text) = value else {
                let (answer, marks) = answer::read(&value, ttl).ok_or_else(|| {
                    answer::strange(flight.request.step(), &answer::shape(&value))
                })?;
                match &answer {
                    Answer::Granted { fence, .. } => {
                        self.shared.saw(flight.request.partition(), *fence)
                    }
                    Answer::Waiting(place) => {
                        self.shared.saw(flight.request.partition(), place.floor)
                    }
                    _ => {}
                }
                flight.link.go_on(name.clone(), marks);
                let replicas = match flight.replicas.take() {
                    Some(replicas) => {
                        let counted = replicas.await.map_err(|_| lost())??;
                        counted.value.as_int().unwrap_or_default()
                    }
                    None => 0,
                };
                let enough = !flight.counted || replicas >= self.shared.config.wait_replicas.into();
                return Ok(Landed { answer, sent, replicas, enough });
            };
            let refusal = Refusal::read(&text);
            turns += 1;
            if turns > MOST_TURNS {
                return Err(refusal.into_error(&text));
            }
            flight = self.follow(flight, refusal, &text)?;
        }
    }

    /// Sends it again as the server says, or gives up.
    pub(super) fn follow(&self, flight: Flight, refusal: Refusal, text: &str) -> Result<Flight> {
        let Flight { request, place, counted, link, .. } = flight;
        let manner = Manner { place, counted, ..Manner::default() };
        let near = |address| match &link.target {
            Target::Fixed(asked) => beside(asked, address),
            Target::Sentinels => address,
        };
        match refusal {
            Refusal::NoScript => {
                Ok(self.launch_on(link, request, Manner { with_text: true, ..manner }))
            }
            Refusal::Moved(address) if self.shared.is_cluster => {
                self.shared.moved(request.partition(), near(address));
                self.launch(request, manner)
            }
            Refusal::Ask(address) if self.shared.is_cluster => {
                let there = self.roads.at(&near(address));
                let manner = Manner { asking: true, with_text: true, ..manner };
                Ok(self.launch_on(there, request, manner))
            }
            Refusal::NotPrimary | Refusal::Lonely => {
                self.shared.primary_changed(&link, &refusal);
                Err(refusal.into_error(text))
            }
            _ => Err(refusal.into_error(text)),
        }
    }

    pub(super) fn claim(self: &Arc<Steps>, claim: &Claim) -> Step<Verdict> {
        let Shared { layout, places, .. } = &*self.shared;
        let has_line = claim.may_wait && places.expect(&claim.name, claim.id);
        let request = match layout.claim(claim, true, has_line, self.shared.seen_before(claim)) {
            Ok(request) => request,
            Err(error) => return Step::ready(Err(error)),
        };
        let place = claim.may_wait.then(|| (claim.name.clone(), claim.id));
        let manner = Manner { place, counted: true, ..Manner::default() };
        let (steps, asked) = (self.clone(), Asked::new(claim));
        if self.shared.has_no_map() {
            // The first contact with a cluster.
            return Step::pending(async move {
                steps.shared.know_map().await?;
                let flight = steps.launch(request, manner)?;
                let landed = steps.land(flight, &asked.name, asked.ttl).await?;
                steps.verdict(asked, landed)
            });
        }
        let flight = match self.launch(request, manner) {
            Ok(flight) => flight,
            Err(error) => return Step::ready(Err(error)),
        };
        Step::pending(async move {
            let landed = steps.land(flight, &asked.name, asked.ttl).await?;
            steps.verdict(asked, landed)
        })
    }

    fn verdict(&self, asked: Asked, landed: Landed) -> Result<Verdict> {
        let Landed { answer, sent, .. } = &landed;
        Ok(match answer {
            // It stays ours: the next try finds it, and who gives up leaves it.
            Answer::Granted { .. } if !landed.enough => {
                return Err(self.too_few(landed.replicas).in_doubt());
            }
            Answer::Granted { fence, remaining, first_life } => {
                Verdict::Granted(Grant::new(*fence, *sent, *remaining, *first_life))
            }
            Answer::Waiting(_) => Verdict::Waiting(place(landed)?),
            Answer::Busy(holder) => Verdict::Busy(holder.clone()),
            Answer::Settled(outcome) => Verdict::Settled(outcome.clone()),
            Answer::Unsettled => Verdict::Unsettled,
            Answer::Left => Verdict::Left,
            Answer::OtherContent => return Err(Claim::other_content()),
            Answer::Full => return Err(Claim::full(asked.max_waiters)),
            Answer::Conflict { capacity } => return Err(Claim::conflict(asked.units, *capacity)),
            Answer::Gone(ended) => return Err(ended.clone().into()),
            answer => return Err(answer::strange("claim", answer.kind())),
        })
    }

    fn too_few(&self, replicas: i64) -> Error {
        let wanted = self.shared.config.wait_replicas;
        let reason = format!("{replicas} of {wanted} replicas have it");
        // The server is there, and has answered: this is no outage.
        Error::new(ErrorKind::Unavailable, reason)
            .next("are the replicas up, and in sync?")
            .not_now()
    }

    pub(super) fn renew(self: &Arc<Steps>, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        // The replicas that have the last have them all.
        let last = batch.len().saturating_sub(1);
        let launch = |(at, renewal): (usize, &Renewal)| {
            (self.launch_renewal(renewal, at == last), renewal.clone())
        };
        let flights: Vec<_> = batch.iter().enumerate().map(launch).collect();
        let holds = batch.iter().any(|renewal| matches!(renewal, Renewal::Hold { .. }));
        let replicas = if holds { self.ask_for_replicas() } else { None };
        let link = flights.iter().find_map(|(flight, _)| Some(flight.as_ref().ok()?.link.clone()));
        link.iter().for_each(Link::ask_for_time);
        let steps = self.clone();
        Step::pending(async move {
            let mut landed = Vec::with_capacity(flights.len());
            for (flight, renewal) in flights {
                landed.push(steps.land_renewal(flight, renewal).await);
            }
            let too_few = match landed.last() {
                Some(Ok(Landed { enough: true, .. })) => None,
                Some(Ok(Landed { replicas, .. })) => Some(*replicas),
                _ => (steps.shared.config.wait_replicas > 0).then_some(0),
            };
            let doubt = match replicas {
                Some((link, heard)) => steps.shared.confirm(&link, heard).await.err(),
                None => None,
            };
            let is_gone = |landed: &Result<Landed>| {
                landed.as_ref().is_ok_and(|it| matches!(it.answer, Answer::Gone(Ended::Expired)))
            };
            let step = match link.filter(|_| landed.iter().any(is_gone)) {
                Some(link) => link.clock_step().await,
                None => None,
            };
            let answer = |landed: Result<Landed>| {
                let renewed =
                    landed.and_then(|landed| steps.renewed(landed, too_few, doubt.as_ref()));
                match (renewed, step) {
                    (Ok(Renewed::Gone(Ended::Expired)), Some(by)) => {
                        Renewed::Gone(Ended::ClockStep { by })
                    }
                    (renewed, _) => renewed.unwrap_or_else(Renewed::Unknown),
                }
            };
            Ok(landed.into_iter().map(answer).collect())
        })
    }

    /// Behind sentinels, what the server says of its replicas after the renewals that were just sent.
    fn ask_for_replicas(&self) -> Option<(Arc<Link>, oneshot::Receiver<Result<Heard>>)> {
        if !matches!(self.shared.config.topology, Topology::Sentinel { .. }) {
            return None;
        }
        let link = self.roads.to(0).ok()?;
        let (reply, heard) = oneshot::channel();
        link.send(&Request::plain(&[b"INFO", b"replication"]), Parcel::new(Reply::One(reply)));
        Some((link, heard))
    }

    fn launch_renewal(&self, renewal: &Renewal, counted: bool) -> Result<Flight> {
        if matches!(renewal, Renewal::Place(_)) {
            // The runtime that listened for its turn may be gone; this one will do.
            self.shared.listen();
        }
        let layout = &self.shared.layout;
        let manner = Manner { counted, ..Manner::default() };
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                self.launch(layout.renew(name, id, *fence, *ttl), manner)
            }
            Renewal::Place(claim) => {
                self.shared.places.expect(&claim.name, claim.id);
                let place = Some((claim.name.clone(), claim.id));
                self.launch(
                    layout.claim(claim, false, true, self.shared.seen_before(claim))?,
                    Manner { place, ..manner },
                )
            }
        }
    }

    async fn land_renewal(&self, flight: Result<Flight>, renewal: Renewal) -> Result<Landed> {
        let landed = match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                let landed = self.land(flight?, &name, ttl).await?;
                if let Answer::Gone(_) = landed.answer {
                    self.shared.places.lost(&name, &id, fence);
                }
                landed
            }
            Renewal::Place(claim) => self.land(flight?, &claim.name, claim.ttl).await?,
        };
        Ok(landed)
    }

    /// `too_few`: how many replicas have it, if that is not enough. `doubt`: why the server may not be
    /// the primary any more.
    fn renewed(
        &self,
        landed: Landed,
        too_few: Option<i64>,
        doubt: Option<&Error>,
    ) -> Result<Renewed> {
        let Landed { answer, sent, .. } = &landed;
        if let (Answer::Granted { .. }, Some(doubt)) = (answer, doubt) {
            return Err(doubt.copy().in_doubt());
        }
        Ok(match answer {
            Answer::Granted { .. } if too_few.is_some() => {
                return Err(self.too_few(too_few.unwrap_or_default()).in_doubt());
            }
            Answer::Granted { fence, remaining, first_life } => {
                Renewed::Held(Grant::new(*fence, *sent, *remaining, *first_life))
            }
            Answer::Waiting(_) => Renewed::Waiting(place(landed)?),
            Answer::Conflict { capacity } => Renewed::Gone(Ended::Conflict { capacity: *capacity }),
            Answer::Gone(ended) => Renewed::Gone(ended.clone()),
            // The claim itself must ask for what a once left.
            _ => Renewed::Gone(Ended::Expired),
        })
    }

    pub(super) fn leave(self: &Arc<Steps>, leave: &Leave) -> Step<Left> {
        let has_line = self.shared.places.forget(&leave.name, &leave.id);
        let request = self.shared.layout.leave(leave, has_line);
        let flight = match self.launch(request, Manner::default()) {
            Ok(flight) => flight,
            Err(error) => return Step::ready(Err(error)),
        };
        let (steps, leave) = (self.clone(), leave.clone());
        Step::pending(async move {
            answer::left(steps.land(flight, &leave.name, Duration::ZERO).await?.answer)
        })
    }

    pub(super) fn resize(self: &Arc<Steps>, name: &Name, capacity: u32) -> Step<()> {
        let request = self.shared.layout.resize(name, capacity);
        self.ask(request, name, |answer| match answer {
            Answer::Done => Ok(()),
            Answer::Conflict { .. } => Err(Claim::capacity_is_fixed()),
            answer => Err(answer::strange("resize", answer.kind())),
        })
    }

    pub(super) fn break_hold(
        self: &Arc<Steps>,
        name: &Name,
        fence: Fence,
        note: &Note,
    ) -> Step<Broken> {
        let request = self.shared.layout.break_hold(name, fence, note);
        self.ask(request, name, |answer| match answer {
            Answer::Done => Ok(Broken::Done),
            Answer::MovedOn => Ok(Broken::MovedOn),
            answer => Err(answer::strange("break", answer.kind())),
        })
    }

    pub(super) fn forget(self: &Arc<Steps>, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        let request = self.shared.layout.forget(name, seen);
        self.ask(request, name, |answer| match answer {
            Answer::Done => Ok(Forgotten::Done),
            Answer::MovedOn => Ok(Forgotten::MovedOn),
            answer => Err(answer::strange("forget", answer.kind())),
        })
    }

    fn ask<T: 'static>(
        self: &Arc<Steps>,
        request: Request,
        name: &Name,
        read: impl FnOnce(Answer) -> Result<T> + Send + 'static,
    ) -> Step<T> {
        let flight = match self.launch(request, Manner::default()) {
            Ok(flight) => flight,
            Err(error) => return Step::ready(Err(error)),
        };
        let (steps, name) = (self.clone(), name.clone());
        Step::pending(async move { read(steps.land(flight, &name, Duration::ZERO).await?.answer) })
    }
}

fn place(landed: Landed) -> Result<Place> {
    let Landed { answer, sent, .. } = landed;
    let Answer::Waiting(standing) = answer else {
        return Err(answer::strange("claim", answer.kind()));
    };
    let Standing { ticket, ahead, floor, next_end, holder, held_up } = standing;
    let next_end = next_end.map_or(Moment::FAR, |left| sent + left);
    let look_again = look_again(next_end, ahead);
    let place = Place { ticket, ahead, floor, asked_at: sent, look_again, holder };
    Ok(if held_up { place.held_up() } else { place })
}

/// What of a claim its answer needs.
struct Asked {
    name: Name,
    ttl: Duration,
    units: (u32, u32),
    max_waiters: u32,
}

impl Asked {
    fn new(claim: &Claim) -> Asked {
        let Claim { ttl, weight, capacity, max_waiters, .. } = *claim;
        Asked { name: claim.name.clone(), ttl, units: (weight, capacity), max_waiters }
    }
}

/// An answer, when what it answers was sent, and how many replicas have it.
struct Landed {
    answer: Answer,
    sent: Moment,
    replicas: i64,
    enough: bool,
}
