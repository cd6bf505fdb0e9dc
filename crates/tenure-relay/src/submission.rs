//! One transaction from its turn in the lane to its outcome: the checks, the submission, the log line.
//!
//! The lane is released as soon as the node has answered; nobody waits for a confirmation. Sending a transaction
//! twice has the same effect as sending it once, so when an answer is lost the relay keeps the lane, looks for the hash
//! and sends again.

mod check;
mod submit;

use std::sync::Arc;
use std::time::Duration;

use tenure::{ErrorKind, Hold, OnOutage, Protection};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::check::{CheckError, Checked};
use crate::config::Gap;
use crate::in_flight::{InFlight, Member};
use crate::lane::{Lanes, Order, Outcome, Turn};
use crate::meters;
use crate::node::Want;
use crate::queue::{Early, Lane, Place};
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::Written;
use crate::transaction::Transaction;

/// How often to look for a transaction whose outcome is unknown after its lane has been released.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A transaction joins the pending set only if it takes longer than this. Until then the lane shows it.
const PENDING_AFTER: Duration = Duration::from_millis(100);
/// How long to wait for the engine when a transaction of unknown outcome joins the pending set.
const PENDING_WITHIN: Duration = Duration::from_secs(1);
/// The first and the longest pause before a node that did not answer is asked again.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_millis(200);
/// How often an early transaction checks its nonce again when no order is kept.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// One transaction that the relay is processing.
pub(crate) struct Submission {
    lanes: Arc<Lanes>,
    transaction: Transaction,
    client: Option<Client>,
    /// The name of the client, for the log.
    from: Arc<str>,
    arrived: Instant,
    /// When its last turn began.
    turn_at: Option<Instant>,
    /// What the queue said when its last turn came too early.
    early: Option<Early>,
    was_early: bool,
    /// `None` once the client has its answer.
    answer: Option<oneshot::Sender<Outcome>>,
    /// Its entry in the pending set.
    member: Option<Member>,
    /// Whether a node may have it from this relay.
    is_submitted: bool,
    /// The node did not have this nonce when the turn began, so if it has the transaction now, it has it from this relay.
    is_new: bool,
    /// The record that this client sent it.
    remembered: Option<Hold>,
    /// Its client reserves nonces, so it never means to replace a transaction.
    reserves: bool,
    /// The record of its hash beside the reserved nonce, for other signers.
    written: Option<Written>,
}

/// How a turn ended.
enum TurnResult {
    Done(Outcome),
    /// Its nonce is not next; this one is.
    TooEarly(u64),
}

impl Submission {
    pub(crate) fn new(
        lanes: Arc<Lanes>,
        transaction: Transaction,
        client: Option<Client>,
        from: Arc<str>,
        reserves: bool,
        answer: oneshot::Sender<Outcome>,
    ) -> Submission {
        let (arrived, answer) = (Instant::now(), Some(answer));
        Submission {
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
            is_new: false,
            remembered: None,
            reserves,
            written: None,
        }
    }

    pub(crate) async fn run(mut self, order: Order) {
        let outcome = match order {
            Order::ByNonce(place) => self.run_by_nonce(place).await,
            Order::ByArrival(turn) => self.run_by_arrival(turn).await,
            Order::None => self.run_unordered().await,
        };
        self.keep_remembered(&outcome).await;
        if self.reserves {
            let written = self.written.take();
            self.lanes.settle(&self.transaction, written, &outcome).await;
        }
        self.end(outcome);
    }

