//! The way of one transaction through its lane: the checks, the submission, what became of it.
//!
//! The lane is free again as soon as the node has answered; confirmation is not waited for. Sending the
//! same transaction twice has one effect, so an answer that got lost is found out under the lane, by
//! looking for the hash and by sending again.

mod check;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use tenure::{ErrorKind, Hold, OnOutage, Protection};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::check::{Bad, Checked};
use crate::config::Gap;
use crate::in_flight::{InFlight, Member};
use crate::lane::{Lanes, Outcome, Turn, Way};
use crate::meters;
use crate::node::Want;
use crate::queue::{Early, Lane, Place};
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::Written;
use crate::transaction::Transaction;

/// How often a transaction of unknown outcome is looked for once its lane has moved on.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What is answered sooner is in the lane alone, and does not join the pending set.
const SHOWN_AFTER: Duration = Duration::from_millis(100);
/// How long the engine may take for that where the outcome is unknown.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);
/// The first pause before a node that does not answer is asked again, and the longest.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_millis(200);
/// How often one that is too early looks again where there is no order.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// One transaction on its way.
pub(crate) struct Passage {
    lanes: Arc<Lanes>,
    transaction: Transaction,
    client: Option<Client>,
    /// Who sent it, for the log.
    from: Arc<str>,
    arrived: Instant,
    /// When its turn came last.
    turn_at: Option<Instant>,
    /// How it was when it last came too early.
    early: Option<Early>,
    was_early: bool,
    /// Taken when the answer has been given.
    answer: Option<oneshot::Sender<Outcome>>,
    /// Its place in the pending set.
    member: Option<Member>,
    /// From here on a node may have it.
    is_submitted: bool,
    /// What was tried before the checks is not known to have come to nothing.
    is_unheard: bool,
    /// The node did not have it when its turn came: whatever it has then, it has from here.
    is_new: bool,
    /// What says that it was sent by this client.
    remembered: Option<Hold>,
    /// Its client sends with nonces that it has reserved, and means to replace nothing.
    reserves: bool,
    /// What says so to other signers.
    written: Option<Written>,
}

/// What came of one turn.
enum Visit {
    Over(Outcome),
    /// Others come first; the sender's next nonce is this.
    TooEarly(u64),
}

impl Passage {
    pub(crate) fn new(
        lanes: Arc<Lanes>,
        transaction: Transaction,
        client: Option<Client>,
        from: Arc<str>,
        reserves: bool,
        answer: oneshot::Sender<Outcome>,
    ) -> Passage {
        let (arrived, answer) = (Instant::now(), Some(answer));
        Passage {
            lanes,
            transaction,
            client,
            from,
            arrived,
            turn_at: None,
            early: None,
            was_early: false,
            answer,
            member: None,
            is_submitted: false,
            is_unheard: false,
            is_new: false,
            remembered: None,
            reserves,
            written: None,
        }
    }

    pub(crate) async fn pass(mut self, way: Way) {
        let outcome = match way {
            Way::ByNonce(place) => self.pass_by_nonce(place).await,
            Way::ByArrival(turn) => self.pass_by_arrival(turn).await,
            Way::Free => self.pass_free().await,
        };
        self.keep_remembered(&outcome).await;
        if self.reserves {
            let written = self.written.take();
            self.lanes.settle(&self.transaction, written, &outcome).await;
        }
        self.end(outcome);
    }

    /// The lowest nonce here goes to the lane, again and again until it is next.
    async fn pass_by_nonce(&mut self, mut place: Place) -> Outcome {
        loop {
            let lane = match place.turn().await {
                Ok(Some(lane)) => lane,
                Ok(None) => match self.lanes.join(&self.transaction).await {
                    Ok(hold) => Lane::new(hold),
                    Err(error) => {
                        let refusal = self.no_turn(&error);
                        place.refuse_all(&refusal);
                        return self.refused(refusal);
                    }
                },
                Err(refusal) => return self.refused(refusal),
            };
            let lane = match place.goes_behind(lane) {
                Ok(()) => continue,
                Err(lane) => lane,
            };
            match self.visit(Some(&lane.hold)).await {
                Visit::Over(outcome) => {
                    let class = class_of(&outcome);
                    let next = self.transaction.nonce.saturating_add(1);
                    let next = ["accepted", "repeated"].contains(&class).then_some(next);
                    place.leave(Some(lane).filter(|_| class != "unknown"), next);
                    return outcome;
                }
                Visit::TooEarly(next) => {
                    let Gap::Hold(window) = self.lanes.config.gap else {
                        return self.gap(next, Duration::ZERO);
                    };
                    match place.step_aside(next, lane, window).await {
                        Ok(early) => self.early = Some(early),
                        Err(waited) => return self.gap(next, waited),
                    }
                }
            }
        }
    }

