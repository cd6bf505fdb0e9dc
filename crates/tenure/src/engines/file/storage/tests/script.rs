//! Random scripts: steps on some names that share their tables, generated from a seed.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Both, Heard};
use crate::ledger::{Answer, KeepAnswer, Process};
use crate::model::claim::{
    Broken, Claim, ClaimId, Details, Ended, Fence, Forgotten, Leave, Left, Note, OnceTerms, Settle,
    Ticket,
};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};

pub(super) const BEGIN: Moment = Moment::from_nanos(1_000_000_000_000_000);
/// 0 means no process.
pub(super) const PROCESSES: [Process; 4] = [0, 1, 2, 3];
const ACTORS: usize = 12;
const TTLS: [u64; 6] = [500, 1000, 1999, 2001, 5000, 90_000];
const SPANS: [u64; 12] =
    [1, 10, 499, 500, 1000, 2000, 2001, 5000, 30_000, 60_000, 120_000, 86_400_000];

/// A step, with the numbers that both sides share.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Claim(Claim, Process, bool),
    Renew(ClaimId, Fence, Duration),
    Keep {
        id: ClaimId,
        fence: Fence,
        ttl: Duration,
        fences: (u32, u64),
        details: Arc<Details>,
    },
    Leave(Leave, Process),
    Break(Fence, Note),
    Forget(Fence, bool),
    Resize(u32),
    Tick,
    /// The process is gone.
    ProcessDied(Process),
    Detach(ClaimId),
}

/// What the scripts must have covered for the test to mean something.
pub(super) const EVERYTHING: [&str; 22] = [
    "kept",
    "kept without fences",
    "not kept",
    "forgotten",
    "not forgotten",
    "granted",
    "granted for a first life",
    "waiting",
    "busy",
    "full",
    "conflict",
    "settled",
    "unsettled",
    "left",
    "gone",
    "broken",
    "released",
    "quit",
    "done",
    "moved on",
    "resized",
    "not resized",
];

/// Some of the ids; different ones at different times.
pub(super) fn some_ids(now: Moment) -> impl Iterator<Item = ClaimId> {
    let first = (now.as_nanos() / 1_000_000 % 3) as usize;
    (first..ACTORS).step_by(3).map(id)
}

/// An id has arbitrary bytes, and their order is not that of arrival.
fn id(actor: usize) -> ClaimId {
    let mut bytes = [0xA7 ^ (actor as u8).wrapping_mul(37); 16];
    bytes[3] = 0;
    bytes[15] = actor as u8;
    ClaimId::from_bytes(bytes)
}

/// A claim for one unit of many.
pub(super) fn one_of_a_crowd(name: &Name, number: u32, capacity: u32) -> Claim {
    let mut bytes = [1; 16];
    bytes[4..8].copy_from_slice(&number.reverse_bits().to_le_bytes());
    let mut claim = Claim::new(name.clone(), ClaimId::from_bytes(bytes));
    (claim.capacity, claim.fixed) = (capacity, false);
    claim
}

struct Actor {
    name: usize,
    process: Process,
    on_behalf: bool,
    weight: u32,
    ttl: Duration,
    once: Option<OnceTerms>,
    details: Arc<Details>,
    ticket: Option<Ticket>,
    fences: Vec<Fence>,
}

pub(super) struct Script {
    rng: Rng,
    names: Vec<Name>,
    capacities: Vec<u32>,
    actors: Vec<Actor>,
    story: Vec<String>,
}

/// Plays the script of a seed, and counts what it covered.
pub(super) fn play(seed: u64, met: &mut BTreeMap<&'static str, u64>) {
    let mut both = Both::new(BEGIN);
    let mut script = Script::new(seed);
    let steps = 20 + script.rng.below(40);
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..steps {
            script.go_on(&mut both, met);
        }
        both.end();
    }));
    if let Err(panic) = played {
        panic!("{}\n{}", said(&*panic), script.story.join("\n"));
    }
}

/// The message of a panic.
pub(super) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked")
}

impl Script {
    fn new(seed: u64) -> Script {
        let mut rng = Rng(seed.wrapping_mul(2).wrapping_add(0x9E37_79B9));
        // The same text in two spaces, and one text that is the prefix of another.
        let names = [(Space::Lock, "x"), (Space::Once, "x"), (Space::Lock, "xy")];
        let names = names.map(|(space, text)| Name::new(space, text).unwrap()).to_vec();
        let capacities = vec![[1, 3, 5, 1 << 20][rng.below(4) as usize], 1, 2];
        let actors = (0..ACTORS).map(|at| Actor::new(at, &mut rng, &names, &capacities)).collect();
        Script { rng, names, capacities, actors, story: Vec::new() }
    }

