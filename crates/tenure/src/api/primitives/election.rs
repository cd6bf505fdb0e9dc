use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use crate::api::hold::{Hold, Lost};
use crate::api::setters::setters;
use crate::core::handle::{Core, Handle};
use crate::core::request_builder::RequestBuilder;
use crate::engine::View;
use crate::model::claim::Released;
use crate::model::claim::{Broken, Details, Fence, Holder};
use crate::model::error::{ErrorKind, Result};
use crate::model::name::Name;

/// How often an observer asks the engine.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long to wait before campaigning again after the engine could not be asked.
pub(crate) const CAMPAIGN_AGAIN: Duration = Duration::from_millis(500);

/// Leader election: one leader at a time, visible to everyone.
///
/// Candidates wait in line as for a lock. The leader publishes a [`value`](Election::value) of its choice, such as
/// its address. Each term has a number, and terms rise. Elections have their own name space: a lock of the same
/// name is unrelated.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// let term = tenure.election("cron").value("web-3").campaign().await?;
/// let leader = tenure.election("cron").leader().await?.expect("someone leads");
/// assert_eq!((leader.value.as_deref(), leader.term), (Some("web-3"), term.number()));
/// term.resign().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the election; campaign, or ask who leads"]
pub struct Election {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
}

setters!(Election);

impl Election {
    /// A text that everyone can read while this candidate leads. Default: none.
    pub fn value(mut self, value: impl Into<String>) -> Election {
        self.request.details().value = Some(value.into());
        self
    }

    /// Waits until this candidate leads.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no term, no
    /// place and no renewal remains.
    pub async fn campaign(self) -> Result<Term> {
        Ok(Term::begin(self.request.join(self.handle).await?))
    }

    /// Becomes leader if nobody leads or waits to; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`campaign`](Election::campaign).
    pub async fn try_campaign(self) -> Result<Option<Term>> {
        Ok(self.request.try_acquire(self.handle).await?.map(Term::begin))
    }

    /// Campaigns, and runs `work` while it leads. When the term is lost, the work is dropped and the
    /// candidate campaigns again; it never gives up, not even if the engine cannot be reached. When the work ends,
    /// the term is resigned and its result returned. `wait` is ignored.
    ///
    /// Needs a runtime with timers. If a clone of the term is kept after the end of the work, the candidate
    /// leads until that is dropped.
    ///
    /// ```
    /// # async fn example() -> tenure::Result<()> {
    /// # let tenure = tenure::Tenure::connect("memory:").await?;
    /// let jobs = tokio::spawn(tenure.election("cron").run(|term| async move {
    ///     println!("term {}: only here", term.number());
    /// }));
    /// jobs.await.expect("no panic")?;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Only errors that a retry cannot fix, such as `Invalid`, `Denied` or `Closed`.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and resigns.
    // Not an AsyncFnMut: one that captures something makes a future that cannot be spawned.
    pub async fn run<F: Future>(
        mut self,
        mut work: impl FnMut(Arc<Term>) -> F,
    ) -> Result<F::Output> {
        self.request.wait = None;
        loop {
            let term = match self.clone().campaign().await {
                Ok(term) => Arc::new(term),
                Err(error) if error.is_retryable() => {
                    tokio::time::sleep(CAMPAIGN_AGAIN).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok(done) = term.hold().until_lost(work(term.clone())).await else { continue };
            if let Some(term) = Arc::into_inner(term) {
                let _ = term.resign().await?;
            }
            return Ok(done);
        }
    }

    /// The current leader.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        self.handle.core.leader(&self.request.claim.name).await
    }

    /// The leader and the candidates; `None` if there is neither.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(&self) -> Result<Option<View>> {
        self.handle.core.view(&self.request.claim.name).await
    }

    /// Every change of the leader, starting with the current one. It also reports when nobody leads.
    pub fn observe(&self) -> Observer {
        let (handle, name) = (self.handle.clone(), self.request.claim.name.clone());
        Observer { handle, name, last: None, pause: Duration::ZERO, look: None }
    }

