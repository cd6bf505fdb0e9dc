//! Walks through everything that can happen to one name, and judges every step.

mod action;
mod faulty_storage;
mod rules;
mod world;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use tenure::engine::PLACE_LIFE;
use tenure::ledger::{Ledger, RESIZED_LIFE};

use action::Action;
pub(crate) use faulty_storage::Fault;
use rules::{Step, Verdict};
pub(crate) use world::Setting;
use world::{Words, World};

/// How far the walk went.
pub(crate) struct Walk {
    name: &'static str,
    claimants: usize,
    pub(crate) states: usize,
    transitions: usize,
    took: Duration,
}

/// A broken rule, and the shortest way to it.
pub(crate) struct Violation {
    rule: String,
    way: Vec<Action>,
}

/// Visits every state that can be reached, the nearest first.
pub(crate) fn explore(setting: &Setting, fault: Option<Fault>) -> Result<Walk, Violation> {
    let began = Instant::now();
    let words = Words::new(setting);
    let start = World::new(setting, fault);
    let mut seen = HashSet::from([start.key(&start.facts())]);
    let mut trail = Trail(vec![(0, Action::Look)]);
    let mut open = VecDeque::from([(0, start)]);
    let mut transitions = 0;
    while let Some((at, before)) = open.pop_front() {
        let then = before.facts();
        for action in before.actions(setting, &then) {
            transitions += 1;
            let mut after = before.clone();
            let (done, now) = after.act(action, setting, &words);
            let step = Step::new(setting, (&before, &then), (action, &done), (&after, &now));
            step.judge().map_err(|rule| trail.violation(rule, at, Some(action)))?;
            if seen.insert(after.key(&now)) {
                let here = trail.go(at, action);
                everything_ends(&after).map_err(|rule| trail.violation(rule, here, None))?;
                open.push_back((here, after));
            }
        }
    }
    let (name, claimants) = (setting.name, setting.weights.len());
    Ok(Walk { name, claimants, states: seen.len(), transitions, took: began.elapsed() })
}

/// Whatever has happened: after a minute of silence the name is as good as new.
fn everything_ends(world: &World) -> Verdict {
    let mut world = world.clone();
    let now = world.now + PLACE_LIFE;
    let Ok(()) = Ledger::new(&mut world.storage, now, |_, _| true).tick();
    // Turns granted by this very step last a first life.
    let now = now + PLACE_LIFE;
    let Ok(()) = Ledger::new(&mut world.storage, now, |_, _| true).tick();
    if !world.storage.line.is_unused() {
        return Err("after two minutes of silence someone still holds or waits".to_owned());
    }
    let kept = if world.resized { RESIZED_LIFE } else { Duration::ZERO };
    if world.storage.line.remembers_until() > now + kept {
        return Err("after two minutes of silence the name still remembers something".to_owned());
    }
    Ok(())
}

/// For every state, the state that it was reached from, and how.
struct Trail(Vec<(u32, Action)>);

impl Trail {
    fn go(&mut self, from: u32, action: Action) -> u32 {
        self.0.push((from, action));
        self.0.len() as u32 - 1
    }

    fn violation(&self, rule: String, mut at: u32, last: Option<Action>) -> Violation {
        let mut way: Vec<_> = last.into_iter().collect();
        while at != 0 {
            let (from, action) = self.0[at as usize];
            way.push(action);
            at = from;
        }
        way.reverse();
        Violation { rule, way }
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Walk { name, claimants, states, transitions, took } = self;
        write!(f, "{name}, {claimants} claimants: {states} states, {transitions} transitions")?;
        write!(f, " in {took:.1?}")
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, after:", self.rule)?;
        self.way.iter().try_for_each(|action| write!(f, " {action};"))
    }
}
