//! Nonces over JSON-RPC, for signers in any language.
//!
//! A signer reserves a nonce, signs, and sends through any relay. Or it asks for its transaction count as usual, and gets
//! a nonce that is its own for a while. This relay keeps nothing that another relay would need: the engine has the
//! reservations, and the chain has the rest.

mod methods;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256};
use tenure::{ErrorKind, Fence, Hold, OnOutage};
use tokio::sync::OnceCell;

pub(crate) use self::methods::Asked;
use crate::in_flight::Member;
use crate::lane::{Lanes, Outcome};
use crate::node::Want;
use crate::nonces::{self, Ask, Chain, ChainError, Given, NonceError, Terms};
use crate::refusal::Refusal;
use crate::submission::class_of;
use crate::transaction::Transaction;
use crate::upstream::Nodes;

/// How long the hash of a transaction is kept beside its nonce.
const SENT_FOR: Duration = Duration::from_secs(300);
/// How long the answer to a sender may be delayed to update the engine.
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
/// Above this many accounts, unused ones are forgotten.
const MANY: usize = 1000;

/// What this relay remembers about signers, so that it can clean up after them.
#[derive(Default)]
pub(crate) struct Signers {
    accounts: Mutex<HashMap<Address, (Arc<nonces::Lane>, Instant)>>,
    /// Turns in which this relay gave out nonces that have not been sent yet.
    turns: Mutex<HashMap<(Address, Fence), Turn>>,
}

/// A turn to get a count. Dropping the hold ends it.
type Turn = Arc<OnceCell<Hold>>;

/// The turns of one request. All counts of an account in a batch share a turn, because the client cannot use any of them
/// before the whole batch is answered.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Address, Turn>>>);

/// The record of a transaction's hash, made before it was sent to a node.
pub(crate) struct Written {
    account: Arc<nonces::Lane>,
    sent: Member,
}

impl Lanes {
    fn account(&self, account: Address) -> Arc<nonces::Lane> {
        let mut all = lock(&self.signers.accounts);
        if all.len() >= MANY && !all.contains_key(&account) {
            all.retain(|_, (lane, used)| used.elapsed() < SENT_FOR || !lane.is_idle());
        }
        let (lane, used) = all.entry(account).or_insert_with(|| {
            let prefix = self.config.ns.as_ref().map(|ns| format!("{ns}/")).unwrap_or_default();
            let mut terms = Terms::default();
            (terms.ttl, terms.unknown_for) = (self.config.nonces_for, self.config.unknown_for);
            terms.reserved_for = SENT_FOR.max(terms.unknown_for);
            let chain_id = self.config.rules.chain_id;
            let lane = nonces::Lane::below(&self.tenure, &prefix, chain_id, account, terms);
            (Arc::new(lane), Instant::now())
        });
        *used = Instant::now();
        lane.clone()
    }

    async fn reserve(&self, account: Address, ask: &Ask) -> Result<Option<Given>, Refusal> {
        let given = self.account(account).reserve_for(&Asks(&self.nodes), ask).await;
        given.map_err(|error| self.cannot(error))
    }

    /// The next nonce of an account, for a client that only asks for a count: one client at a time, until it has sent or
    /// its time is over. A client that dies leaves no gap; the next client gets its nonce.
    async fn reserve_next(&self, account: Address, turns: &Turns) -> Result<u64, Refusal> {
        let turn = lock(&turns.0).entry(account).or_default().clone();
        let hold = turn.get_or_try_init(|| self.take_turn(account)).await;
        let hold = hold.map_err(|error| self.cannot(NonceError::Engine(error)))?;
        let (fence, lasts) = (hold.fence(), self.config.nonces_for);
        let ask = Ask { id: None, nonce: None, lasts, turn: Some(fence) };
        let given = self.reserve(account, &ask).await?;
        let given = given.filter(|_| hold.is_live()).ok_or(Refusal::ReservationEnded)?;
        let mut all = lock(&self.signers.turns);
        all.retain(|_, turn| turn.get().is_some_and(Hold::is_live));
        all.insert((account, fence), turn.clone());
        Ok(given.nonce)
    }