    /// Ends a term by force, as [`Tenure::break_hold`](crate::Tenure::break_hold) ends a hold.
    ///
    /// # Cancel safety
    /// A break that was sent may take effect although the future was dropped.
    pub async fn break_term(&self, term: Fence, reason: impl Into<String>) -> Result<Broken> {
        let by = self.request.claim.details.owner.clone();
        self.handle.core.break_hold(&self.request.claim.name, term, by, reason.into()).await
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Election({:?})", *self.request)
    }
}

/// The leadership, with the [`Hold`] that keeps other candidates out. Dropping it resigns.
#[derive(Debug)]
#[must_use = "a term that is dropped at once leads nobody"]
pub struct Term(pub(crate) Hold);

impl Term {
    pub(crate) fn begin(hold: Hold) -> Term {
        hold.core().table.reporter.elected(&**hold.live());
        Term(hold)
    }

    /// The number of this term, which is its fence. Terms of a name rise.
    pub fn number(&self) -> Fence {
        self.0.fence()
    }

    /// Whether it certainly still leads. Only reads the clock.
    pub fn is_live(&self) -> bool {
        self.0.is_live()
    }

    /// Yields the reason when the term ends other than by resigning. See [`Hold::lost`].
    pub fn lost(&self) -> Lost {
        self.0.lost()
    }

    /// The hold that keeps other candidates out.
    pub fn hold(&self) -> &Hold {
        &self.0
    }

    /// Stops renewing, so that the term runs out. One that has ended is left unchanged.
    pub(crate) fn let_go(self) {
        let _ = self.0.hand_over();
    }

    /// Resigns, so that the next candidate leads, and waits for the answer as [`Hold::release`] does.
    ///
    /// # Cancel safety
    /// It resigns even if the future is dropped.
    pub async fn resign(self) -> Result<Released> {
        let (core, live) = (self.0.core().clone(), self.0.live().clone());
        let released = self.0.release().await?;
        if released == Released::InTime {
            core.table.reporter.resigned(&*live);
        }
        Ok(released)
    }
}

/// The leader, as everyone can see it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// The number of the term.
    pub term: Fence,
    /// What the leader publishes.
    pub value: Option<String>,
    /// The owner of the leader's claim.
    pub owner: String,
    /// How long it has led.
    pub leads_for: Duration,
}

impl Leader {
    fn new(holder: Holder) -> Leader {
        let Holder { fence, held_for, details, .. } = holder;
        let Details { owner, value, .. } = &*details;
        Leader { term: fence, value: value.clone(), owner: owner.clone(), leads_for: held_for }
    }
}

type Look = Pin<Box<dyn Future<Output = Result<Option<Leader>>> + Send>>;

/// Every change of the leader. See [`Election::observe`].
#[must_use = "it looks only while it is polled"]
pub struct Observer {
    handle: Arc<Handle>,
    name: Name,
    /// The term that was returned last, if any was.
    last: Option<Option<Fence>>,
    pause: Duration,
    look: Option<Look>,
}

impl Observer {
    /// The next change; `None` inside means that nobody leads. After an error it can be called again. Needs a
    /// runtime with timers.
    ///
    /// # Cancel safety
    /// Safe: the latest change is never missed.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        match poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await {
            Some(change) => change,
            None => Err(crate::model::error::Error::closed()),
        }
    }
}

impl Stream for Observer {
    type Item = Result<Option<Leader>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Observer { handle, name, pause, .. } = &*self;
            let (core, name, pause) = (handle.core.clone(), name.clone(), *pause);
            let look = self.look.get_or_insert_with(|| Box::pin(look(core, name, pause)));
            let found = ready!(look.as_mut().poll(cx));
            (self.look, self.pause) = (None, LOOK_EVERY);
            match found {
                Ok(leader) => {
                    let term = Some(leader.as_ref().map(|leader| leader.term));
                    if std::mem::replace(&mut self.last, term) != term {
                        return Poll::Ready(Some(Ok(leader)));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

async fn look(core: Arc<Core>, name: Name, pause: Duration) -> Result<Option<Leader>> {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    core.leader(&name).await
}

impl Core {
    async fn leader(&self, name: &Name) -> Result<Option<Leader>> {
        let view = self.view(name).await?;
        Ok(view.and_then(|view| view.holders.into_iter().next()).map(Leader::new))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({:?})", self.name)
    }
}
