//! The nonces of one account as the engine keeps them, whichever client the chain is asked with.
//!
//! Everything that decides is in the set of the engine and in the chain's count; this process only
//! holds on to units whose outcome it waits for. Whoever reads, reads **the set first and the count
//! after it**: a nonce leaves the set when the chain counts it, so that one of the two always shows it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256};
use tenure::{Hold, Tenure};
use tracing::debug;

use super::meters::Meter;
use super::standing::COUNT;
use super::{Chain, NonceError, Standing, Terms};
use crate::in_flight::{InFlight, Member, Seen, name_of};

/// The line in which reservations of an account are made: for order and few collisions. What keeps a
/// nonce from being given twice is the second look, so that a lost turn does no harm and a short ttl no
/// more.
const TURN: Duration = Duration::from_secs(1);
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// How long the unit of a transaction lasts, in `unknown_for`. It is renewed after one of them, so that one
/// that was not for two has been nobody's for at least one.
const SENT: u32 = 3;

type Result<T> = std::result::Result<T, NonceError>;

/// The nonces of one account on one chain.
#[derive(Debug)]
pub(crate) struct Lane {
    tenure: Tenure,
    account: Address,
    line: String,
    terms: Terms,
    /// Nonces that were taken and not said anything of.
    taken: InFlight,
    /// Transactions with their hashes.
    sent: InFlight,
    meter: Meter,
    own: Mutex<Own>,
}

/// What this process holds on to until its outcome is known.
#[derive(Debug, Default)]
struct Own {
    kept: Vec<Kept>,
    /// The highest count that this process was told, for those whose node counts late.
    floor: Option<(u64, Hold)>,
}

/// A nonce that is not in anybody's hand any more.
#[derive(Debug)]
struct Kept {
    member: Member,
    hash: Option<B256>,
    /// When to ask the chain for the hash, and to give up if it is not known there.
    until: Instant,
}

impl Kept {
    fn is_over(&self) -> bool {
        !self.member.is_live() || Instant::now() >= self.until
    }
}

