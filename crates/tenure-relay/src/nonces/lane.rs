//! The nonces of one account as the engine keeps them, independent of the client for the chain.
//!
//! Everything that decides is in the engine's set and in the chain's count; this process only keeps units whose
//! outcome it waits for. Always read **the set first and the count after it**: a nonce leaves the set when the
//! chain counts it, so one of the two always shows it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256};
use tenure::{Hold, Tenure};
use tokio::runtime::Handle;
use tracing::debug;

use super::meters::Meter;
use super::own::{Own, Slot};
use super::standing::COUNT;
use super::{Chain, NonceError, Standing, Terms};
use crate::in_flight::{InFlight, Member, name_of};

/// The ttl of the line in which reservations of an account are made, which is for order and few collisions. The
/// second look is what keeps a nonce from being given out twice, so neither a lost turn nor a short ttl does
/// harm.
const TURN: Duration = Duration::from_secs(1);
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// How many hashes are looked up at one look, while others wait. Those that are not looked up count as sent.
const MOST_QUESTIONS: usize = 16;

type Result<T> = std::result::Result<T, NonceError>;

/// The nonces of one account on one chain.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) tenure: Tenure,
    account: Address,
    line: String,
    terms: Terms,
    /// Units for nonces that are taken.
    pub(super) taken: InFlight,
    /// Units for transactions, with their hashes.
    pub(super) sent: InFlight,
    meter: Meter,
    own: Arc<Mutex<Own>>,
}

impl Lane {
    pub(crate) fn new(tenure: &Tenure, chain_id: u64, account: Address, terms: Terms) -> Lane {
        Lane::below(tenure, "", chain_id, account, terms)
    }

    /// The same, with a prefix for its names.
    pub(crate) fn below(
        tenure: &Tenure,
        prefix: &str,
        chain_id: u64,
        account: Address,
        terms: Terms,
    ) -> Lane {
        let name = |what: &str| format!("{prefix}{}", name_of(what, chain_id, account));
        let set = InFlight::called(tenure, name("reserved"));
        Lane {
            tenure: tenure.clone(),
            account,
            line: name("nonces"),
            taken: set.clone().ttl(terms.ttl).max_hold(terms.reserved_for.max(terms.ttl)),
            sent: set.ttl(terms.reserved_for).unrenewed(),
            meter: Meter::new(chain_id, format!("{account:#x}")),
            own: Arc::default(),
            terms,
        }
    }

