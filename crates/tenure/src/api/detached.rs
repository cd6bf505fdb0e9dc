//! Holds that outlive the process that acquired them, and are handed over to another one.
//!
//! A [`Detached`], or its secret as one line of text, is passed from one process to the other. Attaching asks the
//! engine first whether the hold still exists.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::hold::Hold;
use crate::api::tenure::Tenure;
use crate::core::guard::{FromHeld, HeldClaim};
use crate::core::handle::Core;
use crate::core::live_claim::LiveClaim;
use crate::core::request_builder::RequestBuilder;
use crate::model::claim::{ClaimId, Ended, Fence, Grant, Renewal, Renewed};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::{Name, Space};
use crate::model::options::{Protection, Terms, check_times};

/// The beginning of a secret: its version.
const PREFIX: &str = "t1-";

/// A hold that nobody renews until someone [attaches](Tenure::attach) to it.
///
/// [`Hold::detach`] makes one. Another process needs its [`secret`](Detached::secret) to continue the hold. `Debug`
/// and `Display` show a fingerprint of the secret that is safe to log.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// # let elsewhere = tenure.clone();
/// use tenure::Detached;
///
/// let hold = tenure.mutex("deploy").acquire().await?;
/// let secret = hold.detach().await?.secret();
/// // … in another process, before the ttl has run out …
/// let hold = elsewhere.attach(&Detached::from_secret("deploy", &secret)?).await?;
/// hold.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Detached {
    name: Name,
    id: ClaimId,
    fence: Fence,
    ttl: Duration,
    /// A request of the claim was never answered and may still arrive: a leave must say so.
    in_doubt: bool,
}

impl Detached {
    /// The name that is held.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The number of the grant, as [`Hold::fence`].
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How long it lasts without renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Everything that is needed to continue the hold, except its name, as one line of printable ASCII. It contains a
    /// fingerprint of the name, so that it is not used for another one.
    ///
    /// Anyone who has it can release the hold: treat it like a password.
    pub fn secret(&self) -> String {
        let id: String = self.id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (fence, millis, name) = (self.fence, self.ttl.as_millis(), fingerprint(&self.name));
        format!("{PREFIX}{id}-{fence}-{millis}-{name}{}", if self.in_doubt { "-d" } else { "" })
    }

    /// Parses a [`secret`](Detached::secret). White space around it is ignored.
    ///
    /// # Errors
    /// `Invalid` if the name is bad or the secret is incomplete; `Conflict` if it is the secret of another name.
    /// The error does not quote it.
    pub fn from_secret(name: &str, secret: &str) -> Result<Detached> {
        let read = || {
            let name = Name::new(Space::Lock, name)?;
            let Parts { id, fence, ttl, of, in_doubt } =
                parts(secret.trim()).ok_or_else(not_a_secret)?;
            if of.is_some_and(|of| of != fingerprint(&name)) {
                return Err(of_another_name());
            }
            Ok(Detached { name, id, fence, ttl, in_doubt })
        };
        read().map_err(|error: Error| error.context("read the secret of", name, ""))
    }

    /// A renewal for `ttl` from now. A ttl of zero only asks whether it is held.
    fn renewal(&self, ttl: Duration) -> Renewal {
        Renewal::Hold { name: self.name.clone(), id: self.id, fence: self.fence, ttl }
    }
}

struct Parts<'a> {
    id: ClaimId,
    fence: Fence,
    ttl: Duration,
    /// The fingerprint of the name. Secrets of older versions have none.
    of: Option<&'a str>,
    in_doubt: bool,
}

fn parts(secret: &str) -> Option<Parts<'_>> {
    let mut parts = secret.strip_prefix(PREFIX)?.split('-').peekable();
    let id = id(parts.next()?)?;
    let (fence, millis) = (number(parts.next()?)?, number(parts.next()?)?);
    let is_fingerprint = |part: &&str| part.len() == 9 && part.starts_with('n');
    let of = parts.next_if(is_fingerprint);
    let in_doubt = match (parts.next(), parts.next()) {
        (None, _) => false,
        (Some("d"), None) => true,
        _ => return None,
    };
    let (fence, ttl) = (Fence::new(fence), Duration::from_millis(millis));
    Some(Parts { id, fence, ttl, of, in_doubt })
}

