//! Random scripts: what happens to one name, as data that a seed repeats and that can be shortened.
//!
//! Scripts run by the hundred, side by side, each on a name of its own; whatever happens to all of them at once (time
//! and connections) is the [`Event`]s of their batch.

use std::fmt::{self, Display};

use tenure_testkit::rng::Rng;

/// How many scripts share their events.
pub(crate) const BATCH: u64 = 100;
/// A minute and a second beyond what any name remembers.
pub(crate) const LONGER_THAN_ANY_MEMORY: i64 = (24 * 60 * 60 + 61) * 1000;
/// The processes that receive pushes; one more never receives any.
pub(crate) const HEARING: usize = 2;

/// What happens between two rounds, to all scripts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// This many milliseconds pass.
    Pass(i64),
    /// The process can no longer be reached, but can still ask.
    Deafen(usize),
    /// It receives pushes again.
    Hear(usize),
}

/// What all claims of a script ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) capacity: u32,
    pub(crate) fixed: bool,
    pub(crate) once: bool,
}

/// One claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor {
    pub(crate) process: usize,
    /// Different servers ask for it.
    pub(crate) on_behalf: bool,
    pub(crate) weight: u32,
    pub(crate) ttl: u64,
    /// For a once.
    pub(crate) keep: u64,
    pub(crate) rerun: bool,
    pub(crate) content: u128,
}

/// Which fence a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that the claim had last.
    Own,
    /// The one that it had before that.
    Before,
    /// The last one of another claim.
    Of(usize),
    /// One that never existed.
    Never,
}

/// Which fence a hold is handed over with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// One that was given to a claim.
    Known(Which),
    /// One of the last block that this claim was given, counted from its first.
    OfBlock(u64),
    /// One that no engine has given yet.
    Ahead,
}

/// How a claim asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) may_wait: bool,
    pub(crate) max_waiters: u32,
    /// With the ticket it had last.
    pub(crate) by_ticket: bool,
    /// This much above the highest fence of the name.
    pub(crate) seen: Option<u64>,
    /// Other units than the shape has.
    pub(crate) odd: Option<(u32, u32)>,
    /// The process that asks for a claim on behalf of a client.
    pub(crate) server: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Claim(usize, Manner),
    /// A place is renewed.
    Keep(usize, Manner),
    Renew(usize, Which, u64),
    /// A hold goes on with another fence and the details of another claim. It asks for this many fences.
    HandOver {
        who: usize,
        /// Whoever holds, if anyone does.
        holder: bool,
        next: Next,
        ttl: u64,
        fences: u32,
        details: usize,
    },
    Leave {
        who: usize,
        in_doubt: bool,
        only: Option<Which>,
        /// Only if it waits, and this process asked for it last.
        only_waiting: Option<usize>,
        settle: Option<(Which, bool)>,
    },
    Break(Which),
    /// The record of the once with this fence, settled or not.
    Forget(usize, Which, bool),
    Resize(u32),
}

/// A script: rounds of steps, with an event after each but the last.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) actors: Vec<Actor>,
    pub(crate) rounds: Vec<Vec<Op>>,
}

/// Ends in 5, because time passes in tens: at its last millisecond the key of a single holder still exists, while the
/// hold has ended for the ledger.
const TTLS: [u64; 7] = [505, 1005, 1995, 2005, 5005, 30_005, 90_005];
const SPANS: [i64; 14] = [
    10, 200, 500, 1000, 1990, 2000, 2010, 5000, 29_990, 58_000, 60_000, 60_010, 120_000, 86_400_000,
];