    /// The order of the lane is that of arrival at all relays.
    async fn pass_by_arrival(&mut self, turn: Turn) -> Outcome {
        match turn.await {
            Ok(hold) => match self.visit(Some(&hold)).await {
                Visit::Over(outcome) => outcome,
                Visit::TooEarly(next) => self.gap(next, Duration::ZERO),
            },
            Err(error) => Outcome::Refused(self.no_turn(&error)),
        }
    }

    /// Without order.
    async fn pass_free(&mut self) -> Outcome {
        let (mut last, mut until) = (0, self.arrived);
        loop {
            match (self.visit(None).await, self.lanes.config.gap) {
                (Visit::Over(outcome), _) => return outcome,
                (Visit::TooEarly(next), Gap::Hold(window)) => {
                    if next > last || until == self.arrived {
                        (last, until) = (next, Instant::now() + window);
                    }
                    if until <= Instant::now() {
                        return self.gap(next, self.arrived.elapsed());
                    }
                    tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
                }
                (Visit::TooEarly(next), _) => return self.gap(next, Duration::ZERO),
            }
        }
    }

    fn gap(&self, next: u64, waited: Duration) -> Outcome {
        let Transaction { sender, nonce, .. } = self.transaction;
        let because = self.lanes.queues.why_missing(sender, next);
        self.refused(Refusal::NonceGap { next, nonce, waited, because })
    }

    /// What a node may have is not refused any more: it may still be carried out.
    fn refused(&self, refusal: Refusal) -> Outcome {
        let hash = self.transaction.hash;
        Outcome::Refused(match refusal {
            Refusal::OutcomeUnknown { .. } => refusal,
            _ if self.is_submitted => Refusal::OutcomeUnknown { hash, why: refusal.message() },
            _ => refusal,
        })
    }

    /// A client is known again for what it has sent, or may have, and not for what was refused.
    async fn keep_remembered(&mut self, outcome: &Outcome) {
        let Some(remembered) = self.remembered.take() else { return };
        if matches!(class_of(outcome), "accepted" | "unknown") {
            // What cannot be kept is forgotten: a repetition hears the node's own words.
            let _ = remembered.detach().await;
        }
    }

    /// What is done under the lane, for as long as it is held and no longer.
    async fn visit(&mut self, hold: Option<&Hold>) -> Visit {
        self.turn_at = Some(Instant::now());
        // The set is kept under the lane. Without the engine there is none; nobody waits to hear that
        // again.
        let protection = hold.map(Hold::protection);
        let is_kept = self.lanes.config.pending_set && protection == Some(Protection::Engine);
        if let Some(protection) = protection.filter(|by| *by != Protection::Engine) {
            meters::unprotected(self.chain_id(), protection);
        }
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let in_flight = is_kept.then(|| self.lanes.in_flight(sender));
        let (max_hold, lost) = (self.lanes.config.max_hold, hold.map(Hold::lost));
        let lost = async {
            match lost {
                Some(lost) => lost.await.to_string(),
                None => std::future::pending().await,
            }
        };
        let shown = async {
            match &in_flight {
                Some(in_flight) => {
                    tokio::time::sleep(SHOWN_AFTER).await;
                    in_flight.join(nonce, Some(hash)).await
                }
                None => std::future::pending().await,
            }
        };
        let mut member = None;
        let visit = {
            let (ends, works) = (tokio::time::sleep(max_hold), self.work(in_flight.as_ref()));
            tokio::pin!(lost, ends, works, shown);
            loop {
                tokio::select! {
                    biased;
                    why = &mut lost => break Err(why),
                    () = &mut ends => break Err(format!("no answer within {max_hold:?}")),
                    visit = &mut works => break Ok(visit),
                    joined = &mut shown, if member.is_none() => member = Some(joined.ok()),
                }
            }
        };
        self.member = member.flatten();
        let visit = match visit {
            Ok(Visit::Over(Outcome::Refused(refusal))) => Visit::Over(self.refused(refusal)),
            Ok(visit) => visit,
            Err(why) => Visit::Over(Outcome::Refused(self.cut_off(why))),
        };
        self.stays_shown(&visit, in_flight).await;
        if let Visit::Over(outcome) = &visit {
            if ["rejected", "refused"].contains(&class_of(outcome)) {
                self.lanes.queues.refused(sender, nonce, why(outcome));
            }
        } else {
            self.was_early = true;
        }
        visit
    }

