//! Claims and renewals: what their answers mean, and whether enough replicas have them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::config::Topology;
use super::connection::{Connection, Outgoing, Reply, ReplyTo};
use super::protocol::answer::{ClaimAnswer, read_claim, read_keep};
use super::protocol::layout::partition;
use super::protocol::refusal::Refusal;
use super::protocol::request::Request;
use super::protocol::resp::Value;
use super::sentinels::Doubt;
use super::steps::{PendingStep, SendOptions, StepReply, Steps};
use crate::engine::Step;
use crate::engines::convert::{self, Limits};
use crate::ledger::{Answer, KeepAnswer};
use crate::model::claim::{Ended, Fence, Keep, Kept, Renewal, Renewed, Verdict};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

pub(super) type ClaimReply = StepReply<ClaimAnswer>;

impl Steps {
    pub(super) async fn receive_claim(
        &self,
        pending: PendingStep,
        name: &Name,
        ttl: Duration,
    ) -> Result<ClaimReply> {
        let partition = pending.partition();
        let read = |value: &Value, sent| {
            let read = read_claim(value, ttl, sent)?;
            match read.0.answer {
                Answer::Granted { fence, .. } => self.shared.numbers.saw(partition, fence),
                Answer::Waiting { floor, .. } => self.shared.numbers.saw(partition, floor),
                _ => {}
            }
            Some(read)
        };
        self.receive(pending, name, read).await
    }

    pub(super) fn verdict(&self, reply: ClaimReply, limits: Limits) -> Result<Verdict> {
        let StepReply { answer: ClaimAnswer { answer, holder }, sent, replicas, enough } = reply;
        match answer {
            // The claim still holds on the server: a retry finds it, and a caller that gives up leaves it.
            Answer::Granted { .. } if !enough => Err(self.too_few(replicas).in_doubt()),
            answer => convert::verdict(answer, limits, sent, || holder),
        }
    }

    fn too_few(&self, replicas: i64) -> Error {
        let wanted = self.shared.setup.config.wait_replicas;
        let reason = format!("only {replicas} of {wanted} replicas have the grant");
        // The server has answered, so this is not an outage.
        Error::new(ErrorKind::Unavailable, reason)
            .next("are the replicas up, and in sync?")
            .not_now()
    }

    pub(super) fn renew(self: Arc<Steps>, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        let groups = self.send_renewal_groups(batch);
        let in_group: HashSet<usize> =
            groups.iter().flat_map(|group| &group.members).copied().collect();
        // Waiting for replicas once is enough: a replica that has the last renewal has all of them.
        let last = batch.len().saturating_sub(1);
        let alone = batch.iter().enumerate().filter(|(at, _)| !in_group.contains(at));
        let mut sent: Vec<_> =
            alone.map(|(at, renewal)| (at, self.send_renewal(renewal, at == last))).collect();
        let holds = batch.iter().any(|renewal| matches!(renewal, Renewal::Hold { .. }));
        let replicas = if holds { self.ask_for_replicas() } else { None };
        let all = groups.iter().map(|group| &group.pending).chain(sent.iter().map(|(_, it)| it));
        let connection = all.flatten().next().map(|pending| pending.connection.clone());
        connection.iter().for_each(Connection::ask_for_time);
        let batch = batch.to_vec();
        Step::pending(async move {
            let mut replies = BTreeMap::new();
            for group in groups {
                for (at, reply) in self.receive_renewal_group(group, &batch).await {
                    match reply {
                        Some(reply) => drop(replies.insert(at, reply)),
                        None => sent.push((at, self.send_renewal(&batch[at], false))),
                    }
                }
            }
            for (at, pending) in sent {
                replies.insert(at, self.receive_renewal(pending, &batch[at]).await);
            }
            let replies: Vec<_> = replies.into_values().collect();
            let too_few = match replies.last() {
                Some(Ok(StepReply { enough: true, .. })) => None,
                Some(Ok(StepReply { replicas, .. })) => Some(*replicas),
                _ => (self.shared.setup.config.wait_replicas > 0).then_some(0),
            };
            let doubt = match replicas {
                Some((connection, reply)) => self.doubt(&connection, reply).await,
                None => None,
            };
            let is_expired = |reply: &Result<ClaimReply>| {
                let expired = Answer::Gone(Ended::Expired);
                reply.as_ref().is_ok_and(|reply| reply.answer.answer == expired)
            };
            let clock_step = match connection.filter(|_| replies.iter().any(is_expired)) {
                Some(connection) => connection.clock_step().await,
                None => None,
            };
            let renewed = |reply: Result<ClaimReply>| {
                let renewed = reply.and_then(|reply| self.renewed(reply, too_few, doubt.as_ref()));
                match (renewed, clock_step) {
                    (Ok(Renewed::Gone(Ended::Expired)), Some(by)) => {
                        Renewed::Gone(Ended::ClockStep { by })
                    }
                    (renewed, _) => renewed.unwrap_or_else(Renewed::Unknown),
                }
            };
            Ok(replies.into_iter().map(renewed).collect())
        })
    }

