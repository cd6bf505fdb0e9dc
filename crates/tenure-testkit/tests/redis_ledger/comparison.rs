//! One script on one name: both sides take each step, and the results are compared.

use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{
    Claim, ClaimId, Details, Fence, Leave, Moment, Name, Note, OnceRecord, OnceTerms, Outcome,
    Page, Scope, Settle, Space, SystemWorld, Ticket, Turn, View, World, look_again,
};
use tenure_testkit::rng::Rng;

use super::asking::{ask, brief, remaining};
use super::environment::{Environment, Pushed};
use super::model::{Came, Model, Request};
use super::plan::{Actor, Manner, Next, Op, Plan, Which};
use super::said::{Numbers, Pair, Said, Same, Shown, Tally, Word, same};

pub(crate) struct Comparison {
    pub(crate) plan: Plan,
    pub(crate) name: Name,
    environment: Arc<Environment>,
    model: Model,
    numbers: Numbers,
    players: Vec<Player>,
    /// What happened, for whoever reads about a failure.
    pub(crate) story: Vec<String>,
    pub(crate) tally: Tally,
}

/// The answers and pushes to a claim.
struct Player {
    id: ClaimId,
    details: Arc<Details>,
    ticket: Option<Pair>,
    fences: Vec<Pair>,
    /// The first and the last fence of the block that it was given last.
    block: Option<(Pair, Pair)>,
}

/// Which side's number.
type Side = fn(Pair) -> u64;
const REDIS: Side = |(redis, _)| redis;
const LEDGER: Side = |(_, ledger)| ledger;

impl Comparison {
    pub(crate) fn new(environment: &Arc<Environment>, plan: Plan, name: &str) -> Comparison {
        let space = if plan.shape.once { Space::Once } else { Space::Lock };
        // Each name is used once, so that no id is used twice.
        let name = Name::new(space, name).unwrap();
        let mut rng = Rng::new(name.local_hash());
        let actors = plan.actors.iter().enumerate();
        let players = actors.map(|(at, actor)| Player::new(at, actor, &mut rng));
        Comparison {
            name,
            environment: environment.clone(),
            model: Model::new(1_000_000_000_000_000, environment.now()),
            numbers: Numbers::default(),
            players: players.collect(),
            story: Vec::new(),
            tally: Tally::new(),
            plan,
        }
    }

    /// Takes the steps of one round.
    pub(crate) async fn round(&mut self, round: usize) -> Same {
        self.look_around();
        self.compare_views().await?;
        for op in self.plan.rounds.get(round).cloned().unwrap_or_default() {
            self.step(op).await?;
        }
        Ok(())
    }

    /// Everyone leaves; after that, only records that must be remembered are left.
    pub(crate) async fn end(&mut self) -> Same {
        self.look_around();
        for who in 0..self.players.len() {
            self.step(Op::Leave {
                who,
                in_doubt: false,
                only: None,
                only_waiting: None,
                settle: None,
            })
            .await?;
        }
        if !self.model.line.is_unused() {
            return Err("the ledger says that the name is still used".to_owned());
        }
        if self.model.remembers <= self.model.now {
            self.has_no_keys()?;
        }
        Ok(())
    }

    /// When everyone has left and nothing is to be remembered, nothing is kept.
    pub(crate) fn has_no_keys(&self) -> Same {
        same("keys that are left", &self.environment.keys_of(&self.name), &0)
    }

    /// Whether anything was pushed that no step accounts for.
    pub(crate) fn has_heard_all(&self) -> Same {
        for process in &self.environment.processes {
            let pushed = process.turns.take(&self.name);
            if !pushed.is_empty() {
                let some = &pushed[..pushed.len().min(4)];
                return Err(format!("redis pushed what the ledger did not: {some:?}"));
            }
        }
        Ok(())
    }

    /// Updates the time, and which processes can be reached.
    pub(crate) fn look_around(&mut self) {
        self.model.now = self.environment.now();
        let deaf = (0..self.environment.processes.len()).filter(|it| self.environment.is_deaf(*it));
        self.model.deaf = deaf.map(number).collect();
    }

    pub(crate) async fn step(&mut self, op: Op) -> Result<Said, String> {
        let said = self.take(op).await?;
        self.compare_views().await?;
        Ok(said)
    }