/// The events of the batch that this script belongs to.
pub(crate) fn events(seed: u64) -> Vec<Event> {
    let batch = seed / BATCH;
    let mut rng = Rng::new(batch ^ 0x5EED_0F7E_A11E_5EED);
    let rounds = rng.between(4, 8);
    let mut events: Vec<_> = (0..rounds)
        .map(|_| {
            // Short ones more often: most of a script should happen to live claims.
            let high = if rng.chance(650) { 7 } else { SPANS.len() as u64 - 1 };
            Event::Pass(SPANS[rng.between(0, high) as usize])
        })
        .collect();
    // Reconnecting takes real time.
    if batch % 6 == 5 {
        let deafened = rng.between(0, events.len() as u64 - 1) as usize;
        events.insert(deafened, Event::Deafen(1));
        let hears = rng.between(deafened as u64 + 1, events.len() as u64) as usize;
        events.insert(hears, Event::Hear(1));
    }
    events
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let shape = shape(&mut rng);
        let actors: Vec<_> = (0..rng.between(2, 8)).map(|_| actor(&mut rng, shape)).collect();
        let rounds = (0..=events(seed).len())
            .map(|_| (0..rng.between(0, 5)).map(|_| op(&mut rng, shape, actors.len())).collect())
            .collect();
        Plan { seed, shape, actors, rounds }
    }

    /// The same without one step, for each of its steps.
    pub(crate) fn shorter(&self) -> Vec<Plan> {
        let steps = self
            .rounds
            .iter()
            .enumerate()
            .flat_map(|(round, ops)| (0..ops.len()).map(move |at| (round, at)));
        let without = steps.map(|(round, at)| {
            let mut plan = self.clone();
            plan.rounds[round].remove(at);
            plan
        });
        without.collect()
    }

    /// The same without the event after a round.
    pub(crate) fn joined(&self, event: usize) -> Plan {
        let mut plan = self.clone();
        let next = plan.rounds.remove(event + 1);
        plan.rounds[event].extend(next);
        plan
    }
}

fn shape(rng: &mut Rng) -> Shape {
    match rng.between(0, 9) {
        0..=2 => Shape { capacity: 1, fixed: true, once: false },
        3..=6 => Shape { capacity: rng.between(1, 5) as u32, fixed: false, once: false },
        7 | 8 => Shape { capacity: 1 << 20, fixed: true, once: false },
        _ => Shape { capacity: 1, fixed: true, once: true },
    }
}

fn actor(rng: &mut Rng, shape: Shape) -> Actor {
    let weight = match shape.capacity {
        few @ 1..=5 => rng.between(1, few.into()) as u32,
        all => {
            if rng.chance(400) {
                all
            } else {
                1
            }
        }
    };
    Actor {
        process: match rng.between(0, 9) {
            0..=4 => 0,
            5..=7 => 1,
            _ => HEARING,
        },
        on_behalf: rng.chance(300),
        weight,
        ttl: TTLS[rng.between(0, TTLS.len() as u64 - 1) as usize],
        keep: [500, 3000, 60_000, 3_600_000][rng.between(0, 3) as usize],
        rerun: rng.chance(500),
        content: [0, 0, 1 << 120, 2][rng.between(0, 3) as usize],
    }
}

fn which(rng: &mut Rng, actors: usize) -> Which {
    match rng.between(0, 19) {
        0..=14 => Which::Own,
        15 | 16 => Which::Before,
        17 | 18 => Which::Of(rng.between(0, actors as u64 - 1) as usize),
        _ => Which::Never,
    }
}

fn next(rng: &mut Rng, shape: Shape, actors: usize) -> Next {
    match rng.between(0, 19) {
        0..=9 => Next::OfBlock(rng.between(0, 300)),
        10 => Next::Ahead,
        // No two holds may have the same fence.
        _ if shape.capacity > 1 || !shape.fixed => Next::Known(own_fence(rng)),
        _ => Next::Known(which(rng, actors)),
    }
}

/// Only a claim that was given a fence settles with it.
fn own_fence(rng: &mut Rng) -> Which {
    match rng.between(0, 9) {
        0..=7 => Which::Own,
        8 => Which::Before,
        _ => Which::Never,
    }
}