    async fn take_turn(&self, account: Address) -> tenure::Result<Hold> {
        let lasts = self.config.nonces_for;
        let turn = self.tenure.mutex(self.turn_name(account)).ttl(lasts).max_hold(lasts);
        let turn = turn.renew(false).max_waiters(self.config.per_sender);
        let hold = turn.on_outage(OnOutage::Closed).acquire().await?;
        hold.outlive().await?;
        Ok(hold)
    }

    /// Records the hash of a transaction beside its nonce, before a node gets it.
    pub(crate) async fn write_down(&self, transaction: &Transaction) -> Result<Written, Refusal> {
        let account = self.account(transaction.sender);
        match account.hand_over(transaction.nonce, transaction.hash).await {
            Ok(sent) => Ok(Written { account, sent }),
            Err(error) => Err(self.cannot(error)),
        }
    }

    /// Updates the engine when the outcome of a transaction is known. If that takes too long, the records expire by
    /// themselves.
    pub(crate) async fn settle(
        &self,
        transaction: &Transaction,
        written: Option<Written>,
        outcome: &Outcome,
    ) {
        let Transaction { sender, nonce, .. } = *transaction;
        let is_free = matches!(class_of(outcome), "refused" | "rejected") && !is_taken(outcome);
        let settled = async {
            match written {
                Some(Written { account, sent }) if !is_free => account.keep_sent(sent),
                Some(Written { sent, .. }) => drop(sent.leave().await?),
                None => {}
            }
            match self.account(sender).close(nonce).await? {
                Some(turn) => self.end_turn(sender, turn).await,
                None => Ok(()),
            }
        };
        let error = match tokio::time::timeout(SETTLE_WITHIN, settled).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the engine does not answer".to_owned(),
        };
        tracing::debug!(event = "relay.nonce_not_settled", %sender, nonce, error);
    }

    /// Ends a turn whose nonce was sent, so that the next client is served.
    async fn end_turn(&self, account: Address, turn: Fence) -> Result<(), NonceError> {
        let own = lock(&self.signers.turns).remove(&(account, turn));
        if own.is_none() {
            let why = "the nonce was sent by another relay";
            self.tenure.break_hold(self.turn_name(account), turn, why).await?;
        }
        Ok(())
    }

    fn turn_name(&self, account: Address) -> String {
        self.name("signing", &format!("{account:#x}"))
    }

    fn cannot(&self, error: NonceError) -> Refusal {
        match error {
            NonceError::Engine(error) if error.kind() == ErrorKind::Full => {
                Refusal::LineFull { limit: self.config.per_sender as usize }
            }
            NonceError::Engine(error) if error.kind() == ErrorKind::Closed => Refusal::ShuttingDown,
            NonceError::Engine(error) => Refusal::EngineDown(error.reason().to_owned()),
            NonceError::Lost(_) => Refusal::ReservationEnded,
            NonceError::Chain(error) => match error.downcast::<Refusal>() {
                Ok(refusal) => *refusal,
                Err(error) => Refusal::NodeUnreachable(error.to_string()),
            },
        }
    }
}

/// Whether the node says that the nonce is used: it would refuse the next transaction with this nonce, too.
fn is_taken(outcome: &Outcome) -> bool {
    let Outcome::Rejected(error) = outcome else { return false };
    let said = error.as_str().to_lowercase();
    said.contains("nonce") || said.contains("underpriced")
}

/// The relay's nodes, as the source of counts.
struct Asks<'a>(&'a Nodes);

impl Chain for Asks<'_> {
    async fn count(&self, account: Address) -> Result<u64, ChainError> {
        Ok(self.0.account(account, Want::default()).await?.0.count)
    }

    async fn knows(&self, hash: B256) -> Result<bool, ChainError> {
        Ok(self.0.knows(hash).await?)
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}