    /// Takes turns until its nonce is next. At each relay the lowest nonce of a sender waits in the lane.
    async fn run_by_nonce(&mut self, mut place: Place) -> Outcome {
        loop {
            let lane = match place.turn().await {
                Ok(Some(lane)) => lane,
                Ok(None) => match self.lanes.join(&self.transaction).await {
                    Ok(hold) => Lane::new(hold),
                    Err(error) => {
                        let refusal = self.lane_refusal(&error);
                        place.refuse_all(&refusal);
                        return Outcome::Refused(refusal);
                    }
                },
                Err(refusal) => return Outcome::Refused(refusal),
            };
            let lane = match place.pass_to_lower(lane) {
                Ok(()) => continue,
                Err(lane) => lane,
            };
            match self.take_turn(Some(&lane.hold)).await {
                TurnResult::Done(outcome) => {
                    let class = class_of(&outcome);
                    let next = self.transaction.nonce.saturating_add(1);
                    let next = ["accepted", "repeated"].contains(&class).then_some(next);
                    place.leave(Some(lane).filter(|_| class != "unknown"), next);
                    return outcome;
                }
                TurnResult::TooEarly(next) => {
                    let Gap::Hold(window) = self.lanes.config.gap else {
                        return self.gap(next, Duration::ZERO);
                    };
                    match place.wait_until_next(next, lane, window).await {
                        Ok(early) => self.early = Some(early),
                        Err(waited) => return self.gap(next, waited),
                    }
                }
            }
        }
    }

    /// Takes one turn, in the order of arrival at all relays.
    async fn run_by_arrival(&mut self, turn: Turn) -> Outcome {
        match turn.await {
            Ok(hold) => match self.take_turn(Some(&hold)).await {
                TurnResult::Done(outcome) => outcome,
                TurnResult::TooEarly(next) => self.gap(next, Duration::ZERO),
            },
            Err(error) => Outcome::Refused(self.lane_refusal(&error)),
        }
    }

    /// Takes no turn in a lane.
    async fn run_unordered(&mut self) -> Outcome {
        let (mut last, mut until) = (0, self.arrived);
        loop {
            match (self.take_turn(None).await, self.lanes.config.gap) {
                (TurnResult::Done(outcome), _) => return outcome,
                (TurnResult::TooEarly(next), Gap::Hold(window)) => {
                    if next > last || until == self.arrived {
                        (last, until) = (next, Instant::now() + window);
                    }
                    if until <= Instant::now() {
                        return self.gap(next, self.arrived.elapsed());
                    }
                    tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
                }
                (TurnResult::TooEarly(next), _) => return self.gap(next, Duration::ZERO),
            }
        }
    }

    fn gap(&self, next: u64, waited: Duration) -> Outcome {
        let Transaction { sender, nonce, .. } = self.transaction;
        let because = self.lanes.queues.why_missing(sender, next);
        Outcome::Refused(Refusal::NonceGap { next, nonce, waited, because })
    }

    /// Keeps the record of who sent it if a node has it or may have it.
    async fn keep_remembered(&mut self, outcome: &Outcome) {
        let Some(remembered) = self.remembered.take() else { return };
        if matches!(class_of(outcome), "accepted" | "unknown") {
            // Without the record, a repetition is answered with the node's own words.
            let _ = remembered.detach().await;
        }
    }