impl Lane {
    pub(crate) fn new(tenure: &Tenure, chain_id: u64, account: Address, terms: Terms) -> Lane {
        let set = InFlight::called(tenure, name_of("reserved", chain_id, account));
        let sent = terms.unknown_for * SENT;
        Lane {
            tenure: tenure.clone(),
            account,
            line: name_of("nonces", chain_id, account),
            taken: set.clone().ttl(terms.ttl).max_hold(terms.reserved_for.max(terms.ttl)),
            sent: set.ttl(sent).max_hold(terms.reserved_for.max(sent)),
            meter: Meter::new(chain_id, format!("{account:#x}")),
            own: Mutex::default(),
            terms,
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lowest nonce that nobody has.
    pub(crate) async fn reserve(&self, chain: &impl Chain) -> Result<Member> {
        let line = self.tenure.mutex(&self.line).ttl(TURN).max_hold(LONGEST_TURN);
        let turn = line.acquire().await?;
        loop {
            let standing = self.look(chain).await?;
            if let Some(member) = self.take(chain, standing.next(), &standing).await? {
                drop(turn);
                return Ok(member);
            }
        }
    }

    /// Takes this nonce, if nobody has it.
    pub(super) async fn fill(&self, chain: &impl Chain, nonce: u64) -> Result<Option<Member>> {
        let standing = self.look(chain).await?;
        self.take(chain, nonce, &standing).await
    }

    /// Takes a nonce that nobody had at an earlier look, unless someone has it now.
    async fn take(
        &self,
        chain: &impl Chain,
        nonce: u64,
        earlier: &Standing,
    ) -> Result<Option<Member>> {
        let member = self.taken.join(nonce, None).await?;
        let standing = self.read(chain).await?.after(earlier);
        // The clock last: a process that was stopped anywhere above has been forgotten by the others.
        if standing.is_anothers(nonce, member.hold().fence()) || !member.is_live() {
            member.leave().await?;
            return Ok(None);
        }
        debug!(target: "tenure", event = "nonce.reserved", account = %self.account, nonce);
        Ok(Some(member))
    }

    /// Looks how everything stands, and lets go of what needs no keeping.
    pub(super) async fn look(&self, chain: &impl Chain) -> Result<Standing> {
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

    /// Writes the hash beside the nonce, and returns whether the nonce was had until then. Its unit is left
    /// only when the one with the hash is there.
    pub(super) async fn write(&self, member: &mut Member, hash: B256) -> Result<bool> {
        if member.hash() == Some(hash) && member.is_live() {
            return Ok(true);
        }
        let with_hash = self.sent.join(member.nonce(), Some(hash)).await?;
        let was_had = member.is_live();
        *member = with_hash;
        Ok(was_had)
    }

    /// The node has the transaction. What is in the hand is taken from it at the end, so that a future
    /// that is dropped leaves it there.
    pub(super) async fn commit(
        &self,
        chain: &impl Chain,
        hand: &mut Option<Member>,
        hash: B256,
    ) -> Result<()> {
        let Some(nonce) = hand.as_ref().map(Member::nonce) else { return Ok(()) };
        // A node that cannot be asked now is asked again at the next look.
        let count = chain.count(self.account).await.unwrap_or_default();
        if count <= nonce {
            return self.keep_with(hand, hash).await;
        }
        let raised = self.raise_floor(count).await;
        match (&raised, hand.take()) {
            (Err(_), Some(member)) => self.keep(member, Some(hash)),
            (_, member) => drop(member),
        }
        raised
    }

    /// Writes the hash beside the nonce in hand, and keeps both until the chain has counted it, or does not
    /// know it when it has had time enough.
    pub(super) async fn keep_with(&self, hand: &mut Option<Member>, hash: B256) -> Result<()> {
        let Some(member) = hand else { return Ok(()) };
        let written = self.write(member, hash).await;
        if let Some(member) = hand.take() {
            self.keep(member, Some(hash));
        }
        written.map(drop)
    }

    /// Nothing was said of it. Never waits: it is called when a reservation is dropped.
    pub(crate) fn abandon(&self, member: Member) {
        let hash = member.hash();
        self.keep(member, hash);
    }

    fn keep(&self, member: Member, hash: Option<B256>) {
        let until = Instant::now() + self.terms.unknown_for;
        self.own().kept.push(Kept { member, hash, until });
    }

    /// The node says that another transaction has the nonce. If the node does not count that yet, it is
    /// kept for a while: it would only be refused again.
    pub(super) async fn wrong_nonce(
        &self,
        chain: &impl Chain,
        hand: &mut Option<Member>,
    ) -> Result<()> {
        self.meter.wrong_nonce();
        let count = chain.count(self.account).await.map_err(NonceError::Chain)?;
        match hand.take() {
            Some(member) if member.nonce() < count => member.leave().await.map(drop)?,
            Some(member) => self.keep(member, None),
            None => {}
        }
        Ok(())
    }

    /// Lets go of what the chain has counted.
    async fn forget_below(&self, count: u64) -> Result<()> {
        let any = self.own().kept.iter().any(|kept| kept.member.nonce() < count);
        if any {
            self.raise_floor(count).await?;
            self.own().kept.retain(|kept| kept.member.nonce() >= count);
        }
        Ok(())
    }

    /// Tells everyone that the chain has counted so far, for as long as a node may be late.
    async fn raise_floor(&self, count: u64) -> Result<()> {
        let late = match self.terms.late {
            Duration::ZERO => return Ok(()),
            late => late.max(self.tenure.profile().shortest_ttl),
        };
        let is_told = |(known, hold): &(u64, Hold)| *known >= count && hold.remaining() > late / 2;
        if self.own().floor.as_ref().is_some_and(is_told) {
            return Ok(());
        }
        let unit = self.taken.unit().meta(COUNT, count.to_string());
        let unit = unit.ttl(late).max_hold(late).renew(false);
        let hold = self.taken.enter(unit).await?;
        let mut own = self.own();
        if own.floor.as_ref().is_none_or(|(known, _)| *known <= count) {
            own.floor = Some((count, hold));
        }
        Ok(())
    }

    /// Asks for what was waited for long enough: what the node knows stays, the rest is given up.
    /// Returns whether there was any.
    async fn resolve(&self, chain: &impl Chain) -> Result<bool> {
        let over = |own: &Own| {
            let over = own.kept.iter().filter(|kept| kept.is_over());
            over.map(|kept| (kept.member.hold().fence(), kept.member.nonce(), kept.hash)).collect()
        };
        let all: Vec<_> = over(&self.own());
        for (fence, nonce, hash) in all.iter().copied() {
            let known = match hash {
                Some(hash) => chain.knows(hash).await.map_err(NonceError::Chain)?,
                None => false,
            };
            // Joined before it is left, so that nobody finds the nonce free in between.
            let again = if known { Some(self.sent.join(nonce, hash).await?) } else { None };
            self.own().kept.retain(|kept| kept.member.hold().fence() != fence);
            again.into_iter().for_each(|member| self.keep(member, hash));
        }
        Ok(!all.is_empty())
    }

    /// Asks for what others sent and nobody renews: what the node knows has its nonce although whoever sent
    /// it is gone, and this process goes on with it; what it does not know is given up after a while.
    async fn judge(&self, chain: &impl Chain, standing: &mut Standing) -> Result<()> {
        let unknown_for = self.terms.unknown_for;
        let unrenewed = |seen: &Seen| (unknown_for * SENT).saturating_sub(seen.remaining);
        // Renewals come after one `unknown_for`, and a little later on a busy machine.
        let is_left = |seen: &&Seen| seen.hash.is_some() && unrenewed(seen) > unknown_for * 6 / 5;
        let left: Vec<Seen> = standing.in_flight.iter().filter(is_left).cloned().collect();
        for seen in left {
            let Some(hash) = seen.hash else { continue };
            if chain.knows(hash).await.map_err(NonceError::Chain)? {
                let mut same = standing.in_flight.iter().filter(|other| other.nonce == seen.nonce);
                if same.all(|other| is_left(&other)) {
                    let member = self.sent.join(seen.nonce, Some(hash)).await?;
                    self.keep(member, Some(hash));
                }
            } else if unrenewed(&seen) >= unknown_for * 2 {
                standing.give_up(seen.fence);
            }
        }
        Ok(())
    }
}

impl Drop for Lane {
    /// What has no outcome yet is not free because nobody asks for it here any more: it is renewed until its
    /// time is over, or lasts for its ttl if the process ends before.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut *self.own()));
    }
}
