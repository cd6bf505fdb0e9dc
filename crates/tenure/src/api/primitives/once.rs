use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::api::hold::Hold;
use crate::api::setters::setters;
use crate::core::acquire::AcquireOutcome;
use crate::core::guard::FromHeld;
use crate::core::handle::{Core, Handle};
use crate::core::live_claim::LiveClaim;
use crate::core::request_builder::RequestBuilder;
use crate::engine::View;
use crate::model::claim::{
    Broken, Fence, Forgotten, Holder, Leave, OnceRecord, OnceTerms, Outcome, Released, Settle,
};
use crate::model::error::{Error, Result};

/// The longest outcome, in bytes.
pub const LONGEST_OUTCOME: usize = 64 * 1024;
/// The longest time that a record can be kept.
const LONGEST_KEEP: Duration = Duration::from_secs(400 * 24 * 60 * 60);
/// How long a record is kept by default.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Work that is done once, no matter how many callers ask for it and how often: the first one runs it, everyone
/// else gets its outcome.
///
/// The outcome is up to [`LONGEST_OUTCOME`] bytes, remembered for [`keep`](Once::keep). Callers that come
/// while it runs wait for it and are notified by push; with `wait(Duration::ZERO)`, or when the wait is
/// over, they get [`Done::InProgress`].
///
/// A holder that dies after it started leaves the work *unsettled*: it may or may not have been done.
/// Nobody runs it again (at most once, [`Done::Unsettled`]) unless a caller sets
/// [`rerun`](Once::rerun) (at least once).
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// use tenure::Done;
///
/// let charge = async |_run: &tenure::Run| Ok::<_, std::convert::Infallible>("paid 42");
/// for _ in 0..2 {
///     match tenure.once("webhook:42").run(charge).await?.unwrap() {
///         Done::Ran(receipt) | Done::Replayed(receipt) => assert_eq!(*receipt, *b"paid 42"),
///         Done::InProgress(_) | Done::Unsettled => unreachable!("it waits, and nobody died"),
///     }
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the work; run it"]
pub struct Once {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
}

setters!(Once);

/// The result of a [`Once::run`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// The work ran here, with this outcome.
    Ran(Outcome),
    /// The work was done before, with this outcome.
    Replayed(Outcome),
    /// Someone else is running it, and this caller did not wait for the end.
    InProgress(Option<Holder>),
    /// It was started before and never settled. It was not run again.
    Unsettled,
}

/// The result of [`Once::begin`].
#[derive(Debug)]
pub enum Begun<R = Run> {
    /// This caller has to do it.
    Mine(R),
    /// The work was done before, with this outcome.
    Replayed(Outcome),
    /// Someone else is running it, and this caller did not wait for the end.
    InProgress(Option<Holder>),
    /// It was started before and never settled. Nobody should run it again.
    Unsettled,
}

impl Once {
    pub(crate) fn new(handle: Arc<Handle>, mut request: RequestBuilder) -> Once {
        request.claim.once = Some(OnceTerms { keep: KEEP, rerun: false, content: 0 });
        Once { handle, request }
    }

    /// How long its start and its outcome are remembered, each counted from when it happened. Default: 24 h.
    pub fn keep(self, keep: Duration) -> Once {
        self.with(|terms| terms.keep = keep)
    }

    /// Run it again if an earlier holder started it and never settled it: at least once, instead of at most once.
    /// Default: no.
    pub fn rerun(self, rerun: bool) -> Once {
        self.with(|terms| terms.rerun = rerun)
    }

    /// The content of the work, such as the body of a request. The same name with other content is refused with
    /// `Conflict`. Only a hash of it is kept. Default: none, which matches any content.
    pub fn content(self, content: impl AsRef<[u8]>) -> Once {
        let hash = Sha256::digest(content.as_ref());
        let half = hash.first_chunk().copied().unwrap_or_default();
        // 0 would match any content.
        self.with(|terms| terms.content = u128::from_be_bytes(half).max(1))
    }

    fn with(mut self, change: impl FnOnce(&mut OnceTerms)) -> Once {
        if let Some(terms) = &mut self.request.claim.once {
            change(terms);
        }
        self
    }

