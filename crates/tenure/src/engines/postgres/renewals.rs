//! Renewals: the holds of a batch with one statement, the places with another.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::answers::{StepAnswer, read_step};
use super::link::{Link, Reply};
use super::links::{LateAnswer, Links, UNHEARD};
use super::statements::{HoldToRenew, Statement};
use super::{ask, errors, strange};
use crate::engine::Step;
use crate::engines::convert;
use crate::ledger::Answer;
use crate::model::claim::{Claim, ClaimId, Renewal, Renewed};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;

/// Renews a batch: holds over this link, over which nothing goes that may have to wait for the row of a name.
pub(super) fn send(links: &Arc<Links>, link: &Link, batch: &[Renewal]) -> Step<Vec<Renewed>> {
    let shared = &links.shared;
    let (mut holds, mut places) = (Vec::new(), Vec::new());
    let is_hold: Vec<_> = batch
        .iter()
        .map(|renewal| match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                holds.push((name.clone(), *id, *fence, *ttl));
                true
            }
            Renewal::Place(claim) => {
                // It may have been forgotten with a turn that ran out.
                shared.places.expect(claim.id);
                places.push(claim.clone());
                false
            }
        })
        .collect();
    let late: Vec<_> = holds.iter().map(|hold| links.late(&hold.1)).collect();
    let now = holds.iter().zip(&late).filter(|(_, late)| late.is_none());
    let now: Vec<_> = now.map(|(hold, _)| hold.clone()).collect();
    // Sent here, in the order of the calls.
    let renewed = (!now.is_empty()).then(|| ask(link, Statement::renew(&now, false)));
    let listens = shared.listens();
    let looked = (!places.is_empty()).then(|| {
        let statement = Statement::look(&places, shared.process, listens);
        ask(links.at(0), statement)
    });
    let links = links.clone();
    Step::pending(async move {
        let renewed = answers_to_holds(&links, renewed, holds, late).await;
        let mut renewed = renewed.into_iter();
        let mut looked = match looked {
            Some(told) => answers_to_places(&links, told, places, listens).await,
            None => Vec::new(),
        }
        .into_iter();
        let left_out = || Renewed::Unknown(strange("the server left out an answer"));
        let next = |is_hold| if is_hold { renewed.next() } else { looked.next() };
        Ok(is_hold.into_iter().map(next).map(|it| it.unwrap_or_else(left_out)).collect())
    })
}

/// What holds were answered. Those that the server left out, because the row of their name is locked, are sent again
/// by themselves.
async fn answers_to_holds(
    links: &Arc<Links>,
    told: Option<oneshot::Receiver<Reply>>,
    holds: Vec<HoldToRenew>,
    late: Vec<Option<LateAnswer>>,
) -> Vec<Renewed> {
    let alone = holds.len() == 1;
    let count = late.iter().filter(|late| late.is_none()).count();
    let answers = match told {
        Some(told) => together(told, count).await,
        None => Ok(Vec::new()),
    };
    let mut answers = answers.map(Vec::into_iter);
    let mut renewed = Vec::with_capacity(holds.len());
    for (hold, late) in holds.iter().zip(late) {
        let (name, id, fence, _) = hold;
        let answer = match (late, &mut answers) {
            (Some(told), _) => late_answer(links, *id, told, alone).await,
            (None, Err(error)) => Err(error.clone()),
            (None, Ok(answers)) => match answers.next() {
                Some((answer, _)) if answer.was_left_out() => {
                    let statement = Statement::renew(std::slice::from_ref(hold), true);
                    let told = links.step(name, statement, |answer| answer);
                    late_answer(links, *id, told, alone).await
                }
                Some(answer) => Ok(answer),
                None => Err(strange("the server left out an answer")),
            },
        };
        renewed.push(match answer {
            Ok((StepAnswer { answer, more, .. }, sent)) => {
                if more {
                    links.go_on(name.clone());
                }
                if let Answer::Gone(_) = &answer {
                    links.shared.places.lost(id, *fence);
                }
                convert::renewed(answer, sent, || None)
            }
            Err(error) => Renewed::Unknown(error),
        });
    }
    renewed
}

/// The answer to a renewal that waits for the row of its name. Only whoever asked for nothing else waits with it; for
/// the others it is there when the hold is renewed next.
async fn late_answer(
    links: &Links,
    id: ClaimId,
    mut told: LateAnswer,
    alone: bool,
) -> Result<(StepAnswer, Moment)> {
    if alone {
        return told.await.unwrap_or_else(|_| Err(Error::closed()));
    }
    told.try_recv().unwrap_or_else(|_| {
        links.keep_late(id, told);
        Err(errors::row_is_locked())
    })
}

/// What places were answered that were sent together. Those that the server does not know are sent again by
/// themselves, with all that it needs to make them anew.
async fn answers_to_places(
    links: &Arc<Links>,
    told: oneshot::Receiver<Reply>,
    places: Vec<Claim>,
    listens: bool,
) -> Vec<Renewed> {
    let answers = match together(told, places.len()).await {
        Ok(answers) => answers,
        Err(error) => return unknown(&error, places.len()),
    };
    let sent: Vec<_> = answers
        .into_iter()
        .zip(places)
        .map(|((mut answer, sent), claim)| {
            if !listens {
                answer.look_by(sent + UNHEARD);
            }
            if answer.was_left_out() {
                let (tell, told) = oneshot::channel();
                links.claim(claim, false, 0, tell);
                return Err(told);
            }
            links.note(&claim, &answer, sent);
            if answer.more {
                links.go_on(claim.name);
            }
            Ok((answer, sent))
        })
        .collect();
    let mut looked = Vec::with_capacity(sent.len());
    for answer in sent {
        let answer = match answer {
            Ok(answer) => Ok(answer),
            Err(told) => told.await.unwrap_or_else(|_| Err(Error::closed())),
        };
        looked.push(answer.map_or_else(Renewed::Unknown, |(answer, sent)| {
            convert::renewed(answer.answer, sent, || answer.holder)
        }));
    }
    looked
}

/// The answers to steps that were sent together.
async fn together(
    told: oneshot::Receiver<Reply>,
    count: usize,
) -> Result<Vec<(StepAnswer, Moment)>> {
    let (rows, sent) = told.await.unwrap_or_else(|_| Err(Error::closed()))?;
    if rows.len() != count {
        return Err(strange("the server answered a different number of steps than were sent"));
    }
    rows.iter().map(|row| Ok((read_step(row, sent)?, sent))).collect()
}

fn unknown(error: &Error, count: usize) -> Vec<Renewed> {
    (0..count).map(|_| Renewed::Unknown(error.clone())).collect()
}
