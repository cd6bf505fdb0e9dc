//! The checks that need the chain, made while the lane is held.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::U256;
use tokio::time::Instant;

use super::Submission;
use crate::config::{Gap, Repeats};
use crate::in_flight::{InFlight, next};
use crate::meters;
use crate::node::{Account, Want};
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::upstream::Node;

/// How long a node may take when an early transaction asks again.
const STILL_EARLY: Duration = Duration::from_secs(1);

/// What the checks found.
pub(super) enum Checked {
    /// It may be sent to this node, which was the one asked.
    Good(Arc<Node>),
    /// The node already has this transaction, from the same client.
    Repeated,
    TooEarly(u64),
}

/// Why the checks failed.
pub(super) enum CheckError {
    Refused(Refusal),
    /// No node answered.
    NoNode(Refusal),
}

impl From<Refusal> for CheckError {
    fn from(refusal: Refusal) -> CheckError {
        CheckError::Refused(refusal)
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

impl Submission {
    /// Makes all checks that need the chain.
    pub(super) async fn check(
        &mut self,
        in_flight: Option<&InFlight>,
    ) -> Result<Checked, CheckError> {
        let lanes = self.lanes.clone();
        let (config, transaction) = (&lanes.config, &self.transaction);
        let want = Want { balance: config.check_balance, fee: config.check_fee };
        // Asked every time: one node may lack what another has, and a node may lose what it had.
        let asked = lanes.nodes.account(transaction.sender, want);
        let asked = match &self.early {
            None => asked.await,
            // It is probably still early, so it gives up when a lower nonce arrives.
            Some(early) => tokio::select! {
                biased;
                asked = asked => asked,
                () = early.waiter.overtaken() => return Ok(Checked::TooEarly(early.next)),
                () = tokio::time::sleep_until(early.until.min(Instant::now() + STILL_EARLY)) => {
                    return Ok(Checked::TooEarly(early.next));
                }
            },
        };
        let (account, node) = asked.map_err(CheckError::NoNode)?;
        self.is_new = transaction.nonce >= account.count;
        if transaction.nonce < account.count && self.is_repeated(&account).await? {
            return Ok(Checked::Repeated);
        }
        can_pay(transaction, &account)?;
        if transaction.nonce > account.count && config.gap != Gap::Forward {
            // While the sender's nonces advance there is no need to read the pending set.
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

    /// Whether the node already has this transaction from the same client. A different transaction with its nonce can
    /// still be replaced until it is in a block.
    async fn is_repeated(&self, account: &Account) -> Result<bool, CheckError> {
        let Transaction { sender, nonce, hash, .. } = self.transaction;
        let nodes = &self.lanes.nodes;
        if nodes.knows(hash).await.map_err(CheckError::NoNode)? {
            return Ok(self.is_same_client().await?);
        }
        if self.reserves || nonce < nodes.mined(sender).await.map_err(CheckError::NoNode)? {
            meters::wrong_nonce(self.chain_id());
            return Err(CheckError::Refused(Refusal::NonceTooLow { next: account.count, nonce }));
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

    /// The first nonce that the node does not count and that is not pending. Where a gap is refused at once, the node is
    /// asked a second time: a transaction that left the set in between is in the count by then.
    async fn next(&self, in_flight: Option<&InFlight>, mut count: u64) -> Result<u64, CheckError> {
        let members = match in_flight {
            Some(in_flight) => match in_flight.members().await {
                Ok(members) => members,
                Err(error) => self.without_engine(&error).map(|()| Vec::new())?,
            },
            None => Vec::new(),
        };
        if self.lanes.config.gap == Gap::Refuse {
            let account = self.lanes.nodes.account(self.transaction.sender, Want::default()).await;
            count = account.map_err(CheckError::NoNode)?.0.count;
        }
        Ok(next(count, &members))
    }
}