    /// Runs `work` unless it was done before. Its `Ok` is remembered as the outcome.
    ///
    /// Its `Err` means that it did not happen: nothing is remembered, and the next caller runs it. A failure that
    /// should be remembered is an outcome like any other. The work gets its [`Run`], whose fence should be passed to
    /// the system that it writes to. When the hold is lost, the work is dropped.
    ///
    /// # Errors
    /// `Conflict` for [other content](Once::content), `Lost`, `Invalid` for an outcome that is too long (both
    /// leave the work unsettled), and the errors of acquiring a lock.
    ///
    /// # Cancel safety
    /// Dropped before the work has begun, it leaves nothing behind; after that, the work is unsettled.
    pub async fn run<T: AsRef<[u8]>, E>(
        self,
        work: impl AsyncFnOnce(&Run) -> Result<T, E>,
    ) -> Result<Result<Done, E>> {
        let run = match self.begin().await? {
            Begun::Mine(run) => run,
            Begun::Replayed(outcome) => return Ok(Ok(Done::Replayed(outcome))),
            Begun::InProgress(holder) => return Ok(Ok(Done::InProgress(holder))),
            Begun::Unsettled => return Ok(Ok(Done::Unsettled)),
        };
        let done = run.0.until_lost(work(&run)).await?;
        match done {
            Ok(outcome) => {
                let outcome = Outcome::from(outcome.as_ref());
                run.settle_with(outcome.clone()).await?;
                Ok(Ok(Done::Ran(outcome)))
            }
            Err(failed) => {
                run.undo().await?;
                Ok(Err(failed))
            }
        }
    }

    /// Starts the work if it has to be done, for callers that [settle](Run::settle) it themselves.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind, except unsettled work if this caller already had its turn.
    pub async fn begin(self) -> Result<Begun> {
        let Once { handle, request } = self;
        let keep = request.claim.once.map_or(KEEP, |terms| terms.keep);
        if keep.is_zero() || keep > LONGEST_KEEP {
            let reason = format!("cannot remember it for {keep:?}; the limit is {LONGEST_KEEP:?}");
            let error = Error::invalid(reason).next("choose how late a repeated call can come");
            return Err(handle.core.explain(error, "begin", &request.claim.name));
        }
        Ok(match request.begin_once(handle).await? {
            AcquireOutcome::Granted(held) => Begun::Mine(Run(Hold::from_held(held))),
            AcquireOutcome::Busy(_, held_by) => Begun::InProgress(held_by.holder().cloned()),
            AcquireOutcome::Settled(outcome) => Begun::Replayed(outcome),
            AcquireOutcome::Unsettled => Begun::Unsettled,
        })
    }

    /// Who runs it, who waits for its outcome, and the [record](View::record) of it; `None` if nothing is known.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(&self) -> Result<Option<View>> {
        self.handle.core.view(&self.request.claim.name).await
    }

    /// Forgets the record of it, if that is still what [`inspect`](Once::inspect) showed and nobody runs it. The next
    /// caller runs it.
    ///
    /// For work that turned out not to have been done although it is unsettled or settled, and for keys that are
    /// used again. If it *was* done, it will be done a second time.
    ///
    /// ```
    /// # async fn example() -> tenure::Result<()> {
    /// # let tenure = tenure::Tenure::connect("memory:").await?;
    /// # let charge = async |_: &tenure::Run| Ok::<_, std::convert::Infallible>("paid 42");
    /// # let _ = tenure.once("webhook:42").run(charge).await?;
    /// let once = tenure.once("webhook:42");
    /// if let Some(record) = once.inspect().await?.and_then(|view| view.record) {
    ///     println!("settled: {:?}, {:?} ago", record.outcome.is_some(), record.age);
    ///     once.forget(&record).await?;
    /// }
    /// assert!(once.inspect().await?.is_none());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// A request that was sent may take effect although the future was dropped.
    pub async fn forget(&self, seen: &OnceRecord) -> Result<Forgotten> {
        let (core, name) = (&self.handle.core, &self.request.claim.name);
        let asked = async {
            name.check()?;
            core.open()?;
            core.engine.forget(name, seen).await
        };
        let forgotten = asked.await.map_err(|error| core.explain(error, "forget", name))?;
        if forgotten == Forgotten::Done {
            core.table.reporter.forgotten(name, seen);
        }
        Ok(forgotten)
    }

    /// Ends a run by force, as [`Tenure::break_hold`](crate::Tenure::break_hold) ends a hold. The work is then
    /// unsettled, unless its holder still settles it.
    ///
    /// # Cancel safety
    /// A break that was sent may take effect although the future was dropped.
    pub async fn break_run(&self, fence: Fence, reason: impl Into<String>) -> Result<Broken> {
        let by = self.request.claim.details.owner.clone();
        self.handle.core.break_hold(&self.request.claim.name, fence, by, reason.into()).await
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once({:?})", *self.request)
    }
}