    /// A step without a look at the name afterwards.
    pub(crate) async fn take(&mut self, op: Op) -> Result<Said, String> {
        let op = match op {
            Op::HandOver { who, ttl, .. } if !Environment::HANDS_OVER => {
                Op::Renew(who, Which::Own, ttl)
            }
            Op::HandOver { who, holder: true, next, ttl, fences, details } => {
                let who = self
                    .model
                    .line
                    .holders()
                    .first()
                    .map_or(who, |(entry, _)| self.player_of(&entry.id));
                Op::HandOver { who, holder: false, next, ttl, fences, details }
            }
            op => op,
        };
        let process = self.process(op);
        let mut ledger = self.request(op, LEDGER);
        let redis = self.request(op, REDIS);
        let began = SystemWorld.now();
        let environment = self.environment.clone();
        let engine = environment.processes[process].engine();
        let said = ask(&**engine, &self.name, &redis).await;
        self.story.push(format!("{op}: {}", brief(&said)));
        if let (Request::HandOver { fences: most, .. }, Said::Kept { fences, .. }) =
            (&mut ledger, &said)
        {
            *most = self.fences_given(*fences, *most)?;
        }
        let came = self.model.step(&ledger, number(process));
        said.is_same(&came.said, &mut self.numbers, came.vague)?;
        *self.tally.entry(said.kind()).or_default() += 1;
        *self.tally.entry(if came.vague { "vague" } else { "exact" }).or_default() += 1;
        self.learn(op, &said, &came.said);
        for _ in 0..came.ticks {
            engine.health().await.unwrap();
        }
        self.compare_pushes(&came, began).await?;
        Ok(said)
    }

    /// How many fences were given: as many as were asked for, or all between the counter and the clock, and none above
    /// the clock.
    fn fences_given(&self, (first, last): (u64, u64), most: u32) -> Result<u32, String> {
        let count = (last + 1).saturating_sub(first);
        let (counter, clock) = self.environment.numbers(&self.name);
        // On Valkey the microseconds go on while the milliseconds stand still.
        if count > most.into() || last > clock + 999 || last > counter {
            return Err(format!("gave {first} to {last} at {clock}, the counter is at {counter}"));
        }
        if count < most.into() && counter < clock {
            return Err(format!("gave {count} of {most} fences at {counter} before {clock}"));
        }
        Ok(count as u32)
    }

    /// The last fence that the claim was given, by Redis.
    pub(crate) fn last_fence(&self, who: usize) -> u64 {
        REDIS(self.fence(who, Which::Own))
    }

    pub(crate) fn id_of(&self, who: usize) -> ClaimId {
        self.players[who].id
    }

    /// Numbers begin again.
    pub(crate) fn forget_numbers(&mut self) {
        self.numbers = Numbers::default();
    }

    pub(crate) fn last_of_story(&self, steps: usize) -> String {
        self.story[self.story.len().saturating_sub(steps)..].join("\n")
    }

    fn process(&self, op: Op) -> usize {
        match op {
            Op::Claim(who, manner) | Op::Keep(who, manner) if self.plan.actors[who].on_behalf => {
                manner.server
            }
            Op::Leave { only_waiting: Some(process), .. } => process,
            Op::Claim(who, _)
            | Op::Keep(who, _)
            | Op::Renew(who, ..)
            | Op::HandOver { who, .. }
            | Op::Leave { who, .. } => self.plan.actors[who].process,
            Op::Break(_) | Op::Forget(..) | Op::Resize(_) => 0,
        }
    }

    fn request(&self, op: Op, side: Side) -> Request {
        let fence = |who, which| Fence::new(side(self.fence(who, which)));
        match op {
            Op::Claim(who, manner) => Request::Claim(self.claim(who, manner, side)),
            Op::Keep(who, manner) => Request::Keep(self.claim(who, manner, side)),
            Op::Renew(who, which, ttl) => Request::Renew {
                id: self.players[who].id,
                fence: fence(who, which),
                ttl: Duration::from_millis(ttl),
            },
            Op::HandOver { who, next, ttl, fences, details, .. } => Request::HandOver {
                id: self.players[who].id,
                fence: Fence::new(side(self.next_fence(who, next))),
                ttl: Duration::from_millis(ttl),
                fences,
                details: self.players[details].details.clone(),
            },
            Op::Leave { who, in_doubt, only, only_waiting, settle } => {
                let mut leave = Leave::new(self.name.clone(), self.players[who].id);
                leave.in_doubt = in_doubt;
                leave.unbegun = who.is_multiple_of(2);
                leave.only_waiting = only_waiting.is_some();
                leave.only = only.filter(|_| only_waiting.is_none()).map(|which| fence(who, which));
                leave.settle = settle.map(|(which, is_done)| Settle {
                    fence: fence(who, which),
                    outcome: is_done.then(|| Arc::from(format!("done by {who} \n\0%").as_bytes())),
                });
                Request::Leave(leave)
            }
            Op::Break(which) => {
                let note = Note { by: "an operator".to_owned(), reason: "stuck\n2 5".to_owned() };
                Request::Break(fence(0, which), note)
            }
            Op::Forget(who, which, settled) => {
                let outcome = settled.then(|| Outcome::from(&b""[..]));
                let (keep, left) = (Duration::ZERO, Duration::ZERO);
                Request::Forget(OnceRecord::new(fence(who, which), outcome, keep, left))
            }
            Op::Resize(capacity) => Request::Resize(capacity),
        }
    }

