//! Lanes: a sender's transactions on one chain, one after the other.
//!
//! A lane is a mutex. The place in it is taken when a transaction arrives, before anything is waited
//! for, and the rest goes on whatever becomes of the client: whoever hangs up changes nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{Address, B256};
use tenure::{Error, ErrorKind, Hold, OnOutage, Tenure};
use tokio::sync::oneshot;

use crate::access::Caller;
use crate::config::{Config, Gap};
use crate::envelope::Json;
use crate::expected::Expected;
use crate::in_flight::InFlight;
use crate::journey::Journey;
use crate::passage::Passage;
use crate::passing::Passing;
use crate::queue::{PASSED_ON_FOR, Place, Queues};
use crate::refusal::Refusal;
use crate::repeat::Client;
use crate::signers::Signers;
use crate::transaction::Transaction;
use crate::upstream::Nodes;

/// How long a transaction waits for an engine that is known to be down: the library asks it twice a second
/// whether it is back.
const DOWN_FOR: Duration = Duration::from_millis(600);

/// What all transactions of a relay share.
pub(crate) struct Lanes {
    pub(crate) config: Config,
    pub(crate) tenure: Tenure,
    pub(crate) nodes: Nodes,
    pub(crate) expected: Expected,
    pub(crate) queues: Queues,
    pub(crate) passing: Passing,
    pub(crate) signers: Signers,
}

/// What the sender of a transaction is told.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The node has it.
    Accepted(B256),
    /// The node had it before, from the same client.
    Repeated(B256),
    /// The node does not want it, and says so in its own words.
    Rejected(Json),
    /// The node had it before, from someone else, and says so in its own words.
    Collided(Json),
    /// The relay does not want it, or cannot say.
    Refused(Refusal),
}

/// A place in a lane, until its turn comes.
pub(crate) type Turn = Pin<Box<dyn Future<Output = tenure::Result<Hold>> + Send>>;

/// How a transaction comes to its turn. Its place is taken.
pub(crate) enum Way {
    /// Where early ones are held, nonces are the order.
    ByNonce(Place),
    ByArrival(Turn),
    /// Order is not kept.
    Free,
}

impl Lanes {
    /// Takes the place in the lane, now.
    pub(crate) fn enter(
        self: &Arc<Self>,
        transaction: Transaction,
        client: Option<Client>,
        caller: &Caller,
        reserves: bool,
    ) -> Journey {
        let way = self.way(&transaction);
        let (answer, answered) = oneshot::channel();
        let from = caller.name.clone();
        let passage = Passage::new(self.clone(), transaction, client, from, reserves, answer);
        match way {
            Ok(way) => {
                let passes = (self.passing.enter(), caller.passing().map(Passing::enter));
                let rest = async move {
                    passage.pass(way).await;
                    drop(passes);
                };
                Journey::new(Some(Box::pin(rest)), answered)
            }
            Err(refusal) => {
                passage.end(Outcome::Refused(refusal));
                Journey::new(None, answered)
            }
        }
    }

    fn way(&self, transaction: &Transaction) -> Result<Way, Refusal> {
        let Config { ordering, gap, per_sender, .. } = self.config;
        match gap {
            _ if !ordering => Ok(Way::Free),
            Gap::Hold(_) => {
                let limit = per_sender as usize;
                let place = self.queues.enter(transaction.sender, transaction.nonce, limit);
                place.map(Way::ByNonce).ok_or(Refusal::LineFull { limit })
            }
            Gap::Forward | Gap::Refuse => Ok(Way::ByArrival(self.join(transaction))),
        }
    }

    /// A place at the end of the lane.
    pub(crate) fn join(&self, transaction: &Transaction) -> Turn {
        let config = &self.config;
        let name = self.name("lane", &address(transaction.sender));
        let lane = self
            .tenure
            .mutex(&name)
            .ttl(config.ttl)
            // Whoever it is passed on to has its whole time, too.
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
                // Whoever stands in line when the engine goes is refused like whoever comes later. One that
                // comes now may find that it is back, before that is known.
                if let Ok(hold) = tokio::time::timeout(DOWN_FOR, &mut turn).await {
                    return hold;
                }
                if !tenure.is_reachable(&name) {
                    return Err(Error::new(ErrorKind::Unavailable, "the engine is out of reach"));
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

/// One sender has one lane, however its address is written.
fn address(sender: Address) -> String {
    format!("{sender:#x}")
}
