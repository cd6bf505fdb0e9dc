//! The connections that steps go over, and what every step has in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::answers::{StepAnswer, read_step};
use super::config::Listen;
use super::link::{Link, Reply};
use super::shared::Shared;
use super::statements::Statement;
use crate::ledger::Answer;
use crate::model::claim::{Claim, ClaimId};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::{SystemWorld, World};

/// The connections that steps go over, made when they are needed.
pub(super) struct Links {
    pub(super) shared: Arc<Shared>,
    links: Vec<OnceLock<Link>>,
    /// How many steps were sent, for the sweeper.
    pub(super) sent: AtomicU64,
    /// Renewals that wait for the row of their name, and since when.
    late: Mutex<HashMap<ClaimId, (Moment, LateAnswer)>>,
}

/// An answer that comes when the row of a name is no longer locked.
pub(super) type LateAnswer = oneshot::Receiver<Result<(StepAnswer, Moment)>>;

/// How often a claim looks for its turn while nobody listens for it.
pub(super) const UNHEARD: Duration = Duration::from_secs(1);

/// A late answer that nobody has asked for in this time is dropped: its hold has ended.
const LATE_FOR: Duration = Duration::from_secs(60);

impl Links {
    pub(super) fn new(shared: &Arc<Shared>, count: usize) -> Arc<Links> {
        let links = (0..count).map(|_| OnceLock::new()).collect();
        let (sent, late) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Links { shared: shared.clone(), links, sent, late })
    }

    /// The answer of a renewal that waits, or waited, for the row of its name.
    pub(super) fn late(&self, id: &ClaimId) -> Option<LateAnswer> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.is_empty() { None } else { late.remove(id).map(|(_, answer)| answer) }
    }

    pub(super) fn keep_late(&self, id: ClaimId, answer: LateAnswer) {
        let now = SystemWorld.now();
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.retain(|_, (since, _)| now.since(*since) < LATE_FOR);
        late.insert(id, (now, answer));
    }

    /// Makes this one the first.
    pub(super) fn begin_with(&self, link: Link) {
        let _ = self.links[0].set(link);
    }

    /// The one for this name: steps of a name come in the order in which they were called.
    pub(super) fn of(&self, name: &Name) -> &Link {
        self.at(name.local_hash() as usize % self.links.len())
    }

    pub(super) fn at(&self, number: usize) -> &Link {
        self.links[number].get_or_init(|| self.shared.link())
    }

    pub(super) fn opened(&self) -> impl Iterator<Item = &Link> {
        self.links.iter().filter_map(OnceLock::get)
    }

    /// Sends a step, and lets it go on if it stopped at its limit.
    pub(super) fn step<T: Send + 'static>(
        self: &Arc<Links>,
        name: &Name,
        statement: Statement,
        read: impl FnOnce(Result<(StepAnswer, Moment)>) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        self.send(name.clone(), statement, move |answer| {
            // The caller may have stopped waiting.
            let _ = tell.send(read(answer));
        });
        told
    }

    fn send(
        self: &Arc<Links>,
        name: Name,
        statement: Statement,
        tell: impl FnOnce(Result<(StepAnswer, Moment)>) + Send + 'static,
    ) {
        let links = self.clone();
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.of(&name).send(statement, move |reply| {
            let answer = one(reply);
            if answer.as_ref().is_ok_and(|(answer, _)| answer.more) {
                links.go_on(name);
            }
            tell(answer);
        });
    }

    /// Sends a claim that is recorded in the places. The answer is noted before anyone hears of it. If the claim must
    /// wait and this process is not listening yet, it is sent again once it is, at most `tries` times, and answered
    /// then: without a listener nobody could tell that the process had died.
    pub(super) fn claim(
        self: &Arc<Links>,
        claim: Claim,
        in_hand: bool,
        tries: u8,
        tell: oneshot::Sender<Result<(StepAnswer, Moment)>>,
    ) {
        let Shared { process, config, .. } = &*self.shared;
        // Whoever asks now or never does not wait for a push, whatever place the claim has elsewhere.
        let waits = claim.may_wait || !in_hand;
        let listens = self.shared.listens();
        let again = in_hand && tries > 0 && !listens && config.listen != Listen::Never;
        let statement = Statement::claim(&claim, *process, listens, in_hand);
        let links = self.clone();
        self.send(claim.name.clone(), statement, move |mut answer| {
            if let Ok((said, sent)) = &mut answer
                && !listens
            {
                said.look_by(*sent + UNHEARD);
            }
            let comes_to_wait = match &answer {
                Ok((StepAnswer { answer: Answer::Waiting { .. }, .. }, _)) if !waits => false,
                Ok((said, sent)) => links.note(&claim, said, *sent),
                Err(_) => false,
            };
            if comes_to_wait && again {
                let shared = links.shared.clone();
                return links.shared.clone().spawn(async move {
                    shared.until_listening().await;
                    links.claim(claim, in_hand, tries - 1, tell);
                });
            }
            // The caller may have stopped waiting.
            let _ = tell.send(answer);
        });
    }

    /// Notes what a claim was answered, before anyone hears of it. Returns whether it waits.
    pub(super) fn note(&self, claim: &Claim, said: &StepAnswer, sent: Moment) -> bool {
        let shared = &self.shared;
        match said.answer {
            Answer::Waiting { ticket, floor, .. } => {
                let at = (claim.name.clone(), ticket);
                let early = shared.places.stands(at, claim.id, sent, floor);
                early.into_iter().for_each(|push| shared.to_place(push));
                // Whoever listened may have stopped in the meantime.
                shared.listen();
                true
            }
            Answer::Granted { .. } => {
                shared.places.holds(claim.id, sent);
                shared.listen();
                false
            }
            _ => {
                shared.places.forget(&claim.id);
                false
            }
        }
    }

    /// Continues a step that stopped at its limit.
    pub(super) fn go_on(self: &Arc<Links>, name: Name) {
        let statement = Statement::tick(&name);
        self.send(name, statement, drop);
    }
}

/// The only row of an answer.
fn one(reply: Reply) -> Result<(StepAnswer, Moment)> {
    let (rows, sent) = reply?;
    let strange =
        || Error::new(ErrorKind::Internal, "the server answered without a row").in_doubt();
    let row = rows.first().ok_or_else(strange)?;
    Ok((read_step(row, sent)?, sent))
}
