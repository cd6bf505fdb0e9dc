use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use super::callback::call;
use super::id::any_below;
use super::machine::{Action, Event, Machine};
use super::{State, Stopper, Work};
use crate::api::hold::Standing;
use crate::api::primitives::election::{Election, Term};
use crate::model::claim::Fence;
use crate::model::claim::Released;
use crate::model::error::{Error, ErrorKind, Result};
use crate::observe::Worker as About;

/// The first and the longest rest after a failure, and how often it doubles in between.
const SHORTEST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(5);
const MOST_DOUBLINGS: u32 = 5;
/// When a waiting worker first looks who leads. Those that lead at once never look.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Carries out the actions of the [`Machine`], and tells it how they ended.
pub(super) struct Driver {
    pub(super) election: Election,
    pub(super) id: String,
    pub(super) start_within: Duration,
    pub(super) stop_within: Duration,
    pub(super) stopper: Stopper,
    pub(super) states: watch::Sender<State>,
    pub(super) machine: Machine,
    /// How many times in a row it could not campaign, or not start its work.
    pub(super) failures: u32,
    pub(super) led: Led,
    /// The number of the term that it leads, or led until just now.
    pub(super) term: Option<Fence>,
}

/// The term, while there is one.
///
/// If it is dropped while its work may be running, because `run` was dropped or panicked, it is not released but
/// runs out.
#[derive(Default)]
pub(super) struct Led {
    term: Option<Arc<Term>>,
    work_may_run: bool,
}

impl Drop for Led {
    fn drop(&mut self) {
        if self.work_may_run {
            self.let_go();
        }
    }
}

impl Led {
    fn let_go(&mut self) {
        if let Some(term) = self.term.take().and_then(Arc::into_inner) {
            term.let_go();
        }
        self.work_may_run = false;
    }
}

impl Driver {
    pub(super) async fn run(mut self, mut work: impl Work) -> Result<()> {
        let mut action = if self.stopper.is_told() { None } else { self.on(Event::Start) };
        while let Some(effects) = action {
            action = match effects {
                Action::Campaign => self.campaign().await?,
                Action::StartWork => self.lead(&mut work).await,
                Action::StopWork => self.stop(&mut work).await,
                Action::Release => self.release().await,
                Action::LetGo => {
                    self.led.let_go();
                    self.on(Event::Released)
                }
                Action::Rest => self.rest().await,
            };
        }
        Ok(())
    }

    /// Tells the machine what happened, and publishes the new state.
    fn on(&mut self, event: Event) -> Option<Action> {
        let next = self.machine.on(event)?;
        let (from, to) = (self.machine.state(), next.machine.state());
        self.machine = next.machine;
        if from != to {
            self.about().moved(from.as_str(), to.as_str(), event.as_str());
            self.states.send_replace(to);
        }
        if matches!(to, State::Idle | State::Waiting) {
            self.term = None;
        }
        next.action
    }

