//! The walk through all states, and the way to the first violation.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use super::digest::digest;
use super::state::{Event, Own, World};
use crate::core::handover::wrong::Wrong;

/// Who takes part, and how often each thing may happen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// What has happened before.
    pub(super) script: &'static [Event],
    /// How many claims each claimant of the process makes.
    pub(super) rounds: &'static [u8],
    pub(super) strangers: usize,
    /// How many of the last claimants never take a turn.
    pub(super) sleepers: usize,
    pub(super) time_outs: u32,
    pub(super) lost_pushes: u32,
    pub(super) breaks: u32,
    pub(super) extends: u32,
    pub(super) again: u32,
    pub(super) renews: u32,
    pub(super) quits: u32,
    pub(super) seconds: u64,
    /// The largest number of states.
    pub(super) most: usize,
}

#[derive(Debug)]
pub(super) struct Walk {
    name: &'static str,
    pub(super) states: usize,
    is_all: bool,
    pub(super) handed_over: u64,
    pub(super) here_behind_own: u64,
}

#[derive(Debug)]
pub(super) struct Violation {
    what: String,
    way: Vec<Event>,
    states: usize,
}

struct Node {
    before: usize,
    event: Option<Event>,
}

pub(super) fn explore(setting: &Setting, wrong: Option<Wrong>) -> Result<Walk, Violation> {
    let mut seen = HashSet::new();
    let mut nodes = vec![Node { before: 0, event: None }];
    let mut first = World::new(setting, wrong);
    for event in setting.script {
        assert!(first.events(false).contains(event), "{event:?} is not possible");
        first.happen(*event);
    }
    let mut ahead = VecDeque::from([(0, first)]);
    let (mut handed_over, mut here_behind_own) = (0, 0);
    seen.insert(digest(&ahead[0].1));
    let mut is_all = true;
    let slow = std::env::var_os("TENURE_SLOW").is_some() && wrong.is_none();
    let most = if slow { setting.most * 20 } else { setting.most };
    while let Some((at, world)) = ahead.pop_front() {
        for event in world.events(false) {
            let mut next = world.clone();
            (next.judge.handed_over, next.judge.here_behind_own) = (0, 0);
            next.happen(event);
            let mark = digest(&next);
            if let Some(what) = next.judge.wrong.take() {
                return Err(way_to(&nodes, at, event, what, seen.len()));
            }
            if !seen.insert(mark) {
                continue;
            }
            handed_over += u64::from(next.judge.handed_over);
            here_behind_own += u64::from(next.judge.here_behind_own);
            nodes.push(Node { before: at, event: Some(event) });
            if mark.is_multiple_of(16)
                && let Err((what, rest)) = end(next.clone())
            {
                let mut violation = way_to(&nodes, at, event, what, seen.len());
                violation.way.extend(rest);
                return Err(violation);
            }
            if seen.len() < most {
                ahead.push_back((nodes.len() - 1, next));
            } else {
                is_all = false;
            }
        }
    }
    if here_behind_own == 0 && wrong == Some(Wrong::OwnAreStrangers) {
        let what = "nobody stood here while own claims stood at the engine".to_owned();
        return Err(Violation { what, way: Vec::new(), states: seen.len() });
    }
    let (name, states) = (setting.name, seen.len());
    Ok(Walk { name, states, is_all, handed_over, here_behind_own })
}

fn way_to(nodes: &[Node], at: usize, last: Event, what: String, states: usize) -> Violation {
    let mut way = vec![last];
    let mut at = at;
    while let Some(event) = nodes[at].event {
        way.push(event);
        at = nodes[at].before;
    }
    way.reverse();
    Violation { what, way, states }
}

/// Everyone goes on as they should: whoever waits is served, and nothing is left behind.
fn end(mut world: World) -> Result<(), (String, Vec<Event>)> {
    let mut way = Vec::new();
    let sleepers = world.left.sleepers;
    let mut waited = 0;
    for _ in 0..400 {
        let next = world.events(true).into_iter().min_by_key(|event| match event {
            Event::Heard(_) => 0,
            Event::Arrives(_) => 1,
            Event::Take(_) => 2,
            Event::Leave(_) | Event::Left(_) | Event::Late(_) => 3,
            _ => 4,
        });
        if let Some(event) = next {
            way.push(event);
            world.happen(event);
            if let Some(what) = world.judge.wrong.take() {
                return Err((format!("in the end: {what}"), way));
            }
            continue;
        }
        let awake = &world.own[..world.own.len() - sleepers];
        let waits = awake.iter().any(|own| !matches!(own, Own::Idle));
        let others_wait = !world.strangers_waiting().is_empty();
        if !waits && !others_wait && (sleepers > 0 || world.line.is_idle()) {
            return Ok(());
        }
        // Whoever waits is served within two holds.
        if waited > 12 {
            let who = if waits { "a claim of the process" } else { "one of another process" };
            let what = match waits || others_wait {
                true => format!("{who} is stranded"),
                false => "something is remembered for ever".to_owned(),
            };
            return Err((what, way));
        }
        waited += 1;
        way.push(Event::Second);
        world.happen(Event::Second);
        world.look_around();
        if let Some(what) = world.judge.wrong.take() {
            return Err((format!("in the end: {what}"), way));
        }
    }
    Err(("it goes on for ever".to_owned(), way))
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Walk { name, states, is_all, handed_over, here_behind_own } = self;
        let all = if *is_all { "all" } else { "the first" };
        write!(
            f,
            "{name}: {all} {states} states, {handed_over} hand-overs, {here_behind_own} newcomers \
             here behind own claims at the engine"
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} states), by {:?}", self.what, self.states, self.way)
    }
}
