//! The pending transactions of a sender, as all processes see them: units of a semaphore, each with its nonce and
//! its hash.
//!
//! This module owns the name, what is stored with a unit, and how that is read. A unit of a process that
//! was killed stays for its ttl, on every engine: its transaction may have been sent.

use std::time::Duration;

use alloy_primitives::{Address, B256};
use tenure::engine::ErrorExt;
use tenure::{
    Error, ErrorKind, Fence, Hold, Holder, OnOutage, Protection, Released, Result, Semaphore,
    Tenure,
};

/// As many as a semaphore can have: nobody waits in this line.
const MOST: u32 = (1 << 20) - 1;
/// How long a unit of a process that was killed stays.
const TTL: Duration = Duration::from_secs(10);

const NONCE: &str = "nonce";
const HASH: &str = "hash";
/// The key for a remote signer's name of its reservation: a digest.
pub(crate) const ID: &str = "id";
/// The key for the turn in which the nonce was given out: the fence of its hold.
pub(crate) const TURN: &str = "turn";

/// The pending transactions of one sender on one chain.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// use alloy_primitives::Address;
/// use tenure_relay::in_flight::{InFlight, next};
///
/// let in_flight = InFlight::new(&tenure, 1, Address::ZERO);
/// let member = in_flight.join(7, None).await?;
/// assert_eq!(next(7, &in_flight.members().await?), 8);
/// member.leave().await?;
/// assert_eq!(next(7, &in_flight.members().await?), 7);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct InFlight {
    tenure: Tenure,
    name: String,
    ttl: Duration,
    max_hold: Option<Duration>,
    renew: bool,
    on_outage: OnOutage,
}

impl InFlight {
    /// The pending transactions of `sender`, under the name `pending:<chain id>:<sender>`.
    pub fn new(tenure: &Tenure, chain_id: u64, sender: Address) -> InFlight {
        InFlight::called(tenure, name_of("pending", chain_id, sender))
    }

    pub(crate) fn called(tenure: &Tenure, name: String) -> InFlight {
        let (ttl, max_hold, renew, on_outage) = (TTL, None, true, OnOutage::Closed);
        InFlight { tenure: tenure.clone(), name, ttl, max_hold, renew, on_outage }
    }

    /// How long a member stays after its process was killed. Default: 10 s.
    #[must_use = "this is the set with the ttl"]
    pub fn ttl(mut self, ttl: Duration) -> InFlight {
        self.ttl = ttl;
        self
    }

    /// How long a member stays at most. Default: as long as its process lives.
    #[must_use = "this is the set with the limit"]
    pub fn max_hold(mut self, max_hold: Duration) -> InFlight {
        self.max_hold = Some(max_hold);
        self
    }

    /// What to do when the engine cannot be reached. Nobody sees a member that was not granted by the engine.
    /// Default: fail.
    #[must_use = "this is the set with the choice"]
    pub fn on_outage(mut self, on_outage: OnOutage) -> InFlight {
        self.on_outage = on_outage;
        self
    }

    /// Members stay for their ttl and no longer, whether or not their process lives.
    pub(crate) fn unrenewed(mut self) -> InFlight {
        self.renew = false;
        self
    }

    /// The name that operators see.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a transaction with this nonce. Does not wait: others with the same nonce are found among the
    /// [members](InFlight::members).
    ///
    /// # Errors
    /// `Full` if the set has reached its limit, which is about a million; `Unavailable` if the engine cannot be
    /// reached.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no member remains.
    pub async fn join(&self, nonce: u64, hash: Option<B256>) -> Result<Member> {
        self.join_with(nonce, hash, &[]).await
    }

    /// The same, with more details.
    pub(crate) async fn join_with(
        &self,
        nonce: u64,
        hash: Option<B256>,
        more: &[(&str, String)],
    ) -> Result<Member> {
        let mut unit = self.unit().meta(NONCE, nonce.to_string());
        if let Some(hash) = hash {
            unit = unit.meta(HASH, hash.to_string());
        }
        for (key, value) in more {
            unit = unit.meta(*key, value);
        }
        Ok(Member { nonce, hash, hold: self.enter(unit).await? })
    }

    /// A unit without details.
    pub(crate) fn unit(&self) -> Semaphore {
        let unit = self.tenure.semaphore(&self.name, MOST);
        let unit = unit.ttl(self.ttl).renew(self.renew).on_outage(self.on_outage);
        match self.max_hold {
            Some(max_hold) => unit.max_hold(max_hold),
            None => unit,
        }
    }

    pub(crate) async fn enter(&self, unit: Semaphore) -> Result<Hold> {
        let Some(hold) = unit.try_acquire().await? else {
            let reason = format!("{MOST} transactions of this sender are on their way");
            return Err(Error::new(ErrorKind::Full, reason).with_advice("send them more slowly"));
        };
        if hold.protection() == Protection::Engine {
            hold.outlive().await?;
        }
        Ok(hold)
    }