    fn about(&self) -> About<'_> {
        About { name: &self.election.request.claim.name, id: &self.id, term: self.term }
    }

    /// Waits in line until it leads, with enough time left to stop the work again.
    async fn campaign(&mut self) -> Result<Option<Action>> {
        let stopper = self.stopper.clone();
        let granted = tokio::select! {
            biased;
            () = stopper.told() => return Ok(self.on(Event::Stop)),
            granted = self.granted() => granted,
            never = self.say_who_leads() => match never {},
        };
        match granted {
            Ok(term) => {
                self.term = Some(term.number());
                self.led.term = Some(Arc::new(term));
                Ok(self.on(Event::Granted))
            }
            Err(error) if error.is_retryable() => {
                self.about().failed("campaign", &error.to_string());
                self.failures += 1;
                Ok(self.on(Event::Failed))
            }
            Err(error) => {
                self.on(Event::Stop);
                Err(error)
            }
        }
    }

    /// Logs which leader it is waiting for, and every new one. It asks now and then, and only if there is a
    /// listener.
    async fn say_who_leads(&self) -> Infallible {
        let (claim, mut said, mut pause) = (&self.election.request.claim, None, FIRST_LOOK);
        loop {
            tokio::time::sleep(pause).await;
            pause = claim.ttl / 3;
            if !About::is_heard() {
                continue;
            }
            // If the engine does not answer, the campaign handles that.
            let Ok(Some(view)) = self.election.inspect().await else { continue };
            let Some(leader) = view.holders.into_iter().next() else { continue };
            let is_this = |(key, id): &(String, String)| key == "worker" && *id == self.id;
            // It may be this worker itself, whose turn is on its way.
            let is_own = leader.details.meta.iter().any(is_this);
            if !is_own && said.replace(leader.fence) != Some(leader.fence) {
                self.about().stands_by(&leader);
            }
        }
    }

    async fn granted(&self) -> Result<Term> {
        let term = self.election.clone().campaign().await?;
        // A pushed turn has a short life until its first renewal, which may be shorter than stopping takes.
        let hold = term.hold();
        if hold.remaining() <= self.stop_within {
            hold.until_lost(hold.renew_for(self.election.request.claim.ttl)).await??;
        }
        if hold.remaining() <= self.stop_within {
            let reason =
                format!("less is left of the term than stop_within {:?}", self.stop_within);
            return Err(Error::new(ErrorKind::Lost, reason));
        }
        Ok(term)
    }

    /// Starts the work, and watches the term until the work is to be stopped.
    async fn lead(&mut self, work: &mut impl Work) -> Option<Action> {
        let term = self.led.term.clone()?;
        self.led.work_may_run = true;
        let outlook = term.hold().outlook(self.stop_within);
        let stopper = self.stopper.clone();
        let mut told = pin!(stopper.told());
        let mut start = pin!(call(async { work.start(&term).await }, self.start_within));
        let mut starting = true;
        loop {
            let state = self.machine.state();
            let event = poll_fn(|cx| {
                // Check the clock first: after a pause, the work must not run for a single step.
                match (outlook.look(cx), state) {
                    (Standing::Lost, _) => return Poll::Ready(Ok(Event::Lost)),
                    (Standing::RunningOut, _) => return Poll::Ready(Ok(Event::RunningOut)),
                    (Standing::AtRisk, State::Working) => return Poll::Ready(Ok(Event::Late)),
                    (Standing::Good, State::AtRisk) => return Poll::Ready(Ok(Event::Renewed)),
                    _ => {}
                }
                // Before the order to stop, so that nothing is stopped that was never started.
                if starting && let Poll::Ready(answer) = start.as_mut().poll(cx) {
                    return Poll::Ready(Err(answer));
                }
                told.as_mut().poll(cx).map(|()| Ok(Event::Stop))
            });
            let event = match event.await {
                Ok(event) => event,
                Err(Ok(())) => {
                    (starting, self.failures) = (false, 0);
                    continue;
                }
                Err(Err(reason)) => {
                    self.failures += 1;
                    self.about().failed("start", &reason);
                    Event::StartFailed
                }
            };
            let next = self.on(event);
            if next.is_some() {
                return next;
            }
        }
    }

    async fn stop(&mut self, work: &mut impl Work) -> Option<Action> {
        let stopped = call(async { work.stop().await }, self.stop_within);
        let stopped = self.noting_stop(stopped).await;
        // Checked before anything else takes time: did the work end in time?
        if !self.led.term.as_ref().is_some_and(|term| term.is_live()) {
            self.about().late();
        }
        if let Err(reason) = stopped {
            self.about().stuck(&reason);
            return self.on(Event::Stuck);
        }
        self.led.work_may_run = false;
        self.on(Event::Stopped)
    }

    async fn release(&mut self) -> Option<Action> {
        // A lost term cannot be given back.
        let term = self.led.term.take().and_then(Arc::into_inner).filter(|term| term.is_live());
        if let Some(term) = term {
            // It certainly ends, now or by its ttl: neither this nor anyone else waits for ever.
            match self.noting_stop(term.resign()).await {
                Ok(Released::InTime | Released::Late) => {}
                Ok(Released::Unknown) => {
                    let reason = "the engine did not answer; the term ends with its ttl";
                    self.about().failed("release", reason);
                }
                Err(error) => self.about().failed("release", &error.to_string()),
            }
        }
        self.on(Event::Released)
    }

    async fn rest(&mut self) -> Option<Action> {
        let longest = SHORTEST_REST * 2u32.pow(self.failures.min(MOST_DOUBLINGS));
        let longest = longest.min(LONGEST_REST);
        // Randomised: what failed for one worker probably failed for all.
        let rest = longest / 2 + Duration::from_micros(any_below(longest.as_micros() as u64 / 2));
        let stopper = self.stopper.clone();
        let event = tokio::select! {
            biased;
            () = stopper.told() => Event::Stop,
            () = tokio::time::sleep(rest) => Event::Due,
        };
        self.on(event)
    }

    /// Waits for something that must be completed. An order to stop is remembered in the meantime.
    async fn noting_stop<T>(&mut self, future: impl Future<Output = T>) -> T {
        let stopper = self.stopper.clone();
        let mut future = pin!(future);
        tokio::select! {
            biased;
            () = stopper.told(), if !self.machine.is_stopping() => {
                self.on(Event::Stop);
            }
            done = &mut future => return done,
        }
        future.await
    }
}
