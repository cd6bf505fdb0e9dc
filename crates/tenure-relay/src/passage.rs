//! The way of one transaction through its lane: the checks, the submission, what became of it.
//!
//! The lane is free again as soon as the node has answered; confirmation is not waited for. Sending the
//! same transaction twice has one effect, so an answer that got lost is found out under the lane, by
//! looking for the hash and by sending again.

mod submit;

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::U256;
use tenure::{ErrorKind, Hold, OnOutage, Protection};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::{Gap, Repeats};
use crate::gap::{NotYet, Patience};
use crate::in_flight::{InFlight, Member, next};
use crate::lane::{Lanes, Outcome, Turn};
use crate::meters;
use crate::node::{Account, Want};
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::Written;
use crate::transaction::Transaction;

/// How often a transaction of unknown outcome is looked for once its lane has moved on.
const LOOK_EVERY: Duration = Duration::from_secs(2);

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
    /// How long it still waits for those before it, once it came too early.
    patience: Option<Patience>,
    /// Taken when the answer has been given.
    answer: Option<oneshot::Sender<Outcome>>,
    /// Whether it joins the pending set, and its place there.
    is_shown: bool,
    member: Option<Member>,
    /// From here on a node may have it.
    is_submitted: bool,
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
            patience: None,
            answer,
            is_shown: false,
            member: None,
            is_submitted: false,
            is_new: false,
            remembered: None,
            reserves,
            written: None,
        }
    }

    pub(crate) async fn pass(mut self, mut turn: Option<Turn>) {
        let outcome = loop {
            let hold = match turn.take() {
                Some(turn) => match turn.await {
                    Ok(hold) => Some(hold),
                    Err(error) => break Outcome::Refused(self.no_turn(&error)),
                },
                None => None,
            };
            self.turn_at = Some(Instant::now());
            let visit = self.visit(hold.as_ref()).await;
            // Not in the set any more when the next one looks at it, whose turn comes before anything
            // else is done.
            let is_known =
                !matches!(&visit, Visit::Over(outcome) if class_of(outcome) == "unknown");
            drop(self.member.take_if(|_| is_known));
            if let Visit::Over(Outcome::Accepted(_) | Outcome::Repeated(_)) = &visit {
                self.lanes.recent.accepted(self.transaction.sender, self.transaction.nonce);
            }
            drop(hold);
            match visit {
                Visit::Over(outcome) => {
                    self.keep_remembered(&outcome).await;
                    break outcome;
                }
                Visit::TooEarly(next) => match self.step_out(next).await {
                    Ok(()) => turn = self.lanes.join(&self.transaction),
                    Err(refusal) => break Outcome::Refused(refusal),
                },
            }
        };
        if self.reserves {
            let written = self.written.take();
            self.lanes.settle(&self.transaction, written, &outcome).await;
        }
        self.end(outcome);
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
        // The set is kept under the lane. Without the engine there is none; nobody waits to hear that
        // again.
        let protection = hold.map(Hold::protection);
        self.is_shown = self.lanes.config.pending_set && protection == Some(Protection::Engine);
        if let Some(protection) = protection.filter(|by| *by != Protection::Engine) {
            meters::unprotected(self.chain_id(), protection);
        }
        let (max_hold, lost) = (self.lanes.config.max_hold, hold.map(Hold::lost));
        let lost = async {
            match lost {
                Some(lost) => lost.await.to_string(),
                None => std::future::pending().await,
            }
        };
        let cut_off = tokio::select! {
            biased;
            why = lost => why,
            () = tokio::time::sleep(max_hold) => format!("no answer within {max_hold:?}"),
            visit = self.work() => return visit,
        };
        Visit::Over(Outcome::Refused(self.cut_off(cut_off)))
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

    async fn work(&mut self) -> Visit {
        match self.check().await {
            Ok(Checked::Good) => {}
            Ok(Checked::Repeated) => {
                return Visit::Over(Outcome::Repeated(self.transaction.hash));
            }
            Ok(Checked::TooEarly(next)) => return Visit::TooEarly(next),
            Err(refusal) => return Visit::Over(Outcome::Refused(refusal)),
        }
        if let Err(refusal) = self.remember().await {
            return Visit::Over(Outcome::Refused(refusal));
        }
        if self.reserves {
            match self.lanes.write_down(&self.transaction).await {
                Ok(written) => self.written = Some(written),
                Err(refusal) => return Visit::Over(Outcome::Refused(refusal)),
            }
        }
        // Whoever repeats what another has sent hears that from the node.
        if self.lanes.config.answer_early && self.is_new {
            self.answer_with(Outcome::Accepted(self.transaction.hash));
        }
        Visit::Over(self.submit().await)
    }

    /// From now on this client is known again for this transaction, if it says who it is.
    async fn remember(&mut self) -> Result<(), Refusal> {
        let Some(client) = self.client.as_ref().filter(|_| self.is_new) else { return Ok(()) };
        match self.lanes.remember(self.transaction.hash, client).await {
            Ok(remembered) => self.remembered = remembered,
            Err(error) => self.without_engine(&error)?,
        }
        Ok(())
    }

    /// Everything that takes a look at the chain.
    async fn check(&mut self) -> Result<Checked, Refusal> {
        let lanes = self.lanes.clone();
        let (config, transaction) = (&lanes.config, &self.transaction);
        let want = Want { balance: config.check_balance, fee: config.check_fee };
        let in_flight = self.is_shown.then(|| lanes.in_flight(transaction.sender));
        let account = async {
            // Whoever is answered early is not told later that the node knows better, and whoever wants to be
            // known again must be the first to send it.
            let may_skip = !config.answer_early && self.client.is_none();
            let is_next =
                may_skip && lanes.recent.comes_before(transaction.sender, transaction.nonce);
            match lanes.nodes.known(transaction.nonce, want).filter(|_| is_next) {
                Some(account) => Ok((account, false)),
                None => Ok((lanes.nodes.account(transaction.sender, want).await?, true)),
            }
        };
        let (account, member) = tokio::join!(account, self.join(in_flight.as_ref()));
        // Whatever is refused leaves the set again before the lane is free.
        self.member = member?;
        let (account, was_asked) = account?;
        let transaction = &self.transaction;
        self.is_new = was_asked && transaction.nonce >= account.count;
        if transaction.nonce < account.count && self.is_repeated(&account).await? {
            return Ok(Checked::Repeated);
        }
        can_pay(transaction, &account)?;
        if transaction.nonce > account.count && config.gap != Gap::Forward {
            let next = self.next(in_flight.as_ref()).await?;
            if transaction.nonce > next {
                return Ok(Checked::TooEarly(next));
            }
        }
        Ok(Checked::Good)
    }

    /// Whether the node has this very transaction from the same client. Another that has its nonce may
    /// still be replaced, as long as it is not in a block.
    async fn is_repeated(&self, account: &Account) -> Result<bool, Refusal> {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let nodes = &self.lanes.nodes;
        if nodes.knows(hash).await? {
            return self.is_same_client().await;
        }
        if self.reserves || nonce < nodes.mined(sender).await? {
            meters::wrong_nonce(self.chain_id());
            return Err(Refusal::NonceTooLow { next: account.count, nonce });
        }
        Ok(false)
    }

    async fn is_same_client(&self) -> Result<bool, Refusal> {
        if self.lanes.config.repeats == Repeats::Anyone {
            return Ok(true);
        }
        let Some(client) = &self.client else { return Ok(false) };
        match self.lanes.was_sent_by(self.transaction.hash, client).await {
            Ok(is_same) => Ok(is_same),
            Err(error) => self.without_engine(&error).map(|()| false),
        }
    }

    /// The first nonce that is neither counted nor on its way. The set first: what leaves it afterwards
    /// is counted by then.
    async fn next(&self, in_flight: Option<&InFlight>) -> Result<u64, Refusal> {
        let members = match in_flight {
            Some(in_flight) => match in_flight.members().await {
                Ok(members) => members,
                Err(error) => self.without_engine(&error).map(|()| Vec::new())?,
            },
            None => Vec::new(),
        };
        let account = self.lanes.nodes.account(self.transaction.sender, Want::default()).await?;
        Ok(next(account.count, &members))
    }

    async fn join(&self, in_flight: Option<&InFlight>) -> Result<Option<Member>, Refusal> {
        let Some(in_flight) = in_flight else { return Ok(None) };
        let Transaction { nonce, hash, .. } = self.transaction;
        match in_flight.join(nonce, Some(hash)).await {
            Ok(member) => Ok(Some(member)),
            Err(error) => self.without_engine(&error).map(|()| None),
        }
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

    /// Out of the lane until the nonce is next, so that those before it can pass.
    async fn step_out(&mut self, next: u64) -> Result<(), Refusal> {
        let Transaction { sender, nonce, .. } = self.transaction;
        let lanes = self.lanes.clone();
        let Gap::Hold(window) = lanes.config.gap else {
            return Err(Refusal::NonceGap { next, nonce, waited: Duration::ZERO });
        };
        let patience = self.patience.get_or_insert_with(|| Patience::new(window, next));
        patience.saw(next);
        let count = || async {
            let account = lanes.nodes.account(sender, Want::default()).await.ok()?;
            Some(account.count)
        };
        let cap = lanes.config.per_sender as usize;
        match lanes.gaps.wait(sender, nonce, next, patience, cap, count).await {
            Ok(()) => Ok(()),
            Err(NotYet::Full) => Err(Refusal::LineFull { limit: cap }),
            Err(NotYet::Still(next)) => {
                Err(Refusal::NonceGap { next, nonce, waited: self.arrived.elapsed() })
            }
        }
    }

    fn answer_with(&mut self, outcome: Outcome) {
        if let Some(answer) = self.answer.take() {
            // Whoever asked may have hung up.
            let _ = answer.send(outcome);
        }
    }

    /// The lane has moved on.
    fn end(mut self, outcome: Outcome) {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let class = class_of(&outcome);
        let is_gap = matches!(outcome, Outcome::Refused(Refusal::NonceGap { .. }));
        meters::ended(self.chain_id(), class, self.arrived.elapsed());
        if is_gap || self.patience.is_some() {
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
        if ["accepted", "repeated"].contains(&class) {
            self.lanes.gaps.accepted(sender, nonce);
        }
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
                let is_used = account.is_ok_and(|account| account.count > nonce);
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

/// What the checks came to.
enum Checked {
    Good,
    /// The node has this very transaction from the same client.
    Repeated,
    TooEarly(u64),
}

fn can_pay(transaction: &Transaction, account: &Account) -> Result<(), Refusal> {
    if let Some(base_fee) = account.base_fee
        && transaction.max_fee_per_gas < base_fee
    {
        return Err(Refusal::FeeTooLow { max_fee: transaction.max_fee_per_gas, base_fee });
    }
    let Some(balance) = account.balance else { return Ok(()) };
    if balance < transaction.most_it_can_cost {
        return Err(match balance == U256::ZERO && account.count == 0 {
            true => Refusal::NoAccount(transaction.sender),
            false => Refusal::InsufficientFunds {
                balance: Some(balance),
                cost: Some(transaction.most_it_can_cost),
            },
        });
    }
    Ok(())
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