    fn claim(&self, who: usize, manner: Manner, side: Side) -> Claim {
        let Actor { weight, ttl, keep, rerun, content, on_behalf, .. } = self.plan.actors[who];
        let player = &self.players[who];
        let mut claim = Claim::new(self.name.clone(), player.id);
        let (weight, capacity) = manner.odd.unwrap_or((weight, self.plan.shape.capacity));
        (claim.weight, claim.capacity, claim.fixed) = (weight, capacity, self.plan.shape.fixed);
        claim.ttl = Duration::from_millis(ttl);
        (claim.may_wait, claim.max_waiters) = (manner.may_wait, manner.max_waiters);
        claim.ticket = player.ticket.filter(|_| manner.by_ticket).map(|it| Ticket::new(side(it)));
        let seen = manner.seen.map(|more| side(self.numbers.last()) + more);
        claim.seen = Fence::new(seen.unwrap_or_default());
        let keep = Duration::from_millis(keep);
        claim.once = self.plan.shape.once.then_some(OnceTerms { keep, rerun, content });
        (claim.details, claim.on_behalf) = (player.details.clone(), on_behalf);
        claim
    }

    fn fence(&self, who: usize, which: Which) -> Pair {
        let of = |who: usize, back: usize| self.players[who].fences.iter().nth_back(back).copied();
        let found = match which {
            Which::Own => of(who, 0),
            Which::Before => of(who, 1),
            Which::Of(other) => of(other, 0),
            Which::Never => None,
        };
        found.unwrap_or((7, 7))
    }

    fn next_fence(&self, who: usize, next: Next) -> Pair {
        match (next, self.players[who].block) {
            (Next::Known(which), _) => self.fence(who, which),
            (Next::OfBlock(at), Some((first, last))) => {
                let at = at % (last.0 + 1 - first.0);
                (first.0 + at, first.1 + at)
            }
            (Next::OfBlock(_), None) => self.fence(who, Which::Own),
            (Next::Ahead, _) => ((self.environment.now() + 3_600_000) * 1000, (1 << 53) - 1),
        }
    }

    /// The claim remembers its answer.
    fn learn(&mut self, op: Op, redis: &Said, ledger: &Said) {
        if let (
            Op::HandOver { who, next, .. },
            Said::Kept { fences: a, .. },
            Said::Kept { fences: b, .. },
        ) = (op, redis, ledger)
        {
            let fence = self.next_fence(who, next);
            self.players[who].held(fence);
            if a.0 <= a.1 {
                self.players[who].block = Some(((a.0, b.0), (a.1, b.1)));
            }
        }
        let (Op::Claim(who, _) | Op::Keep(who, _)) = op else { return };
        let player = &mut self.players[who];
        match (redis, ledger) {
            (Said::Granted { fence: a, .. }, Said::Granted { fence: b, .. }) => {
                player.held((*a, *b));
            }
            (Said::Waiting { ticket: a, .. }, Said::Waiting { ticket: b, .. }) => {
                player.ticket = Some((*a, *b));
            }
            _ => {}
        }
    }

    async fn compare_pushes(&mut self, came: &Came, began: Moment) -> Same {
        let mut expected = came.words.clone();
        let loose = came.vague || came.self_hint;
        let environment = self.environment.clone();
        for (at, process) in environment.processes.iter().enumerate() {
            let theirs = |(process, ..): &(u64, ClaimId, Word)| *process == number(at);
            // What should not arrive is seen at the end of the round, unless it may arrive.
            if loose || expected.iter().any(theirs) {
                process.engine().health().await.unwrap();
            }
            for pushed in process.turns.take(&self.name) {
                self.compare_push(number(at), &pushed, &mut expected, loose, began)?;
            }
        }
        // The scripts may find a dead waiter where they look for the next in line.
        expected.retain(|(.., word)| !loose || !matches!(word, Word::LookAt(_)));
        if expected.is_empty() {
            return Ok(());
        }
        let count = expected.len();
        Err(format!("redis did not push {count} words, such as {:?}", self.named(&expected)))
    }