/// A fingerprint that tells one name from another without showing it.
fn fingerprint(name: &Name) -> String {
    let hash = Sha256::digest(name.as_str());
    hash.iter().take(4).fold("n".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn id(hex: &str) -> Option<ClaimId> {
    let plain = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let all = u128::from_str_radix(hex, 16).ok().filter(|_| plain)?;
    Some(ClaimId::from_bytes(all.to_be_bytes()))
}

fn number(digits: &str) -> Option<u64> {
    // `parse` would also accept a leading plus.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn not_a_secret() -> Error {
    let error = Error::invalid("the text is not the secret of a hold");
    error.next("give the whole line, unchanged; it begins with t1-")
}

fn of_another_name() -> Error {
    let error = Error::new(ErrorKind::Conflict, "it is the secret of a hold of another name");
    error.next("use the name that it was acquired with")
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detached")
            .field("name", &self.name)
            .field("fence", &self.fence)
            .field("ttl", &self.ttl)
            .field("claim", &self.id)
            .finish_non_exhaustive()
    }
}

/// The name, the fence, and a fingerprint of the secret.
impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Detached { name, fence, id, .. } = self;
        write!(f, "{name:?}, fence {fence}, claim {id}")
    }
}

impl Hold {
    /// Gives the hold to the process that has its secret. This process renews it one last time, so that all of its
    /// ttl is left.
    ///
    /// Nobody renews it until someone [attaches](Tenure::attach); otherwise it ends with its ttl. Its
    /// [`lost`](Hold::lost) and [`at_risk`](Hold::at_risk) futures never yield after this, and `max_hold` and
    /// `hold_for` no longer apply: the process that attaches has its own.
    ///
    /// # Errors
    /// `Unsupported` for a hold of several names and for one that the engine did not
    /// [grant](Hold::protection), `Lost` if it has ended, `Unavailable` if the engine
    /// did not answer. On an error the hold is released, as if it had been dropped.
    ///
    /// # Cancel safety
    /// Dropping the future before it is ready releases the hold, as if that had been dropped.
    pub async fn detach(self) -> Result<Detached> {
        let (core, live) = (self.core().clone(), self.live().clone());
        let detached = self.leave_behind().await;
        detached.map_err(|error| core.explain(error, "detach", &live.claim.name))
    }

    /// Makes the hold last for its ttl even if this process dies, on every engine: the file engine, which ends the
    /// claims of a dead process at once, leaves this one to its ttl.
    ///
    /// For holds that record what was being done, not only by whom. This process continues to hold it as before; if
    /// the hold is broken, this process may learn of it only at the next renewal.
    ///
    /// # Errors
    /// `Unsupported` for a hold that the engine did not [grant](Hold::protection), `Unavailable` if the engine
    /// did not answer; the hold then continues, and may end with this process.
    ///
    /// # Cancel safety
    /// A request that was sent may take effect although the future was dropped.
    pub async fn outlive(&self) -> Result<()> {
        let core = self.core();
        for live in self.claims() {
            let told = match live.protection {
                Protection::Engine => core.engine.detach(&live.claim.name, &live.claim.id).await,
                Protection::Local | Protection::None => Err(not_the_engines()),
            };
            told.map_err(|error| core.explain(error, "outlive", &live.claim.name))?;
        }
        Ok(())
    }