fn manner(rng: &mut Rng, shape: Shape) -> Manner {
    // A claim with a place wants to wait.
    let by_ticket = rng.chance(400);
    Manner {
        may_wait: by_ticket || rng.chance(750),
        max_waiters: if rng.chance(850) { u32::MAX } else { rng.between(0, 4) as u32 },
        by_ticket,
        seen: rng.chance(100).then(|| rng.between(0, 2000)),
        odd: rng.chance(40).then(|| match rng.between(0, 2) {
            0 => (1, shape.capacity + 1),
            1 => (shape.capacity + 1, shape.capacity),
            _ => (1, 1),
        }),
        server: rng.between(0, HEARING as u64) as usize,
    }
}

fn op(rng: &mut Rng, shape: Shape, actors: usize) -> Op {
    let who = rng.between(0, actors as u64 - 1) as usize;
    match rng.between(0, 99) {
        0..=44 => Op::Claim(who, manner(rng, shape)),
        45..=53 => Op::Keep(who, Manner { may_wait: true, ..manner(rng, shape) }),
        54..=63 => {
            let ttl = TTLS[rng.between(0, TTLS.len() as u64 - 1) as usize];
            // Now and then a renewal only asks.
            let ttl = if rng.chance(150) { 0 } else { ttl };
            Op::Renew(who, which(rng, actors), ttl)
        }
        64..=70 => Op::HandOver {
            who,
            holder: rng.chance(700),
            next: next(rng, shape, actors),
            ttl: if rng.chance(300) {
                0
            } else {
                TTLS[rng.between(0, TTLS.len() as u64 - 1) as usize]
            },
            fences: [0, 1, 5, 200, 65_536][rng.between(0, 4) as usize],
            details: rng.between(0, actors as u64 - 1) as usize,
        },
        71..=88 => Op::Leave {
            who,
            in_doubt: rng.chance(200),
            only: rng.chance(250).then(|| which(rng, actors)),
            only_waiting: rng.chance(200).then(|| rng.between(0, HEARING as u64) as usize),
            settle: rng
                .chance(if shape.once { 700 } else { 30 })
                .then(|| (own_fence(rng), rng.chance(600))),
        },
        89..=91 if shape.once => Op::Forget(who, which(rng, actors), rng.chance(500)),
        89..=94 => Op::Break(match rng.chance(850) {
            true => Which::Of(who),
            false => Which::Never,
        }),
        _ => Op::Resize(rng.between(1, 6) as u32),
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Claim(who, manner) => write!(f, "{who} claims{manner}"),
            Op::Keep(who, manner) => write!(f, "{who} keeps its place{manner}"),
            Op::Renew(who, which, ttl) => write!(f, "{who} renews {which:?} for {ttl} ms"),
            Op::HandOver { who, next, ttl, fences, details, .. } => write!(
                f,
                "{who} hands over to {details} with {next:?} for {ttl} ms, wants {fences} fences"
            ),
            Op::Leave { who, in_doubt, only, only_waiting, settle } => {
                write!(f, "{who} leaves")?;
                if *in_doubt {
                    f.write_str(" in doubt")?;
                }
                if let Some(which) = only {
                    write!(f, " only {which:?}")?;
                }
                if let Some(process) = only_waiting {
                    write!(f, " if it waits at {process}")?;
                }
                match settle {
                    Some((which, true)) => write!(f, " settles {which:?}"),
                    Some((which, false)) => write!(f, " undoes {which:?}"),
                    None => Ok(()),
                }
            }
            Op::Break(which) => write!(f, "break {which:?}"),
            Op::Forget(who, which, settled) => {
                write!(f, "forget {which:?} of {who}, settled: {settled}")
            }
            Op::Resize(capacity) => write!(f, "resize to {capacity}"),
        }
    }
}

impl Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manner { may_wait, max_waiters, by_ticket, seen, odd, server } = self;
        write!(f, " (at {server})")?;
        if let Some((weight, capacity)) = odd {
            write!(f, " {weight} of {capacity}")?;
        }
        if *by_ticket {
            f.write_str(" by ticket")?;
        }
        if let Some(more) = seen {
            write!(f, " seen +{more}")?;
        }
        if !may_wait {
            f.write_str(" now or never")?;
        } else if *max_waiters < u32::MAX {
            write!(f, " if fewer than {max_waiters} wait")?;
        }
        Ok(())
    }
}
