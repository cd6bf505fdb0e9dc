//! Steps that travel together, as one script call with one answer for each.
//!
//! A group is an attempt: what it cannot do in the plain form of a name is sent again by itself, as if there had been no
//! group.

use std::time::Duration;

use super::layout::Layout;
use super::request::{ClaimGrouping, Grouping, Request};
use super::resp::{self, Value};
use super::scripts::{Script, ScriptForm};
use crate::model::claim::{ClaimId, Fence};
use crate::model::name::Name;

/// The most steps of a group, and about the most bytes. The server does nothing else meanwhile.
pub(crate) const MOST_STEPS: usize = 64;
pub(crate) const MOST_BYTES: usize = 64 << 10;

/// What a group says about a step.
#[derive(Debug, PartialEq)]
pub(crate) enum InGroup {
    /// The answer that it would have had by itself.
    Answered,
    /// Nothing was done. It must be sent by itself.
    Again,
    /// A claim that found its name in use. It must be sent by itself, with this ticket, so that nobody who came
    /// later is before it.
    AgainAt(u64),
}

/// Sorts steps into the order that a group needs: leaves first, which make room for claims, then the claims of each
/// partition, as they came.
pub(crate) fn place_of(request: &Request) -> u32 {
    match &request.grouping {
        Some(Grouping { claim: Some(_), .. }) => 1 + u32::from(request.partition()),
        _ => 0,
    }
}

/// Encodes a group of steps that are sorted by `place_of`.
pub(crate) fn encode<'a>(
    steps: impl Iterator<Item = &'a Request> + Clone,
    form: ScriptForm,
    out: &mut Vec<u8>,
) {
    let grouped = || steps.clone().filter_map(|step| Some((step, step.grouping.as_ref()?)));
    let (mut leaves, mut claims, mut partitions, mut last) = (0, 0, 0, None);
    for (step, grouping) in grouped() {
        match grouping.claim {
            None => leaves += 1,
            Some(_) => {
                claims += 1;
                partitions += usize::from(last != Some(step.partition()));
                last = Some(step.partition());
            }
        }
    }
    let keys = leaves + claims + partitions;
    resp::array(out, 2 + 1 + keys + 1 + leaves + 2 * partitions + 3 * claims);
    Script::Group.encode(form, out);
    resp::bulk_number(out, keys as u64);
    last = None;
    for (step, Grouping { key, partition_key, claim, .. }) in grouped() {
        if claim.is_some() && last != Some(step.partition()) {
            out.extend_from_slice(step.slice(partition_key));
            last = Some(step.partition());
        }
        out.extend_from_slice(step.slice(key));
    }
    resp::bulk_number(out, leaves as u64);
    last = None;
    let mut rest = grouped();
    while let Some((step, Grouping { arguments, claim, .. })) = rest.next() {
        if let Some(ClaimGrouping { seen, .. }) = claim
            && last != Some(step.partition())
        {
            last = Some(step.partition());
            let others =
                rest.clone().take_while(|(other, _)| other.partition() == step.partition());
            let seen_by = |(_, other): (_, &Grouping)| other.claim.map_or(0, |claim| claim.seen);
            let (count, seen) =
                others.map(seen_by).fold((1, *seen), |(count, seen), by| (count + 1, seen.max(by)));
            resp::bulk_number(out, 2 * count);
            resp::bulk_number(out, seen);
        }
        out.extend_from_slice(step.slice(arguments));
    }
}

impl Request {
    /// How many bytes it adds to a group.
    pub(crate) fn bytes_in_group(&self) -> usize {
        let bytes = |grouping: &Grouping| grouping.key.len() * 2 + grouping.arguments.len();
        self.grouping.as_ref().map_or(0, bytes)
    }

    /// What the group's answer says about this step.
    pub(crate) fn in_group(&self, answer: &Value) -> InGroup {
        let claim = self.grouping.as_ref().and_then(|grouping| grouping.claim);
        match (answer, claim) {
            (Value::Int(1), None) | (Value::Int(2..), Some(_)) => InGroup::Answered,
            (Value::Int(ticket @ ..-1), Some(ClaimGrouping { may_join: true, .. })) => {
                InGroup::AgainAt(ticket.unsigned_abs())
            }
            _ => InGroup::Again,
        }
    }

    /// The same step by itself, as it is sent after a group.
    pub(crate) fn alone(mut self, ticket: Option<u64>) -> Request {
        self.grouping = None;
        if let Some(ticket) = ticket {
            self.text(format_args!("{} {ticket} -1 0", u32::MAX));
        }
        self
    }
}

/// A hold that is renewed.
pub(crate) type HoldToRenew<'a> = (&'a Name, &'a ClaimId, Fence, Duration);

impl Layout {
    /// Whether the renewal may travel in a group. A ttl of zero only asks, which a group does not.
    pub(crate) fn groups_renewal(&self, ttl: Duration) -> bool {
        self.groups && !ttl.is_zero()
    }

    /// As many of the renewals as fit into one group, and how many these are.
    pub(crate) fn renew_group(&self, holds: &[HoldToRenew<'_>]) -> (Request, usize) {
        let mut request = Request::new(Script::RenewGroup, 0);
        let mut bytes = 0;
        let fits = |(name, ..): &&HoldToRenew<'_>| {
            bytes += 2 * name.as_str().len() + 128;
            bytes <= MOST_BYTES
        };
        let count = holds.iter().take(MOST_STEPS).take_while(fits).count().max(1);
        request.number(count as u64);
        let holds = holds.get(..count).unwrap_or(holds);
        holds.iter().for_each(|(name, ..)| self.name_key(name, &mut request));
        for (_, id, fence, ttl) in holds {
            request.arg(&id.to_bytes());
            request.number(fence.get());
            request.number(ttl.as_millis() as u64);
        }
        (request, count)
    }
}