    fn go_on(&mut self, both: &mut Both, met: &mut BTreeMap<&'static str, u64>) {
        match self.rng.below(10) {
            0 | 1 => {
                let most = if self.rng.one_in(3) { 12 } else { 7 };
                let span = SPANS[self.rng.below(most) as usize];
                both.now = both.now + Duration::from_millis(span);
                self.story.push(format!("{span} ms pass"));
                return;
            }
            2 if self.rng.one_in(3) => {
                let process = PROCESSES[1 + self.rng.below(3) as usize];
                if !both.deaf.remove(&process) {
                    both.deaf.insert(process);
                }
                self.story.push(format!("cannot be reached: {:?}", both.deaf));
                return;
            }
            _ => {}
        }
        let who = self.rng.below(ACTORS as u64) as usize;
        let request = self.request(who);
        let name = self.names[self.actors[who].name].clone();
        self.story.push(format!("{who} on {name:?}: {request:?}"));
        let heard = both.step(&name, &request);
        self.story.push(format!("    {heard:?}"));
        if let Heard::Answer(answer) = &heard {
            self.learn(who, answer);
        }
        if let (
            Heard::Kept(KeepAnswer::Held { fences, .. }),
            Request::Keep { fence, fences: (most, highest), .. },
        ) = (&heard, &request)
        {
            let given = (fences.last + 1).saturating_sub(fences.next);
            assert!(given <= u64::from(*most) && (given == 0 || fences.last <= *highest));
            self.actors[who].fences.push(*fence);
            if given > 0 {
                self.actors[who].fences.push(Fence::new(fences.next));
            }
        }
        *met.entry(kind(&heard)).or_default() += 1;
    }

    fn learn(&mut self, who: usize, answer: &Answer) {
        let actor = &mut self.actors[who];
        match answer {
            Answer::Granted { fence, .. } => actor.fences.push(*fence),
            Answer::Waiting { ticket, .. } => actor.ticket = Some(*ticket),
            _ => {}
        }
    }

    fn request(&mut self, who: usize) -> Request {
        let (name, id) = (self.names[self.actors[who].name].clone(), id(who));
        if self.actors[who].once.is_some() && self.rng.one_in(6) {
            return Request::Forget(self.last_fence(who), self.rng.one_in(2));
        }
        match self.rng.below(100) {
            0..50 => {
                let in_hand = !self.rng.one_in(4);
                Request::Claim(self.claim(who), self.asker(who), in_hand)
            }
            50..56 => {
                // The hold was handed over within its process: its fence has risen.
                let fence = Fence::new(self.fence(who).get() + self.rng.below(4));
                let ttl = Duration::from_millis([0, 500, 30_000][self.rng.below(3) as usize]);
                let fences = (self.rng.below(6) as u32, 1000 + self.rng.below(200));
                let other = self.rng.below(ACTORS as u64) as usize;
                let details = self.actors[other].details.clone();
                Request::Keep { id, fence, ttl, fences, details }
            }
            56..62 => {
                let ttl = TTLS[self.rng.below(6) as usize];
                let ttl = if self.rng.one_in(6) { 0 } else { ttl };
                Request::Renew(id, self.fence(who), Duration::from_millis(ttl))
            }
            62..80 => {
                let mut leave = Leave::new(name, id);
                leave.in_doubt = self.rng.one_in(5);
                leave.unbegun = self.rng.one_in(3);
                leave.only = self.rng.one_in(4).then(|| self.fence(who));
                let settles = self.actors[who].once.is_some() && !self.rng.one_in(5);
                leave.settle = settles.then(|| Settle {
                    fence: self.fence(who),
                    outcome: (!self.rng.one_in(4)).then(|| Arc::from(&b"done \0\xFF"[..])),
                });
                leave.only_waiting = self.rng.one_in(6);
                Request::Leave(leave, self.asker(who))
            }
            80..86 => {
                let note = Note { by: "ops".to_owned(), reason: "stuck".to_owned() };
                Request::Break(self.fence(who), note)
            }
            86..90 => Request::Resize(1 + self.rng.below(6) as u32),
            90..95 => Request::Tick,
            95..98 => Request::ProcessDied(PROCESSES[1 + self.rng.below(3) as usize]),
            _ => Request::Detach(id),
        }
    }

    /// The process that asks: for a claim on behalf of a client, any of the servers.
    fn asker(&mut self, who: usize) -> Process {
        let actor = &self.actors[who];
        let anywhere = actor.on_behalf && self.rng.one_in(2);
        if anywhere { PROCESSES[self.rng.below(4) as usize] } else { actor.process }
    }

