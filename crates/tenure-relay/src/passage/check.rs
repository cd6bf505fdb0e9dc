//! The checks under the lane: everything that takes a look at the chain.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::U256;
use tokio::time::Instant;

use super::Passage;
use crate::config::{Gap, Repeats};
use crate::in_flight::{InFlight, next};
use crate::meters;
use crate::node::{Account, Want};
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::upstream::Node;

/// How long a node may take for what is asked again and again.
const STILL_EARLY: Duration = Duration::from_secs(1);

/// What the checks came to.
pub(super) enum Checked {
    /// It may go to the node that was asked.
    Good(Arc<Node>),
    /// The node has this very transaction from the same client.
    Repeated,
    TooEarly(u64),
}

/// Why the checks came to nothing.
pub(super) enum Bad {
    No(Refusal),
    /// No node has answered what was asked.
    Unasked(Refusal),
}

impl From<Refusal> for Bad {
    fn from(refusal: Refusal) -> Bad {
        Bad::No(refusal)
    }
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

impl Passage {
    /// The node that will count this nonce next as far as is known, where the question whether it does may be asked
    /// together with the submission: nothing that needs its answer is done before.
    pub(super) fn expected_at(&self) -> Option<Arc<Node>> {
        let (lanes, transaction) = (&self.lanes, &self.transaction);
        let config = &lanes.config;
        let is_asked_first = !config.ordering
            || !matches!(config.gap, Gap::Hold(_))
            || config.answer_early
            || config.check_balance
            || self.client.is_some()
            || self.reserves
            || self.was_early
            || self.is_submitted;
        if is_asked_first {
            return None;
        }
        let base_fee = if config.check_fee { lanes.nodes.base_fee.get()? } else { None };
        let account = Account { count: transaction.nonce, balance: None, base_fee };
        can_pay(transaction, &account).ok()?;
        let node = lanes.expected.node(transaction.sender, transaction.nonce)?;
        lanes.nodes.is_first(&node).then_some(node)
    }

    /// Everything that takes a look at the chain.
    pub(super) async fn check(&mut self, in_flight: Option<&InFlight>) -> Result<Checked, Bad> {
        let lanes = self.lanes.clone();
        let (config, transaction) = (&lanes.config, &self.transaction);
        let want = Want { balance: config.check_balance, fee: config.check_fee };
        // Asked each time: what one node has, another may lack, and what it had it may have lost.
        let asked = lanes.nodes.account(transaction.sender, want);
        let asked = match &self.early {
            None => asked.await,
            // Probably it still is: whoever comes before it does not wait for that answer.
            Some(early) => tokio::select! {
                biased;
                asked = asked => asked,
                () = early.seat.overtaken() => return Ok(Checked::TooEarly(early.next)),
                () = tokio::time::sleep_until(early.until.min(Instant::now() + STILL_EARLY)) => {
                    return Ok(Checked::TooEarly(early.next));
                }
            },
        };
        let (account, node) = asked.map_err(Bad::Unasked)?;
        self.is_new = transaction.nonce >= account.count;
        if transaction.nonce < account.count && self.is_repeated(&account).await? {
            return Ok(Checked::Repeated);
        }
        can_pay(transaction, &account)?;
        if transaction.nonce > account.count && config.gap != Gap::Forward {
            // While the line moves, nobody looks for what has no outcome.
            if self.early.as_ref().is_some_and(|early| account.count > early.next) {
                return Ok(Checked::TooEarly(account.count));
            }
            let next = self.next(in_flight, account.count).await?;
            if transaction.nonce > next {
                return Ok(Checked::TooEarly(next));
            }
        }
        Ok(Checked::Good(node))
    }

    /// Whether the node has this very transaction from the same client. Another that has its nonce may
    /// still be replaced, as long as it is not in a block.
    async fn is_repeated(&self, account: &Account) -> Result<bool, Bad> {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let nodes = &self.lanes.nodes;
        if nodes.knows(hash).await.map_err(Bad::Unasked)? {
            return Ok(self.is_submitted || self.is_same_client().await?);
        }
        if self.reserves || nonce < nodes.mined(sender).await.map_err(Bad::Unasked)? {
            meters::wrong_nonce(self.chain_id());
            return Err(Bad::No(Refusal::NonceTooLow { next: account.count, nonce }));
        }
        Ok(false)
    }

    pub(super) async fn is_same_client(&self) -> Result<bool, Refusal> {
        if self.lanes.config.repeats == Repeats::Anyone {
            return Ok(true);
        }
        let Some(client) = &self.client else { return Ok(false) };
        match self.lanes.was_sent_by(self.transaction.hash, client).await {
            Ok(is_same) => Ok(is_same),
            Err(error) => self.without_engine(&error).map(|()| false),
        }
    }

    /// The first nonce that is neither counted nor on its way. Where a gap is final the node is asked once more:
    /// what has left the set meanwhile is counted by then.
    async fn next(&self, in_flight: Option<&InFlight>, mut count: u64) -> Result<u64, Bad> {
        let members = match in_flight {
            Some(in_flight) => match in_flight.members().await {
                Ok(members) => members,
                Err(error) => self.without_engine(&error).map(|()| Vec::new())?,
            },
            None => Vec::new(),
        };
        if self.lanes.config.gap == Gap::Refuse {
            let account = self.lanes.nodes.account(self.transaction.sender, Want::default()).await;
            count = account.map_err(Bad::Unasked)?.0.count;
        }
        Ok(next(count, &members))
    }
}