    /// All members, in the order in which they joined.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn members(&self) -> Result<Vec<Seen>> {
        Ok(self.units().await?.iter().filter_map(seen).collect())
    }

    /// All units, by fence, as they were at one moment.
    pub(crate) async fn units(&self) -> Result<Vec<Holder>> {
        let view = self.tenure.inspect(&self.name).await?;
        Ok(view.map(|view| view.holders).unwrap_or_default())
    }
}

/// `<what>:<chain id>:<address in lower case>`: one spelling for each account.
pub(crate) fn name_of(what: &str, chain_id: u64, account: Address) -> String {
    format!("{what}:{chain_id}:{account:#x}")
}

/// A unit without a nonce does not belong to a transaction.
pub(crate) fn seen(unit: &Holder) -> Option<Seen> {
    let nonce = said(unit, NONCE)?.parse().ok()?;
    let hash = said(unit, HASH).and_then(|hash| hash.parse().ok());
    let id = said(unit, ID).map(str::to_owned);
    let turn = said(unit, TURN).and_then(|turn| turn.parse().ok());
    let Holder { fence, held_for: age, remaining, details, .. } = unit.clone();
    Some(Seen { nonce, hash, owner: details.owner.clone(), age, remaining, fence, id, turn })
}

/// A detail that a unit was joined with.
pub(crate) fn said<'a>(unit: &'a Holder, key: &str) -> Option<&'a str> {
    let mut meta = unit.details.meta.iter();
    meta.find(|(known, _)| known == key).map(|(_, value)| value.as_str())
}

/// The first nonce from the chain's `count` on that no pending transaction has.
pub fn next(count: u64, in_flight: &[Seen]) -> u64 {
    let mut taken: Vec<u64> = in_flight.iter().map(|seen| seen.nonce).collect();
    taken.sort_unstable();
    taken.into_iter().fold(count, |next, nonce| next.saturating_add(u64::from(nonce == next)))
}

/// A pending transaction, as everyone sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// Its nonce.
    pub nonce: u64,
    /// Its hash, if it was known when it joined.
    pub hash: Option<B256>,
    /// The owner of its unit, `host:pid` by default.
    pub owner: String,
    /// How long ago it joined.
    pub age: Duration,
    /// How long it stays without renewal.
    pub remaining: Duration,
    /// The fence of its unit: later members have higher ones.
    pub fence: Fence,
    /// A remote signer's name for it.
    pub(crate) id: Option<String>,
    /// The turn in which it was given out.
    pub(crate) turn: Option<Fence>,
}

/// A pending transaction of this process. Dropping it leaves the set, a little later than
/// [`leave`](Member::leave) does.
#[derive(Debug)]
#[must_use = "a member that is dropped leaves"]
pub struct Member {
    nonce: u64,
    hash: Option<B256>,
    hold: Hold,
}

impl Member {
    /// The nonce of the transaction.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The hash that it joined with.
    pub fn hash(&self) -> Option<B256> {
        self.hash
    }

    /// The hold of its unit.
    pub fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Whether others certainly still see it. Only reads the clock.
    pub fn is_live(&self) -> bool {
        self.hold.is_live()
    }

    /// The outcome is known: others no longer see it when this returns. [`Released::Late`] means that they did
    /// not see it all the time, [`Released::Unknown`] that they may see it for a while longer.
    ///
    /// # Cancel safety
    /// It leaves even if the future is dropped.
    pub async fn leave(self) -> Result<Released> {
        self.hold.release().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(nonces: &[u64]) -> Vec<Seen> {
        let seen = |nonce: &u64| Seen {
            nonce: *nonce,
            hash: None,
            owner: String::new(),
            age: Duration::ZERO,
            remaining: TTL,
            fence: Fence::new(1),
            id: None,
            turn: None,
        };
        nonces.iter().map(seen).collect()
    }

    #[test]
    fn the_next_nonce_is_the_lowest_that_is_neither_counted_nor_in_flight() {
        for (count, in_flight, expected) in [
            (0, &[][..], 0),
            (5, &[], 5),
            (5, &[5, 6], 7),
            (5, &[6, 5, 5], 7),
            (5, &[6, 7], 5),
            (5, &[1, 2, 4], 5),
            (5, &[5, 7], 6),
            (5, &[4, 5, 8, 6], 7),
        ] {
            assert_eq!(next(count, &with(in_flight)), expected, "{count} {in_flight:?}");
        }
    }

    #[test]
    fn an_account_has_one_name() {
        let account: Address = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266".parse().unwrap();
        let name = name_of("pending", 31337, account);
        assert_eq!(name, "pending:31337:0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266");
    }
}