/// Work that this caller has to do. Dropping it leaves the work unsettled.
#[derive(Debug)]
#[must_use = "work that is dropped stays unsettled"]
pub struct Run(pub(crate) Hold);

impl Run {
    /// The number of this run: higher than that of every earlier run.
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// The hold that keeps others out.
    pub fn hold(&self) -> &Hold {
        &self.0
    }

    /// Settles the work: it is done, with this outcome.
    ///
    /// This counts even if the hold was lost in the meantime ([`Released::Late`]), unless a caller with
    /// [`rerun`](Once::rerun) has started again.
    ///
    /// # Errors
    /// `Invalid` for an outcome beyond [`LONGEST_OUTCOME`], which leaves the work unsettled.
    ///
    /// # Cancel safety
    /// While the hold is live, it is settled even if the future is dropped; after that it may be.
    pub async fn settle(self, outcome: impl AsRef<[u8]>) -> Result<Released> {
        self.settle_with(Outcome::from(outcome.as_ref())).await
    }

    async fn settle_with(self, outcome: Outcome) -> Result<Released> {
        if outcome.len() > LONGEST_OUTCOME {
            let length = outcome.len();
            let reason =
                format!("the outcome has {length} bytes; the limit is {LONGEST_OUTCOME} bytes");
            let error =
                Error::invalid(reason).next("store it elsewhere, and keep only a reference to it");
            return Err(self.0.core().explain(error, "settle", &self.0.live().claim.name));
        }
        self.leave(Some(outcome)).await
    }

    /// Settles the work: it did not happen. Nothing is remembered, and the next caller runs it.
    ///
    /// # Cancel safety
    /// As [`settle`](Run::settle).
    pub async fn undo(self) -> Result<Released> {
        self.leave(None).await
    }

    async fn leave(self, outcome: Option<Outcome>) -> Result<Released> {
        let Run(hold) = self;
        hold.core().table.reporter.settled(&**hold.live(), outcome.is_some());
        let (core, live) = (hold.core().clone(), hold.live().clone());
        let explain = |error| core.explain(error, "settle", &live.claim.name);
        core.open().map_err(explain)?;
        let settle = Settle { fence: hold.fence(), outcome };
        if hold.is_live() {
            live.with(|state, _| state.settle(settle.clone()));
            // The result must be known: this waits for as long as the hold lasts.
            let in_time = hold.release_and_wait(true).await? == Released::InTime;
            if in_time
                && (!live.with(|state, _| state.is_guessed())
                    || is_kept(&core, &live, &settle).await)
            {
                return Ok(Released::InTime);
            }
        }
        core.table.reporter.settled_late(&*live);
        let (name, id) = (live.claim.name.clone(), live.claim.id);
        let leave = Leave { settle: Some(settle), ..Leave::new(name, id) };
        core.engine.leave(&leave).await.map(|_| Released::Late).map_err(explain)
    }
}

/// How often the engine is asked for that.
const MOST_LOOKS: u32 = 3;

/// Whether the engine confirms what was settled.
async fn is_kept(core: &Core, live: &LiveClaim, settle: &Settle) -> bool {
    // Work that did not happen leaves no record.
    let Some(outcome) = &settle.outcome else { return true };
    // The connection that lost the answer may be about to break, and lose this question, too.
    for _ in 0..MOST_LOOKS {
        let Ok(view) = core.view(&live.claim.name).await else { continue };
        return view.and_then(|view| view.record).is_some_and(|record| {
            record.fence == settle.fence && record.outcome.as_ref() == Some(outcome)
        });
    }
    false
}