    fn claim(&mut self, who: usize) -> Claim {
        let actor = &self.actors[who];
        let mut claim = Claim::new(self.names[actor.name].clone(), id(who));
        (claim.weight, claim.ttl, claim.once) = (actor.weight, actor.ttl, actor.once);
        (claim.capacity, claim.fixed) = (self.capacities[actor.name], actor.name == 1);
        (claim.details, claim.on_behalf) = (actor.details.clone(), actor.on_behalf);
        claim.ticket = actor.ticket.filter(|_| self.rng.one_in(3));
        claim.may_wait = claim.ticket.is_some() || !self.rng.one_in(4);
        if self.rng.one_in(6) {
            claim.max_waiters = self.rng.below(4) as u32;
        }
        if self.rng.one_in(12) {
            claim.seen = Fence::new(1000 + self.rng.below(3000));
        }
        if self.rng.one_in(20) {
            (claim.capacity, claim.fixed) = (1 + self.rng.below(4) as u32, self.rng.one_in(2));
        }
        claim
    }

    /// Mostly the last fence of its name, which a once has.
    fn last_fence(&mut self, who: usize) -> Fence {
        if self.rng.one_in(4) {
            return self.fence(who);
        }
        let name = self.actors[who].name;
        let same = self.actors.iter().filter(|actor| actor.name == name);
        let fences = same.flat_map(|actor| actor.fences.iter().copied());
        fences.max().unwrap_or(Fence::new(0))
    }

    /// Mostly its own last fence; otherwise an earlier one, another's, or nobody's.
    fn fence(&mut self, who: usize) -> Fence {
        let other = self.rng.below(ACTORS as u64) as usize;
        let of = |who: usize, back: usize| self.actors[who].fences.iter().nth_back(back).copied();
        let found = match self.rng.below(10) {
            0 => of(who, 1),
            1 => of(other, 0),
            2 => None,
            _ => of(who, 0),
        };
        found.unwrap_or(Fence::new(7))
    }
}

impl Actor {
    fn new(at: usize, rng: &mut Rng, names: &[Name], capacities: &[u32]) -> Actor {
        let name = rng.below(3) as usize;
        let units = match capacities[name] {
            few @ ..=5 => 1 + rng.below(few.into()) as u32,
            all => [1, 1, all][rng.below(3) as usize],
        };
        let keep = Duration::from_millis([500, 3000, 60_000, 3_600_000][rng.below(4) as usize]);
        let content = [0, 0, 1 << 120, 2][rng.below(4) as usize];
        let is_once = names[name].space() == Space::Once;
        let meta = (0..at % 3).map(|n| (format!("k{n}"), "five=5, six:6 ".to_owned()));
        let details = Details {
            owner: format!("owner {at}"),
            reason: (at % 2 == 1).then(|| "1 2 3 ü".to_owned()),
            meta: meta.collect(),
            value: (at % 3 == 1).then(|| "http://web-3:80".to_owned()),
            trace: (at % 5 == 1).then(|| "00-4bf9-00f0-01".to_owned()),
        };
        Actor {
            name,
            process: PROCESSES[rng.below(4) as usize],
            on_behalf: rng.one_in(3),
            weight: units,
            ttl: Duration::from_millis(TTLS[rng.below(6) as usize]),
            once: is_once.then(|| OnceTerms { keep, rerun: rng.one_in(2), content }),
            details: Arc::new(details),
            ticket: None,
            fences: Vec::new(),
        }
    }
}

fn kind(heard: &Heard) -> &'static str {
    match heard {
        Heard::Answer(answer) => match answer {
            Answer::Granted { first_life: true, .. } => "granted for a first life",
            Answer::Granted { .. } => "granted",
            Answer::Waiting { .. } => "waiting",
            Answer::Busy => "busy",
            Answer::Full => "full",
            Answer::Conflict { .. } => "conflict",
            Answer::Settled(_) => "settled",
            Answer::Unsettled => "unsettled",
            Answer::OtherContent => "other content",
            Answer::Left => "left",
            Answer::Exhausted => "exhausted",
            Answer::Gone(Ended::Broken(_)) => "broken",
            Answer::Gone(_) => "gone",
        },
        Heard::Kept(KeepAnswer::Held { fences, .. }) if fences.next > fences.last => {
            "kept without fences"
        }
        Heard::Kept(KeepAnswer::Held { .. }) => "kept",
        Heard::Kept(KeepAnswer::Gone(_)) => "not kept",
        Heard::Left(Left::Released) => "released",
        Heard::Left(Left::Quit) => "quit",
        Heard::Left(Left::Gone(Ended::Broken(_))) => "broken",
        Heard::Left(Left::Gone(_)) => "gone",
        Heard::Broken(Broken::Done) => "done",
        Heard::Broken(Broken::MovedOn) => "moved on",
        Heard::Forgotten(Forgotten::Done) => "forgotten",
        Heard::Forgotten(Forgotten::MovedOn) => "not forgotten",
        Heard::Resized(true) => "resized",
        Heard::Resized(false) => "not resized",
        Heard::Nothing => "nothing",
    }
}

/// Random bits from a seed, the same every time (splitmix64).
struct Rng(u64);

impl Rng {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
