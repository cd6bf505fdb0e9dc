//! A hold that outlives the process that acquired it: handed over to another one.
//!
//! A [`Detached`], or its secret as one line of text, passes from one process to the other. Whoever attaches asks
//! the engine first whether the hold is still there.

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

/// What the secret begins with: its version.
const PREFIX: &str = "t1-";

/// A hold that nobody renews, until someone [attaches](Tenure::attach) to it.
///
/// [`Hold::detach`] makes one; its [`secret`](Detached::secret) is what another process needs to go
/// on with it. `Debug` and `Display` show a fingerprint of the secret that is safe to log.
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
    /// A request of the claim was never answered and may still arrive: whoever leaves must say so.
    in_doubt: bool,
}

impl Detached {
    /// What is held.
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

    /// All that is needed to go on with the hold, except its name, as one line of printable ASCII.
    /// It has a fingerprint of the name, so that it is not taken for another's.
    ///
    /// Whoever has it can release the hold: pass it on like a password.
    pub fn secret(&self) -> String {
        let id: String = self.id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (fence, millis, name) = (self.fence, self.ttl.as_millis(), fingerprint(&self.name));
        format!("{PREFIX}{id}-{fence}-{millis}-{name}{}", if self.in_doubt { "-d" } else { "" })
    }

    /// Reads what [`secret`](Detached::secret) gave. White space around it does not count.
    ///
    /// # Errors
    /// `Invalid` if the name is bad, or the text is not a whole secret; `Conflict` if it is the secret of
    /// another name. The error does not repeat it.
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

    /// Asks for `ttl` from now; for none, only whether it is held.
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

/// Tells one name from another, without showing it.
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
    // `parse` also takes a leading plus, which no secret has.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn not_a_secret() -> Error {
    let error = Error::invalid("the text is not the secret of a hold");
    error.next("give the whole line, unchanged; it begins with t1-")
}

fn of_another_name() -> Error {
    let error = Error::new(ErrorKind::Conflict, "it is the secret of a hold of another name");
    error.next("say the name that it was acquired with")
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
    /// Leaves the hold to whoever has its secret: this process renews it once, so that all of its ttl
    /// is left, and then never again.
    ///
    /// Nobody renews it until someone [attaches](Tenure::attach); without that it ends with its ttl.
    /// Its [`lost`](Hold::lost) and [`at_risk`](Hold::at_risk) futures never yield after this, and
    /// `max_hold` and `hold_for` are at an end: whoever attaches says its own.
    ///
    /// # Errors
    /// `Unsupported` for a hold of several names and for one that the engine did not
    /// [grant](Hold::protection), `Lost` if it has ended, `Unavailable` if the engine
    /// did not answer. On an error the hold is released, as if it had been dropped.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is done releases the hold, as if that had been dropped.
    pub async fn detach(self) -> Result<Detached> {
        let (core, live) = (self.core().clone(), self.live().clone());
        let detached = self.leave_behind().await;
        detached.map_err(|error| core.explain(error, "detach", &live.claim.name))
    }

    /// Makes the hold last for its ttl if this process dies, on every engine: the file engine, which ends
    /// the claims of a dead process at once, leaves this one to time.
    ///
    /// For holds that say what was being done, and not only who does it. This process goes on with it
    /// as before; if it is broken, this process may hear of it only at the next renewal.
    ///
    /// # Errors
    /// `Unsupported` for a hold that the engine did not [grant](Hold::protection), `Unavailable` if the
    /// engine did not answer; the hold then goes on, and may end with this process.
    ///
    /// # Cancel safety
    /// What was sent may happen although the future was dropped.
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
            return Err(error.next("acquire each by itself, and detach each"));
        }
        if self.protection() != Protection::Engine {
            return Err(not_the_engines());
        }
        core.open()?;
        if let Some(ended) = live.ended(core.world.now()) {
            return Err(ended.into());
        }
        // A pushed turn may still be in its first life, which is too short to pass anything on.
        self.renew_for(live.claim.ttl).await?;
        // Not before: if this process dies here, the hold should end with it, as nobody has the secret.
        core.engine.detach(&live.claim.name, &live.claim.id).await?;
        let fence = self.fence();
        let in_doubt = self.hand_over()?;
        let (name, id, ttl) = (live.claim.name.clone(), live.claim.id, live.claim.ttl);
        Ok(Detached { name, id, fence, ttl, in_doubt })
    }
}

fn not_the_engines() -> Error {
    let reason = "the engine could not be reached, and knows nothing of this hold";
    Error::new(ErrorKind::Unsupported, reason).next("ask for it with on_outage=closed")
}

impl Tenure {
    /// Goes on with a hold that was [detached](Hold::detach), here or elsewhere, if it is still held.
    ///
    /// The hold is this process's own from then on: it is renewed unless the
    /// [defaults](Tenure::defaults) say otherwise, and dropping it releases it. Asking does not prolong
    /// it. `max_hold` of the defaults counts from here; `hold_for` does not apply. If it is broken, this
    /// process may hear of it only at the next renewal.
    ///
    /// # Errors
    /// `Lost` if it has ended, and why as far as the engine knows; `Invalid` if this `Tenure` is
    /// attached to it already; `Unavailable` if the engine did not answer: it is then as it was.
    ///
    /// # Cancel safety
    /// Safe: a hold that was not returned is left as it was.
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
        let mut draft = RequestBuilder::new(detached.name.clone(), &options);
        (draft.claim.id, draft.claim.ttl, draft.terms) = (detached.id, detached.ttl, terms);
        let live = draft.into_live();
        if detached.in_doubt {
            live.with(|state, _| state.asked());
        }
        // There before the engine is asked, so that no push about it can come too early.
        if !core.table.insert_again(live.clone()) {
            let error = Error::invalid("this process is attached to it already");
            return Err(error.next("use the hold that there is, or detach that first"));
        }
        let attaching = Attaching { core, live: &live, attached: false };
        // A close that came meanwhile has not seen this one.
        core.open()?;
        let grant = core.ask_after(detached).await?;
        let now = core.world.now();
        if now >= grant.good_until {
            let error = Error::new(ErrorKind::Lost, "too little is left of it to go on with it");
            return Err(error.next("acquire it anew"));
        }
        attaching.done();
        Ok(Hold::from_held(HeldClaim::attached(self.handle.clone(), live, &grant, now)))
    }

    /// Whether a [detached](Hold::detach) hold is still held, and for how long that is certain.
    ///
    /// Asking changes nothing: the hold is not prolonged, and this process does not go on with it.
    ///
    /// # Errors
    /// `Lost` if it has ended, and why as far as the engine knows; `Unavailable` if the engine did not
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
    /// Asks whether it is still held, without prolonging it.
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
    let next = "acquire it anew; whoever holds it now is shown by inspect";
    match ended {
        // All that is known is that it is gone.
        Ended::Expired | Ended::Forgotten | Ended::ClockStep { .. } => {
            let reason = "it is no longer held: it was released, or its time ran out";
            Error::new(ErrorKind::Lost, reason).next(next)
        }
        ended => Error::from(ended).next(next),
    }
}

/// A hold that is asked after. One that is not had is left as it was.
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
            // Those of older versions do not say of which name they are.
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