    fn compare_push(
        &mut self,
        process: u64,
        pushed: &Pushed,
        expected: &mut Vec<(u64, ClaimId, Word)>,
        loose: bool,
        began: Moment,
    ) -> Same {
        let is_hint = |word: &Word| matches!(word, Word::LookAt(_));
        let hint = matches!(pushed.turn, Turn::LookAt(_));
        let found = expected
            .iter()
            .position(|(to, id, word)| *to == process && *id == pushed.id && is_hint(word) == hint);
        let Some(found) = found else {
            if hint && loose {
                return Ok(());
            }
            let who = self.player_of(&pushed.id);
            let expected = self.named(expected);
            return Err(format!("redis pushed {:?} to {who}, ledger {expected:?}", pushed.turn));
        };
        let (_, id, word) = expected.remove(found);
        let who = self.player_of(&id);
        *self.tally.entry(word.kind()).or_default() += 1;
        self.story.push(format!("  {who} hears {word:?}"));
        match (&pushed.turn, &word) {
            (Turn::LookAt(when), Word::LookAt(after)) => {
                // Counted from its arrival, which was after the step began.
                let from = |moment: Moment| look_again(moment + Duration::from_millis(*after), 0);
                if (from(began)..=from(pushed.at)).contains(when) || loose {
                    return Ok(());
                }
                Err(format!("{who} should look after {after} ms, from {began:?}, not at {when:?}"))
            }
            (Turn::Granted(grant), Word::Granted { fence, life, first_life }) => {
                same("the life of a turn", &remaining(grant), life)?;
                same("the first life of a turn", &grant.first_life, first_life)?;
                let pair = (grant.fence.get(), *fence);
                self.numbers.fence("the fence of a turn", pair)?;
                self.players[who].held(pair);
                Ok(())
            }
            (Turn::Ended(ended), Word::Ended(word)) => same("the end", ended, word),
            (Turn::Settled(outcome), Word::Settled(word)) => {
                same("outcome", &outcome.to_vec(), word)
            }
            (Turn::LookAgain, Word::LookAgain) => Ok(()),
            (turn, word) => Err(format!("redis pushed {turn:?} to {who}, ledger {word:?}")),
        }
    }

    pub(crate) async fn compare_views(&mut self) -> Same {
        let page =
            self.environment.processes[0].engine().inspect(&Scope::Name(self.name.clone())).await;
        let Page { views, more } = page.map_err(|error| format!("inspect: {error}"))?;
        same("more names", &more, &false)?;
        let used = views.into_iter().find(View::is_used);
        let shown = used.map(|view| Shown {
            capacity: view.capacity,
            holders: view.holders,
            waiters: view.waiters,
        });
        shown.unwrap_or_default().is_same(&self.model.show(), &mut self.numbers)
    }

    fn player_of(&self, id: &ClaimId) -> usize {
        self.players.iter().position(|player| player.id == *id).unwrap()
    }

    fn named(&self, words: &[(u64, ClaimId, Word)]) -> Vec<(usize, Word)> {
        let some = words.iter().take(4);
        some.map(|(_, id, word)| (self.player_of(id), word.clone())).collect()
    }
}

impl Player {
    fn new(at: usize, actor: &Actor, rng: &mut Rng) -> Player {
        let mut details = Details::default();
        details.owner = format!("{at} of process {}", actor.process);
        details.reason = (at % 2 == 1).then(|| "1 2 3\nü: %d".to_owned());
        details.meta = (0..at % 3).map(|n| (format!("k{n}"), "5:five ".to_owned())).collect();
        // The bytes of an id may be anything, including separators.
        let mut id = *b"12345678 \r\n%\0\xFF2 ";
        id[..8].copy_from_slice(&rng.bits().to_be_bytes());
        let id = ClaimId::from_bytes(id);
        Player { id, details: Arc::new(details), ticket: None, fences: Vec::new(), block: None }
    }

    fn held(&mut self, fence: Pair) {
        if self.fences.last() != Some(&fence) {
            self.fences.push(fence);
        }
    }
}

/// Process 0 of the ledger is one that lives and dies with its engine.
fn number(process: usize) -> u64 {
    process as u64 + 1
}