    async fn leave_behind(self) -> Result<Detached> {
        let (core, live) = (self.core().clone(), self.live().clone());
        if self.fences().count() > 1 {
            let error = Error::new(ErrorKind::Unsupported, "it is a hold of several names");
            return Err(error.next("acquire and detach each one separately"));
        }
        if self.protection() != Protection::Engine {
            return Err(not_the_engines());
        }
        core.open()?;
        if let Some(ended) = live.ended(core.world.now()) {
            return Err(ended.into());
        }
        // A pushed turn may still be in its first life, which is too short to hand over.
        self.renew_for(live.claim.ttl).await?;
        // Not before: if this process dies here, the hold should end with it, because nobody has the secret.
        core.engine.detach(&live.claim.name, &live.claim.id).await?;
        let fence = self.fence();
        let in_doubt = self.hand_over()?;
        let (name, ttl) = (live.claim.name.clone(), live.claim.ttl);
        // If the hold was handed over within this process, the engine knows it by another id.
        let handover = core.handover.as_ref();
        let known = handover.and_then(|handover| handover.give_away(&name, &live.claim.id));
        let (id, doubt) = known.unwrap_or((live.claim.id, false));
        let in_doubt = in_doubt || doubt;
        Ok(Detached { name, id, fence, ttl, in_doubt })
    }
}

fn not_the_engines() -> Error {
    let reason = "the engine could not be reached, and does not know this hold";
    Error::new(ErrorKind::Unsupported, reason).next("acquire it with on_outage=closed")
}

impl Tenure {
    /// Continues a hold that was [detached](Hold::detach), here or in another process, if it is still held.
    ///
    /// From then on it is a normal hold of this process: it is renewed unless the [defaults](Tenure::defaults) say
    /// otherwise, and dropping it releases it. Attaching does not extend it. The defaults' `max_hold` counts from
    /// here; `hold_for` does not apply. If the hold is broken, this process may learn of it only at the next renewal.
    ///
    /// # Errors
    /// `Lost` if it has ended, with the reason as far as the engine knows it; `Invalid` if this `Tenure` is
    /// already attached to it; `Unavailable` if the engine did not answer: the hold is then unchanged.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the hold is unchanged.
    pub async fn attach(&self, detached: &Detached) -> Result<Hold> {
        let core = &self.handle.core;
        let attached = self.take_up(detached).await;
        attached.map_err(|error| core.explain(error, "attach", &detached.name))
    }

    async fn take_up(&self, detached: &Detached) -> Result<Hold> {
        let core = &self.handle.core;
        let options = self.defaults();
        let terms = Terms { hold_for: Duration::ZERO, ..options.terms() };
        core.open()?;
        check_times(detached.ttl, &terms, core.engine.profile())?;
        core.be_watched()?;
        let mut builder = RequestBuilder::new(detached.name.clone(), &options);
        (builder.claim.id, builder.claim.ttl, builder.terms) = (detached.id, detached.ttl, terms);
        let live = builder.into_live();
        if detached.in_doubt {
            live.with(|state, _| state.asked());
        }
        // Before the engine is asked, so that no push about it can come too early.
        if !core.table.insert_again(live.clone()) {
            let error = Error::invalid("this process is attached to it already");
            return Err(error.next("use the existing hold, or detach it first"));
        }
        let attaching = Attaching { core, live: &live, attached: false };
        // A close that came in the meantime has not seen this claim.
        core.open()?;
        let grant = core.ask_after(detached).await?;
        let now = core.world.now();
        if now >= grant.good_until {
            let error = Error::new(ErrorKind::Lost, "too little time is left to continue it");
            return Err(error.next("acquire it again"));
        }
        attaching.done();
        Ok(Hold::from_held(HeldClaim::attached(self.handle.clone(), live, &grant, now)))
    }

    /// Checks whether a [detached](Hold::detach) hold is still held, and returns for how long that is certain.
    ///
    /// This changes nothing: the hold is not extended, and this process does not attach to it.
    ///
    /// # Errors
    /// `Lost` if it has ended, with the reason as far as the engine knows it; `Unavailable` if the engine did not
    /// answer.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn check(&self, detached: &Detached) -> Result<Duration> {
        let core = &self.handle.core;
        let asked = async {
            core.open()?;
            core.ask_after(detached).await
        };
        let grant = asked.await.map_err(|error| core.explain(error, "check", &detached.name))?;
        Ok(core.world.now().until(grant.good_until))
    }
}

