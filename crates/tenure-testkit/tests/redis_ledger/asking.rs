//! Asks the engine, and puts its answer in the terms of the comparison.

use tenure::engine::{
    Broken, Ended, Engine, ErrorKind, Forgotten, Grant, Keep, Kept, Left, Moment, Name, Place,
    Renewal, Renewed, Space, Verdict, look_again,
};

use super::model::Request;
use super::said::Said;

/// Here the server's clock moves in steps, which the engine reports in place of what they ended.
fn gone(ended: Ended) -> Said {
    match ended {
        Ended::ClockStep { .. } => Said::Gone(Some(Ended::Expired)),
        ended => Said::Gone(Some(ended)),
    }
}

pub(crate) async fn ask(engine: &dyn Engine, name: &Name, request: &Request) -> Said {
    match request {
        Request::Claim(claim) => match engine.claim(claim).await {
            Ok(verdict) => verdict_said(verdict),
            Err(error) => match error.kind() {
                ErrorKind::Full => Said::Full,
                ErrorKind::Conflict if error.to_string().contains("other content") => {
                    Said::OtherContent
                }
                ErrorKind::Conflict => Said::Conflict(capacity_in(&error.to_string())),
                ErrorKind::Lost => Said::Gone(None),
                _ => Said::Odd(format!("{error:?}")),
            },
        },
        Request::Keep(claim) => renew(engine, Renewal::Place(claim.clone())).await,
        Request::Renew { id, fence, ttl } => {
            let (name, id, fence, ttl) = (name.clone(), *id, *fence, *ttl);
            renew(engine, Renewal::Hold { name, id, fence, ttl }).await
        }
        Request::HandOver { id, fence, ttl, fences, details } => {
            let (name, id, fence, ttl) = (name.clone(), *id, *fence, *ttl);
            let mut keep = Keep::new(name, id, fence, ttl, details.clone());
            keep.fences = *fences;
            match engine.keep(&keep).await {
                Ok(Kept::Held { grant, waiting, fences }) if grant.fence == fence => Said::Kept {
                    remaining: remaining(&grant),
                    first_life: grant.first_life,
                    waiting,
                    fences: (fences.next, fences.last),
                },
                Ok(Kept::Gone(ended)) => gone(ended),
                answer => Said::Odd(format!("{answer:?}")),
            }
        }
        Request::Leave(leave) => match engine.leave(leave).await {
            Ok(Left::Released) => Said::Released,
            Ok(Left::Quit) => Said::Quit,
            Ok(Left::Gone(ended)) => gone(ended),
            Err(error) => Said::Odd(format!("{error:?}")),
        },
        Request::Break(fence, note) => match engine.break_hold(name, *fence, note).await {
            Ok(Broken::Done) => Said::Done,
            Ok(Broken::MovedOn) => Said::MovedOn,
            Err(error) => Said::Odd(format!("{error:?}")),
        },
        Request::Forget(seen) => match engine.forget(name, seen).await {
            Ok(Forgotten::Done) => Said::Done,
            Ok(Forgotten::MovedOn) => Said::MovedOn,
            Err(error) => Said::Odd(format!("{error:?}")),
        },
        Request::Resize(capacity) => match engine.resize(name, *capacity).await {
            Ok(()) => Said::Done,
            Err(error) if error.kind() == ErrorKind::Conflict => Said::Conflict(None),
            Err(error) => Said::Odd(format!("{error:?}")),
        },
    }
}

async fn renew(engine: &dyn Engine, renewal: Renewal) -> Said {
    let shard = match &renewal {
        Renewal::Hold { name, .. } => engine.shard(name),
        Renewal::Place(claim) => engine.shard(&claim.name),
    };
    let mut batch = vec![renewal]; // A hold goes beside one that nobody has, so that they are a group.
    if let Renewal::Hold { name, id, fence, ttl } = &batch[0] {
        let name = Name::new(Space::Lock, &format!("beside {name}")).unwrap();
        batch.push(Renewal::Hold { name, id: *id, fence: *fence, ttl: *ttl });
    }
    let all = |answers: Vec<_>| answers.into_iter().map(renewed).collect::<Vec<_>>();
    let said = engine.renew(shard, &batch).await.map(all);
    match said.as_deref() {
        Ok([one] | [one, Said::Gone(Some(Ended::Expired))]) => one.clone(),
        _ => Said::Odd(format!("{said:?}")),
    }
}

fn renewed(answer: Renewed) -> Said {
    match answer {
        Renewed::Held(grant) => granted(&grant),
        Renewed::Waiting(place) => waiting(place),
        Renewed::Gone(ended) => gone(ended),
        other => Said::Odd(format!("{other:?}")),
    }
}

fn verdict_said(verdict: Verdict) -> Said {
    match verdict {
        Verdict::Granted(grant) => granted(&grant),
        Verdict::Waiting(place) => waiting(place),
        Verdict::Busy(holder) => Said::Busy { holders: holder.into_iter().collect() },
        Verdict::Settled(outcome) => Said::Settled(outcome.to_vec()),
        Verdict::Unsettled => Said::Unsettled,
        Verdict::Left => Said::Left,
    }
}

fn granted(grant: &Grant) -> Said {
    let (fence, first_life) = (grant.fence.get(), grant.first_life);
    Said::Granted { fence, remaining: remaining(grant), first_life }
}

/// Half of it is over at `start_by`.
pub(crate) fn remaining(grant: &Grant) -> u64 {
    (grant.sent.until(grant.start_by) * 2).as_millis() as u64
}

fn waiting(place: Place) -> Said {
    let Place { ticket, ahead, floor, asked_at, look_again: look, holder } = place;
    // What `look_again` adds is what it returns for no time at all.
    let added = Moment::ORIGIN.until(look_again(Moment::ORIGIN, ahead));
    let next_end = (look < Moment::FAR).then(|| (asked_at.until(look) - added).as_millis() as u64);
    let holders = holder.into_iter().collect();
    Said::Waiting { ticket: ticket.get(), ahead, floor: floor.get(), next_end, holders }
}

fn capacity_in(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("a capacity of ")?;
    rest.split(';').next()?.parse().ok()
}

pub(crate) fn brief(said: &Said) -> String {
    match said {
        Said::Waiting { ticket, ahead, next_end, .. } => {
            format!("waits, ticket {ticket}, {ahead} ahead, next end in {next_end:?}")
        }
        Said::Busy { .. } => "busy".to_owned(),
        said => format!("{said:?}"),
    }
}