    /// Renews a hold for the claim of this process that has it now.
    pub(super) fn keep(self: Arc<Steps>, keep: &Keep) -> Step<Kept> {
        let pending = match self.send_keep(keep, true) {
            Ok(pending) => pending,
            Err(error) => return Step::ready(Err(error)),
        };
        let replicas = self.ask_for_replicas();
        let connection = pending.connection.clone();
        connection.ask_for_time();
        let keep = keep.clone();
        Step::pending(async move {
            let mut reply = self.receive_keep(pending, &keep).await;
            // While a slot moves, the partition's key may be at one server and the name's at the other.
            let may_be_moving = |error: &Error| {
                let is_refused = error.kind() == ErrorKind::Unavailable;
                self.shared.setup.is_cluster && is_refused && !error.may_have_happened()
            };
            if reply.as_ref().is_err_and(may_be_moving) {
                reply = self.receive_keep(self.send_keep(&keep, false)?, &keep).await;
            }
            let StepReply { answer, sent, replicas: count, enough } = reply?;
            if let KeepAnswer::Held { .. } = answer {
                let doubt = match replicas {
                    Some((server, reply)) => self.doubt(&server, reply).await,
                    None => None,
                };
                match doubt {
                    Some(doubt) => return Err(doubt.in_doubt()),
                    None if !enough => return Err(self.too_few(count).in_doubt()),
                    None => {}
                }
            } else {
                self.shared.waiting.places.lost(&keep.name, &keep.id, keep.fence);
            }
            if answer == KeepAnswer::Gone(Ended::Expired)
                && let Some(by) = connection.clock_step().await
            {
                return Ok(Kept::Gone(Ended::ClockStep { by }));
            }
            Ok(convert::kept(answer, keep.fence, sent))
        })
    }

    fn send_keep(&self, keep: &Keep, with_partition: bool) -> Result<PendingStep> {
        let seen = self.shared.numbers.of(partition(&keep.name));
        let request = self.shared.setup.layout.keep(keep, seen, with_partition);
        self.send(request, SendOptions { counted: true, ..SendOptions::default() })
    }

    async fn receive_keep(
        &self,
        pending: PendingStep,
        keep: &Keep,
    ) -> Result<StepReply<KeepAnswer>> {
        let partition = pending.partition();
        let read = |value: &Value, _| {
            let read = read_keep(value)?;
            if let KeepAnswer::Held { fences, .. } = &read.0 {
                self.shared.numbers.saw(partition, Fence::new(fences.last));
            }
            Some(read)
        };
        self.receive(pending, &keep.name, read).await
    }

    /// Behind sentinels, asks the server for its replicas, right after the renewals were sent.
    fn ask_for_replicas(&self) -> Option<(Arc<Connection>, oneshot::Receiver<Result<Reply>>)> {
        if !matches!(self.shared.setup.config.topology, Topology::Sentinel { .. }) {
            return None;
        }
        let connection = self.router.to(0).ok()?;
        let (sender, reply) = oneshot::channel();
        let request = Request::plain(&[b"INFO", b"replication"]);
        connection.send(request, Outgoing::new(ReplyTo::One(sender)));
        Some((connection, reply))
    }

    /// Returns why the server at the other end of `connection` may no longer be the primary.
    async fn doubt(
        &self,
        connection: &Connection,
        reply: oneshot::Receiver<Result<Reply>>,
    ) -> Option<Error> {
        let Doubt { error, is_replaced } =
            self.shared.sentinels.confirm(connection, reply).await.err()?;
        if is_replaced {
            self.shared.primary_changed(connection, &Refusal::NotPrimary);
        }
        Some(error)
    }

    fn send_renewal(&self, renewal: &Renewal, counted: bool) -> Result<PendingStep> {
        if matches!(renewal, Renewal::Place(_)) {
            // The runtime that listened for the turn of this claim may be gone; listen on this one.
            self.shared.listen();
        }
        let layout = &self.shared.setup.layout;
        let options = SendOptions { counted, ..SendOptions::default() };
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                self.send(layout.renew(name, id, *fence, *ttl), options)
            }
            Renewal::Place(claim) => {
                self.shared.waiting.places.expect(&claim.name, claim.id);
                let place = Some((claim.name.clone(), claim.id));
                let request =
                    layout.claim(claim, false, true, self.shared.numbers.before(claim))?;
                self.send(request, SendOptions { place, ..options })
            }
        }
    }

    async fn receive_renewal(
        &self,
        pending: Result<PendingStep>,
        renewal: &Renewal,
    ) -> Result<ClaimReply> {
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                let reply = self.receive_claim(pending?, name, *ttl).await?;
                if let Answer::Gone(_) = reply.answer.answer {
                    self.shared.waiting.places.lost(name, id, *fence);
                }
                Ok(reply)
            }
            Renewal::Place(claim) => self.receive_claim(pending?, &claim.name, claim.ttl).await,
        }
    }

    /// `too_few` is the number of replicas that have the renewal, if that is not enough. `doubt` says why
    /// the server may no longer be the primary.
    fn renewed(
        &self,
        reply: ClaimReply,
        too_few: Option<i64>,
        doubt: Option<&Error>,
    ) -> Result<Renewed> {
        let StepReply { answer: ClaimAnswer { answer, holder }, sent, .. } = reply;
        if let Answer::Granted { .. } = answer {
            if let Some(doubt) = doubt {
                return Err(doubt.clone().in_doubt());
            }
            if let Some(replicas) = too_few {
                return Err(self.too_few(replicas).in_doubt());
            }
        }
        Ok(convert::renewed(answer, sent, || holder))
    }
}