    /// What has no outcome yet stays in the pending set, and nothing else.
    async fn stays_shown(&mut self, visit: &Visit, in_flight: Option<InFlight>) {
        let is_unknown = matches!(visit, Visit::Over(outcome) if class_of(outcome) == "unknown");
        match (is_unknown, in_flight) {
            (true, Some(in_flight)) if self.member.is_none() => {
                let Transaction { nonce, hash, .. } = self.transaction;
                // An engine that is gone is not waited for: the answer is.
                let joined = tokio::time::timeout(SHOWN_WITHIN, in_flight.join(nonce, Some(hash)));
                self.member = joined.await.ok().and_then(Result::ok);
            }
            (true, _) => {}
            // Not in the set any more when the next one looks at it, whose turn comes before anything else is
            // done.
            (false, _) => self.member = None,
        }
    }

    fn cut_off(&self, why: String) -> Refusal {
        tracing::warn!(
            event = "relay.cut_off",
            sender = %self.transaction.sender, nonce = self.transaction.nonce,
            hash = %self.transaction.hash, submitted = self.is_submitted, reason = %why,
        );
        match self.is_submitted {
            true => Refusal::OutcomeUnknown { hash: self.transaction.hash, why },
            false => Refusal::NodeUnreachable(format!("the lane was given up: {why}")),
        }
    }