impl Core {
    /// Asks whether it is still held, without extending it.
    async fn ask_after(&self, detached: &Detached) -> Result<Grant> {
        let shard = self.engine.shard(&detached.name);
        let renewal = detached.renewal(Duration::ZERO);
        match self.engine.renew(shard, &[renewal]).await?.pop() {
            Some(Renewed::Held(grant)) if grant.fence == detached.fence => Ok(grant),
            Some(Renewed::Gone(ended)) => Err(no_longer(ended)),
            Some(Renewed::Unknown(error)) => Err(error),
            _ => Err(Error::new(ErrorKind::Internal, "the engine gave no answer to the question")),
        }
    }
}

fn no_longer(ended: Ended) -> Error {
    let next = "acquire it again; inspect shows who holds it now";
    match ended {
        // It is only known that it is gone.
        Ended::Expired | Ended::Forgotten | Ended::ClockStep { .. } => {
            let reason = "it is no longer held: it was released, or its time ran out";
            Error::new(ErrorKind::Lost, reason).next(next)
        }
        ended => Error::from(ended).next(next),
    }
}

/// A hold that is being asked about. If it cannot be attached to, it is left unchanged.
struct Attaching<'a> {
    core: &'a Core,
    live: &'a Arc<LiveClaim>,
    attached: bool,
}

impl Attaching<'_> {
    fn done(mut self) {
        self.attached = true;
    }
}

impl Drop for Attaching<'_> {
    fn drop(&mut self) {
        if !self.attached && !self.core.forked() {
            self.core.table.detach(self.live);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detached(in_doubt: bool) -> Detached {
        let name = Name::new(Space::Lock, "deploy").unwrap();
        let id = ClaimId::from_bytes(*b"\x00\x9f-0123456789ab\xff");
        let (fence, ttl) = (Fence::new(1_762_345_678_901_234), Duration::from_millis(30_500));
        Detached { name, id, fence, ttl, in_doubt }
    }

    #[test]
    fn a_secret_is_one_line_and_says_it_all() {
        for in_doubt in [false, true] {
            let detached = detached(in_doubt);
            let secret = detached.secret();
            assert!(secret.bytes().all(|byte| byte.is_ascii_graphic()), "{secret}");
            assert_eq!(Detached::from_secret("deploy", &secret).unwrap(), detached);
            assert_eq!(Detached::from_secret("deploy", &format!(" {secret}\n")).unwrap(), detached);
            let error = Detached::from_secret("other", &secret).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            // Secrets of older versions do not contain their name.
            let older = secret.replace(&format!("-{}", fingerprint(&detached.name)), "");
            assert_eq!(Detached::from_secret("deploy", &older).unwrap(), detached);
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_repeated() {
        let whole = detached(false).secret();
        let hex = "009f2d303132333435363738396162ff";
        assert!(whole.contains(hex), "{whole}");
        let bad = [
            String::new(),
            "hunter2".to_owned(),
            whole.replace("t1-", "t2-"),
            whole.replace("t1-", ""),
            whole[..whole.len() - 6].to_owned(),
            whole.replace(hex, &hex[1..]),
            whole.replace(hex, &format!("+{}", &hex[1..])),
            whole.replace(hex, &hex.replace('f', "g")),
            whole.replace("-1762", "-+1762"),
            whole.replace("-1762", "--1762"),
            whole.replace("-30500", "-99999999999999999999999"),
            whole.replace("-30500", "-30500-x"),
            whole.replace("-30500", "-30500-d-d"),
            whole.replace("-30500", "-30500-"),
            format!("{whole} {whole}"),
        ];
        for text in bad {
            let error = Detached::from_secret("deploy", &text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            let said = error.to_string();
            assert!(said.contains("begins with t1-"), "{said}");
            assert!(!said.contains("hunter2") && !said.contains("2d3031"), "{said}");
        }
        let error = Detached::from_secret("", &whole).unwrap_err().to_string();
        assert!(error.contains("the name is empty"), "{error}");
    }

    #[test]
    fn only_the_secret_itself_shows_the_secret() {
        let detached = detached(true);
        let shown = format!("{detached:?} {detached}").to_lowercase();
        assert!(shown.contains("deploy") && shown.contains("1762345678901234"), "{shown}");
        assert!(!shown.contains("2d303132"), "{shown}");
        assert!(shown.contains(&detached.id.to_string()), "{shown}");
    }
}