    pub(super) fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }

    /// Takes the lowest free nonce.
    pub(crate) async fn reserve(&self, chain: &impl Chain) -> Result<Slot> {
        let turn = self.stand_in_line().await?;
        loop {
            let standing = self.look(chain).await?;
            if let Some(slot) = self.take(chain, standing.next(), &standing).await? {
                drop(turn);
                return Ok(slot);
            }
        }
    }

    pub(super) async fn stand_in_line(&self) -> Result<Hold> {
        let line = self.tenure.mutex(&self.line).ttl(TURN).max_hold(LONGEST_TURN);
        Ok(line.acquire().await?)
    }

    /// Takes this nonce, if it is free.
    pub(super) async fn fill(&self, chain: &impl Chain, nonce: u64) -> Result<Option<Slot>> {
        let standing = self.look(chain).await?;
        self.take(chain, nonce, &standing).await
    }

    /// Takes a nonce that was free at an earlier look, unless it has been taken since.
    async fn take(
        &self,
        chain: &impl Chain,
        nonce: u64,
        earlier: &Standing,
    ) -> Result<Option<Slot>> {
        let member = self.taken.join(nonce, None).await?;
        self.confirm(chain, member, earlier).await
    }

    /// Looks again after a unit was joined: the nonce is taken, unless someone else has it.
    pub(super) async fn confirm(
        &self,
        chain: &impl Chain,
        member: Member,
        earlier: &Standing,
    ) -> Result<Option<Slot>> {
        let nonce = member.nonce();
        let standing = self.read(chain).await?.after(earlier);
        // The clock last: if this process was stopped anywhere above, the others have forgotten it.
        if standing.is_anothers(nonce, member.hold().fence()) || !member.is_live() {
            member.leave().await?;
            return Ok(None);
        }
        debug!(target: "tenure", event = "nonce.reserved", account = %self.account, nonce);
        Ok(Some(Slot::taken(member)))
    }

    /// Reads the state of all nonces, and leaves the units that are no longer needed.
    pub(crate) async fn look(&self, chain: &impl Chain) -> Result<Standing> {
        let mut standing = self.read(chain).await?;
        self.forget_below(standing.count).await?;
        if self.resolve(chain).await? {
            standing = self.read(chain).await?;
        }
        self.judge(chain, &mut standing).await?;
        self.meter.looked(&standing);
        Ok(standing)
    }

    pub(super) fn resynced(&self) {
        self.meter.resynced();
    }

    async fn read(&self, chain: &impl Chain) -> Result<Standing> {
        let units = self.taken.units().await?;
        let counted = chain.count(self.account).await.map_err(NonceError::Chain)?;
        Ok(Standing::new(&units, counted))
    }

    /// Records the hash beside the nonce, and returns whether the nonce was still taken by then.
    pub(super) async fn write(&self, slot: &mut Slot, hash: B256) -> Result<bool> {
        let is_written = slot.sent.as_ref().is_some_and(|sent| sent.hash() == Some(hash));
        if !is_written {
            slot.sent = Some(self.sent.join(slot.nonce, Some(hash)).await?);
        }
        slot.hash = Some(hash);
        Ok(slot.is_live())
    }

    /// The node has the transaction. The slot is taken out of `hand` at the end, so a future that is dropped
    /// leaves it there.
    pub(super) async fn commit(
        &self,
        chain: &impl Chain,
        hand: &mut Option<Slot>,
        hash: B256,
    ) -> Result<()> {
        let Some(nonce) = hand.as_ref().map(|slot| slot.nonce) else { return Ok(()) };
        // A node that cannot be reached now is asked again at the next look.
        let count = chain.count(self.account).await.unwrap_or_default();
        if count <= nonce {
            return self.keep_with(hand, hash).await;
        }
        let raised = self.raise_floor(count).await;
        match (&raised, hand.take()) {
            (Err(_), Some(slot)) => self.keep(slot),
            (_, slot) => drop(slot),
        }
        raised
    }

    /// Records the hash beside the nonce in `hand`, and keeps both until the chain has counted the nonce, or does
    /// not know the hash after it has had enough time.
    pub(super) async fn keep_with(&self, hand: &mut Option<Slot>, hash: B256) -> Result<()> {
        let Some(slot) = hand else { return Ok(()) };
        let written = self.write(slot, hash).await;
        slot.hash = Some(hash);
        hand.take().into_iter().for_each(|slot| self.keep(slot));
        written.map(drop)
    }

    /// The reservation was dropped without an outcome. Never waits, because `Drop` calls it.
    ///
    /// If this process had no reason to look again, others would have to wait until its unit ends.
    pub(crate) fn keep(&self, slot: Slot) {
        let (nonce, until) = (slot.nonce, Instant::now() + self.terms.unknown_for);
        self.own().keep(slot, until);
        let own = Arc::downgrade(&self.own);
        // Without a runtime it is given up when this process looks again.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep_until(until.into()).await;
                own.upgrade().into_iter().for_each(|own| lock(&own).let_go(nonce));
            });
        }
    }

    /// The node says that another transaction has the nonce. If the node does not count that one yet, the nonce
    /// is kept for a while: it would only be refused again.
    pub(super) async fn wrong_nonce(
        &self,
        chain: &impl Chain,
        hand: &mut Option<Slot>,
    ) -> Result<()> {
        self.meter.wrong_nonce();
        let count = chain.count(self.account).await.map_err(NonceError::Chain)?;
        match hand.take() {
            Some(slot) if slot.nonce < count => slot.leave().await?,
            Some(slot) => self.keep(Slot { hash: None, sent: None, ..slot }),
            None => {}
        }
        Ok(())
    }

    /// Leaves the units of nonces that the chain has counted.
    async fn forget_below(&self, count: u64) -> Result<()> {
        if self.own().any_below(count) {
            self.raise_floor(count).await?;
            self.own().forget_below(count);
        }
        Ok(())
    }

    /// Publishes the chain's count, for as long as another node may be late.
    async fn raise_floor(&self, count: u64) -> Result<()> {
        let late = match self.terms.late {
            Duration::ZERO => return Ok(()),
            late => late.max(self.tenure.profile().shortest_ttl),
        };
        if self.own().has_floor(count, late / 2) {
            return Ok(());
        }
        let unit = self.taken.unit().meta(COUNT, count.to_string());
        let hold = self.taken.enter(unit.ttl(late).max_hold(late).renew(false)).await?;
        self.own().raise_floor(count, hold);
        Ok(())
    }

    /// Looks up the transactions that this process has waited for long enough: what the node knows stays for as
    /// long as it is known, and the rest is given up. Returns whether there were any.
    async fn resolve(&self, chain: &impl Chain) -> Result<bool> {
        let over = self.own().over();
        for (nonce, hash) in over.iter().copied() {
            let known = match hash {
                Some(hash) => chain.knows(hash).await.map_err(NonceError::Chain)?,
                None => false,
            };
            // Joined before the old one is left, so that nobody finds the nonce free in between.
            let again = if known { Some(self.sent.join(nonce, hash).await?) } else { None };
            self.own().forget_over(nonce);
            again.into_iter().for_each(|member| self.keep(Slot::adopted(member)));
        }
        Ok(!over.is_empty())
    }

    /// Looks up the transactions of processes that are gone: if the node knows one, it keeps its nonce, and this
    /// process takes over its unit before that expires; otherwise it is given up.
    async fn judge(&self, chain: &impl Chain, standing: &mut Standing) -> Result<()> {
        let Terms { unknown_for, reserved_for, .. } = self.terms;
        let mut questions = 0;
        for orphan in standing.orphans() {
            let Some(hash) = orphan.hash else { continue };
            if orphan.age < unknown_for {
                continue;
            }
            if !self.own().is_known(&hash, unknown_for) {
                if questions == MOST_QUESTIONS {
                    break;
                }
                questions += 1;
                if !chain.knows(hash).await.map_err(NonceError::Chain)? {
                    standing.give_up(orphan.fence);
                    continue;
                }
                self.own().known(hash);
            }
            if standing.remaining(orphan.nonce) < reserved_for / 2 && questions < MOST_QUESTIONS {
                questions += 1;
                self.keep(Slot::adopted(self.sent.join(orphan.nonce, Some(hash)).await?));
            }
        }
        Ok(())
    }
}

fn lock(own: &Mutex<Own>) -> MutexGuard<'_, Own> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Lane {
    /// A nonce without an outcome does not become free because this process has stopped asking: it is renewed
    /// until its time is over, or lasts for its ttl if the process ends before.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut *self.own()));
    }
}
