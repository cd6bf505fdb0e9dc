//! Lanes: the mutexes that keep one sender's transactions on one chain in order.
//!
//! A transaction takes its place when it arrives, before anything is awaited, and the work continues even if the client
//! disconnects.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use tenure::{Error, ErrorKind, Hold, OnOutage, Tenure};
use tokio::sync::oneshot;

use crate::access::Caller;
use crate::active::Active;
use crate::config::{Config, Gap};
use crate::envelope::Json;
use crate::in_flight::InFlight;
use crate::processing::Processing;
use crate::queue::{PASSED_ON_FOR, Place, Queues};
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::Signers;
use crate::submission::Submission;
use crate::transaction::Transaction;
use crate::upstream::Nodes;

/// How long a transaction waits for an engine that is known to be down. The library probes it twice a second.
const DOWN_FOR: Duration = Duration::from_millis(600);

/// The state that all transactions of a relay share.
pub(crate) struct Lanes {
    pub(crate) config: Config,
    pub(crate) tenure: Tenure,
    pub(crate) nodes: Nodes,
    pub(crate) queues: Queues,
    pub(crate) active: Active,
    pub(crate) signers: Signers,
}

/// What the sender of a transaction is told.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The node has it.
    Accepted(B256),
    /// The node already had it, from the same client.
    Repeated(B256),
    /// The node refused it with this error.
    Rejected(Json),
    /// The node already had it, from another client, and answered with this error.
    Collided(Json),
    /// The relay refused it, or does not know its outcome.
    Refused(Refusal),
}

/// A place in a lane, until its turn comes.
pub(crate) type Turn = Pin<Box<dyn Future<Output = tenure::Result<Hold>> + Send>>;

/// How a transaction gets its turn. Its place is already taken.
pub(crate) enum Order {
    /// By nonce, where early transactions are held.
    ByNonce(Place),
    ByArrival(Turn),
    /// No order is kept.
    None,
}

impl Lanes {
    /// Takes the transaction's place, without waiting.
    pub(crate) fn enter(
        self: &Arc<Self>,
        transaction: Transaction,
        client: Option<Client>,
        caller: &Caller,
        reserves: bool,
    ) -> Processing {
        let order = self.order(&transaction);
        let (answer, answered) = oneshot::channel();
        let from = caller.name.clone();
        let submission = Submission::new(self.clone(), transaction, client, from, reserves, answer);
        match order {
            Ok(order) => {
                let passes = (self.active.enter(), caller.active().map(Active::enter));
                let rest = async move {
                    submission.run(order).await;
                    drop(passes);
                };
                Processing::new(Some(Box::pin(rest)), answered)
            }
            Err(refusal) => {
                submission.end(Outcome::Refused(refusal));
                Processing::new(None, answered)
            }
        }
    }

    fn order(&self, transaction: &Transaction) -> Result<Order, Refusal> {
        let Config { ordering, gap, per_sender, .. } = self.config;
        match gap {
            _ if !ordering => Ok(Order::None),
            Gap::Hold(_) => {
                let limit = per_sender as usize;
                let place = self.queues.enter(transaction.sender, transaction.nonce, limit);
                place.map(Order::ByNonce).ok_or(Refusal::LineFull { limit })
            }
            Gap::Forward | Gap::Refuse => Ok(Order::ByArrival(self.join(transaction))),
        }
    }

    /// Joins the end of the lane's queue.
    pub(crate) fn join(&self, transaction: &Transaction) -> Turn {
        let config = &self.config;
        let name = self.name("lane", &address(transaction.sender));
        let lane = self
            .tenure
            .mutex(&name)
            .ttl(config.ttl)
            // A transaction that the lane is passed on to has its whole `max_hold`, too.
            .max_hold(config.max_hold + PASSED_ON_FOR)
            .max_waiters(config.per_sender)
            .on_outage(config.on_outage)
            .meta("nonce", transaction.nonce.to_string())
            .meta("hash", transaction.hash.to_string());
        let turn = lane.join();
        if config.on_outage != OnOutage::Closed {
            return Box::pin(turn);
        }
        let tenure = self.tenure.clone();
        Box::pin(async move {
            tokio::pin!(turn);
            loop {
                // A transaction that waits when the engine goes down is refused, like one that arrives later. One that
                // arrives now is given a moment, since the engine may be back before the library knows.
                if let Ok(hold) = tokio::time::timeout(DOWN_FOR, &mut turn).await {
                    return hold;
                }
                if !tenure.is_reachable(&name) {
                    return Err(Error::new(ErrorKind::Unavailable, "the engine cannot be reached"));
                }
            }
        })
    }

    pub(crate) fn in_flight(&self, sender: Address) -> InFlight {
        InFlight::called(&self.tenure, self.name("pending", &address(sender))).ttl(self.config.ttl)
    }

    pub(crate) fn name(&self, what: &str, whose: &str) -> String {
        let ns = self.config.ns.as_ref().map(|ns| format!("{ns}/")).unwrap_or_default();
        format!("{ns}{what}:{}:{whose}", self.config.rules.chain_id)
    }
}

/// In lower case, so that a sender has one lane however its address is written.
fn address(sender: Address) -> String {
    format!("{sender:#x}")
}
