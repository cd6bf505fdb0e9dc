//! Renewals that travel together: one script call extends up to 64 plain holds.

use std::time::Duration;

use super::claims::ClaimReply;
use super::protocol::answer::{ClaimAnswer, Marks};
use super::protocol::group::HoldToRenew;
use super::protocol::resp::Value;
use super::steps::{PendingStep, SendOptions, StepReply, Steps};
use crate::ledger::Answer;
use crate::model::claim::Renewal;
use crate::model::error::{ErrorKind, Result};

/// A group that was sent, and where its renewals are in the batch.
pub(super) struct RenewalGroup {
    pub(super) pending: Result<PendingStep>,
    pub(super) members: Vec<usize>,
}

impl Steps {
    /// Sends the renewals of holds for which, as far as we know, nobody waits.
    pub(super) fn send_renewal_groups(&self, batch: &[Renewal]) -> Vec<RenewalGroup> {
        let layout = &self.shared.setup.layout;
        let plain = |(at, renewal): (usize, &'_ Renewal)| match renewal {
            Renewal::Hold { name, ttl, .. } if layout.groups_renewal(*ttl) => {
                (!self.shared.waiting.places.has_line(name)).then_some(at)
            }
            _ => None,
        };
        let mut members: Vec<usize> = batch.iter().enumerate().filter_map(plain).collect();
        let mut groups = Vec::new();
        while members.len() > 1 {
            let holds: Vec<_> = members.iter().filter_map(|at| hold(batch.get(*at)?)).collect();
            let (request, count) = layout.renew_group(&holds);
            let rest = members.split_off(count);
            let pending = self.send(request, SendOptions::default());
            groups.push(RenewalGroup { pending, members: std::mem::replace(&mut members, rest) });
        }
        groups
    }

    /// The answer to each renewal of a group, with its place in the batch. `None` if that renewal must be sent
    /// by itself.
    pub(super) async fn receive_renewal_group(
        &self,
        group: RenewalGroup,
        batch: &[Renewal],
    ) -> Vec<(usize, Option<Result<ClaimReply>>)> {
        let RenewalGroup { pending, members } = group;
        let holds: Vec<_> = members.iter().filter_map(|at| hold(batch.get(*at)?)).collect();
        let Some((name, ..)) = holds.first() else { return Vec::new() };
        let read = |value: &Value, _| {
            let lives = value.as_list().filter(|lives| lives.len() == holds.len())?;
            let lives: Option<Vec<i64>> = lives.iter().map(Value::as_int).collect();
            Some((lives?, Marks::default()))
        };
        let received = match pending {
            Ok(pending) => self.receive(pending, name, read).await,
            Err(error) => Err(error),
        };
        let StepReply { answer: lives, sent, replicas, enough } = match received {
            Ok(reply) => reply,
            // What the server refuses as a whole, such as one key that this user may not use, must not fail the others.
            Err(error) if error.kind() != ErrorKind::Unavailable && !error.may_have_happened() => {
                return members.into_iter().map(|at| (at, None)).collect();
            }
            Err(error) => {
                return members.into_iter().map(|at| (at, Some(Err(error.clone())))).collect();
            }
        };
        let answer = |((_, _, fence, _), life): (&HoldToRenew<'_>, i64)| {
            let remaining = Duration::from_millis(u64::try_from(life).ok().filter(|it| *it > 0)?);
            let answer = Answer::Granted { fence: *fence, remaining, first_life: false };
            let answer = ClaimAnswer { answer, holder: None };
            Some(Ok(StepReply { answer, sent, replicas, enough }))
        };
        members.into_iter().zip(holds.iter().zip(lives).map(answer)).collect()
    }
}

fn hold(renewal: &Renewal) -> Option<HoldToRenew<'_>> {
    match renewal {
        Renewal::Hold { name, id, fence, ttl } => Some((name, id, *fence, *ttl)),
        Renewal::Place(_) => None,
    }
}