    async fn work(&mut self, in_flight: Option<&InFlight>) -> Visit {
        if let Some(node) = self.expected_at()
            && let Some(visit) = self.submit_as_expected(&node).await
        {
            return visit;
        }
        let mut pause = FIRST_RETRY;
        loop {
            let gone = match self.check(in_flight).await {
                Ok(Checked::Good(node)) => {
                    if let Err(refusal) = self.remember().await {
                        return Visit::Over(Outcome::Refused(refusal));
                    }
                    if self.reserves && self.written.is_none() {
                        match self.lanes.write_down(&self.transaction).await {
                            Ok(written) => self.written = Some(written),
                            Err(refusal) => return Visit::Over(Outcome::Refused(refusal)),
                        }
                    }
                    // Whoever repeats what another has sent hears that from the node.
                    if self.lanes.config.answer_early && self.is_new {
                        self.answer_with(Outcome::Accepted(self.transaction.hash));
                    }
                    match self.submit(&node).await {
                        Ok(outcome) => return Visit::Over(outcome),
                        // Another node may not have those before it: it is asked first.
                        Err(refusal) => refusal,
                    }
                }
                Ok(Checked::Repeated) => {
                    let hash = self.transaction.hash;
                    return Visit::Over(match self.is_submitted {
                        true => Outcome::Accepted(hash),
                        false => Outcome::Repeated(hash),
                    });
                }
                Ok(Checked::TooEarly(next)) => return Visit::TooEarly(next),
                Err(Bad::No(refusal)) => return Visit::Over(Outcome::Refused(refusal)),
                Err(Bad::Unasked(refusal)) => refusal,
            };
            // It may be about to start again. Whoever has had an answer relies on it.
            let until = self.arrived + self.lanes.config.answer_within;
            if self.answer.is_some() && Instant::now() + pause > until {
                return Visit::Over(Outcome::Refused(gone));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// From now on this client is known again for this transaction, if it says who it is.
    async fn remember(&mut self) -> Result<(), Refusal> {
        let is_known = self.remembered.is_some();
        let client = self.client.as_ref().filter(|_| self.is_new && !is_known);
        let Some(client) = client else { return Ok(()) };
        match self.lanes.remember(self.transaction.hash, client).await {
            Ok(remembered) => self.remembered = remembered,
            Err(error) => self.without_engine(&error)?,
        }
        Ok(())
    }

    /// Where work may go on without the engine, it also goes on without the pending set.
    fn without_engine(&self, error: &tenure::Error) -> Result<(), Refusal> {
        let is_down = error.kind() == ErrorKind::Unavailable;
        if is_down && self.lanes.config.on_outage != OnOutage::Closed {
            return Ok(());
        }
        Err(self.no_turn(error))
    }

    /// What it means to a client that there is no lane.
    fn no_turn(&self, error: &tenure::Error) -> Refusal {
        match error.kind() {
            ErrorKind::Full => Refusal::LineFull { limit: self.lanes.config.per_sender as usize },
            ErrorKind::Closed => Refusal::ShuttingDown,
            _ => Refusal::EngineDown(error.reason().to_owned()),
        }
    }

    fn answer_with(&mut self, outcome: Outcome) {
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have hung up.
            let _ = answer.send(outcome);
        }
    }

    /// The lane has moved on.
    pub(crate) fn end(mut self, outcome: Outcome) {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let class = class_of(&outcome);
        let is_gap = matches!(outcome, Outcome::Refused(Refusal::NonceGap { .. }));
        meters::ended(self.chain_id(), class, self.arrived.elapsed());
        if is_gap || self.was_early {
            meters::gap(self.chain_id(), if is_gap { "refused" } else { "closed" });
        }
        if is_gap {
            meters::wrong_nonce(self.chain_id());
        }
        if !["accepted", "repeated"].contains(&class) && self.answer.is_none() {
            // Whoever sent it has been told that all is well.
            let reason: String = why(&outcome).chars().take(200).collect();
            tracing::error!(
                event = "relay.failed_late", %sender, nonce, %hash, outcome = class, reason
            );
        }
        self.log(&outcome);
        self.answer_with(outcome);
        if let Some(member) = self.member.take() {
            tokio::spawn(async move {
                self.follow().await;
                drop(member);
            });
        }
    }

    /// One line a transaction: what became of it, how long it waited for its turn, and how long it took in
    /// all.
    fn log(&self, outcome: &Outcome) {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let reason = match outcome {
            Outcome::Refused(refusal) => refusal.name(),
            _ => "",
        };
        let took = |until: Instant| until.duration_since(self.arrived).as_millis() as u64;
        tracing::info!(
            event = "relay.transaction", sender = %format_args!("{sender:#x}"), nonce, %hash, outcome = class_of(outcome),
            reason = (!reason.is_empty()).then_some(reason), client = &*self.from,
            wait_ms = self.turn_at.map(took), ms = took(Instant::now()),
        );
    }

    /// It still counts as on its way until it is found, or another has its nonce.
    async fn follow(&self) {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let nodes = &self.lanes.nodes;
        let found = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let account = nodes.account(sender, Want::default()).await;
                let is_used = account.is_ok_and(|(account, _)| account.count > nonce);
                if is_used || matches!(nodes.knows(hash).await, Ok(true)) {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(self.lanes.config.unknown_for, found).await;
    }

    fn chain_id(&self) -> u64 {
        self.lanes.config.rules.chain_id
    }
}

fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Accepted(_) | Outcome::Repeated(_) => String::new(),
        Outcome::Rejected(error) | Outcome::Collided(error) => error.as_str().to_owned(),
        Outcome::Refused(refusal) => refusal.message(),
    }
}

pub(crate) fn class_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Repeated(_) => "repeated",
        Outcome::Rejected(_) => "rejected",
        Outcome::Collided(_) => "collided",
        Outcome::Refused(Refusal::OutcomeUnknown { .. }) => "unknown",
        Outcome::Refused(_) => "refused",
    }
}