    /// Checks and submits while the lane is held, and stops when the lane is lost or `max_hold` is over.
    async fn take_turn(&mut self, hold: Option<&Hold>) -> TurnResult {
        self.turn_at = Some(Instant::now());
        // The pending set needs the engine. If the engine is down, nobody waits to find that out a second time.
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
                    tokio::time::sleep(PENDING_AFTER).await;
                    in_flight.join(nonce, Some(hash)).await
                }
                None => std::future::pending().await,
            }
        };
        let mut member = None;
        let result = {
            let (ends, works) =
                (tokio::time::sleep(max_hold), self.check_and_submit(in_flight.as_ref()));
            tokio::pin!(lost, ends, works, shown);
            loop {
                tokio::select! {
                    biased;
                    why = &mut lost => break Err(why),
                    () = &mut ends => break Err(format!("no answer within {max_hold:?}")),
                    result = &mut works => break Ok(result),
                    joined = &mut shown, if member.is_none() => member = Some(joined.ok()),
                }
            }
        };
        self.member = member.flatten();
        let result =
            result.unwrap_or_else(|why| TurnResult::Done(Outcome::Refused(self.cut_off(why))));
        self.keep_pending(&result, in_flight).await;
        if let TurnResult::Done(outcome) = &result {
            if ["rejected", "refused"].contains(&class_of(outcome)) {
                self.lanes.queues.refused(sender, nonce, why(outcome));
            }
        } else {
            self.was_early = true;
        }
        result
    }

    /// Leaves the transaction in the pending set if its outcome is unknown, and takes it out otherwise.
    async fn keep_pending(&mut self, result: &TurnResult, in_flight: Option<InFlight>) {
        let is_unknown =
            matches!(result, TurnResult::Done(outcome) if class_of(outcome) == "unknown");
        match (is_unknown, in_flight) {
            (true, Some(in_flight)) if self.member.is_none() => {
                let Transaction { nonce, hash, .. } = self.transaction;
                // The client waits for its answer, so the engine gets little time.
                let joined =
                    tokio::time::timeout(PENDING_WITHIN, in_flight.join(nonce, Some(hash)));
                self.member = joined.await.ok().and_then(Result::ok);
            }
            (true, _) => {}
            // Before the lane is released: the next transaction must not find it in the set.
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
            false => Refusal::NodeUnreachable(format!("the lane was released: {why}")),
        }
    }

    async fn check_and_submit(&mut self, in_flight: Option<&InFlight>) -> TurnResult {
        let mut pause = FIRST_RETRY;
        loop {
            let gone = match self.check(in_flight).await {
                Ok(Checked::Good(node)) => {
                    if let Err(refusal) = self.remember().await {
                        return TurnResult::Done(Outcome::Refused(refusal));
                    }
                    if self.reserves && self.written.is_none() {
                        match self.lanes.write_down(&self.transaction).await {
                            Ok(written) => self.written = Some(written),
                            Err(refusal) => return TurnResult::Done(Outcome::Refused(refusal)),
                        }
                    }
                    // A repetition of someone else's transaction gets the node's answer.
                    if self.lanes.config.answer_early && self.is_new {
                        self.answer_with(Outcome::Accepted(self.transaction.hash));
                    }
                    match self.submit(&node).await {
                        Ok(outcome) => return TurnResult::Done(outcome),
                        // The next node may lack the transactions before this one, so check again.
                        Err(refusal) => refusal,
                    }
                }
                Ok(Checked::Repeated) => {
                    return TurnResult::Done(Outcome::Repeated(self.transaction.hash));
                }
                Ok(Checked::TooEarly(next)) => return TurnResult::TooEarly(next),
                Err(CheckError::Refused(refusal)) => {
                    return TurnResult::Done(Outcome::Refused(refusal));
                }
                Err(CheckError::NoNode(refusal)) => refusal,
            };
            // The node may be restarting. A client that was already told "sent" relies on it, so there is no limit then.
            let until = self.arrived + self.lanes.config.answer_within;
            if self.answer.is_some() && Instant::now() + pause > until {
                return TurnResult::Done(Outcome::Refused(gone));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }

    /// Records that this client is about to send the transaction, if the client identifies itself.
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

    /// Where the relay may work without the engine, it may also work without the pending set.
    fn without_engine(&self, error: &tenure::Error) -> Result<(), Refusal> {
        let is_down = error.kind() == ErrorKind::Unavailable;
        if is_down && self.lanes.config.on_outage != OnOutage::Closed {
            return Ok(());
        }
        Err(self.lane_refusal(error))
    }

    /// What to tell a client if there is no lane for its transaction.
    fn lane_refusal(&self, error: &tenure::Error) -> Refusal {
        match error.kind() {
            ErrorKind::Full => Refusal::LineFull { limit: self.lanes.config.per_sender as usize },
            ErrorKind::Closed => Refusal::ShuttingDown,
            _ => Refusal::EngineDown(error.reason().to_owned()),
        }
    }

    fn answer_with(&mut self, outcome: Outcome) {
        if let Some(answer) = self.answer.take() {
            // The client may have disconnected.
            let _ = answer.send(outcome);
        }
    }

    /// Counts, logs and answers, after the lane has been released.
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
            // The client was told that it was sent.
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

    /// One line per transaction: its outcome, how long it waited for its turn, and how long it took altogether.
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

    /// Waits until a node has the transaction or its nonce is used; it counts as pending until then.
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
